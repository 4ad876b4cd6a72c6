"""Fused loops on a CPU: chunks of targets, what is evaluated first, what stays apart, the same bits for any threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion import program as fused_program
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.fused import chunks
from meshloom.schedule.strategies import names as strategies
from meshloom.schedule.strategies import strategy
from tests.fitted import changed
from tests.test_fusion import airfoil, groups_of, programs, run_on


@pytest.fixture(autouse=True)
def on_two_threads() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    ml.use("cpu", threads=2)
    yield
    ml.use(before[0], threads=before[1])


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, chunks={"least_targets": 40})


def states(threads: int, *pieces: int) -> list[np.ndarray]:
    ml.use("cpu", threads=threads)
    case = airfoil("cpu")
    rms = np.concatenate([case.program.run(n, record=case.recorded) for n in pieces])
    assert len(groups_of(case.program)) == 2
    return [rms, case.q.numpy()]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("first", [False, True])
def test_faces_between_chunks_are_evaluated_by_both(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    """504 cells in chunks of 40; added up one by one, or all evaluated first."""
    for name in strategies():
        monkeypatch.setattr(type(strategy(name)), "evaluates_first", first)
    changed(monkeypatch, chunks={"most_again": 3.0}, fusion={"worth": np.inf})  # fused though it does not pay
    plain = airfoil("cpu", fuse=False)
    expected = [plain.program.run(6, record=plain.recorded), plain.q.numpy()]
    found = states(2, 6)
    step = airfoil("cpu").program.fused_steps[0]
    assert step.plan.block < 100 and step.policy.evaluations(step.spec.racy_maps[0]) > step.composed[1].set.size
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    for threads, pieces in ((1, (6,)), (3, (6,)), (2, (1, 2, 3))):
        for one, other in zip(states(threads, *pieces), found, strict=True):
            np.testing.assert_array_equal(one, other, f"{threads} threads, {pieces}")


@pytest.mark.parametrize("asked", [{"strict": True}, {"reproducible": True}], ids=lambda asked: next(iter(asked)))
def test_chunks_evaluate_as_where_order_is_free(monkeypatch: pytest.MonkeyPatch, asked: dict[str, bool]) -> None:
    """They keep it in any case: that another strategy is best for the loop by itself, where those that do not are left
    out, does not count."""

    def touching(strict: bool = False, reproducible: bool = False) -> list[str]:
        ml.use("cpu", threads=2, reproducible=reproducible)
        mesh = ml.generate.box((60, 50), cells="quad")
        u, rate = mesh.cells.field("u", data=np.arange(3000.0)), mesh.cells.field("rate")

        def flux(u: ml.Read, rate: ml.Inc) -> None:
            rate[0] += u[1] - u[0]
            rate[1] -= u[1] - u[0]

        def move(rate: ml.ReadWrite, u: ml.ReadWrite) -> None:
            u += 0.1 * rate
            rate[...] = 0.0 * rate

        through, own = ml.kernel(flux, strict=strict), ml.kernel(move, strict=strict)

        def step() -> None:
            through(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells])
            own(mesh.cells, rate, u)

        program = ml.program(step)
        program.run(2)
        (fused,) = program.fused_steps
        return [type(one).__name__ for one in fused.policy.gathers.values()]

    changed(monkeypatch, fusion={"worth": np.inf}, threads={"small_elements": 1})
    monkeypatch.setattr(type(strategy("block_color")), "cost", lambda *given, **named: Cost(1.0, 0.0))  # always best
    for free, bound in ((False, True), (True, False)):
        for one in map(strategy, strategies()):
            monkeypatch.setattr(type(one), "evaluates_first", bound if one.in_order else free)
        assert touching(**asked) == touching()


def test_chunks_of_a_map_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often fusion asks which loops go together: all rows of a sample are sorted for it."""
    judged, judge = list[tuple[bytes, int]](), chunks.listed_again

    def noted(rows: np.ndarray, chunk: int) -> float:
        judged.append((rows.tobytes(), chunk))
        return judge(rows, chunk)

    monkeypatch.setattr(chunks, "listed_again", noted)
    assert len(groups_of(airfoil("cpu").program)) == 2
    assert judged and len(judged) == len(set(judged))


def test_elements_that_many_chunks_would_evaluate_stay_apart(small_chunks: None) -> None:
    mesh, rng = ml.generate.box((30, 20)), np.random.default_rng(0)
    cells, far = mesh.cells, ml.Map(mesh.faces, mesh.cells, rng.integers(0, 600, (mesh.faces.size, 2)), "far")
    u, total = cells.field("u", data=rng.random(600)), cells.field("total")

    @ml.kernel
    def give(u: ml.Read, total: ml.Inc) -> None:
        total[0] += u[1]
        total[1] -= u[0]

    @ml.kernel
    def take(total: ml.ReadWrite, u: ml.ReadWrite) -> None:
        u += 0.01 * total
        total[...] = 0.0

    def step() -> None:
        give(mesh.faces, u[far], total[far])
        take(cells, total, u)

    text = ml.program(step).explain()
    assert "as one loop" not in text and "no loops would be faster as one" in text
    twice = [*ml.program(step).loops, *ml.program(lambda: [take(cells, total, u) for _ in range(2)]).loops]
    text = fused_program.fuse(Dataflow(twice)).explain()
    assert "take+take+take as one loop over cells" in text
    assert "give by itself: chunks of the set that it adds to would evaluate its elements 1.9 times" in text


