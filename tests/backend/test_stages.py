"""Lowered, compiled, loaded, launched: frozen stages, each with one key and one cache, and only what differs is new."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS, current, lowering
from meshloom.backend.compiling import CompilingBackend
from meshloom.backend.cpu import CpuBackend
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.backend.lowering import Compiled, Launch, Launches, Loaded, Lowered
from meshloom.native import compiler
from meshloom.operation.in_memory import copy, fill
from meshloom.operation.operation import Operation
from meshloom.schedule.plan.plan import leaves
from tests.caches import caches, called

BACK_ENDS = ["cpu", "emulated"]
BACKEND_FILES = Path(lowering.__file__).parent


@ml.kernel
def double(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u


@ml.kernel
def add(u: ml.Read, total: ml.Sum):
    total += u


@ml.kernel
def smooth(u: ml.Read, v: ml.Write):
    v[...] = u[-1] + u[1]


@ml.kernel
def spread(u: ml.Read, v: ml.Inc):
    v[0] += u[1] - u[0]
    v[1] += u[0] - u[1]


class Ring:
    """Edges around a ring of cells."""

    def __init__(self, n: int = 12):
        self.n, self.edges, self.cells = n, ml.Set(n, "edges"), ml.Set(n, "cells")
        self.ends = ml.Map(self.edges, self.cells, self.around(1), "ends")

    def around(self, by: int) -> np.ndarray:
        return np.stack([np.arange(self.n), (np.arange(self.n) + by) % self.n], axis=1)

    def loop(self, **options: Any) -> Operation:
        u, v = self.cells.field("u", data=np.arange(float(self.n))), self.cells.field("v")
        return spread.loop(self.edges, u[self.ends], v[self.ends], **options)


def loop_over_part(numbers: slice) -> Operation:
    cells = ml.Set(12, "cells")
    u, v = cells.field("u", data=np.arange(12.0)), cells.field("v")
    return double.loop(cells.subset(np.arange(12)[numbers]), u, v)


def lowered(loop: Operation) -> Lowered:
    assert isinstance(loop.backend, CompilingBackend)
    return loop.backend.lowered(loop.policy.described(loop))


def loaded(loop: Operation) -> Loaded:
    (found,) = loop.prepare().pinned
    assert isinstance(found, Loaded)
    return found


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What a compiler was asked for: nothing is loaded, and the cache on disk is empty."""
    monkeypatch.setitem(_BACKENDS, "cpu", CpuBackend())
    monkeypatch.setitem(_BACKENDS, "emulated", EmulatedCuda())
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    asked: list[str] = []
    compiled = compiler._compile

    def noted(by: Any, source: str, name: str, *rest: Any) -> None:
        asked.append(name)
        compiled(by, source, name, *rest)

    monkeypatch.setattr(compiler, "_compile", noted)
    return asked


# ----- stages are data --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stage", [Lowered, Compiled, Loaded, Launches, Launch])
def test_stages_are_frozen(stage: Any) -> None:
    assert is_dataclass(stage) and stage.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["numpy", *BACK_ENDS])
def test_launches_are_data(backend: str) -> None:
    """Functions with their arguments, on every back end; fills and copies are launches as well."""
    ml.use(backend)
    ring = Ring()
    u, v = ring.cells.field("u"), ring.cells.field("v")
    for one in (ring.loop(), fill(u, 2.0), copy(u, v)):
        made = one.prepare()
        assert isinstance(made, Launches) and made is one.prepare() and made.launches
        assert all(isinstance(launch, Launch) and launch.function is not None for launch in made.launches)
        if backend != "numpy":
            assert any(x is one.storages[0].storage for x in made.launches[0].arguments)
        with pytest.raises(FrozenInstanceError):
            made.needed = 1.0  # type: ignore[misc]
    assert fill(u, 2.0).prepare().launches[0].arguments == (u.storage, 2.0)
    assert copy(u, v).prepare().needed == 12.0
    steps = ring.loop().prepare().steps
    assert bool(steps) == (backend == "emulated") and all(one.threads % 32 == 0 for one in steps)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_asking_changes_no_stage(backend: str) -> None:
    ml.use(backend)
    loop = Ring().loop()
    text = loop.source
    assert loop.execution.launches is None and loop.shared_cache.pinned == {}
    before = loop.prepare()
    stages = lowered(loop), loaded(loop), dict(loop.shared_cache.pinned)
    assert loop.source == text and loop.explain() and loop.estimate > 0.0 and repr(loop) and loop.counts.flops
    assert loop.prepare() is before and (lowered(loop), loaded(loop), loop.shared_cache.pinned) == stages
    assert lowered(loop) is stages[0]


