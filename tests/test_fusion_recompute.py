"""Stencils over a stencil's results, fused: what the first makes the second computes again, where that is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

import meshloom as ml
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion import program as fused_program
from meshloom.operation.fusion.recompute import recompute
from meshloom.operation.fusion.trials import Trials
from tests.fitted import changed

HERE = ["cpu", "emulated"]


@pytest.fixture
def always() -> Iterator[None]:
    """Loops are fused and values computed again wherever that is right, though it may not pay."""
    with pytest.MonkeyPatch.context() as patch:
        changed(patch, fusion={"worth": np.inf, "worth_again": np.inf})
        yield


@ml.kernel
def laplace(a: ml.Read, b: ml.Write) -> None:
    b[...] = a[0, 1] + a[0, -1] + a[1, 0] + a[-1, 0] - 4.0 * a[0, 0]


@ml.kernel
def fluxes(u: ml.Read, speed: ml.Read, along: ml.Write, across: ml.Write) -> None:
    along[...] = speed * 0.5 * (u[1, 0] ** 2 + u[0, 0] ** 2)
    across[...] = 0.5 * (u[0, 1] + u[0, 0]) / (1.0 + u[0, 0] ** 2)


@ml.kernel
def divergence(along: ml.Read, across: ml.Read, rate: ml.Write, total: ml.Sum) -> None:
    rate[...] = along[-1, 0] - along[0, 0] + across[0, -1] - across[0, 0]
    total += along[0, 0]


@ml.kernel
def step_of(rate: ml.Read, u: ml.ReadWrite) -> None:
    u[...] = u + 0.01 * rate


class Case:
    """A program over fields of one grid; ``results`` are all that last, after three replays."""

    def __init__(self, backend: str, make: Callable[[Case], Callable[[], None]], dtype: str = "float64", **of_grid):
        ml.use(backend)
        self.backend = backend
        self.grid = ml.Grid(of_grid.pop("shape", (11, 9)), name="plane", **of_grid)
        self.dtype, self.kept = dtype, list[ml.Field | ml.Global]()
        self.program = ml.program(make(self), fuse=backend != "numpy")

    def field(self, name: str, seed: int | None = None, dim: int = 1) -> ml.Field:
        shape = (*self.grid.shape, dim) if dim > 1 else self.grid.shape
        data = None if seed is None else np.random.default_rng(seed).random(shape)
        made = self.grid.field(name, dim, dtype=self.dtype, data=data)
        self.kept.append(made)
        return made

    def results(self) -> dict[str, np.ndarray]:
        self.program.run(2)
        self.program.run(1)
        return {one.name: one.numpy() if isinstance(one, ml.Field) else np.array(one.value) for one in self.kept}

    @property
    def notes(self) -> tuple[str, ...]:
        with ml.using(self.backend):  # a program follows the one in use
            return self.program._fusion()[0].notes


def compare(make: Callable[[Case], Callable[[], None]], where: Sequence[str] = HERE, *, exact: bool = False,
            **of_grid) -> list[Case]:  # fmt: skip
    """The same on every back end as loop by loop; the cases, to look at."""
    expected = Case("numpy", make, **of_grid).results()
    cases, single = list[Case](), of_grid.get("dtype") == "float32"
    for backend in where:
        cases.append(Case(backend, make, **of_grid))
        for name, found in cases[-1].results().items():
            largest = np.abs(expected[name]).max()
            tolerance = 0.0 if exact else (1e-5 if single else 1e-12) * largest
            np.testing.assert_allclose(found, expected[name], rtol=0.0, atol=tolerance, err_msg=f"{name} on {backend}")
        assert {loop.backend.name for loop in cases[-1].program.loops if not loop.domain.all_memory} == {backend}
    return cases


def twice(case: Case) -> Callable[[], None]:
    u, rate, at = case.field("u", 1), case.field("rate"), case.grid.star(1)

    def step() -> None:
        first = case.grid.field("first", dtype=case.dtype)
        laplace(case.grid, u[at], first)
        laplace(case.grid, first[at], rate)

    return step


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_laplacian_of_a_laplacian_is_one_loop(dtype: str) -> None:
    for case in compare(twice, dtype=dtype, periodic=True):
        (only,) = case.program._fusion()[0].operations
        (note,) = case.notes
        assert note.startswith("first is computed again by laplace at 5 points, and not loaded")
        assert len(only.spec.params[1].offsets) == 13 and only.compulsory == 2 * 11 * 9 * case.kept[0].dtype.itemsize
        assert "first is computed again" in case.program.explain()


def flow(case: Case, moves: bool = True) -> Callable[[], None]:
    """Flux, divergence, step: a chain of three, with a Global that is read and one that is summed up."""
    grid, u, total, speed = case.grid, case.field("u", 2), ml.Global(0.0, "total"), ml.Global(0.7, "speed")
    case.kept.append(total)
    rate = grid.field("rate", temporary=moves)
    here, low, left = (grid.offsets((0, 0), *more) for more in ([(1, 0), (0, 1)], [(-1, 0)], [(0, -1)]))

    def step() -> None:
        along, across = grid.field("along"), grid.field("across")
        fluxes(grid, u[here], speed, along, across)
        total.value = 0.0
        divergence(grid, along[low], across[left], rate, total)
        if moves:
            step_of(grid, rate, u)

    return step


def rates(case: Case) -> Callable[[], None]:
    return flow(case, moves=False)


@pytest.mark.usefixtures("always")
def test_flux_divergence_and_step_are_one_loop() -> None:
    for case in compare(flow, periodic=True):
        fused, _ = case.program._fusion()
        names = [step.name if not hasattr(step, "spec") else step.spec.name for step in fused.operations]
        assert names == ["divergence+step_of", "u copied back"]
        assert case.notes[0].startswith("along and across are computed again by divergence at 3 points")


@ml.kernel(strict=True)
def uneven(a: ml.Read, b: ml.Write) -> None:
    b[...] = (a[1, 0] - a[0, 0]) / 3.0 + 0.1 * (a[0, -1] + 0.7) * a[0, 0]


def before_uneven(maker: ml.Kernel) -> Callable[[Case], Callable[[], None]]:
    """A loop, and a strict one that looks around in what it has made."""

    def make(case: Case) -> Callable[[], None]:
        u, v = case.field("u", 3), case.field("v")
        at = case.grid.offsets((0, 0), (1, 0), (0, -1))

        def step() -> None:
            first = case.grid.field("first")
            maker(case.grid, u[at], first)
            uneven(case.grid, first[at], v)

        return step

    return make


@pytest.mark.usefixtures("always")
def test_strict_kernels_give_the_same_to_the_last_bit() -> None:
    for case in compare(before_uneven(uneven), exact=True, periodic=True):
        assert len(case.program._fusion()[0].operations) == 1


@pytest.mark.usefixtures("always")
def test_parts_of_a_grid_and_ghosts() -> None:
    """The first loop covers what the second looks at: a box within a box, of a closed grid and of one with ghosts."""

    def make(case: Case) -> Callable[[], None]:
        grid, u, v, at = case.grid, case.field("u", 4), case.field("v", 5), case.grid.star(1)
        wide, narrow = (grid.everything, grid) if any(grid.ghosts) else (grid.interior(1), grid.interior(2))

        def step() -> None:
            first = grid.field("first")
            twofold(wide, u, first) if any(grid.ghosts) else laplace(wide, u[at], first)
            laplace(narrow, first[at], v)

        return step

    for kind in ({}, {"ghosts": 1}, {"ghosts": (1, 0), "periodic": (False, True)}):
        for case in compare(make, **kind):
            assert len(case.program._fusion()[0].operations) == 1 and "computed again" in case.notes[0], kind


@ml.kernel
def twofold(a: ml.Read, b: ml.Write) -> None:
    b[...] = 2.0 * a + 1.0


@pytest.mark.usefixtures("always")
def test_what_lasts_is_stored_all_the_same() -> None:
    """The field is no temporary one, or another loop needs it: both are kept, and only the load is saved."""

    def make(case: Case) -> Callable[[], None]:
        u, first, second, third = (case.field(name, 6) for name in ("u", "first", "second", "third"))
        at = case.grid.star(1)

        def step() -> None:
            laplace(case.grid, u[at], first)
            laplace(case.grid, first[at], second)
            twofold(case.grid, first, third)

        return step

    for case in compare(make, periodic=True):
        (only,) = case.program.fused_steps
        assert only.spec.name == "laplace+laplace+twofold"


@ml.kernel
def primitive(q: ml.Read, v: ml.Write) -> None:
    v[0] = q[0]
    v[1] = q[1] / q[0]


@ml.kernel
def slope(v: ml.Read, own: ml.ReadWrite) -> None:
    own[...] = own + 0.5 * (v[1, 0] - v[-1, 0]) * v[0, 0][1]


@pytest.mark.usefixtures("always")
def test_vectors_and_what_the_reader_changes_itself() -> None:
    """A loop at its own points makes two components; the stencil over them adds to what was there."""

    def make(case: Case) -> Callable[[], None]:
        q, own = case.field("q", 14, 2), case.field("own", 15, 2)
        q.assign(q.numpy() + 1.0)

        def step() -> None:
            v = q.like("v")
            primitive(case.grid, q, v)
            slope(case.grid, v[case.grid.star(1)], own)

        return step

    for case in compare(make, periodic=True):
        assert len(case.program._fusion()[0].operations) == 1


@ml.kernel
def advance(along: ml.Read, across: ml.Read, u: ml.ReadWrite, total: ml.Sum) -> None:
    u[...] = u + 0.1 * (along[-1, 0] - along[0, 0] + across[0, -1] - across[0, 0])
    total += u


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", [{"periodic": True}, {"periodic": (True, False)}, {"ghosts": 1}])
def test_a_step_that_writes_what_the_fluxes_read(kind: dict) -> None:
    """It is written beside its place, since other points look there, and brought home; all of the grid or a part."""

    def make(case: Case) -> Callable[[], None]:
        grid, u, total = case.grid, case.field("u", 16), ml.Global(0.0, "total")
        speed, wide, narrow = ml.Global(0.7), grid, grid
        case.kept.append(total)
        if not all(grid.periodic):
            wide, narrow = grid.box((0, 0), (11 if grid.periodic[0] else 10, 8)), grid.interior(1)
        here, low, left = (grid.offsets((0, 0), *more) for more in ([(1, 0), (0, 1)], [(-1, 0)], [(0, -1)]))

        def step() -> None:
            along, across = grid.field("along"), grid.field("across")
            fluxes(wide, u[here], speed, along, across)
            total.value = 0.0
            advance(narrow, along[low], across[left], u, total)

        return step

    for case in compare(make, **kind):
        assert case.notes[0].startswith("along and across are computed again by advance"), case.notes
        fused, _ = case.program._fusion()
        stored = {p.name for one in fused.operations if hasattr(one, "spec") for p in one.spec.params}
        assert "along" not in stored and "across" not in stored


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("where", HERE)
def test_what_a_kernel_reads_besides_may_change(where: str) -> None:
    factor = 2.0

    @ml.kernel
    def scale(a: ml.Read, b: ml.Write) -> None:
        b[...] = factor * a

    ml.use(where)
    grid = ml.Grid((6, 5), periodic=True)
    u, rate, at = grid.field("u", data=np.random.default_rng(3).random((6, 5))), grid.field("rate"), grid.star(1)

    @ml.program
    def step() -> None:
        first = grid.field("first")
        scale(grid, u, first)
        laplace(grid, first[at], rate)

    step.run()
    before, factor = rate.numpy(), 3.0
    step.run()
    assert "first is computed again" in step.explain()
    np.testing.assert_allclose(rate.numpy(), 1.5 * before, rtol=1e-12)


# ----- where it is not right ------------------------------------------------------------------------------------------
def refused(case: Case, why: str) -> None:
    note = case.notes[0]
    assert note.startswith("first is stored for laplace: ") and why in note, note
    assert not any("is computed again" in one for one in case.notes)


def between(change: Callable[[Case, ml.Field, ml.Field], None]) -> Callable[[Case], Callable[[], None]]:
    """Two Laplacians, with something between them that is given ``u`` and ``first``."""

    def make(case: Case) -> Callable[[], None]:
        u, rate, at = case.field("u", 7), case.field("rate"), case.grid.star(1)

        def step() -> None:
            first = case.grid.field("first")
            laplace(case.grid, u[at], first)
            change(case, u, first)
            laplace(case.grid, first[at], rate)

        return step

    return make


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda case, u, first: step_of(case.grid, first, u), "step_of changes u in between"),
        (lambda case, u, first: step_of(case.grid, u, first), "first is changed, not set"),
    ],
)
def test_not_where_something_changes_in_between(change: Callable[..., None], why: str) -> None:
    for case in compare(between(change), periodic=True):
        refused(case, why)


@ml.kernel
def as_fast(u: ml.Read, v: ml.Write) -> None:
    v[...] = 0.1 * u[0, 0] - u[1, 0] / 3.0 + u[0, -1]


@pytest.mark.usefixtures("always")
def test_not_where_one_is_strict_and_the_other_is_not() -> None:
    for case in compare(before_uneven(as_fast), periodic=True):
        assert case.notes == ("first is stored for uneven: one of the two is strict, and the other is not",)


@ml.kernel
def keep_and_change(u: ml.ReadWrite, first: ml.Write) -> None:
    first[...] = 2.0 * u
    u[...] = 1.5 * u + 0.1


@pytest.mark.usefixtures("always")
def test_not_where_the_maker_changes_what_it_makes_it_from() -> None:
    """Afterwards the formula would give another value."""

    def make(case: Case) -> Callable[[], None]:
        u, rate, at = case.field("u", 17), case.field("rate"), case.grid.star(1)

        def step() -> None:
            first = case.grid.field("first")
            keep_and_change(case.grid, u, first)
            laplace(case.grid, first[at], rate)

        return step

    for case in compare(make, periodic=True):
        refused(case, "keep_and_change changes u, from which it is made")


@pytest.mark.usefixtures("always")
def test_not_where_others_set_what_is_looked_at() -> None:
    """Ghosts, and the rim of a closed grid, come from other loops."""

    def rim(case: Case) -> Callable[[], None]:
        u, rate, at = case.field("u", 8), case.field("rate"), case.grid.star(1)

        def step() -> None:
            first = case.grid.field("first")
            first.fill(0.5)
            laplace(case.grid.interior(1), u[at], first)
            laplace(case.grid.interior(1), first[at], rate)

        return step

    for case in compare(rim):
        refused(case, "beyond plane[1:10, 1:8] on axis x, which others set")


@pytest.mark.usefixtures("always")
def test_not_where_a_grid_is_too_small_to_go_round_once() -> None:
    def make(case: Case) -> Callable[[], None]:
        u, rate, far = case.field("u", 9), case.field("rate"), case.grid.offsets((0, 0), (2, 0))

        def step() -> None:
            first = case.grid.field("first")
            reach(case.grid, u[far], first)
            reach(case.grid, first[far], rate)

        return step

    for case in compare(make, periodic=True, shape=(3, 4)):
        assert "axis x has only 3 points" in case.notes[0]


@ml.kernel
def reach(a: ml.Read, b: ml.Write) -> None:
    b[...] = a[2, 0] - 0.5 * a[0, 0]


@pytest.mark.usefixtures("always")
def test_not_where_a_loop_would_become_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many operations; on a GPU, so many registers for what a point loads: 13 values of 8 bytes."""
    changed(monkeypatch, fused={"most_registers": 25})
    on_cpu, on_gpu = compare(twice, periodic=True)
    assert "is computed again" in on_cpu.notes[0]
    refused(on_gpu, "computed again it would be one of 13 loads at a point")
    changed(monkeypatch, fusion={"most_operations": 20})
    (on_cpu,) = compare(twice, ["cpu"], periodic=True)
    refused(on_cpu, "operations at a point")


