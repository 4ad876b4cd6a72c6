"""Incompressible flow in general coordinates: Algorithm 1 (u*, faces, divergence, pressure, projection) on one grid.

The grid has two or three axes, each periodic or between two walls; points are the centres of cells, and walls lie
halfway between the first point and the layer beyond it. Beyond closed ends there is one layer of ghosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import meshloom as ml
from meshloom.errors import MeshError, shown
from meshloom.solvers.fractional_step import curvilinear_kernels as kernels
from meshloom.solvers.fractional_step.cells import along
from meshloom.solvers.fractional_step.curvilinear_kernels import origin
from meshloom.solvers.fractional_step.curvilinear_metrics import CurvilinearMetrics, metrics_of

SIDES = ("low", "high")
Fields = tuple[ml.Field, ...]
Walls = Mapping[tuple[int, str], Sequence[float]]  # by axis and side: the velocity of the wall there


class CurvilinearGeometry:
    """A grid and its metrics as fields; ``vectors`` are those with several components.

    ``base``: grad xi_d, a vector field for each axis, or for an ``orthogonal`` grid one with the d xi_d / d x_d.
    ``for_velocity`` and ``for_pressure``: what the kernels take for flows by slopes. They differ beyond walls, through
    which no pressure drives anything: there those of the pressure make the mean at the wall zero.
    """

    def __init__(self, metrics: CurvilinearMetrics, periodic: bool | Sequence[bool] = True):
        shape = tuple(n - 2 for n in metrics.jacobian.shape)
        self.rank, self.orthogonal = metrics.rank, metrics.orthogonal
        self.periodic = _for_each_axis("periodic", periodic, self.rank)
        self.closed = tuple(a for a in range(self.rank) if not self.periodic[a])
        self.grid = ml.Grid(shape, extent=_lengths(metrics, shape, self.periodic), periodic=self.periodic,
                            ghosts=tuple(int(not one) for one in self.periodic), name="flow")  # fmt: skip
        self.jacobian = self._field("jacobian", metrics.jacobian)
        self.base = tuple(self._field(name, one) for name, one in self._bases(metrics).items())
        self.for_velocity, self.for_pressure = self._orthogonal() if self.orthogonal else self._general(metrics)

    def _bases(self, metrics: CurvilinearMetrics) -> dict[str, np.ndarray]:
        if self.orthogonal:
            return {"base": np.stack([metrics.base[a][..., a] for a in range(self.rank)], axis=-1)}
        return {f"base_{ml.Grid.axis_names[a]}": one for a, one in enumerate(metrics.base)}

    def _orthogonal(self) -> tuple[Fields, Fields]:
        """J and d xi_d / d x_d: what is J |grad xi_d|^2 is made of them on the way."""
        plain = (self.jacobian, *self.base)
        return plain, self._at_walls(plain, (-1.0, 1.0))

    def _general(self, metrics: CurvilinearMetrics) -> tuple[Fields, Fields]:
        plain = (self._field("spread", metrics.spread), self._field("shear", metrics.shear))
        return plain, self._at_walls(plain, (-1.0, -1.0))

    @property
    def vectors(self) -> tuple[ml.Field, ...]:
        every = dict.fromkeys((*self.base, *self.for_velocity, *self.for_pressure))
        return tuple(one for one in every if one.dim > 1)

    def _field(self, name: str, values: np.ndarray) -> ml.Field:
        """From values at the points and one layer beyond each end, (n + 2, ..., components)."""
        kept = values[tuple(slice(1, -1) if p else slice(None) for p in self.periodic)]
        components = kept.shape[self.rank :]
        made = self.grid.field(name, components if np.prod(components) > 1 else 1)
        made.restore(kept.reshape(-1, max(int(np.prod(components)), 1)) if made.dim > 1 else kept.reshape(-1))
        return made

    def _at_walls(self, fields: Fields, factors: Sequence[float]) -> Fields:
        """Others like these that are, beyond walls, as inside times a factor; the same where there are no walls."""
        if not self.closed:
            return fields
        found = tuple(one.like(f"{one.name}_p") for one in fields)
        for one, new, factor in zip(fields, found, factors, strict=True):
            values = self.grid.shaped(one, ghosts=True).copy()
            for axis in self.closed:
                ends = np.moveaxis(values, axis, 0)
                ends[0], ends[-1] = factor * ends[1], factor * ends[-2]
            new.restore(values.reshape(-1, one.dim) if one.dim > 1 else values.reshape(-1))
        return found


class CurvilinearSteps:
    """The five steps on a geometry, each as loops over fields that are given; inside a program they are recorded.

    ``walls``: the velocity of those that move, 0 of others. Velocities beyond walls are set where they are read.
    """

    def __init__(self, geometry: CurvilinearGeometry, walls: Walls | None = None):
        self.geometry, self.grid, self.rank = geometry, geometry.grid, geometry.rank
        self._kind = geometry.rank, geometry.orthogonal
        self._star = self.grid.star(1)
        self._cube = self._star if geometry.orthogonal else self.grid.offsets(*_near(self.rank))
        self._forwards = self.grid.offsets(origin(self.rank), *(along(self.rank, a) for a in range(self.rank)))
        self._backwards = self.grid.offsets(origin(self.rank), *(along(self.rank, a, -1) for a in range(self.rank)))
        self._faces = self.grid.box(tuple(-int(not one) for one in geometry.periodic), self.grid.shape)
        self.walls = _walls(geometry, walls or {})
        self._edges = {(one, other): _beyond(geometry, one, other) for one, other in combinations(self.walls, 2)
                       if one[0] != other[0]}  # fmt: skip

    def predict(self, u: ml.Field, faces: ml.Field, dt: ml.Global, nu: ml.Global, u_star: ml.Field) -> None:
        """Step 1: u* from u and U."""
        known, orthogonal = self.geometry, self.geometry.orthogonal
        self.beyond_walls(u)
        metrics = known.base if orthogonal else known.for_velocity
        jacobian = known.jacobian[self._star] if orthogonal else known.jacobian
        kernels.predict_kernel(*self._kind)(self.grid, u[self._cube], faces[self._backwards], jacobian, dt, nu, u_star,
                                            *(one[self._star] for one in metrics))  # fmt: skip

    def interpolate(self, u: ml.Field, faces: ml.Field) -> None:
        """Step 2: U from u, at walls from what is on both sides of them."""
        self.beyond_walls(u)
        forwards = (one[self._forwards] for one in (self.geometry.jacobian, *self.geometry.base))
        kernels.interpolate_kernel(*self._kind)(self._faces, u[self._forwards], next(forwards), faces, *forwards)

    def divergence(self, faces: ml.Field, dt: ml.Global, out: ml.Field) -> None:
        """Step 3: what flows out of each cell, over dt."""
        kernels.divergence_kernel(self.rank)(self.grid, faces[self._backwards], dt, out)

    def pressure_operator(self, p: ml.Field, out: ml.Field) -> None:
        """A of step 4, A p = -divergence; symmetric, and singular: constants have no slope."""
        self._fill(p)
        kernels.pressure_kernel(*self._kind)(self.grid, p[self._cube], out,
                                             *(one[self._star] for one in self.geometry.for_pressure))  # fmt: skip

    def sweep(self, p: ml.Field, faces: ml.Field, dt: ml.Global, out: ml.Field) -> None:
        """Steps 3 and 4 at once: p after one sweep of Jacobi's method, into ``out``."""
        self._fill(p)
        metrics = (one[self._star] for one in self.geometry.for_pressure)
        kernels.sweep_kernel(*self._kind)(self.grid, p[self._cube], faces[self._backwards], dt, out, *metrics)

    def project_points(self, u_star: ml.Field, p: ml.Field, dt: ml.Global, u: ml.Field) -> None:
        """Step 5 at the points: u from u* and p."""
        self._fill(p)
        kernels.project_points_kernel(*self._kind)(self.grid, u_star, p[self._star], dt, u, *self.geometry.base)

    def project_faces(self, p: ml.Field, dt: ml.Global, faces: ml.Field) -> None:
        """Step 5 at the faces: U in place."""
        self._fill(p)
        metrics = (one[self._forwards] for one in self.geometry.for_pressure)
        kernels.project_faces_kernel(*self._kind)(self.grid, p[self._cube], dt, faces, *metrics)

    def beyond_walls(self, u: ml.Field) -> None:
        """Set velocities beyond closed ends, so that the mean on both sides of a wall is the wall's; beyond two walls,
        where each would have another, to the mean of what either asks for, so that no axis comes first."""
        for (axis, side), velocity in self.walls.items():
            inwards = along(self.rank, axis, 1 if side == SIDES[0] else -1)
            kernels.mirror_kernel(inwards)(self.grid.ghost(axis, side), u[self.grid.offsets(inwards)], velocity, u)
        for (one, other), at in self._edges.items():
            both = [along(self.rank, axis, 1 if side == SIDES[0] else -1) for axis, side in (one, other)]
            near, walls = u[self.grid.offsets(*both)], (self.walls[one], self.walls[other])
            kernels.mirror_edge_kernel(*both)(at, near, *walls, u)

    def _fill(self, p: ml.Field) -> None:
        if self.geometry.closed:
            ml.fill_ghosts(p)