# ----- keys -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACK_ENDS)
def test_other_fields_need_nothing_new_but_launches(backend: str, compilations: list[str]) -> None:
    ml.use(backend)
    ring = Ring()
    first = ring.loop()
    first()
    asked = len(compilations)
    second = ring.loop()
    second()
    assert lowered(second) is lowered(first) and loaded(second) is loaded(first)
    assert second.prepare() is not first.prepare() and len(compilations) == asked > 0
    np.testing.assert_array_equal(first.writes[0].numpy(), second.writes[0].numpy())


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_another_mesh_has_a_plan_of_its_own_and_the_same_code(backend: str, compilations: list[str]) -> None:
    """What is loaded is found by the text; so is what is being compiled, among the loops of a program."""
    ml.use(backend)
    rings = Ring(), Ring(40)
    loops = [one.loop() for one in rings]
    ml.program(lambda: [one() for one in loops] and None, fuse=False).run(1)
    first, second = loops
    assert lowered(first) is not lowered(second) and lowered(first) == lowered(second)
    assert loaded(first) is loaded(second) and len([one for one in compilations if "spread" in one]) == 1


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_other_indices_of_a_map_need_no_compiler(backend: str, compilations: list[str]) -> None:
    ml.use(backend)
    ring = Ring()
    ring.ends.assign(ring.around(3))  # from now on by a strategy whose plan is made soon
    loop = ring.loop()
    loop()
    before, code, asked = lowered(loop), loaded(loop), len(compilations)
    ring.ends.assign(ring.around(2))
    loop.writes[0].fill(0.0)
    loop()
    assert loaded(loop) is code and lowered(loop) == before and len(compilations) == asked
    expected = np.zeros(12)
    np.add.at(expected, ring.around(2)[:, 0], np.diff(ring.around(2), axis=1)[:, 0].astype(float))
    np.add.at(expected, ring.around(2)[:, 1], -np.diff(ring.around(2), axis=1)[:, 0].astype(float))
    np.testing.assert_allclose(loop.writes[0].numpy(), expected)


def test_the_number_of_threads_is_in_no_key_and_the_rules_of_rounding_are() -> None:
    ring = Ring()
    ml.use("cpu", threads=1)
    usual = lowered(ring.loop())
    with ml.using("cpu", threads=2):
        assert lowered(ring.loop()) is usual
    with ml.using("cpu", contract=False):
        apart = lowered(ring.loop())
        assert apart != usual and apart.options != usual.options
    with ml.using("cpu", strict=True):
        strict = lowered(ring.loop())
        assert strict != usual and strict.source == apart.source == f"#define ML_NO_FMA\n{usual.source}"
    assert lowered(ring.loop()) == usual


def test_another_target_is_another_text() -> None:
    found = []
    for target, lanes in (("cuda", None), ("cuda", 64), ("hip", None), ("cuda", None)):
        ml.use("emulated", target=target, lanes=lanes)
        found.append(lowered(Ring().loop()))
    assert found[0] == found[3] and len(set(found)) == 3


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_parts_of_a_set_are_lowered_once(backend: str) -> None:
    """A solver by colors has hundreds of loops that differ in their rows alone."""
    ml.use(backend)
    first, second = loop_over_part(slice(5)), loop_over_part(slice(5, None))
    assert lowered(first) is lowered(second)
    for loop, size in ((first, 5), (second, 7)):
        loop()
        assert np.count_nonzero(loop.writes[0].numpy()) == size - (size == 5), "0 stays 0"


