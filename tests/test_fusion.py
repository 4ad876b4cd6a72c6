"""Fused programs: the same fields as loop by loop, whatever the loops are; fewer bytes where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import KernelError
from meshloom.schedule.plan.plan import arrays
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, AirfoilMeshOptions
from tests.backend import streams  # noqa: F401 registers the back end shuffled

DEVICES = ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
HERE = ["cpu", "emulated"]


# ----- the airfoil iteration ------------------------------------------------------------------------------------
def airfoil(backend: str, precision: str = "double", fuse: bool = True, order: str = "given") -> Airfoil:
    ml.use(backend)
    plain = AirfoilConfig()
    mesh = AirfoilMeshOptions(i=14, j=12, order=order)
    case = Airfoil(replace(plain, mesh=mesh, run=replace(plain.run, precision=precision)))
    case.program.fuse = fuse
    return case


def groups_of(program: ml.Program) -> list[str]:
    return [step.spec.name for step in program.fused_steps]


@pytest.mark.parametrize("backend", DEVICES)
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("order", ["given", "hilbert"])
def test_the_airfoil_iteration_is_two_loops_and_gives_the_same(backend: str, precision: str, order: str) -> None:
    found = []
    for name, fuse in (("numpy", False), (backend, False), (backend, True)):
        case = airfoil(name, precision, fuse, order)
        rms = np.concatenate([case.program.run(n, record=case.recorded) for n in (1, 3, 2)])
        found.append((rms[:, 0], case.q.numpy()))
    assert groups_of(case.program) == [
        "res_calc+bres_calc+update+adt_calc",
        "res_calc+bres_calc+update+save_soln+adt_calc",
    ]
    tolerance = 1e-13 if precision == "double" else 1e-4
    for rms, q in found[1:]:
        np.testing.assert_allclose(rms, found[0][0], rtol=100 * tolerance)
        np.testing.assert_allclose(q, found[0][1], rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("reproducible", [False, True])
def test_bytes_of_the_fused_iteration(reproducible: bool) -> None:
    """128 and 160 per cell on a large mesh, where there are as many nodes as cells: states read and written, time steps
    read and written, neighbours, nodes of the cell, coordinates; and the little that boundaries need. One more says in
    which order a cell adds up: no table names the nodes of each face in that order."""
    ml.use("emulated", reproducible=reproducible)
    case = airfoil("emulated")
    program, mesh = case.program, case.mesh
    first, second = program.fused_steps
    cells, nodes, boundary = mesh.cells.size, mesh.nodes.size, mesh.boundary_faces.size
    bits = 4 * -(-cells // 32)
    order = reproducible * cells
    assert first.compulsory == cells * (2 * 32 + 2 * 8 + 4 * 4 + 4 * 4) + nodes * 16 + boundary * 4 + bits + order
    for step in program.fused_steps:
        tables = {name.rstrip("0123456789_") for name in arrays(step.plan)}
        assert not tables & {"rows", "ring"} and ("sorting" in tables) == reproducible
    assert second.compulsory - first.compulsory == 32 * cells
    text = program.explain()
    assert "as one loop over cells" in text and "before the first one" in text
    assert not any(p.name == "res" and not p.racy for p in first.spec.params), "neither loaded nor stored"


@pytest.mark.parametrize("where", HERE)
def test_a_flux_that_sees_its_two_sides_differently(where: str) -> None:
    """No symmetry: the tables of ``owner`` are by slot, and a fused gather must not take them for roles. The mesh is
    large enough to have tables: three of four cells with three faces."""
    results = []
    for backend, fuse in (("numpy", False), (where, True)):
        ml.use(backend)
        mesh, rng = ml.generate.box((20, 12), cells="triangle"), np.random.default_rng(0)
        u, weight = mesh.cells.field("u", data=rng.random(480)), mesh.faces.field("l", data=rng.random(len(mesh.faces)))
        total, kept = mesh.cells.field("total"), mesh.cells.field("kept")

        @ml.kernel
        def upwind(weight: ml.Read, u: ml.Read, total: ml.Inc) -> None:
            flux = weight * (2.0 * u[1] + u[0])
            total[0] += flux
            total[1] -= flux

        @ml.kernel
        def keep(total: ml.ReadWrite, kept: ml.Write) -> None:
            kept[...] = total
            total[...] = 0.0

        @ml.program(fuse=fuse)
        def step() -> None:
            upwind(mesh.faces, weight, u[mesh.face_cells], total[mesh.face_cells])  # noqa: B023
            keep(mesh.cells, total, kept)  # noqa: B023

        step.run(3)
        results.append(kept.numpy())
    assert groups_of(step) == ["upwind+keep"]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("where", ["numpy", *HERE])
@pytest.mark.parametrize("constant", [0.0, -0.0])
def test_a_zero_of_the_other_sign_is_no_constant(where: str, constant: float) -> None:
    ml.use(where)
    cells = ml.Set(20, "cells")
    a, b, c = (cells.field(name, data=np.full(20, -constant)) for name in "abc")

    @ml.kernel(strict=True)
    def invert(a: ml.Read, b: ml.Write):
        b[...] = 1.0 / a

    @ml.program
    def step() -> None:
        invert(cells, a, b)
        copy(cells, b, c)
        a.fill(constant)

    step.run(1)
    assert set(c.numpy()) == {np.copysign(np.inf, -constant)}
    step.run(1)
    assert set(c.numpy()) == {np.copysign(np.inf, constant)}


@pytest.mark.parametrize("where", HERE)
def test_a_loop_that_asks_for_another_strategy_stays_by_itself(where: str) -> None:
    results = []
    for name, fuse in (("numpy", False), (where, True)):
        ml.use(name)
        plain = AirfoilConfig()
        case = Airfoil(replace(plain, mesh=AirfoilMeshOptions(i=14, j=12), schedule={"res_calc": "color"}))
        case.program.fuse = fuse
        case.program.run(3)
        results.append(case.q.numpy())
    assert groups_of(case.program) == ["update+adt_calc", "update+save_soln+adt_calc"]
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("where", HERE)
def test_fields_that_move_are_noticed(where: str) -> None:
    case, other = airfoil(where), airfoil("numpy", fuse=False)
    case.program.run(2)
    case.q.relayout("soa")
    case.program.run(2)
    other.program.run(4)
    np.testing.assert_allclose(case.q.numpy(), other.q.numpy(), rtol=0, atol=1e-12)


# ----- other programs -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", HERE)
def test_three_stages_need_a_third_buffer(where: str) -> None:
    """A Runge-Kutta step that starts from the old state in every stage: nothing is overwritten too early."""

    @ml.kernel
    def keep(u: ml.Read, old: ml.Write):
        old[...] = u

    @ml.kernel
    def diffuse(u: ml.Read, change: ml.Inc):
        change[0] += u[1] - u[0]
        change[1] += u[0] - u[1]

    @ml.kernel
    def stage(old: ml.Read, u: ml.Write, change: ml.ReadWrite):
        u[...] = old + 0.1 * change
        change[...] = 0.0

    def run(backend: str) -> tuple[np.ndarray, ml.Program]:
        ml.use(backend)
        mesh = ml.generate.box((9, 8))
        rng = np.random.default_rng(0)
        u, cells = mesh.cells.field("u", 2, data=rng.random((72, 2))), mesh.face_cells
        old, change = mesh.cells.field("old", 2, temporary=True), mesh.cells.field("change", 2)

        @ml.program
        def step() -> None:
            keep(mesh.cells, u, old)
            for _ in range(3):
                diffuse(mesh.faces, u[cells], change[cells])
                stage(mesh.cells, old, u, change)

        step.run(2)
        step.run(1)
        return u.numpy(), step

    expected, _ = run("numpy")
    found, program = run(where)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert groups_of(program) == ["keep+diffuse+stage", "diffuse+stage", "diffuse+stage"]
    written = {s.name for step in program._fused_recording().program.operations for s in step.storages}
    assert {"u", "u_2", "u_3"} <= written


@pytest.mark.parametrize("where", HERE)
def test_a_temporary_field_must_be_written_before_it_is_read(where: str) -> None:
    @ml.kernel
    def add(a: ml.Read, b: ml.ReadWrite):
        b[...] = b + a

    @ml.kernel
    def double(b: ml.ReadWrite):
        b[...] = 2.0 * b

    ml.use(where)
    cells = ml.Set(10, "cells")
    a, b = cells.field("a", data=np.ones(10)), cells.field("b", temporary=True)

    @ml.program
    def wrong() -> None:
        add(cells, a, b)
        double(cells, b)

    with pytest.raises(KernelError, match="field b is temporary, but a program reads it before it is written"):
        wrong.run(1)


@ml.kernel
def slopes(u: ml.Read, area: ml.Read, slope: ml.Inc):
    slope[0] += area * (u[0] + u[1])
    slope[1] -= area * (u[0] + u[1])


@ml.kernel
def highest(u: ml.Read, high: ml.Max):
    high[0] = u[1]
    high[1] = u[0]


@ml.kernel
def follow(slope: ml.Read, high: ml.Read, rate: ml.Read, u: ml.ReadWrite, total: ml.Sum):
    u[...] = u + rate * (slope + high)
    total += u


class Limited:
    """Slopes, neighbours' values, and a step by a rate that is set anew for each of two stages."""

    def __init__(self, backend: str, temporary: bool = True):
        ml.use(backend)
        rng, mesh = np.random.default_rng(1), ml.generate.box((7, 5))
        cells, at = mesh.cells, mesh.face_cells
        area = mesh.faces.field("area", data=rng.random(mesh.faces.size))
        self.u, self.total = cells.field("u", data=rng.random(cells.size)), ml.Global(0.0, "total")
        slope, high = (cells.field(name, temporary=temporary) for name in ("slope", "high"))
        rate = ml.Global(0.0, "rate")

        @ml.program
        def step() -> None:
            for value in (0.01, 0.02):
                slope.fill(0.0)
                high.fill(-1.0)
                rate.value, self.total.value = value, 0.0
                slopes(mesh.faces, self.u[at], area, slope[at])
                highest(mesh.faces, self.u[at], high[at])
                follow(cells, slope, high, rate, self.u, self.total)

        self.step = step


