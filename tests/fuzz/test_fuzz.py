"""Random kernels on random meshes: kernel.python = numpy = cpu = emulated, or a documented exception.

Cases are drawn from numbers, so a run is the same everywhere; ``python -m tests.fuzz.run`` goes on from there for as
long as one likes. The last tests plant mistakes that the fuzzer must find.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshloom.kernel import expr
from tests.fuzz import run
from tests.fuzz.bounds import EXCEPTIONS
from tests.fuzz.build import HAS_STRICT, Way, script
from tests.fuzz.build import run as run_case
from tests.fuzz.cases import COMPONENTS, draw
from tests.fuzz.check import KNOWN, Found, check, examine
from tests.fuzz.judge import Difference, Tally
from tests.fuzz.model import Case, LoopOf, Param, SetOf, Statement, Storage
from tests.fuzz.tree import OPS, Node, literal, load, nodes_of, operate

MOST = 0.8  # of all results must have a bound, otherwise nothing is tested
DOCS = Path(__file__).parents[2] / "docs" / "kernels.md"


def together(seeds: range, backends: tuple[str, ...], *, few: bool) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(check(seed, backends, few=few))
    return tally


@pytest.mark.filterwarnings("error:kernel fuzzed reads")  # what cannot be compared would be traced at every look
@pytest.mark.parametrize("start", range(0, 120, 40))
def test_the_reference_is_plain_python(start: int) -> None:
    tally = together(range(start, start + 40), ("numpy",), few=True)
    assert tally.judged > MOST * (tally.judged + tally.skipped) and tally.exact > 1000


@pytest.mark.parametrize("start", range(1000, 1008, 4))
@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_compiled_kernels_are_plain_python(backend: str, start: int) -> None:
    tally = together(range(start, start + 4), (backend,), few=True)
    assert tally.judged > 0.6 * (tally.judged + tally.skipped) and tally.exact > 10


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_many_kernels_are_plain_python(backend: str, tmp_path: Path) -> None:
    result = tmp_path / "fuzz.json"
    assert run.main(["--cases", "30", "--seed", "100000", "--backends", backend, "--json", str(result)]) == 0
    found = json.loads(result.read_text())
    assert found["cases"] == 30 and found["judged"] > MOST * (found["judged"] + found["skipped"])


@pytest.mark.slow
def test_the_driver_leaves_a_summary(tmp_path: Path) -> None:
    result = tmp_path / "fuzz.json"
    assert run.main(["--cases", "8", "--seed", "7", "--backends", "numpy", "--json", str(result), "--jobs", "2"]) == 0
    found = json.loads(result.read_text())
    assert found["cases"] == 8 and found["judged"] > 100 and set(found["used"]) == set(EXCEPTIONS)


# --- the fuzzer itself ------------------------------------------------------------------------------------------------


def test_exceptions_are_documented() -> None:
    """One table in the test, the same in the docs."""
    text = " ".join(DOCS.read_text().split("## What may differ")[1].split("\n## ")[0].split())
    for name, sentence in EXCEPTIONS.items():
        assert f"| {name} | {sentence} |" in text, name


@pytest.mark.slow
def test_cases_are_the_same_every_time_and_of_every_kind() -> None:
    cases = [draw(seed, KNOWN) for seed in range(300)]
    assert script(cases[3], Way()) == script(draw(3, KNOWN), Way())
    modes = {p.mode for c in cases for loop in c.loops for p in loop.params}
    assert modes == {"Read", "Write", "ReadWrite", "Inc", "Min", "Max", "Sum"}
    assert {len(c.loops) for c in cases} == {1, 2, 3, 4}
    assert {s.data.dtype.name for c in cases for s in c.storages} == {"float32", "float64", "int32", "int64"}
    assert any(c.sets[0].grid for c in cases) and any(not s.size for c in cases for s in c.sets)
    assert {m.rows.shape[1] for c in cases for m in c.maps} == {1, 2, 3, 4}
    grids = [s.grid for c in cases for s in c.sets if s.grid]
    assert any(g.aligned for g in grids) and any(any(g.ghosts) for g in grids)
    loops = [(c, loop) for c in cases for loop in c.loops]
    assert {s.components for c in cases for s in c.storages} == {None, *(one for k in COMPONENTS.values() for one in k)}
    assert {type(n.value) for _, loop in loops for n in loop.numbers().values()} == {
        int, float, np.int32, np.int64, np.float32, np.float64
    }  # fmt: skip
    assert any(loop.box for _, loop in loops) and any(loop.ordered for _, loop in loops)
    assert any(c.storages[p.which].on is None and p.mode == "ReadWrite" for c, loop in loops for p in loop.params)
    statements = [(c.storages[loop.params[s.param].which].data.dtype, s) for c, loop in loops for s in loop.statements]
    assert {s.op for _, s in statements} == {"=", "+=", "-=", "*="}
    assert any(t.kind == "i" and s.value.kind == "float" for t, s in statements)
    assert any(t == np.int32 and s.value.dtype == np.int64 and not s.value.weak for t, s in statements)
    made = list(nodes_of([s.value for _, s in statements]))
    assert {n.op for n in made} == {*OPS, "lit", "load"} - {"part"} and any(isinstance(n.value, list) for n in made)


def test_statements_follow_each_other() -> None:
    """What is stored has the type of the field, when it is read back: int32 of 2.7, twice, is 4."""
    storages = (Storage(np.array([2.7]), 1, 0), Storage(np.array([9], np.int32), 1, 0))
    given = load(0, (), np.dtype(float), (), changes=False)
    stored = load(1, (), np.dtype(np.int32), (), changes=True)
    first, second = Statement(1, (), "=", given), Statement(1, (), "*=", operate("mul", stored, literal(1)))
    for ordered, expected in ((True, 4), (False, 81)):
        statements = (first, second) if ordered else (second,)
        loop = LoopOf(0, (Param(0, "Read"), Param(1, "ReadWrite")), statements, ordered)
        case = Case((SetOf(1),), (), storages, (loop,))
        for backend in ("numpy", "cpu", "emulated"):
            assert examine(case, Way(backend)).exact == 1 and run_case(case, Way(backend))[1].tolist() == [expected]


def one_loop(make: object, *data: np.ndarray, mode: str = "Write") -> Case:
    """Fields on one set, and what becomes of them in the last."""
    size = len(data[0])
    storages = [Storage(d, 1, 0) for d in data] + [Storage(np.zeros(size), 1, 0)]
    params = (*(Param(k, "Read") for k in range(len(data))), Param(len(data), mode))
    loads = [load(k, (), d.dtype, (), changes=False) for k, d in enumerate(data)]
    value: Node = make(*loads)  # type: ignore[operator]
    loop = LoopOf(0, params, (Statement(len(data), (), "=" if mode == "Write" else "+=", value),))
    return Case((SetOf(size),), (), tuple(storages), (loop,))


PLANTED = {
    "add": lambda a, b: np.add(a, b) * (1 + 1e-12),
    "maximum": lambda a, b: np.where(a > b, a, b),  # loses a NaN
    "floor": np.trunc,
    "where": lambda c, a, b: np.where(c, b, a),
}


LATER = [pytest.param(name, marks=pytest.mark.slow) for name in ("maximum", "floor", "where")]


@pytest.mark.parametrize("name", ["add", *LATER])
@pytest.mark.slow
def test_a_planted_mistake_is_found_and_made_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what NumPy does for an operation of the graph; plain Python knows nothing of it."""
    monkeypatch.setitem(expr.OPS, name, replace(expr.OPS[name], numpy=PLANTED[name]))
    with pytest.raises(Found) as caught:
        for seed in range(400):
            check(seed, ("numpy",), minimise=200, few=True)
    assert sum(len(loop.statements) for loop in caught.value.case.loops) <= 2
    assert "def kernel0(" in str(caught.value)