def test_loops_that_call_functions_are_not_fused_with_those_that_are_vectorised() -> None:
    cells = ml.Set(100_000, "cells")
    a, b, c = (cells.field(name, data=np.linspace(0.0, 1.0, 100_000)) for name in "abc")

    @ml.kernel
    def grow(a: ml.Read, b: ml.Write) -> None:
        b[...] = np.exp(a)

    @ml.kernel
    def double(b: ml.Read, c: ml.Write) -> None:
        c[...] = 2.0 * b

    @ml.kernel
    def shift(c: ml.ReadWrite) -> None:
        c += 1.0

    @ml.program
    def step() -> None:
        grow(cells, a, b)
        double(cells, b, c)
        shift(cells, c)

    step.run(2)
    np.testing.assert_allclose(c.numpy(), 2.0 * np.exp(a.numpy()) + 1.0, rtol=1e-15)
    assert groups_of(step) == ["double+shift"]


def test_two_sums_of_one_field_are_one_unless_somebody_looks_between() -> None:
    """Faces and boundary faces add to one field; a loop over the cells may stand between."""

    def run(backend: str, between: bool) -> tuple[np.ndarray, ml.Program]:
        ml.use(backend)
        mesh = ml.generate.box((6, 5))
        cells, u = mesh.cells, mesh.cells.field("u", 2, data=np.random.default_rng(5).random((30, 2)))
        total = cells.field("total", 2)

        @ml.kernel
        def inside(u: ml.Read, total: ml.Inc) -> None:
            total[0] += u[1]
            total[1] -= 0.5 * u[0]

        @ml.kernel
        def outside(u: ml.Read, total: ml.Inc) -> None:
            total[0, 1] += u[0, 0]

        @ml.kernel
        def square(total: ml.ReadWrite) -> None:
            total[...] = total * total

        @ml.kernel
        def move(total: ml.ReadWrite, u: ml.ReadWrite) -> None:
            u[...] = u + 0.1 * total
            total[...] = 0.0

        @ml.program
        def step() -> None:
            inside(mesh.faces, u[mesh.face_cells], total[mesh.face_cells])
            if between:
                square(cells, total)
            outside(mesh.boundary_faces, u[mesh.boundary_cells], total[mesh.boundary_cells])
            move(cells, total, u)

        step.run(3)
        return u.numpy(), step

    for between in (False, True):
        (expected, _), (found, step) = run("numpy", between), run("cpu", between)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        (loop,) = step.fused_steps
        assert len(loop.spec.joined) == (0 if between else 1)


def test_a_part_of_a_set_that_adds_to_the_whole_stays_by_itself() -> None:
    """An element of a part is at another place in the whole."""
    for backend in ("cpu", "emulated"):
        ml.use(backend)
        cells = ml.Set(12, "cells")
        some, u = cells.subset(np.arange(5, 12)), cells.field("u", data=np.arange(12.0))
        v = some.field("v", data=np.ones(7))

        @ml.kernel
        def add(v: ml.Read, u: ml.Inc) -> None:
            u += v

        @ml.kernel
        def twice(v: ml.ReadWrite) -> None:
            v *= 2.0

        @ml.program
        def step() -> None:
            twice(some, v)  # noqa: B023
            add(some, v, u)  # noqa: B023
            twice(some, v)  # noqa: B023

        step.run(1)
        assert u.numpy().tolist() == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13], backend


def compare_any_program(steps: list[tuple[str, tuple[int, ...]]], colored: bool, within: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # small chunks of 20 cells, fused wherever they can be
        changed(patch, chunks={"least_targets": 7, "most_again": 3.0}, fusion={"worth": np.inf})
        expected, found = run_on(("numpy", "cpu"), steps, colored, within)
    for name, value in expected.items():
        largest = np.abs(value).max()
        np.testing.assert_allclose(found[name], value, rtol=1e-11, atol=1e-12 * largest, err_msg=name)


@given(steps=programs(), colored=st.booleans(), within=st.booleans())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_gives_the_same_fused(
    steps: list[tuple[str, tuple[int, ...]]], colored: bool, within: bool
) -> None:
    compare_any_program(steps, colored, within)


@pytest.mark.slow
@given(steps=programs(), colored=st.booleans(), within=st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_hundred_programs_give_the_same_fused(
    steps: list[tuple[str, tuple[int, ...]]], colored: bool, within: bool
) -> None:
    compare_any_program(steps, colored, within)


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
@pytest.mark.parametrize("temporary", [False, True])
def test_a_part_is_set_after_a_loop_that_writes_beside_its_place(backend: str, temporary: bool) -> None:
    """Values that are held at some elements, such as those of a wall: the others keep what the fused loop has found."""
    found = []
    for name in ("numpy", backend):
        ml.use(name)
        ring, pairs = ml.Set(10, "ring"), ml.Set(10, "pairs")
        ends, held = ml.Map(pairs, ring, [[k, (k + 1) % 10] for k in range(10)]), ring.subset([0])
        u, kept = ring.field("u", data=0.0, temporary=temporary), ring.field("kept", data=np.arange(10.0))
        heat = ring.field("heat")

        @ml.program
        def step() -> None:
            if temporary:
                same(ring, kept, u)  # noqa: B023
            heat.fill(0.0)  # noqa: B023
            conduct(pairs, u[ends], heat[ends])  # noqa: B023
            warm(ring, heat, u)  # noqa: B023
            hold(held, 1.0, u)  # noqa: B023
            same(ring, u, kept)  # noqa: B023

        step.run(5)
        found.append(kept.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-13, atol=1e-15)


@ml.kernel
def conduct(u: ml.Read, heat: ml.Inc):
    heat[0] -= u[0] - u[1]
    heat[1] += u[0] - u[1]


@ml.kernel
def warm(heat: ml.Read, u: ml.ReadWrite):
    u += 0.1 * heat


@ml.kernel
def hold(value: ml.Read, u: ml.Write):
    u[...] = value


@ml.kernel
def same(a: ml.Read, b: ml.Write):
    b[...] = a