class CurvilinearFlow:
    """Velocity ``u`` and pressure ``p`` at the points, ``faces`` (U), and how a step changes them.

    ``points``: the places of the points and of two layers beyond each end, (n + 4, ..., rank): ``points_of``.
    ``periodic``: the axes that are, the others lie between walls. ``tol``: of the pressure, whose equation is solved by
    conjugate gradients with multigrid of a box of as many cells as preconditioner.
    """

    def __init__(self, points: ArrayLike, viscosity: float, *, periodic: bool | Sequence[bool] = True,
                 walls: Walls | None = None, tol: float = 1e-10):  # fmt: skip
        self.geometry = CurvilinearGeometry(metrics_of(points), periodic)
        self.steps, self.tol = CurvilinearSteps(self.geometry, walls), tol
        grid, rank = self.geometry.grid, self.geometry.rank
        self.grid = grid
        self.u, self.u_star, self.faces = (grid.field(name, rank) for name in ("u", "u_star", "faces"))
        self.p, self.b = grid.field("p"), grid.field("b")
        self.dt, self.nu = ml.Global(1.0, "dt"), ml.Global(float(viscosity), "nu")
        self._total = ml.Global(0.0, "total")
        multigrid = ml.linalg.Multigrid(ml.linalg.Poisson(grid, name="pressure of a box"))
        self._solver = ml.linalg.ConjugateGradients(self.steps.pressure_operator, preconditioner=multigrid)
        self._before, self._after = ml.Program(self._to_divergence), ml.Program(self._projected)

    def start(self, velocity: ArrayLike) -> ml.linalg.Report:
        """Begin with a velocity at the points, (*shape, rank); what its U has of divergence is taken out of U."""
        self.u.assign(velocity)
        self.dt.value = 1.0
        self.steps.interpolate(self.u, self.faces)
        self._right_hand_side()
        _check_balance(self.steps, float(self._total.value), self.faces)
        report = self.solve_pressure()
        self.steps.project_faces(self.p, self.dt, self.faces)
        return report

    def step(self, dt: float) -> ml.linalg.Report:
        """Go on by dt; returns how the pressure was found."""
        self.dt.value = dt
        self._before()
        report = self.solve_pressure()
        self._after()
        return report

    def solve_pressure(self, tol: float | None = None) -> ml.linalg.Report:
        """Improve ``p`` until the operator makes ``b`` of it, to the flow's tolerance unless another is given."""
        return self._solver.solve(self.p, self.b, tol=self.tol if tol is None else tol)

    def divergence(self) -> np.ndarray:
        """What flows out of each cell, as U stands, (*shape,)."""
        found, one = self.grid.field("divergence"), ml.Global(1.0, "one")
        self.steps.divergence(self.faces, one, found)
        return found.numpy()

    def _to_divergence(self) -> None:
        self.steps.predict(self.u, self.faces, self.dt, self.nu, self.u_star)
        self.steps.interpolate(self.u_star, self.faces)
        self._right_hand_side()

    def _right_hand_side(self) -> None:
        """-divergence, without its mean, which is rounding: as much flows in through walls as out."""
        self.steps.divergence(self.faces, self.dt, self.b)
        self._total.value = 0.0
        kernels.add_up(self.grid, self.b, self._total)
        kernels.negative_without_mean(self.grid, self._total, 1.0 / self.grid.size, self.b)

    def _projected(self) -> None:
        self.steps.project_points(self.u_star, self.p, self.dt, self.u)
        self.steps.project_faces(self.p, self.dt, self.faces)


