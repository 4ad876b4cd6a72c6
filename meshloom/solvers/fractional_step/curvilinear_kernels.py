"""The five steps of Algorithm 1 in general coordinates, as kernels for two and three axes.

At a point: velocity u (Cartesian components), pressure p, and the metrics of ``curvilinear_metrics.py``: J, a scalar,
and vectors of grad xi_d (``base``), J |grad xi_d|^2 (``spread``) and J grad xi_d . grad xi_e (``shear``). On faces:
U_d, the volume that flows through the face between a point and the next along axis d per unit of time, kept as
component d of a vector at that point.

Flows through a face by slopes of q: differences across the face, times the mean ``spread`` of its two points, and the
mean of what ``shear`` makes of central differences at these points. As an operator on p that is symmetric, and no p but
a constant gives zero. Where coordinate lines run along x, y and z, ``base`` is one vector of the d xi_d / d x_d, and
there is no shear: ``orthogonal`` kernels, which read less.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.cells import Offset, along, moved
from meshloom.solvers.fractional_step.curvilinear_metrics import pairs

RELAXED = 2.0 / 3.0  # of the way that a sweep of Jacobi's method goes


def origin(rank: int) -> Offset:
    return (0,) * rank


class Formulas:
    """What all kernels of one kind of grid have in common: how metrics make flows of differences."""

    def __init__(self, rank: int, orthogonal: bool):
        self.rank, self.orthogonal, self.axes = rank, orthogonal, range(rank)
        self.here = origin(rank)
        self._shear_number = {pair: k for k, pair in enumerate(pairs(rank))}

    def spread(self, metrics: Any, axis: int, at: Offset) -> Any:
        """J |grad xi|^2 at a point: stored, or from J and d xi / d x."""
        if not self.orthogonal:
            return metrics[0][at][axis]
        jacobian, base = metrics
        return jacobian[at] * base[at][axis] * base[at][axis]

    def through(self, metrics: Any, axis: int, at: Offset) -> Any:
        """The mean spread at the face between a point and the next along an axis."""
        return 0.5 * (self.spread(metrics, axis, at) + self.spread(metrics, axis, moved(at, along(self.rank, axis))))

    def sheared(self, metrics: Any, q: Any, axis: int, at: Offset) -> Any:
        """At a point, what flows along an axis by central differences of q along the others."""
        total: Any = 0.0
        for other in self.axes if not self.orthogonal else ():
            if other != axis:
                step = along(self.rank, other)
                slope = 0.5 * (q[moved(at, step)] - q[moved(at, along(self.rank, other, -1))])
                total = total + self._shear(metrics[1], axis, other, at) * slope
        return total

    def _shear(self, shear: Any, axis: int, other: int, at: Offset) -> Any:
        number = self._shear_number[min(axis, other), max(axis, other)]
        return shear[at][number] if len(self._shear_number) > 1 else shear[at]

    def flow(self, metrics: Any, q: Any, axis: int) -> Any:
        """Through the face between the point and the next along an axis, by the slope of q."""
        step = along(self.rank, axis)
        across = self.through(metrics, axis, self.here) * (q[step] - q[self.here])
        if self.orthogonal:
            return across
        sheared = self.sheared(metrics, q, axis, self.here) + self.sheared(metrics, q, axis, step)
        return across + 0.5 * sheared

    def gained(self, metrics: Any, q: Any) -> Any:
        """What flows into the cell of the point by slopes of q; shear at the point itself cancels."""
        total: Any = 0.0
        for axis in self.axes:
            step, back = along(self.rank, axis), along(self.rank, axis, -1)
            above = self.through(metrics, axis, self.here) * (q[step] - q[self.here])
            below = self.through(metrics, axis, back) * (q[self.here] - q[back])
            total = total + (above - below)
            if not self.orthogonal:
                total = total + 0.5 * (self.sheared(metrics, q, axis, step) - self.sheared(metrics, q, axis, back))
        return total

    def carried_away(self, faces: Any, u: Any) -> Any:
        """What flows out of the cell with the volume, at the mean velocities of neighbours."""
        total: Any = 0.0
        for axis in self.axes:
            step, back = along(self.rank, axis), along(self.rank, axis, -1)
            above = faces[self.here][axis] * (u[self.here] + u[step])
            total = total + 0.5 * (above - faces[back][axis] * (u[back] + u[self.here]))
        return total

    def outflow(self, faces: Any) -> Any:
        """The volume that flows out of the cell per unit of time: J div u."""
        total: Any = 0.0
        for axis in self.axes:
            total = total + (faces[self.here][axis] - faces[along(self.rank, axis, -1)][axis])
        return total

    def volume_flow(self, jacobian: Any, base: Any, u: Any, axis: int) -> Any:
        """U through the face between the point and the next: the mean of J grad xi times the mean of u."""
        step = along(self.rank, axis)
        if self.orthogonal:
            area = jacobian[self.here] * base[0][self.here][axis] + jacobian[step] * base[0][step][axis]
            return 0.25 * (area * (u[self.here][axis] + u[step][axis]))
        area = jacobian[self.here] * base[axis][self.here] + jacobian[step] * base[axis][step]
        return 0.25 * np.sum(area * (u[self.here] + u[step]))

    def slopes(self, base: Any, p: Any) -> Any:
        """grad p at the point: central differences along the axes, and what these point to; ``base`` there."""
        steps = [0.5 * (p[along(self.rank, a)] - p[along(self.rank, a, -1)]) for a in self.axes]
        if self.orthogonal:
            return np.stack([base[0][a] * steps[a] for a in self.axes])
        total = base[0] * steps[0]
        for axis in self.axes[1:]:
            total = total + base[axis] * steps[axis]
        return total


@cache
def predict_kernel(rank: int, orthogonal: bool) -> ml.Kernel:
    """Step 1: u* = u + dt (-u . grad u + nu lap u), in the form that conserves energy where div U is zero."""
    formulas = Formulas(rank, orthogonal)

    @ml.kernel
    def predict(u: ml.Read, faces: ml.Read, jacobian: ml.Read, dt: ml.Read, nu: ml.Read, u_star: ml.Write,
                *metrics: ml.Read):  # fmt: skip
        known = (jacobian, *metrics) if orthogonal else metrics
        volume = jacobian[formulas.here] if orthogonal else jacobian
        rate = nu * formulas.gained(known, u) - formulas.carried_away(faces, u)
        u_star[...] = u[formulas.here] + dt / volume * rate

    return predict


@cache
def interpolate_kernel(rank: int, orthogonal: bool) -> ml.Kernel:
    """Step 2: U at faces from u at points."""
    formulas = Formulas(rank, orthogonal)

    @ml.kernel
    def interpolate(u: ml.Read, jacobian: ml.Read, faces: ml.Write, *base: ml.Read):
        faces[...] = np.stack([formulas.volume_flow(jacobian, base, u, axis) for axis in formulas.axes])

    return interpolate


@cache
def divergence_kernel(rank: int) -> ml.Kernel:
    """Step 3: what flows out of each cell per unit of time, over dt."""
    formulas = Formulas(rank, True)

    @ml.kernel
    def divergence(faces: ml.Read, dt: ml.Read, out: ml.Write):
        out[...] = formulas.outflow(faces) / dt

    return divergence


@cache
def pressure_kernel(rank: int, orthogonal: bool) -> ml.Kernel:
    """The operator of step 4, -J lap p: symmetric, positive but for constants."""
    formulas = Formulas(rank, orthogonal)

    @ml.kernel
    def pressure_operator(p: ml.Read, out: ml.Write, *metrics: ml.Read):
        out[...] = -formulas.gained(metrics, p)

    return pressure_operator


@cache
def sweep_kernel(rank: int, orthogonal: bool) -> ml.Kernel:
    """Steps 3 and 4 at once: a sweep of Jacobi's method for the pressure that takes the divergence of U away."""
    formulas = Formulas(rank, orthogonal)

    @ml.kernel
    def sweep(p: ml.Read, faces: ml.Read, dt: ml.Read, out: ml.Write, *metrics: ml.Read):
        own: Any = 0.0
        for axis in formulas.axes:
            own = own + (formulas.through(metrics, axis, formulas.here)
                         + formulas.through(metrics, axis, along(rank, axis, -1)))  # fmt: skip
        missing = formulas.gained(metrics, p) - formulas.outflow(faces) / dt
        out[...] = p[formulas.here] + RELAXED * missing / own

    return sweep