@pytest.mark.parametrize("where", HERE)
@pytest.mark.parametrize("temporary", [True, False])
def test_fills_go_with_what_needs_them_and_loops_over_one_map_share_a_visit(temporary: bool, where: str) -> None:
    plain, fused = Limited("numpy", temporary), Limited(where, temporary)
    expected, found = (one.step.run(3, record=(one.total,)) for one in (plain, fused))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(fused.u.numpy(), plain.u.numpy(), rtol=1e-12)
    assert groups_of(fused.step) == ["slopes+highest+follow"] * 2
    body = fused.step._fused_recording().program.operations
    assert [str(s.name) for s in body if s.domain.all_memory] == ["rate = 0.01", "rate = 0.02"], "the sum starts anew"
    stored = [[p.name for p in one.spec.params if p.mode.writes and not p.racy and not p.is_global]
              for one in fused.step.fused_steps]  # fmt: skip
    lasting = [] if temporary else ["slope", "high"]
    assert stored == [["u"], [*lasting, "u"]], "what is replaced before anybody asks is not stored"


@pytest.mark.parametrize("backend", DEVICES)
def test_a_field_that_may_be_written_and_stays_what_it_is(backend: str) -> None:
    ml.use(backend)

    @ml.kernel
    def keep(a: ml.ReadWrite):
        a[...] = np.copy(a)

    @ml.kernel
    def twice(b: ml.ReadWrite):
        b += b

    points = ml.Set(4, "points")
    a, b = (points.field(name, data=np.arange(4.0)) for name in "ab")

    @ml.program
    def step():
        keep(points, a)
        twice(points, b)

    step.run(2)
    assert a.numpy().tolist() == [0.0, 1.0, 2.0, 3.0] and b.numpy().tolist() == [0.0, 4.0, 8.0, 12.0]