def _beyond(geometry: CurvilinearGeometry, *walls: tuple[int, str]) -> Any:
    """The ghosts that lie beyond all of some walls."""
    low, high = [0] * geometry.rank, list(geometry.grid.shape)
    for axis, side in walls:
        low[axis] = -1 if side == SIDES[0] else geometry.grid.shape[axis]
        high[axis] = low[axis] + 1
    return geometry.grid.box(low, high)


def _near(rank: int) -> list[tuple[int, ...]]:
    """The offsets of all points that differ by at most one along at most two axes."""
    return [o for o in np.ndindex(*(3,) * rank) for o in [tuple(i - 1 for i in o)] if sum(map(abs, o)) <= 2]


def _for_each_axis(what: str, given: Any, rank: int) -> tuple[bool, ...]:
    found = (given,) * rank if isinstance(given, bool) else tuple(given)
    if len(found) != rank or not all(isinstance(one, bool | np.bool_) for one in found):
        raise MeshError(f"{what} must be True or False, or one of them for each of the {rank} axes, got {shown(given)}")
    return tuple(map(bool, found))


def _lengths(metrics: CurvilinearMetrics, shape: tuple[int, ...], periodic: tuple[bool, ...]) -> list[float]:
    """Of a box whose cells are as long and wide as those of the grid on average."""
    spread = metrics.spread.reshape(-1, metrics.rank).mean(axis=0)
    return [float((n if p else max(n - 1, 1)) / np.sqrt(s)) for n, p, s in zip(shape, periodic, spread, strict=True)]