@cache
def project_points_kernel(rank: int, orthogonal: bool) -> ml.Kernel:
    """Step 5 at points: u = u* - dt grad p."""
    formulas = Formulas(rank, orthogonal)

    @ml.kernel
    def project_points(u_star: ml.Read, p: ml.Read, dt: ml.Read, u: ml.Write, *base: ml.Read):
        u[...] = u_star - dt * formulas.slopes(base, p)

    return project_points


@cache
def project_faces_kernel(rank: int, orthogonal: bool) -> ml.Kernel:
    """Step 5 at faces: U = U* - dt J grad xi . grad p, with the slopes of the operator of step 4."""
    formulas = Formulas(rank, orthogonal)

    @ml.kernel
    def project_faces(p: ml.Read, dt: ml.Read, faces: ml.ReadWrite, *metrics: ml.Read):
        faces[...] = faces - dt * np.stack([formulas.flow(metrics, p, axis) for axis in formulas.axes])

    return project_faces


@cache
def mirror_kernel(offset: Offset) -> ml.Kernel:
    """Beyond a wall: so that the mean of what is on both sides is the wall's velocity."""

    @ml.kernel
    def mirror(inside: ml.Read, wall: ml.Read, u: ml.Write):
        values: Any = inside
        u[...] = 2.0 * wall - values[offset]

    return mirror


@cache
def mirror_edge_kernel(first: Offset, second: Offset) -> ml.Kernel:
    """Beyond two walls: the mean of what mirroring at either makes of its neighbour beyond the other."""

    @ml.kernel
    def mirror_edge(near: ml.Read, wall: ml.Read, other: ml.Read, u: ml.Write):
        values: Any = near
        u[...] = wall + other - 0.5 * (values[first] + values[second])

    return mirror_edge


@ml.kernel
def add_up(b: ml.Read, total: ml.Sum):
    total += b


@ml.kernel
def negative_without_mean(total: ml.Read, share: ml.Read, b: ml.ReadWrite):
    b[...] = total * share - b