@pytest.mark.parametrize("where", HERE)
def test_a_global_that_was_reset_is_not_read_and_summed_up_in_one_loop(where: str) -> None:
    def run(backend: str) -> tuple[np.ndarray, ml.Program]:
        ml.use(backend)
        cells = ml.generate.box((4, 3)).cells
        a, b = (cells.field(n, 2, data=np.random.default_rng(2).random((12, 2))) for n in "ab")
        total = ml.Global(5.0, "total")

        @ml.program
        def step() -> None:
            total.value = 1.0
            scaled(cells, a, total)
            relax(cells, a, b, total)

        history = step.run(3, record=(total,))
        return np.concatenate([history.ravel(), a.numpy().ravel(), b.numpy().ravel()]), step

    expected, _ = run("numpy")
    found, program = run(where)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert groups_of(program) == (["scaled"] if where == "emulated" else []), "relax stays by itself"


# Random programs: what a few kernels can do to a few fields, in any order.
@ml.kernel
def mix(a: ml.Read, b: ml.Read, c: ml.Write):
    c[...] = 0.5 * a - 0.25 * b + 1.0


@ml.kernel
def relax(a: ml.Read, b: ml.ReadWrite, total: ml.Sum):
    b[...] = 0.5 * (a + b)
    total += b[0]


@ml.kernel
def copy(a: ml.Read, b: ml.Write):
    b[...] = a


@ml.kernel
def clear(a: ml.Write):
    a[...] = 0.0


@ml.kernel
def spread(x: ml.Read, a: ml.Read, b: ml.Inc):
    f = (x[0, 0] - x[1, 0]) * (a[0] + a[1]) + 0.1 * (a[0] - a[1])
    b[0] += 0.1 * f
    b[1] -= 0.1 * f