def test_another_number_of_a_plan_is_lowered_anew() -> None:
    """Generated text may look at any of them: none is left out of the key."""
    ml.use("cpu")
    grid = ml.Grid((40,), periodic=True)
    u, v = grid.field("u", data=np.arange(40.0)), grid.field("v")
    loop = smooth.loop(grid, u[grid.offsets(-1, 1)], v)
    names = [path[0] for path, one in leaves(loop.plan) if len(path) == 1 and not isinstance(one, np.ndarray)]
    backend, bound, known = current(), loop.policy.described(loop), lowered(loop)
    assert isinstance(backend, CompilingBackend) and names and lowered(loop) is known
    for name in names:
        other = replace(loop.plan, **{str(name): getattr(loop.plan, str(name)) + 1})
        assert backend.lowered(replace(bound, plan=lambda other=other: other)) is not known, name


@pytest.mark.parametrize("backend", ["numpy", "emulated"])  # OpenMP adds to 0.0
def test_a_sum_that_starts_from_another_zero_is_lowered_anew(backend: str) -> None:
    """Numbers that are equal and are not the same: which of two programs came first must not matter."""
    ml.use(backend)
    for start in (0.0, -0.0, 0.0):
        cells, total = ml.Set(4, "cells"), ml.Global(1.0, "total")
        u, v = cells.field("u", data=-0.0), cells.field("v")

        @ml.program
        def step(start: float = start, cells: Any = cells, u: Any = u, v: Any = v, total: Any = total) -> None:
            total.value = start
            double(cells, u, v)
            add(cells, v, total)

        step.run(1)
        assert repr(float(total.value)) == repr(start)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_what_is_lowered_for_a_plan_goes_with_it(backend: str) -> None:
    ml.use(backend)
    used = current()
    assert isinstance(used, CompilingBackend)
    Ring().loop()()
    before = len(used._lowered)
    loop = Ring().loop()
    loop()
    assert len(used._lowered) == before + 1
    del loop
    assert len(used._lowered) == before


# ----- caches -----------------------------------------------------------------------------------------------------
#: Every cache of ``meshloom/backend``. Of stages there are the first two; what is compiled is on disk.
CACHES = {
    "compiling.py": {"_lowered", "_loaded"},
    "cuda/backend.py": {"_maps", "_plans"},  # in a device's memory, as long as the map or plan
    "cuda/graph.py": {"_recorders", "_loops"},  # of one recording, and gone with it
    "cuda/dialect.py": {"prelude_of"}, "cuda/nvrtc.py": {"library", "_no_cache"},
    "__init__.py": {"_BACKENDS", "_emulator"}, "numpy.py": {"_chunk.place", "_chunk.targets"},
}  # fmt: skip


def named_caches(text: str) -> set[str]:
    """What a module remembers: by functions, and in what grows and finds its entries by keys."""
    return {one.name for one in caches(ast.parse(text)) if one.grows and one.kind not in ("list", "deque")}


def test_every_cache_is_a_named_one() -> None:
    found = {str(file.relative_to(BACKEND_FILES)): named_caches(file.read_text(encoding="utf-8"))
             for file in sorted(BACKEND_FILES.rglob("*.py"))}  # fmt: skip
    assert {file: names for file, names in found.items() if names} == CACHES


def test_a_cache_that_nobody_named_is_found() -> None:
    text = """
@lru_cache(8)
def printed(unit): ...
TABLE = {1: 2}
UNITS = Recent[int, str](8)
KEPT = {}
KEPT[1] = 2
FILLED = {1: 2}
FILLED.update(x)
def outer():
    @cache
    def inner(x): ...
def given(x, known={}): ...
class Back:
    shared = {}
    def __init__(self):
        self.texts, self.count = {}, 0
        self.units: dict[str, int] = dict()
"""
    expected = {"printed", "KEPT", "texts", "units", "UNITS", "FILLED", "outer.inner", "given: {}", "Back.shared"}
    assert named_caches(text) == expected


def test_no_key_is_an_address() -> None:
    files = sorted(BACKEND_FILES.rglob("*.py"))
    assert files
    texts = [file.read_text(encoding="utf-8") for file in files]
    calls = [called(node.func) for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert "Same" in calls and "id" not in calls
    assert {one.name for one in fields(Lowered) if one.compare} == {"source", "options"}
