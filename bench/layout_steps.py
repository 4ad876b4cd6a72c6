"""What ``bench.layouts`` measures: the five steps of the fractional-step algorithm on fields of any layout.

Two forms of the same steps on a periodic grid of points^3: ``general`` coordinates, where every point has three vectors
grad xi and two of products of them, and ``orthogonal``, lines along x, y and z, whose metrics are one vector and J, as
the counts of the layout paper's Table 6 suggest. Layouts are those of all vector fields; scalars have but one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.kernel.count import loads
from meshloom.solvers.fractional_step.curvilinear import CurvilinearGeometry, CurvilinearSteps
from meshloom.solvers.fractional_step.curvilinear_metrics import metrics_of, points_of

LAYOUTS = ("aos", "soa", "aosoa8", "aosoa16", "aosoa32", "aosoa64")
FORMS = ("general", "orthogonal")
STEPS = ("u*", "interpolate", "Poisson", "project points", "project faces")
TILE = 32  # points of the piece that is repeated along each axis
CHECKED = (6, 5, 64)  # points of the grid on which results are compared with NumPy's: rows as long as vectors ask for
TWISTED, STRETCHED = 0.06, 0.1  # how far points are moved, in lengths of the piece
Shape = tuple[int, ...]


@ml.kernel
def take_over(source: ml.Read, target: ml.Write):
    target[...] = source[0]


@ml.kernel
def compare(one: ml.Read, other: ml.Read, difference: ml.Max, largest: ml.Max):
    difference[...] = np.max(np.abs(one - other))
    largest[...] = np.max(np.abs(other))


# --- grids ------------------------------------------------------------------------------------------------------------


def largest_part(n: int) -> int:
    """The largest divisor of n up to TILE; n itself where there is none but small ones."""
    found = max(part for part in range(1, TILE + 1) if n % part == 0)
    return found if found >= 5 else n


def twisted(piece: Shape) -> Callable[..., list[Any]]:
    """Every coordinate depends on all three indices."""

    def mapping(*index: Any) -> list[Any]:
        angles = [2.0 * np.pi * i / n for i, n in zip(index, piece, strict=True)]
        return [i + TWISTED * n * np.sin(angles[(a + 1) % 3] + a) * np.cos(angles[(a + 2) % 3])
                for a, (i, n) in enumerate(zip(index, piece, strict=True))]  # fmt: skip

    return mapping


def stretched(piece: Shape) -> Callable[..., list[Any]]:
    """Every coordinate depends on its own index."""
    return lambda *index: [i + STRETCHED * n * np.sin(2.0 * np.pi * i / n)
                           for i, n in zip(index, piece, strict=True)]  # fmt: skip


# --- fields and loops -------------------------------------------------------------------------------------------------


class Flow:
    """A periodic grid of one form and values on it, the same at every call. Both repeat one piece, so that large grids
    are made where loops run, and not here."""

    def __init__(self, form: str, shape: Shape):
        self.form, self.shape = form, shape
        piece = tuple(largest_part(n) for n in shape)
        mapping = twisted(piece) if form == "general" else stretched(piece)
        self.geometry = CurvilinearGeometry(metrics_of(points_of(mapping, piece)))
        assert self.geometry.orthogonal == (form == "orthogonal")
        self.grid = ml.Grid(shape, periodic=True, name="flow")
        self.to_piece = ml.Map.computed(self.grid, self.geometry.grid, wound(shape, piece), "to the piece")
        dice, grid = np.random.default_rng(3), self.geometry.grid
        self.u, self.u_star, self.faces = (grid.field(name, 3, data=dice.random((*piece, 3)))
                                           for name in ("u", "u_star", "faces"))  # fmt: skip
        self.p = grid.field("p", data=dice.random(piece))

    def laid(self, layout: str | None) -> Laid:
        return Laid(self, layout)

    def spread_out(self, one: ml.Field, target: ml.Field) -> None:
        """A field of the piece, over and over."""
        take_over(self.grid, one[self.to_piece], target)


def wound(shape: Shape, piece: Shape) -> Callable[[Any], list[Any]]:
    """From the number of a point to that of its like in the piece."""

    def formula(e: Any) -> list[Any]:
        (_, ny, nz), (mx, my, mz) = shape, piece
        i, j, k = e // (ny * nz) % mx, e // nz % ny % my, e % nz % mz
        return [(i * my + j) * mz + k]

    return formula


class Laid:
    """The fields of a flow with all vectors in one layout, or None: as they are made; and the five steps on them."""

    def __init__(self, flow: Flow, layout: str | None):
        self.flow, self.layout, self.grid = flow, layout, flow.grid
        known: dict[ml.Field, ml.Field] = {}

        def moved(one: ml.Field) -> ml.Field:
            if one not in known:
                known[one] = self.grid.field(one.name, one.components or 1, layout=layout if one.dim > 1 else None)
                flow.spread_out(one, known[one])
            return known[one]

        geometry = copy.copy(flow.geometry)
        geometry.grid, geometry.jacobian = flow.grid, moved(geometry.jacobian)
        for part in ("base", "for_velocity", "for_pressure"):
            setattr(geometry, part, tuple(map(moved, getattr(geometry, part))))
        self.steps = CurvilinearSteps(geometry)
        self.u, self.u_star, self.faces, self.p = map(moved, (flow.u, flow.u_star, flow.faces, flow.p))
        self.vector, self.p_new = self.u.like("vector"), self.p.like("p_new")
        self.dt, self.nu = ml.Global(1e-3, "dt"), ml.Global(0.01, "nu")

    def step(self, name: str) -> None:
        """Carry one step out, or record it."""
        match name:
            case "u*":
                self.steps.predict(self.u, self.faces, self.dt, self.nu, self.vector)
            case "interpolate":
                self.steps.interpolate(self.u_star, self.vector)
            case "Poisson":
                self.steps.sweep(self.p, self.faces, self.dt, self.p_new)
            case "project points":
                self.steps.project_points(self.u_star, self.p, self.dt, self.vector)
            case "project faces":
                self.steps.project_faces(self.p, self.dt, self.vector)
            case _:
                raise AssertionError(f"no step is called {name}")

    def loop(self, name: str, wish: ml.Schedule | None = None) -> ml.Loop:
        (made,) = ml.Program(lambda: self.step(name)).operations
        return made if wish is None else made.by(wish)

    def prepared(self, name: str) -> ml.Field:
        """Make ready for one step, whose result will be in the field that is returned."""
        if name == "project faces":
            self.flow.spread_out(self.flow.faces, self.vector)
        return self.p_new if name == "Poisson" else self.vector

    def result(self, name: str) -> np.ndarray:
        """What a step makes."""
        found = self.prepared(name)
        self.step(name)
        return found.numpy()


def difference(one: ml.Field, other: ml.Field) -> float:
    """The largest one, as a share of the largest value; computed where the fields are."""
    found, largest = ml.Global(0.0, "difference"), ml.Global(0.0, "largest")
    compare(one.set, one, other, found, largest)
    return float(found.value) / float(largest.value)


# --- counts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accesses:
    """Of one point, as the paper counts: every value of a neighbour and every component is one access of 8 bytes, and a
    value that is read and written is two."""

    vector_reads: int
    vector_writes: int
    scalar_reads: int
    scalar_writes: int
    flops: int

    @property
    def vector_scalar(self) -> float:
        """V/S."""
        return (self.vector_reads + self.vector_writes) / (self.scalar_reads + self.scalar_writes)

    @property
    def bytes_flops(self) -> float:
        """B/F."""
        every = self.vector_reads + self.vector_writes + self.scalar_reads + self.scalar_writes
        return 8.0 * every / self.flops


def accesses(loop: ml.Loop) -> Accesses:
    """Distinct loads of a loop's graph, and its stores."""
    spec = loop.spec
    read = [spec.params[p] for p, _, _ in loads(o.value for o in spec.outputs)]
    written = [spec.params[p] for p in (o.param for o in spec.outputs)]

    def count(params: list[Any], vectors: bool) -> int:
        return sum(not p.is_global and (p.dim > 1) == vectors for p in params)

    return Accesses(count(read, True), count(written, True), count(read, False), count(written, False),
                    loop.counts.flops)  # fmt: skip