def test_a_shown_program_runs() -> None:
    """What is printed is Python, and gives what the interpreter gives. This test alone executes text, its own."""
    for seed in range(12):
        case = draw(seed, KNOWN)
        scope: dict[str, object] = {}
        with np.errstate(all="ignore"):
            text = re.sub("(?m)^for a, b in.*$", "found = run('plain')", script(case, Way())).replace(
                "    print(a, b, sep='\\n')", ""
            )
            path = f"<shown {seed}>"
            exec(compile(text, path, "exec"), scope)
        for one, other in zip(scope["found"], run_case(case, Way(plain=True)), strict=True):  # type: ignore[call-overload]
            np.testing.assert_array_equal(one, other)


def test_bounds_follow_the_numbers() -> None:
    """Decisions and cancellation: judged where they are sure, not where rounding decides."""
    one, two = np.array([1.0, 1.0 + 2**-50, 3.0]), np.array([1.0, 1.0, 1.5])
    compared = examine(one_loop(lambda a, b: operate("floor", operate("div", a, b)), one, two), Way("numpy"))
    assert (compared.judged, compared.skipped) == (3, 0)
    chosen = one_loop(
        lambda a, b: operate("where", operate("gt", operate("mul", a, b), literal(1.0)), literal(1.0), literal(2.0)),
        one, two,
    )  # fmt: skip
    assert examine(chosen, Way("numpy")).judged == 3


def test_a_result_out_of_its_bound_is_a_difference() -> None:
    case = one_loop(lambda a: operate("mul", a, a), np.array([1.1, 2.2]))
    right = run_case(case, Way(plain=True))
    from tests.fuzz.judge import bounds_of, compare

    errors, _ = bounds_of(case)
    for factor, wrong in ((1.0, False), (1.0 + 1e-15, False), (1.0 + 1e-13, True)):
        found = [right[0], right[1] * factor]
        if wrong:
            with pytest.raises(Difference):
                compare(case, found, right, errors, "here")
        else:
            compare(case, found, right, errors, "here")


@pytest.mark.skipif(not HAS_STRICT, reason="kernels cannot be strict yet")
def test_strict_kernels_agree_to_the_last_bit() -> None:
    case = one_loop(lambda a, b: operate("add", operate("mul", a, b), operate("div", a, b)),
                    np.array([1.1, 2.2, np.nan, np.inf, -0.0]), np.array([1.3, 0.7, 1.0, 0.0, 5e-324]))  # fmt: skip
    for backend in ("numpy", "cpu", "emulated"):
        assert examine(case, Way(backend, strict=True)).exact == 5
