"""Programs of loops of the zoo: a stage of second-order finite volumes, an iteration of conjugate gradients without a
matrix, and an assembly with its product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from bench.exclusive import alone
from bench.race_loop import Device
from bench.zoo.elements import jacobian, simplex
from bench.zoo.scene import Scene, mesh_of
from bench.zoo.volumes import UNKNOWNS, euler_flux, limiter_bounds, state
from meshloom.case.schedules import apply_schedules

#: Largest difference from NumPy in double after some replays, as a share of the largest value.
PROGRAM_TOLERANCE = {"float64": 1e-10, "float32": 1e-3}
Stepped = tuple[ml.Program, Callable[[], np.ndarray]]  # and what it has computed


@ml.kernel
def five_gradients(n: ml.Read, q: ml.Read, g: ml.Inc):
    """Green-Gauss gradients of five unknowns, times volume."""
    for k in range(UNKNOWNS):
        middle = 0.5 * (q[0, k] + q[1, k])
        for a in range(3):
            g[0, k, a] += middle * n[a]
            g[1, k, a] -= middle * n[a]


@ml.kernel
def reconstructed_flux(n: ml.Read, at: ml.Read, c: ml.Read, q: ml.Read, g: ml.Read, low: ml.Read, high: ml.Read,
                       r: ml.Inc):  # fmt: skip
    """Rusanov's flux between states that are extrapolated to the face and kept within their neighbours' bounds."""
    sides = []
    for s in range(2):
        reach = [at[a] - c[s, a] for a in range(3)]
        there = [q[s, k] + sum(g[s, k, a] * reach[a] for a in range(3)) for k in range(UNKNOWNS)]
        sides.append([np.minimum(np.maximum(there[k], low[s, k]), high[s, k]) for k in range(UNKNOWNS)])
    (left, wave_left), (right, wave_right) = euler_flux(sides[0], n), euler_flux(sides[1], n)
    wave = np.maximum(wave_left, wave_right)
    for k in range(UNKNOWNS):
        flux = 0.5 * (left[k] + right[k] - wave * (sides[1][k] - sides[0][k]))
        r[0, k] -= flux
        r[1, k] += flux


@ml.kernel
def own_state(q: ml.Read, low: ml.Write, high: ml.Write):
    low[...] = q
    high[...] = q


@ml.kernel
def advanced(volume: ml.Read, r: ml.ReadWrite, g: ml.ReadWrite, q: ml.ReadWrite):
    """A step of explicit Euler, and what the next one adds to is zero."""
    q += 1e-4 * r / volume
    r[...] = 0.0
    g[...] = 0.0


@ml.kernel
def divided(volume: ml.Read, g: ml.ReadWrite):
    g /= volume


def finite_volume_stage(at: Scene) -> Stepped:
    mesh, to = at.mesh, at.mesh.face_cells
    q, r = state(at, mesh.cells), at.result(mesh.cells, "r", UNKNOWNS)
    low, high = at.result(mesh.cells, "low", UNKNOWNS), at.result(mesh.cells, "high", UNKNOWNS)
    g = at.result(mesh.cells, "g", (UNKNOWNS, 3))
    n = at.of(mesh.faces, "normal", 3, lambda: mesh.face_normals)
    centres = at.of(mesh.faces, "at", 3, lambda: mesh.face_centres)
    c = at.of(mesh.cells, "c", 3, lambda: mesh.cell_centroids)
    volume = at.of(mesh.cells, "volume", 1, lambda: mesh.cell_volumes)

    def stage() -> None:
        five_gradients(mesh.faces, n, q[to], g[to])
        divided(mesh.cells, volume, g)
        own_state(mesh.cells, q, low, high)
        limiter_bounds(mesh.faces, q[to], low[to], high[to])
        reconstructed_flux(mesh.faces, n, centres, c[to], q[to], g[to], low[to], high[to], r[to])
        advanced(mesh.cells, volume, r, g, q)

    return ml.program(stage), q.numpy


@ml.kernel
def helmholtz(x: ml.Read, p: ml.Read, y: ml.Inc):
    """Stiffness plus mass of a tetrahedron with linear functions, times a vector: positive definite."""
    gradients = simplex(3)
    det, inv = jacobian(x, gradients, 3)
    slopes = [p[a + 1] - p[0] for a in range(3)]
    flux = [det / 6 * sum(inv[b][a] * slopes[a] for a in range(3)) for b in range(3)]
    back = [sum(inv[b][a] * flux[b] for b in range(3)) for a in range(3)]
    total = p[0] + p[1] + p[2] + p[3]
    for k in range(4):
        y[k] += sum(g * one for g, one in zip(gradients[k], back, strict=True)) + det / 120 * (total + p[k])


@ml.kernel
def dot(p: ml.Read, q: ml.Read, total: ml.Sum):
    total += p * q


@ml.kernel
def length(rr: ml.Read, pq: ml.Read, alpha: ml.Write):
    alpha[...] = rr / pq


@ml.kernel
def moved(alpha: ml.Read, p: ml.Read, y: ml.ReadWrite, x: ml.ReadWrite, r: ml.ReadWrite, rr: ml.Sum):
    x += alpha * p
    r -= alpha * y
    rr += r * r
    y[...] = 0.0


@ml.kernel
def share(new: ml.Read, old: ml.ReadWrite, beta: ml.Write):
    beta[...] = new / old
    old[...] = new


@ml.kernel
def turned(beta: ml.Read, r: ml.Read, p: ml.ReadWrite):
    p[...] = r + beta * p


def conjugate_gradients(at: Scene) -> Stepped:
    nodes, once = at.mesh.nodes, ml.Set(1, "once")
    b = at.given(nodes, "b")
    x, y, r, p = at.result(nodes, "x"), at.result(nodes, "y"), at.given(nodes, "b"), at.given(nodes, "b")
    place = at.points()
    values = b.numpy().astype(float)
    rr, pq, new = ml.Global(float(values @ values), "rr"), ml.Global(0.0, "pq"), ml.Global(0.0, "new")
    alpha, beta = ml.Global(0.0, "alpha"), ml.Global(0.0, "beta")

    def iteration() -> None:
        helmholtz(at.cells, place[at.nodes], p[at.nodes], y[at.nodes])
        pq.value = 0.0
        dot(nodes, p, y, pq)
        length(once, rr, pq, alpha)
        new.value = 0.0
        moved(nodes, alpha, p, y, x, r, new)
        share(once, new, rr, beta)
        turned(nodes, beta, r, p)

    return ml.program(iteration), x.numpy


@ml.kernel
def stiffness(x: ml.Read, m: ml.Inc):
    """A tetrahedron's matrix of linear functions, entry by entry."""
    gradients = simplex(3)
    det, inv = jacobian(x, gradients, 3)
    space = [[sum(inv[b][a] * g[a] for a in range(3) if g[a]) for b in range(3)] for g in gradients]
    for i in range(4):
        for j in range(4):
            m[i, j] += det / 6 * sum(space[i][b] * space[j][b] for b in range(3))