@pytest.mark.parametrize("where", HERE)
def test_not_where_the_cost_model_says_no(where: str) -> None:
    """Forty exponentials at five points each are no gain; those of a flux and its divergence are few."""

    @ml.kernel
    def costly(a: ml.Read, b: ml.Write) -> None:
        b[...] = sum(np.exp(0.01 * k * a[0, 0]) for k in range(40)) + a[1, 0]

    def make(case: Case) -> Callable[[], None]:
        u, rate, at = case.field("u", 10), case.field("rate"), case.grid.star(1)

        def step() -> None:
            first = case.grid.field("first")
            costly(case.grid, u[at], first)
            laplace(case.grid, first[at], rate)

        return step

    case = Case(where, make, periodic=True, shape=(300, 300))
    refused(case, "computed again at 5 points it would take ")
    (note,) = Case(where, rates, periodic=True, shape=(300, 300)).notes
    assert note.startswith("along and across are computed again by divergence")


@pytest.mark.usefixtures("always")
def test_it_is_a_pass_that_gives_the_graph_that_takes_less_time() -> None:
    """Each graph is fused once, whoever asks, and what is fused in the end is the one that it gives."""
    case, fused = Case("cpu", twice, periodic=True), list[Dataflow]()

    def counted(graph: Dataflow) -> fused_program.FusedProgram:
        fused.append(graph)
        return fused_program._fused(graph, rotates=True)

    graph, trials = Dataflow(case.program.loops), Trials(counted)
    found = recompute(graph, trials)
    assert [len(one.operations) for one in (graph, found)] == [2, 1]
    assert trials.fused(found).operations == trials.fused(found).operations and fused == [graph, found]
    of_trials, of_program = trials.fused(found), case.program._fusion()[0]
    assert [one.content for one in of_trials.operations] == [one.content for one in of_program.operations]
    assert trials.notes == case.notes
    changed_nothing = recompute(found, trials)
    assert changed_nothing is found


@pytest.mark.usefixtures("always")
def test_a_long_program_is_weighed_in_part_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial fuses all of the program: without a limit a program inlined n times would take n^2."""
    changed(monkeypatch, fusion={"most_weighed": 40})
    trials = list[int]()

    def counted(graph: Dataflow) -> fused_program.FusedProgram:
        trials.append(len(graph.operations))
        return fused_program._fused(graph, rotates=True)

    def many(case: Case) -> Callable[[], None]:
        inner = ml.program(twice(case))

        def steps() -> None:
            inner.run(12)

        return steps

    (case,) = compare(many, ["cpu"], periodic=True)
    weighed = Trials(counted)
    recompute(Dataflow(case.program.loops), weighed)
    assert len(trials) >= 2 and sum(trials[1:]) <= 40 + len(case.program.loops)
    assert len(weighed.notes) == len(set(weighed.notes)) and "nobody asked what to compute again" in weighed.notes[-1]