@ml.kernel
def lopsided(a: ml.Read, w: ml.Read, b: ml.Inc):
    b[0] += 0.1 * w * a[1]


@ml.kernel
def corners(x: ml.Read, a: ml.Read, b: ml.Write):
    b[...] = 0.1 * a * (x[0, 0] + 2.0 * x[1, 0] + 3.0 * x[2, 0] + 4.0 * x[3, 0])


@ml.kernel
def scaled(a: ml.ReadWrite, total: ml.Read):
    a[...] = a / (1.0 + np.abs(total))


FIELDS = ("p", "q", "r", "s")
OPERATIONS = ("mix", "relax", "copy", "clear", "spread", "lopsided", "edge", "corners", "scaled", "fill", "reset",
              "part")  # fmt: skip


def between(name: str, total: ml.Global) -> None:
    """What is no loop, nor a fill; temporary fields live across the call."""
    if name == "call":
        ml.call(lambda: None, reads=(), writes=())
    else:
        total.value = 0.0


def recorded(
    mesh: ml.Mesh, steps: list[tuple[str, tuple[int, ...]]], colored: bool, within: bool
) -> tuple[Callable, dict]:
    """A function to make a program of, and everything it changes that lasts; ``within``: the last field does not."""
    rng = np.random.default_rng(3)
    f = [mesh.cells.field(n, 2, data=rng.random((mesh.cells.size, 2)), temporary=within and n == FIELDS[-1])
         for n in FIELDS]  # fmt: skip
    w = mesh.faces.field("w", data=rng.random(mesh.faces.size))
    x, total = mesh.coordinates, ml.Global(0.0, "total")
    fc, bc, cn = mesh.face_cells, mesh.boundary_cells, mesh.cell_nodes
    some = mesh.cells.subset(np.arange(0, len(mesh.cells), 3))

    @ml.kernel
    def edge(a: ml.Read, b: ml.Inc):
        b[0] += 0.1 * a[0]

    def body() -> None:
        for name, (a, b, c) in steps:
            match name:
                case "mix":
                    mix(mesh.cells, f[a], f[b], f[c])
                case "relax":
                    relax(mesh.cells, f[a], f[b], total)
                case "copy" | "part":
                    copy(mesh.cells if name == "copy" else some, f[a], f[b])
                case "clear":
                    clear(mesh.cells, f[a])
                case "spread":
                    how = ml.Schedule("color") if colored else None
                    spread(mesh.faces, x[mesh.face_nodes], f[a][fc], f[b][fc], schedule=how)
                case "lopsided":
                    lopsided(mesh.faces, f[a][fc], w, f[b][fc])
                case "edge":
                    edge(mesh.boundary_faces, f[a][bc], f[b][bc])
                case "corners":
                    corners(mesh.cells, x[cn], f[a], f[b])
                case "scaled":
                    scaled(mesh.cells, f[a], total)
                case "fill":
                    f[a].fill(0.5)
                case "reset" | "call":
                    between(name, total)

    return body, {one.name: one for one in f if not one.temporary} | {"total": total}


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    """Operations on distinct fields, and calls between them."""
    count, names = draw(st.integers(2, 8)), (*OPERATIONS, "call")
    return [(draw(st.sampled_from(names)), tuple(draw(st.permutations(range(len(FIELDS))))[:3])) for _ in range(count)]


@given(steps=programs(), colored=st.booleans(), within=st.booleans())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_gives_the_same_fused(
    steps: list[tuple[str, tuple[int, ...]]], colored: bool, within: bool
) -> None:
    results = run_on(("numpy", "emulated", "shuffled"), steps, colored, within)
    for name, expected in results[0].items():
        largest = np.abs(expected).max()
        np.testing.assert_allclose(results[1][name], expected, rtol=1e-11, atol=1e-12 * largest, err_msg=name)
        np.testing.assert_array_equal(results[2][name], results[1][name], err_msg=name)


def run_on(
    backends: tuple[str, ...], steps: list[tuple[str, tuple[int, ...]]], colored: bool, within: bool
) -> list[dict[str, np.ndarray]]:
    """What lasts of three replays of a program, on each back end."""
    if all(name in ("fill", "reset", "call") for name, _ in steps):
        steps = [*steps, ("copy", (0, 1, 2))]
    if within:  # such a field must be written before it is read
        steps = [("fill", (len(FIELDS) - 1, 0, 1)), *steps]
    results = []
    for backend in backends:
        ml.use(backend)
        body, changed = recorded(ml.generate.box((5, 4)), steps, colored, within)
        program = ml.program(body)
        program.run(2)
        program.run(1)
        results.append({name: one.numpy() for name, one in changed.items()})
    return results