def assembly_and_product(at: Scene) -> Stepped:
    nodes = at.mesh.nodes
    matrix = ml.Matrix(nodes, through=at.nodes, dtype=at.precision)
    u, v, place = at.given(nodes, "u"), at.result(nodes, "v"), at.points()

    def assembled() -> None:
        matrix.values.fill(0.0)
        stiffness(at.cells, place[at.nodes], matrix[at.nodes])
        matrix.multiply(u, v)

    return ml.program(assembled), v.numpy


PROGRAMS: dict[str, Callable[[Scene], Stepped]] = {
    "finite_volume_stage": finite_volume_stage,
    "conjugate_gradients": conjugate_gradients,
    "assembly_and_product": assembly_and_product,
}


@dataclass(frozen=True)
class Timed:
    """A program on one mesh, fused or loop by loop, by a schedule: as loops, checked, then timed."""

    name: str
    scene: Scene
    steps: int = 3  # until results are compared

    def expected(self) -> np.ndarray:
        ml.use("numpy")
        program, found = PROGRAMS[self.name](self.scene.with_fields("float64", None))
        program.run(self.steps)
        return found()

    def row(self, precision: str, schedule: str, fuse: bool, expected: np.ndarray, device: Device) -> dict[str, Any]:
        """Milliseconds of a replay, and the largest difference as a share of the largest value."""
        ml.use(device.backend)
        program, found = PROGRAMS[self.name](self.scene.with_fields(precision, None))
        program = program if fuse else ml.Program(program.function, fuse=False)
        apply_schedules({"default": {"strategy": schedule}}, program)
        with alone():
            program.run(self.steps)
            error = float(np.abs(found() - expected).max() / np.abs(expected).max())
            row = {"strategy": schedule, "fused": fuse}
            if not error <= PROGRAM_TOLERANCE[precision]:
                return row | {"wrong": error}
            return row | {"ms": device.seconds(lambda: program.run(1)) * 1e3, "error": error}


def scene_of(family: str, size: int, order: str) -> Scene:
    """Programs run on tetrahedra, and of mixed meshes on all faces and on those of their cells that are tetrahedra."""
    return Scene(mesh_of(family, "tetrahedron", size, order), "tetrahedron")
