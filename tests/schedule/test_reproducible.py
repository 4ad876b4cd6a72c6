"""Sums to Globals under ``reproducible``: the bits of an obvious reference in fractions, on every back end, by every
strategy, for any number of threads, blocks and lanes, in any order of elements, fused or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as some

import meshloom as ml
from bench.grid import second_difference
from meshloom.backend.numpy_binned import Bins
from meshloom.config import build, parse_set
from meshloom.errors import KernelError, ScheduleError
from meshloom.solvers.airfoil import Airfoil
from tests.backend.test_cuda import CompileBackend, needs_nvrtc
from tests.linalg.test_krylov import system
from tests.schedule.forms import FORMS

BACK_ENDS = ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
COMPILED = BACK_ENDS[1:]


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    with ml.using(ml.backend()):
        yield


# --- the reference --------------------------------------------------------------------------------------------------
def exact(values: Sequence[float], dtype: Any = np.float64) -> Any:
    """The sum as it is specified: every value rounded to units of the third bin from that of the largest down, the
    total rounded once."""
    kind = np.dtype(dtype).type
    special = {str(one) for one in map(float, values) if not math.isfinite(one)}
    if special:
        return kind(special.pop() if len(special) == 1 else "nan")
    largest = max(map(abs, values))
    if largest == 0:
        return kind(-0.0 if all(math.copysign(1.0, one) < 0 for one in values) else 0.0)
    top = next(j for j in range(2, 99) if Fraction(float(largest)) < Fraction(2) ** (30 * j - 1080 + 29))
    unit = Fraction(2) ** (30 * (top - 2) - 1080)
    total = sum(round(Fraction(float(one)) / unit) for one in values) * unit  # to nearest, halves to even
    return nearest(total, kind)


def nearest(total: Fraction, kind: Any) -> Any:
    """The floating-point number nearest to a fraction; of two the even one; infinity from half a unit beyond all."""
    ends, two = np.finfo(kind), Fraction(2)
    if abs(total) >= two ** int(ends.maxexp) - two ** (int(ends.maxexp) - ends.nmant - 2):
        return kind(math.inf if total > 0 else -math.inf)
    with np.errstate(all="ignore"):
        guess = kind(float(total))  # at most one off
        around = [guess, *(np.nextafter(guess, kind(end)) for end in (-np.inf, np.inf))]
    around = [one for one in around if np.isfinite(one)]
    unsigned = np.dtype(f"u{np.dtype(kind).itemsize}")
    return min(around, key=lambda one: (abs(Fraction(float(one)) - total), int(np.asarray(one).view(unsigned)) & 1))


def bits(value: Any) -> bytes:
    return np.asarray(value).tobytes()


def test_the_reference_by_hand() -> None:
    assert exact([1e16, 1.0, -1e16]) == 1.0 and exact([0.1] * 10) == 1.0 and math.fsum([0.1] * 10) == 1.0
    assert exact([2.0**300, 1.0, -(2.0**300)]) == 0.0, "below three bins nothing counts"
    assert exact([1e308, 1e308, -1e308]) == 1e308 and exact([1e308] * 3) == math.inf
    assert bits(exact([-0.0, -0.0])) == bits(-0.0) and bits(exact([-0.0, 0.0])) == bits(0.0)
    assert exact([5e-324, 5e-324]) == 1e-323 and exact([math.inf, 1.0]) == math.inf
    assert math.isnan(exact([math.inf, -math.inf])) and math.isnan(exact([math.nan, math.inf]))
    assert exact([1.0, 2.0**-24, 2.0**-60], np.float32) == np.float32(1.0) + np.float32(2.0**-23), "rounded once"


SPECIAL = [0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 2.0**-1050, 1.7e308, -1.7e308, 1e308, 1.0, -1.0, 2.0**-200,
           2.0**200 + 1.0, 2.0**29, 2.0**30 - 0.5, 2.0**-31, 3e38, 1e-45, 1.1754944e-38]  # fmt: skip
#: Nearly as large as a bin has room for, from bins far apart: where one is cut must not depend on what came before it.
SPECIAL += [factor * 2.0 ** (30 * k) for k in range(-5, 6) for factor in (0.49, 0.5, 0.75, 1.0 - 2.0**-53)]
BEYOND = [math.inf, -math.inf, math.nan]


@some.composite
def summands(draw: Any, width: int) -> list[float]:
    """Numbers of any size, many of which cancel; now and then some that are not finite."""
    kind = np.float64 if width == 64 else np.float32
    with np.errstate(over="ignore"):
        known = [one for one in map(float, map(kind, SPECIAL)) if math.isfinite(one)]
    number = some.one_of(some.sampled_from(known), some.floats(width=width, allow_nan=False, allow_infinity=False))
    found = draw(some.lists(number, max_size=40))
    found += [-one for one in found if draw(some.booleans())]
    found += draw(some.lists(some.sampled_from(BEYOND), max_size=2)) if draw(some.integers(0, 9)) == 0 else []
    return draw(some.permutations(found))


@hypothesis.given(data=some.data(), width=some.sampled_from([64, 32]))
@hypothesis.settings(max_examples=300)
def test_whole_arrays_in_any_parts(data: Any, width: int) -> None:
    given = data.draw(summands(width))
    kind, cut = (np.float64 if width == 64 else np.float32), data.draw(some.integers(0, len(given)))
    total = Bins(np.array([-0.0], kind))
    with np.errstate(all="ignore"):
        for part in (given[:cut], *([one] for one in given[cut:])):
            total.add(np.array(part, kind))
        assert bits(total.rounded(np.dtype(kind))) == bits(exact([-0.0, *given], kind))


@ml.kernel
def add(u: ml.Read, total: ml.Sum):
    total += u


@pytest.mark.optimised  # what vectors and contraction could break
@pytest.mark.parametrize("backend", COMPILED)
@hypothesis.given(data=some.data(), width=some.sampled_from([64, 32]))
@hypothesis.settings(max_examples=120)
def test_generated_code_has_the_bits_of_the_reference(backend: str, data: Any, width: int) -> None:
    """Of any numbers, added to what the Global held, which is one more summand."""
    kind = np.float64 if width == 64 else np.float32
    first, *given = data.draw(summands(width).filter(bool))
    with ml.using(backend, reproducible=True):
        cells, total = ml.Set(len(given), "cells"), ml.Global(first, "total", dtype=kind)
        add(cells, cells.field("u", data=np.array(given, kind), dtype=kind), total)
        assert bits(kind(total.value)) == bits(exact([first, *given], kind))


def spread(rng: np.random.Generator, n: int) -> np.ndarray:
    """Numbers of very different sizes, half of which nearly cancel: any other order of adding has other bits."""
    found = rng.standard_normal(n) * 2.0 ** rng.integers(-60, 60, n)
    found[n // 2 :] = -found[: n - n // 2] * (1.0 + 2.0**-50)
    return found


# --- every strategy -------------------------------------------------------------------------------------------------
@ml.kernel(strict=True)
def give(x: ml.Read, w: ml.Read, y: ml.Inc, total: ml.Sum, sizes: ml.Sum, count: ml.Sum):
    d = x[1] - x[0]
    y[0] += w * d
    y[1] -= w * d
    total += w * d
    sizes[0] += d * d
    sizes[1] += w
    count += 1


class World:
    """Edges between nodes; ``order``: another numbering of both, of the same edges."""

    def __init__(self, order: int):
        rng, n, m = np.random.default_rng(3), 150, 700
        pairs, x, w = rng.integers(0, n, (m, 2)), spread(rng, n), spread(rng, m)
        d = x[pairs[:, 1]] - x[pairs[:, 0]]
        self.terms = w * d, d * d, w
        if order:
            dice = np.random.default_rng(order)
            nodes, edges = dice.permutation(n), dice.permutation(m)
            x, w, pairs = x[np.argsort(nodes)], w[edges], nodes[pairs][edges]
        self.nodes, self.edges = ml.Set(n, "nodes"), ml.Set(m, "edges")
        self.ends = ml.Map(self.edges, self.nodes, pairs, "ends")
        self.x, self.y = self.nodes.field("x", data=x), self.nodes.field("y")
        self.w = self.edges.field("w", data=w)

    def summed(self, schedule: ml.Schedule, single: bool) -> list[Any] | None:
        """All sums by a schedule; None where it does not apply."""
        kind = np.float32 if single else np.float64
        total, sizes = ml.Global(0.1, "total", dtype=kind), ml.Global(np.array([0.0, -7.0]), "sizes")
        count = ml.Global(3, "count", dtype=np.int64)
        arguments = self.x[self.ends], self.w, self.y[self.ends], total, sizes, count
        loop = give.loop(self.edges, *arguments, schedule=schedule)
        if not loop.applies:
            return None
        loop()
        return [kind(total.value), *sizes.numpy(), count.value]

    def expected(self, single: bool) -> list[Any]:
        kind = np.float32 if single else np.float64
        one, two, three = self.terms
        with np.errstate(over="ignore"):
            terms = one.astype(kind)
        return [exact([kind(0.1), *terms], kind), exact([0.0, *two]), exact([-7.0, *three]), 703]


QUICK = {"cpu": ("owner", "color", "atomic"), "emulated": ("strip",)}  # the others take seconds to compile, too


@pytest.mark.parametrize(("backend", "form"), [
    pytest.param(backend, form, id=f"{backend}-{form}",
                 marks=[*([pytest.mark.gpu] if backend == "cuda" else []),
                        *([pytest.mark.slow] if form.variant != "plain" or (
                            backend in QUICK and form.strategy not in QUICK[backend]) else [])])
    for backend in ("numpy", "cpu", "emulated", "cuda") for form in FORMS
    if backend != "numpy" or form == FORMS[0]
])  # fmt: skip
def test_every_strategy_threads_blocks_and_order(backend: str, form: ml.Schedule) -> None:
    ran = 0
    for order in (0, 1):
        world = World(order)
        for threads, block, visit in ((1, 64, "given"), (2, 32, "random"), (3, 256, "given")):
            ml.use(backend, threads=threads, reproducible=True)
            for single in (False, True) if threads == 1 else (False,):
                found = world.summed(form.having(block=block, order=visit), single)
                if found is not None:
                    assert list(map(bits, found[:3])) == list(map(bits, world.expected(single)[:3])), (order, threads)
                    assert found[3] == 703
                    ran += 1
    assert ran == 8 or (ran == 0 and form.variant != "plain")


@pytest.mark.parametrize("options", [{"lanes": 64}, pytest.param({"target": "hip"}, marks=pytest.mark.slow)], ids=str)
def test_other_lanes_and_languages(options: dict[str, Any]) -> None:
    world = World(0)
    ml.use("emulated", reproducible=True, **options)
    found = world.summed(ml.Schedule("owner", block=128), single=False)
    assert found is not None and list(map(bits, found[:3])) == list(map(bits, world.expected(False)[:3]))


@pytest.mark.optimised
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_more_than_a_chunk_a_block_and_a_thread(backend: str) -> None:
    u = spread(np.random.default_rng(1), 40_000)
    u[-1] = 2.0**250  # bins that were full of others are left away
    cells = ml.Set(len(u), "cells")
    field, wanted = cells.field("u", data=u), bits(exact([0.5, *u]))
    for threads in (1, 2):
        ml.use(backend, threads=threads, reproducible=True)
        total = ml.Global(0.5, "total")
        add(cells, field, total)
        assert bits(total.value) == wanted


# --- points, fused loops, solvers -----------------------------------------------------------------------------------
@ml.kernel(strict=True)
def around(u: ml.Read, out: ml.Write, total: ml.Sum):
    out[...] = u[0, 0] - u[1, 0]
    total += u[0, 0] * u[0, 1]


@pytest.mark.parametrize("variant", ["plain", pytest.param("single", marks=pytest.mark.slow),
                                     pytest.param("slab4", marks=pytest.mark.slow)])  # fmt: skip
@pytest.mark.parametrize("backend", BACK_ENDS)
def test_points_of_a_grid(backend: str, variant: str) -> None:
    u = spread(np.random.default_rng(2), 30 * 130).reshape(30, 130)
    ml.use(backend, reproducible=True)
    for periodic in (True, False):
        grid = ml.Grid((30, 130), periodic=periodic, ghosts=0)
        field, out, total = grid.field("u", data=u), grid.field("out"), ml.Global(0.0, "total")
        box = grid if periodic else grid.interior(1)
        around(box, field[grid.offsets((0, 0), (0, 1), (1, 0))], out, total, schedule={"variant": variant})
        terms = u * np.roll(u, -1, axis=1) if periodic else (u[:, :-1] * u[:, 1:])[1:-1, 1:]
        assert bits(total.value) == bits(exact([0.0, *terms.ravel()]))


@ml.kernel(strict=True)
def push(x: ml.Read, y: ml.Inc):
    y[0] += x[1] - x[0]
    y[1] += x[0] * 0.3


@ml.kernel(strict=True)
def relax(y: ml.Read, x: ml.ReadWrite):
    x[...] = x - 0.001 * y


@ml.kernel(strict=True)
def measure(x: ml.Read, y: ml.Read, total: ml.Sum, most: ml.Max):
    total += x * y
    most[...] = np.abs(y)


def replayed(backend: str, *, fuse: bool, threads: int = 1) -> tuple[list[bytes], ml.Program]:
    """The history of a sum in a program of a gather and two loops behind it."""
    ml.use(backend, threads=threads, reproducible=True)
    rng, n = np.random.default_rng(4), 900
    cells = ml.Set(n, "cells")
    faces = ml.Set(n - 1, "faces")
    sides = ml.Map(faces, cells, np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), "sides")
    x, y = cells.field("x", data=spread(rng, n)), cells.field("y")
    total, most = ml.Global(0.0, "total"), ml.Global(0.0, "most")

    def step() -> None:
        y.fill(0.0)
        total.value = 0.0
        push(faces, x[sides], y[sides])
        relax(cells, y, x)
        measure(cells, x, y, total, most)

    program = ml.Program(step, fuse=fuse)
    history = program.run(4, record=[total, most])
    return [bits(one) for one in np.asarray(history).ravel()], program


@pytest.mark.parametrize("backend", COMPILED)
def test_fused_or_not(backend: str) -> None:
    wanted, _ = replayed("numpy", fuse=False)
    for fuse in (False, True):
        for threads in (1, 2):
            found, program = replayed(backend, fuse=fuse, threads=threads)
            assert found == wanted, (fuse, threads)
    assert "(reproducible)" in program.explain()
    assert any(one.policy.as_one and one.spec.binned for one in program.fused_steps), "the last one was fused"


def test_what_it_changes_of_a_fused_case_is_its_sum() -> None:
    """The airfoil has the same chunks, elements evaluated and parallel regions with the same bits and without."""

    def steps(on: bool) -> list[tuple[Any, ...]]:
        with ml.using("cpu", reproducible=on):
            case = Airfoil(build(Airfoil.Config, [parse_set("mesh.i=8"), parse_set("mesh.j=12")]))
            found = [(one, one.source.split("// loop ")[1]) for one in case.program.fused_steps]
            evaluated = [one.plan.gathers.values() for one, _ in found]
            return [(one.name, one.plan.block, [len(g.tile_elements) for g in gathers], text.count("omp parallel"),
                     text.count("pass0("), text.count("omp simd"), text.count("ml_deposit_all"))
                    for (one, text), gathers in zip(found, evaluated, strict=True)]  # fmt: skip

    exact_sums, others = steps(True), steps(False)
    assert [one[:-1] for one in exact_sums] == [one[:-1] for one in others], "nothing else is done otherwise"
    assert [one[-1] for one in exact_sums] == [1] * len(others) and not any(one[-1] for one in others)


def test_a_loop_that_sums_nothing_is_the_same_code() -> None:
    grid = ml.Grid((6, 5, 4), periodic=True)
    kernel, points = second_difference(3, 2), grid.star(2)
    texts = []
    for on in (True, False):
        with ml.using("cpu", reproducible=on):
            texts.append(kernel.loop(grid, grid.field("u")[points], grid.field("v")).source)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("backend", ["cpu", pytest.param("emulated", marks=pytest.mark.slow), COMPILED[-1]])
@pytest.mark.parametrize("solver", ["cg", pytest.param("gmres", marks=pytest.mark.slow),
                                    pytest.param("bicgstab", marks=pytest.mark.slow)])  # fmt: skip
def test_krylov_solvers_take_the_same_steps_everywhere(backend: str, solver: str) -> None:
    """Products of strict kernels have the bits of NumPy, and so have inner products."""
    given = system(120, symmetric=solver == "cg")
    options = {"restart": 6} if solver == "gmres" else {}

    def solved(name: str, threads: int) -> tuple[bytes, list[float]]:
        ml.use(name, threads=threads, strict=True, reproducible=True)
        matrix = ml.Matrix.from_scipy(given)
        b, x = matrix.rows.field("b", data=np.random.default_rng(1).uniform(-1.0, 1.0, 120)), matrix.rows.field("x")
        report = getattr(ml.linalg, solver)(matrix, x, b, tol=1e-10, **options)
        return bits(x.numpy()), report.history.tolist()

    assert solved(backend, 1) == solved(backend, 2) == solved("numpy", 1)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_reductions_of_fields(backend: str) -> None:
    u, v = (spread(np.random.default_rng(k), 300) for k in (5, 6))
    ml.use(backend, reproducible=True)
    cells = ml.Set(300, "cells")
    one, other = cells.field("u", data=u), cells.field("v", data=v)
    assert bits(one.sum().value) == bits(exact([0.0, *u])) and bits(one.mean().value) == bits(exact([0.0, *u]) / 300)
    assert bits(one.dot(other).value) == bits(exact([0.0, *(u * v)]))
    assert bits(one.norm().value) == bits(np.sqrt(exact([0.0, *(u * u)])))


# --- what is the same everywhere ------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_sum_goes_on_from_what_is_there(backend: str) -> None:
    """What the Global held is one more summand, rounded with the others; a set without elements leaves it alone."""
    ml.use(backend, reproducible=True)
    cells, none, total = ml.Set(3, "cells"), ml.Set(0, "none"), ml.Global(1.0, "total")
    u = cells.field("u", data=np.array([2.0**-53, 2.0**-54, 2.0**-54]))
    add(cells, u, total)
    assert total.value == 1.0 + 2.0**-52, "one by one they would be lost"
    add(cells, u, total)
    assert total.value == 1.0 + 2.0**-51
    add.python(cells, u, total)
    assert total.value == 1.0 + 2.0**-51 + 2.0**-52
    for first in (-0.0, 0.0, 5e-324, -math.inf):
        total.value = first
        add(none, none.field("u"), total)
        assert bits(total.value) == bits(np.float64(first))


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_it_is_chosen_for_loops_that_are_made_from_then_on(backend: str) -> None:
    """One kernel, the same fields: neither loops nor calls nor programs take what was made for the other setting."""
    cells, total = ml.Set(4, "cells"), ml.Global(0.0, "total")
    u, wanted = cells.field("u", data=np.array([2.0**-20, 2.0**40, -(2.0**40), 1.0])), 1.0 + 2.0**-20

    @ml.program
    def step() -> None:
        total.value = 0.0
        add(cells, u, total)

    def found(way: Callable[[], None]) -> float:
        total.value = 0.0
        way()
        return float(total.value)

    for on in (False, True, False):
        ml.use(backend, reproducible=on, threads=1)
        loop = add.loop(cells, u, total)
        for way in (lambda: add(cells, u, total), loop, lambda: step.run(1)):
            assert (found(way) == wanted) is on
        assert ("(reproducible)" in loop.explain()) is on and "total: Sum global" in loop.explain()
    with ml.using(backend, reproducible=True):
        kept = add.loop(cells, u, total)
    assert found(kept) == wanted, "a loop stays as it was made"


def test_what_it_costs_is_counted() -> None:
    cells, total, count = ml.Set(10, "cells"), ml.Global(0.0), ml.Global(0, dtype=np.int64)
    u = cells.field("u")

    @ml.kernel
    def both(u: ml.Read, total: ml.Sum, count: ml.Sum):
        total += u
        count += 1

    assert both.counts(cells, u, total, count).flops_by_kind == {"add": 1}
    with ml.using("cpu", reproducible=True):
        assert both.counts(cells, u, total, count).flops_by_kind == {"add": 7, "mul": 2, "integer": 6}
        loop = both.loop(cells, u, total, count)
        assert loop.estimate >= both.loop(cells, u, total, count).estimate
        modes = [one.mode.__name__ for one in loop.operands]
    assert modes == ["Read", "ReproducibleSum", "Sum"], "whole numbers have the same sum in any order"


def test_what_is_wrong_is_told_in_the_words_of_the_script() -> None:
    cells = ml.Set(3, "cells")

    @ml.kernel
    def given(u: ml.Read, total: ml.Sum):
        total[...] = u

    for on in (False, True):
        with ml.using("numpy", reproducible=on), pytest.raises(KernelError, match="parameter total is Sum but is set"):
            given(cells, cells.field("u"), ml.Global(0.0))


def test_what_cannot_be_served_is_refused_in_one_line() -> None:
    @ml.kernel
    def one(total: ml.Sum):
        total += 1.0

    many = ml.Set(2**32, "many")
    ml.use("numpy", reproducible=True)
    with pytest.raises(ScheduleError, match=r"fewer than 4,294,967,296 summands, and this would have 4,294,967,296"):
        one(many, ml.Global(0.0, "total"))
    with pytest.raises(ScheduleError, match="reproducible must be True or False, got 1"):
        ml.use("numpy", reproducible=1)  # type: ignore[arg-type]


def test_a_case_says_it_in_its_settings(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On for the run, and what it was before behind it."""
    chosen: list[Any] = []
    monkeypatch.setattr(ml, "use", lambda name, use=ml.use, **options: (chosen.append(options), use(name, **options)))
    small = {"mesh.i": 8, "mesh.j": 12, "run.iterations": 3, "output.plot": False, "output.vtu": False}
    for before, on in ((False, True), (True, False)):
        with ml.using("numpy", reproducible=before):
            settings = {**small, "run.backend": "numpy", "run.reproducible": on}
            done = ml.run_case("airfoil", settings, out=tmp_path / f"{on}", progress=False)
            cells = ml.Set(1, "cells")
            loop = add.loop(cells, cells.field("u"), ml.Global(0.0))
        assert f"reproducible = {str(on).lower()}" in (done.folder / "run.toml").read_text()
        assert chosen.pop()["reproducible"] is on and loop.operands[1].mode.binned is before


@needs_nvrtc
@pytest.mark.parametrize(("kind", "most"), [(np.float64, 1), pytest.param(np.float32, 99, marks=pytest.mark.slow)])
def test_it_compiles_for_a_gpu(kind: type, most: int) -> None:
    world, compiled = World(0), 0
    ml.use("cpu", reproducible=True)
    for form in FORMS[:most]:
        total, sizes = ml.Global(0.1, "total", dtype=kind), ml.Global(np.zeros(2), "sizes")
        arguments = world.x[world.ends], world.w, world.y[world.ends], total, sizes, ml.Global(0, dtype=np.int64)
        loop = give.loop(world.edges, *arguments, schedule=form).on(CompileBackend(("sm_90",)))
        if loop.applies:
            loop.prepare()
            compiled += 1
    assert compiled >= min(most, 8)