def _walls(geometry: CurvilinearGeometry, given: Walls) -> dict[tuple[int, str], ml.Global]:
    """The velocities of all walls, zero where none is given."""
    known = [(axis, side) for axis in geometry.closed for side in SIDES]
    found = {}
    for place, velocity in given.items():
        if place not in known:
            raise MeshError(f"walls: there is none at {shown(place)}; known: {', '.join(map(str, known)) or 'none'}")
        if np.shape(velocity) != (geometry.rank,):
            raise MeshError(f"walls: the velocity at {place} must be {geometry.rank} numbers, got {shown(velocity)}")
    for place in known:
        found[place] = ml.Global(
            np.asarray(given.get(place, np.zeros(geometry.rank)), float), f"wall_{place[0]}_{place[1]}"
        )
    return found


def _check_balance(steps: CurvilinearSteps, outflow: float, faces: ml.Field) -> None:
    """MeshError where more flows out through walls that move than in: no pressure takes such a divergence away."""
    fastest = max((float(np.abs(one.value).max()) for one in steps.walls.values()), default=0.0)
    rounding = 1e-9 * fastest * _wall_area(steps.geometry) + 1e-12 * float(np.abs(faces.numpy()).sum())
    if abs(outflow) > rounding:
        more, less = ("out", "in") if outflow > 0.0 else ("in", "out")
        raise MeshError(f"walls: {abs(outflow):g} more flows {more} through them than {less}; they may move along"
                        " themselves, or so that both are as much")  # fmt: skip


def _wall_area(geometry: CurvilinearGeometry) -> float:
    """Of all walls together, about."""
    volumes, found = geometry.grid.shaped(geometry.jacobian, ghosts=True), 0.0
    for axis in geometry.closed:
        base = geometry.grid.shaped(geometry.base[0 if geometry.orthogonal else axis], ghosts=True)
        areas = np.moveaxis(volumes * np.linalg.norm(base, axis=-1), axis, 0)
        found += float(areas[[0, -1]].sum())
    return found
