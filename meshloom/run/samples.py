"""What a run measures as it goes: values at points (probes), along lines, and integrals over parts.

A case is told by its settings, a script by arguments; both give the same wishes (``Wishes``), and fields by name
(``Sampled``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from meshloom.errors import nearest, shown
from meshloom.io.rank_rows import AnyRows, RankRows
from meshloom.mesh.grid import Grid
from meshloom.mesh.integrals import Shares
from meshloom.mesh.locate import Spot
from meshloom.mesh.mesh import Mesh
from meshloom.process.ranks import on_root
from meshloom.records import dataclass

MOST_POINTS = 100_000  # of a line
USUAL_POINTS, USUAL_EVERY = 200, 10
EVERYWHERE = "whole"


# --- what is wished for -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """Values of fields (all, where none is named) at a place."""

    at: tuple[float, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Track:
    """The same at so many places from one to another."""

    start: tuple[float, ...]
    end: tuple[float, ...]
    points: int = USUAL_POINTS
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Integral:
    """Of a field over all cells, those of a region, or the faces of a boundary group, there also times the normal, out
    of the domain."""

    of: str
    over: str = EVERYWHERE
    normal: bool = False


@dataclass(frozen=True)
class Wishes:
    """All of them by name. ``every``: iterations between rows; 0 leaves it to what there is to measure."""

    probes: Mapping[str, Probe] = field(default_factory=dict)
    tracks: Mapping[str, Track] = field(default_factory=dict)
    integrals: Mapping[str, Integral] = field(default_factory=dict)
    surface: tuple[str, ...] = ()  # boundary groups whose faces are written beside the fields
    every: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self.probes or self.tracks or self.integrals or self.surface)

    @property
    def rows_every(self) -> int:
        """Iterations between rows; 0 where there is one at the end."""
        return self.every or (USUAL_EVERY if self.probes or self.integrals else 0)


def probe(value: Any) -> Probe:
    """[x, y] or {at = [x, y], fields = ["mach"]}; ValueError with what is wrong."""
    if isinstance(value, Mapping):
        parts = _parts(value, {"at", "fields"}, {"at"})
        return Probe(_place("at", parts["at"]), _words("fields", parts.get("fields", ())))
    return Probe(_place("", value))


def line(value: Any) -> Track:
    """{from = [x, y], to = [x, y], points = 100, fields = ["mach"]}."""
    if not isinstance(value, Mapping):
        raise ValueError(f"takes {{from = [x, y], to = [x, y], points = {USUAL_POINTS}}}, got {shown(value)}")
    parts = _parts(value, {"from", "to", "points", "fields"}, {"from", "to"})
    points = parts.get("points", USUAL_POINTS)
    if type(points) is not int or not 2 <= points <= MOST_POINTS:
        raise ValueError(f"has points {shown(points)}; it must be a whole number from 2 to {MOST_POINTS}")
    start, end = _place("from", parts["from"]), _place("to", parts["to"])
    if len(start) != len(end) or start == end:
        raise ValueError(f"must lead from one place to another, got from {list(start)} to {list(end)}")
    return Track(start, end, points, _words("fields", parts.get("fields", ())))


def integral(value: Any) -> Integral:
    """ "pressure" or {of = "pressure", over = "wall", normal = true}."""
    if isinstance(value, str):
        return Integral(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"takes the name of a field or {{of = field, over = group}}, got {shown(value)}")
    parts = _parts(value, {"of", "over", "normal"}, {"of"})
    normal = parts.get("normal", False)
    for key in ("of", "over"):
        if not isinstance(parts.get(key, ""), str):
            raise ValueError(f"has {key} {shown(parts[key])}; it must be a name")
    if not isinstance(normal, bool):
        raise ValueError(f"has normal {shown(normal)}; it must be true or false")
    return Integral(parts["of"], parts.get("over", EVERYWHERE), normal)


def _parts(value: Mapping[str, Any], known: set[str], needed: set[str]) -> Mapping[str, Any]:
    for key in value:
        if key not in known:
            raise ValueError(f"has the unknown key {shown(key)}{nearest(str(key), sorted(known))}")
    for key in sorted(needed - set(value)):
        raise ValueError(f"has no {key}; it takes {', '.join(sorted(known))}")
    return value


def _place(key: str, value: Any) -> tuple[float, ...]:
    numbers = value if isinstance(value, list | tuple | np.ndarray) else ()
    right = [isinstance(v, int | float | np.number) and not isinstance(v, bool) and math.isfinite(v) for v in numbers]
    if not 1 <= len(right) <= 3 or not all(right):
        what = f"has {key} {shown(value)}" if key else f"is {shown(value)}"
        raise ValueError(f"{what}; a place is [x, y], or [x, y, z] in space")
    return tuple(map(float, numbers))


def _words(key: str, value: Any) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(one, str) for one in words):
        raise ValueError(f"has {key} {shown(value)}; it takes names in brackets")
    return tuple(words)


# --- what there is ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PickedRows:
    """Rows of some numbers, ascending, that every rank has: ``picked[number]``, or ``picked[numbers]``."""

    numbers: np.ndarray
    values: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __getitem__(self, numbers: Any) -> np.ndarray:
        return self.values[np.searchsorted(self.numbers, numbers)]


@dataclass(frozen=True)
class Sampled:
    """Fields as they are now: on cells and nodes of a mesh, (n, ...) each, or at points of a grid, (*shape, ...).
    ``positions`` (nodes, d): where the nodes of a mesh that moves are. Of several ranks each may have its own rows
    (``RankRows``), of a grid those of points in a row."""

    home: Mesh | Grid
    cells: Mapping[str, AnyRows | PickedRows] = field(default_factory=dict)
    nodes: Mapping[str, AnyRows | PickedRows] = field(default_factory=dict)
    points: Mapping[str, AnyRows | PickedRows] = field(default_factory=dict)
    positions: np.ndarray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.cells, *(n for n in self.nodes if n not in self.cells), *self.points)

    @property
    def dim(self) -> int:
        return self.home.rank if isinstance(self.home, Grid) else self.home.dim

    def rows(self, name: str) -> AnyRows | PickedRows:
        """The values of a field, (n, ...); the points of a grid in a row."""
        if name in self.points:
            values = self.points[name]
            return values.reshape(-1, *values.shape[self.dim :]) if isinstance(values, np.ndarray) else values
        return self.cells[name] if name in self.cells else self.nodes[name]

    def near(self, spots: Iterable[Spot]) -> Sampled:
        """The same with the rows on every rank that some places need, which their owners give; all must ask."""
        listed = list(spots)
        cells = np.array(sorted({one.cell for one in listed if one.cell >= 0}), np.int64)
        others = np.array(sorted({number for one in listed for number in one.elements.tolist()}), np.int64)

        def picked(rows: AnyRows | PickedRows, numbers: np.ndarray) -> AnyRows | PickedRows:
            if not isinstance(rows, RankRows):
                return rows
            return PickedRows(numbers, rows.taken(numbers).gathered())

        return replace(self, cells={name: picked(rows, cells) for name, rows in self.cells.items()},
                       nodes={name: picked(rows, others) for name, rows in self.nodes.items()},
                       points={name: picked(rows, others) for name, rows in self.points.items()})  # fmt: skip

    def at(self, spot: Spot, name: str) -> np.ndarray:
        """The components of a field at a place, (k,), which it is near."""
        values = self.rows(name)
        assert not isinstance(values, RankRows)
        if name in self.cells:
            return np.asarray(values[spot.cell], float).reshape(-1)
        near = replace(spot, elements=np.arange(len(spot.elements)))
        value = near.of_points(values[spot.elements])
        return np.asarray(value, float).reshape(-1)

    def integral(self, shares: Shares, name: str) -> np.ndarray:
        """That of a field, (k,): its components, or those of the normal. The root has the rows that it is made of."""
        values = self.rows(name)
        assert not isinstance(values, PickedRows)
        if not isinstance(values, RankRows):
            return shares.of(values)
        rows = values.taken(np.arange(values.count)[shares.elements]).on_root()
        return on_root(lambda: replace(shares, elements=slice(None)).of(rows))

    def components(self, name: str) -> list[str]:
        """``[""]`` of a number, ``["[0]", "[1]"]`` of a vector."""
        shape = self.rows(name).shape[1:]
        return [""] if math.prod(shape) == 1 and not shape else [f"[{k}]" for k in range(math.prod(shape))]
