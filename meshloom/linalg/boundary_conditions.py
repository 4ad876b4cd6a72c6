"""Boundary conditions of a grid of cells as a person gives them, and where the edges of cells are; checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, nearest, shown
from meshloom.linalg.axis_cells import DIRICHLET, NEUMANN, PERIODIC, AxisCells
from meshloom.mesh.box import AXES
from meshloom.mesh.grid import Grid
from meshloom.mesh.values import same_kind


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """The value at a side: a number, or an array of the shape of the side."""

    value: ArrayLike = 0.0


@dataclass(frozen=True, eq=False)
class Neumann:
    """The slope at a side along the normal that points outwards: a number, or an array of the shape of the side."""

    slope: ArrayLike = 0.0


BoundaryCondition = str | Dirichlet | Neumann | None
BoundaryConditions = BoundaryCondition | Sequence[BoundaryCondition]


@dataclass(frozen=True, eq=False)
class SideCondition:
    """What holds at one side: DIRICHLET, NEUMANN or PERIODIC, and the ``value`` or slope there, which fits the side."""

    kind: str
    value: np.ndarray


def conditions_of(name: str, grid: Grid, which: str, given: BoundaryConditions) -> list[SideCondition]:
    """What holds at the ``which`` ("low" or "high") side of every axis: one for all axes, or one for each. Periodic
    axes have no sides: one for all passes over them, in a list they are None or "periodic"."""
    several = isinstance(given, list | tuple)
    if all(grid.periodic) and not several and _kind(f"{name}: {which}", given)[0] == DIRICHLET:
        raise MeshError(f"{name}: {which} holds a value, but grid {grid.name} is periodic along every axis and has no"
                        " sides; make it with periodic=False")  # fmt: skip
    if several and len(given) != grid.rank:  # type: ignore[arg-type]
        raise MeshError(f"{name}: {which} has {len(given)} entries, but grid {grid.name} has {grid.rank} axes")  # type: ignore[arg-type]
    listed: Sequence[Any] = given if several else [given] * grid.rank  # type: ignore[assignment]
    return [_side(name, grid, which, a, one, alone=several) for a, one in enumerate(listed)]


def _side(name: str, grid: Grid, which: str, axis: int, given: Any, *, alone: bool) -> SideCondition:
    """``alone``: it was given for this axis, not for all."""
    where = f"{name}: {which} side of axis {AXES[axis]}"
    kind, value = _kind(where, given)
    if grid.periodic[axis]:
        if alone and kind not in (None, PERIODIC):
            raise MeshError(f"{where}: grid {grid.name} is periodic there; give None, or make it with periodic=False")
        return SideCondition(PERIODIC, np.zeros(()))
    if kind in (None, PERIODIC):
        raise MeshError(f"{where}: grid {grid.name} is closed there; give {DIRICHLET!r} or {NEUMANN!r}, or make it with"
                        " periodic=True")  # fmt: skip
    array = same_kind(value, np.dtype(np.float64), where)
    shape = tuple(n for a, n in enumerate(grid.shape) if a != axis)
    if array.shape not in ((), shape):
        raise MeshError(f"{where}: its values must be one number or have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise MeshError(f"{where}: its values must be finite")
    return SideCondition(str(kind), array if array.shape == () else np.expand_dims(array, axis))


def _kind(where: str, given: Any) -> tuple[str | None, ArrayLike]:
    if isinstance(given, Dirichlet):
        return DIRICHLET, given.value
    if isinstance(given, Neumann):
        return NEUMANN, given.slope
    kinds = (DIRICHLET, NEUMANN, PERIODIC)
    if given is None or (isinstance(given, str) and given in kinds):
        return given, 0.0
    hint = nearest(given, kinds) if isinstance(given, str) else ""
    raise MeshError(f"{where}: {DIRICHLET!r}, {NEUMANN!r}, ml.linalg.Dirichlet(value) or ml.linalg.Neumann(slope), got"
                    f" {shown(given)}{hint}")  # fmt: skip


def cells_of(name: str, grid: Grid, edges: Sequence[ArrayLike | None] | None, low: list[SideCondition],
             high: list[SideCondition]) -> list[AxisCells]:  # fmt: skip
    """The cells along each axis."""
    if edges is None:
        edges = [None] * grid.rank
    if not isinstance(edges, list | tuple) or len(edges) != grid.rank:
        raise MeshError(f"{name}: edges are one array or None for each of the {grid.rank} axes, got {shown(edges)}")
    found = []
    for a, given in enumerate(edges):
        at, centres = (_around(grid, a), grid.coordinates[a]) if given is None else _given(name, grid, a, given)
        found.append(AxisCells(at, centres, low[a].kind, high[a].kind))
    return found


def _around(grid: Grid, axis: int) -> np.ndarray:
    """Edges halfway between points; a closed axis ends as far behind its last points as that."""
    x, h = grid.coordinates[axis], grid.spacing[axis]
    if grid.uniform[axis]:
        return x[0] + h * (np.arange(len(x) + 1) - 0.5)
    if grid.periodic[axis]:
        x = np.concatenate([[x[-1] - grid.extent[axis]], x, [x[0] + grid.extent[axis]]])
        return 0.5 * (x[1:] + x[:-1])
    half = 0.5 * np.diff(x) if len(x) > 1 else np.full(1, 0.5 * h)
    return np.concatenate([[x[0] - half[0]], x[:-1] + half[: len(x) - 1], [x[-1] + half[-1]]])


def _given(name: str, grid: Grid, axis: int, given: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Edges as a person gives them, with the centres in the middle; the points of the grid must lie in their cells."""
    where, n, x = f"{name}: edges of axis {AXES[axis]}", grid.shape[axis], grid.coordinates[axis]
    at = np.array(same_kind(given, np.dtype(np.float64), where))
    if at.shape != (n + 1,) or not np.isfinite(at).all() or not (np.diff(at) > 0.0).all():
        raise MeshError(f"{where} must be {n + 1} ascending numbers")
    slack = 1e-9 * (at[-1] - at[0])
    wrong = np.flatnonzero((x < at[:-1] - slack) | (x > at[1:] + slack))
    if len(wrong):
        i = int(wrong[0])
        raise MeshError(f"{where}: point {i} of grid {grid.name} lies at {x[i]:g}, outside of its cell from {at[i]:g}"
                        f" to {at[i + 1]:g}")  # fmt: skip
    if grid.periodic[axis] and abs(at[-1] - at[0] - grid.extent[axis]) > slack:
        raise MeshError(f"{where} go from {at[0]:g} to {at[-1]:g}, but the periodic axis is {grid.extent[axis]:g} long")
    return at, 0.5 * (at[1:] + at[:-1])
