"""Spalart and Allmaras' equation on meshes: a layer at a wall, uniform values, directions, and the flat plate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.mesh.generators.spacing import geometric
from meshloom.solvers.finite_volume import spalart_allmaras as sa
from meshloom.solvers.finite_volume.conditions import CONDITIONS
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.kernels import FlowScheme
from meshloom.solvers.finite_volume.turbulence import ImplicitTurbulence, ModelInTime, SpalartAllmaras
from tests.one_line import one_line_from

BACKENDS = ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
NU = 1.0 / 1000.0
AT_REST = np.array([1e4, 0.0, 0.0, 1e4])  # density 1; sound is much faster than the flow


def column(rows: int, first: float, across: int = 2) -> ml.Mesh:
    """Cells of ``across`` columns on a wall, growing upwards from the height ``first`` to 1."""
    x, y = np.meshgrid(np.linspace(0.0, 0.1, across + 1), geometric(1.0, first, rows, "column"))
    node = np.arange(x.size).reshape(x.shape)
    quads = np.stack([node[:-1, :-1], node[:-1, 1:], node[1:, 1:], node[1:, :-1]], axis=2).reshape(-1, 4)
    floor = np.stack([node[0, :-1], node[0, 1:]], axis=1)
    return ml.Mesh.from_cells(np.stack([x.ravel(), y.ravel()], axis=1), quads, "quad", {"wall": floor})


def model_on(mesh: ml.Mesh, velocity: np.ndarray, other: str = "slip", **more: Any) -> SpalartAllmaras:
    """The model in a flow that is given: u (cells, d)."""
    gas = IdealGas(law="constant", reference_viscosity=NU)
    stream = np.array([AT_REST[0], *velocity.mean(axis=0), AT_REST[-1]])
    pressure = np.full(len(velocity), AT_REST[0])
    start = gas.conserved(np.stack([pressure, *velocity.T, pressure])).T
    conditions = {name: CONDITIONS["no_slip" if name == "wall" else other]() for name in mesh.groups}
    eddy = mesh.cells.field("eddy")
    flow = CompressibleFlow(mesh, gas, FlowScheme(), conditions, start, stream, eddy=eddy)
    return SpalartAllmaras(flow, stream, **more)


def rates(model: SpalartAllmaras) -> np.ndarray:
    """d nu / dt of all cells."""
    flow = model.flow
    ml.program(lambda: model.assemble(flow.terms(flow.u))).run()
    return model.rate.numpy() / flow.mesh.cell_volumes


@pytest.mark.slow
def test_a_layer_at_a_wall_has_the_law_of_the_wall() -> None:
    """Half a channel at a friction Reynolds number of 1000: in turn the velocity that balances the shear stress
    1 - y with the eddies that there are, and a step of the model."""
    mesh = column(32, 1e-3)
    y, across = mesh.cell_centroids[::2, 1], np.diff(np.concatenate([[0.0], mesh.cell_centroids[::2, 1]]))
    below = np.concatenate([[0.0], np.unique(mesh.coordinates.numpy()[:, 1])[1:-1]])
    model = model_on(mesh, np.repeat(np.stack([np.minimum(y / NU, 20.0), 0.0 * y], axis=1), 2, axis=0))
    flow, cfl = model.flow, ml.Global(3000.0, "cfl")
    step = ml.Program(ImplicitTurbulence(model, cfl).advance)
    u = np.minimum(y / NU, 20.0)
    for _ in range(50):
        step.run()
        eddy = model.eddy.numpy()[::2]
        between = np.concatenate([[0.0], 0.5 * (eddy[1:] + eddy[:-1])])
        u = 0.5 * u + 0.5 * np.cumsum((1.0 - below) / (NU + between) * across)
        state = np.stack([1.0 + 0.0 * u, u, 0.0 * u, AT_REST[0] / 0.4 + 0.5 * u**2], axis=1)
        flow.u.assign(np.repeat(state, 2, axis=0))
    assert np.abs(rates(model)).max() < 1e-2 * sa.CW1 * (sa.KAPPA * 1.0) ** 2  # made, spread and destroyed in balance
    plus = y / NU
    inner, log = plus < 100.0, (plus > 30.0) & (plus < 200.0)
    assert np.abs(u - sa.law_of_the_wall(plus))[inner].max() < 0.25
    assert np.abs(u / (np.log(plus) / 0.41 + 5.0) - 1.0)[log].max() < 0.02
    assert np.allclose(model.nu.numpy()[::2][plus < 40.0], 0.41 * y[plus < 40.0], rtol=0.06)


def test_the_law_of_the_wall_is_an_integral() -> None:
    y = np.logspace(-2, 4, 61)
    step = 1e-5 * y
    chi = sa.KAPPA * y
    slope = (sa.law_of_the_wall(y + step) - sa.law_of_the_wall(y - step)) / (2.0 * step)
    assert np.allclose(slope * (1.0 + chi**4 / (chi**3 + sa.CV1**3)), 1.0, atol=1e-7)
    assert abs(sa.law_of_the_wall(0.0)) < 1e-12


@pytest.mark.parametrize(("cells", "order"), [("quad", 1), ("triangle", 2), ("tetrahedron", 2), ("hexahedron", 2)])
def test_linear_values_are_carried_and_spread_exactly(cells: str, order: int) -> None:
    """nu = 2 + x far from walls, without vorticity: rates are -u . grad nu + cb2 / sigma |grad nu|^2 and (from nu in
    the factor) 1 / sigma |grad nu|^2."""
    shape = (8, 7) if cells in ("quad", "triangle") else (7, 7, 7)
    mesh = ml.generate.box(shape, cells=cells)
    velocity = np.zeros((len(mesh.cells), mesh.dim)) + np.arange(1.0, mesh.dim + 1.0)
    wall = next(iter(mesh.groups))
    model = model_on(renamed(mesh, wall), velocity, "symmetry", order=order)
    model.distance.fill(1e6)  # far from the wall: nothing is destroyed
    x = mesh.cell_centroids
    model.nu.assign(2.0 + x[:, 0])
    inside, around = np.ones(len(x), bool), mesh.face_cells.indices
    inside[mesh.boundary_cells.indices] = False
    for _ in range(2):  # whose gradients see the boundary, and their neighbours
        inside[around[~inside[around].all(axis=1)].ravel()] = False
    found, wanted = rates(model), -velocity[:, 0] + (1.0 + sa.CB2) / sa.SIGMA
    assert inside.any()
    assert np.allclose(found[inside], wanted[inside], atol=1e-9)


def renamed(mesh: ml.Mesh, wall: str) -> ml.Mesh:
    """The same mesh, in which one group is "wall" and the others "rest"."""
    nodes = mesh.boundary_nodes.indices
    group = mesh.boundary_group.numpy() == mesh.groups[wall]
    return ml.Mesh.from_cells(mesh.coordinates.numpy(), mesh.cell_nodes.indices, mesh.kind,
                              {"wall": nodes[group], "rest": nodes[~group]})  # fmt: skip


def test_what_comes_in_brings_the_free_stream() -> None:
    mesh = column(8, 0.1)
    model = model_on(mesh, np.tile([3.0, 0.0], (len(mesh.cells), 1)), "farfield", ratio=5.0)
    assert model.far == pytest.approx(5.0 * NU)
    model.nu.fill(0.0)
    left = mesh.cell_centroids[:, 0] < 0.05
    rate = rates(model)
    assert np.allclose(rate[left], 3.0 / 0.05 * 5.0 * NU) and np.allclose(rate[~left], 0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_back_ends_agree(backend: str) -> None:
    ml.use("numpy")
    rng = np.random.default_rng(3)
    mesh = column(6, 0.05)
    velocity = rng.normal(size=(len(mesh.cells), 2))
    nu = NU * rng.uniform(-1.0, 20.0, len(mesh.cells))

    def stepped() -> list[np.ndarray]:
        model = model_on(mesh, velocity, "farfield")
        model.nu.assign(nu)
        flow, dt = model.flow, ml.Global(1e-3, "dt")
        ml.program(lambda: model.advance(flow.terms(flow.u), dt)).run()
        implicit = ImplicitTurbulence(model, ml.Global(50.0, "cfl"))
        ml.Program(implicit.assemble).run()
        return [model.nu.numpy(), model.eddy.numpy(), model.rate.numpy(), implicit.matrix.to_scipy().toarray()]

    wanted = stepped()
    ml.use(backend)
    for one, other in zip(stepped(), wanted, strict=True):
        assert np.allclose(one, other, rtol=1e-9, atol=1e-12)
    assert np.abs(wanted[0] - nu).max() > 1e-3 * NU


def test_the_matrix_is_that_of_a_step() -> None:
    """Positive on the diagonal, none beside it, rows that sum up to what pulls back; the solver solves it."""
    mesh = column(6, 0.05)
    rng = np.random.default_rng(4)
    model = model_on(mesh, rng.normal(size=(len(mesh.cells), 2)))
    model.nu.assign(NU * rng.uniform(0.0, 20.0, len(mesh.cells)))
    before = model.nu.numpy()
    step = ImplicitTurbulence(model, ml.Global(50.0, "cfl"), tolerance=1e-12)
    ml.Program(step.advance).run()
    matrix = step.matrix.to_scipy().toarray()
    beside = matrix - np.diag(np.diag(matrix))
    assert (beside <= 0.0).all() and (np.diag(matrix) > -beside.sum(axis=1)).all()
    assert np.allclose(model.nu.numpy() - before, np.linalg.solve(matrix, model.rate.numpy()), atol=1e-9 * NU)
    assert int(step.iterations.value) > 0


def test_steps_in_time_meet_their_formula() -> None:
    """After enough steps of the system nothing is left of rates less the change in time, (nu - last) / dt at first."""
    mesh = column(6, 0.05)
    model = model_on(mesh, np.tile([1.0, 0.0], (len(mesh.cells), 1)), "farfield")
    before = NU * np.linspace(1.0, 9.0, len(mesh.cells))
    model.nu.assign(before)
    dt, cells = 0.02, len(mesh.cells)
    in_time = ModelInTime.of(model, ml.Global(np.array([1.0, -1.0, 0.0]) / dt, "weights"))
    in_time.shift(model.nu)
    step = ml.Program(ImplicitTurbulence(model, ml.Global(1e4, "cfl"), in_time, tolerance=1e-3).advance)
    step.run(12)
    assert np.abs(model.rate.numpy()).max() < 1e-9 * NU * mesh.cell_volumes.sum()
    change = (model.nu.numpy() - before) / dt
    assert np.allclose(rates(model), change, atol=1e-7 * np.abs(change).max()) and len(change) == cells


def test_without_viscosity_it_is_refused_and_without_walls_nothing_is_destroyed() -> None:
    mesh, still = column(3, 0.2), np.zeros((6, 2))
    conditions = dict.fromkeys(mesh.groups, CONDITIONS["slip"]())
    start, stream = np.tile([1.0, 0.0, 0.0, 2.5], (6, 1)), np.array([1.0, 0.0, 0.0, 1.0])
    eddy = mesh.cells.field("eddy")
    inviscid = CompressibleFlow(mesh, IdealGas(), FlowScheme(), conditions, start, stream, eddy=eddy)
    with one_line_from(ml.errors.ConfigError, "needs a viscosity"):
        SpalartAllmaras(inviscid, stream)
    gas = IdealGas(law="constant", reference_viscosity=NU)
    free = SpalartAllmaras(CompressibleFlow(mesh, gas, FlowScheme(), conditions, start, stream, eddy=eddy), stream)
    free.nu.fill(100.0 * NU)
    assert np.abs(rates(free)).max() < 1e-9 * NU
    assert model_on(mesh, still).distance.numpy().min() == pytest.approx(0.5 * mesh.coordinates.numpy()[3, 1])
