"""A case as plain data: it is built on each back end, printed as a program, and made smaller when it shows a
difference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import meshloom as ml
from tests.fuzz.tree import Node, nodes_of

Index = tuple[int, ...]


@dataclass(frozen=True)
class GridOf:
    """A structured grid: how it is made."""

    shape: Index
    periodic: tuple[bool, ...]
    ghosts: Index
    aligned: bool = False

    def make(self, name: str) -> ml.Grid:
        return ml.Grid(self.shape, periodic=self.periodic, ghosts=self.ghosts, aligned=self.aligned, name=name)

    def as_set(self) -> SetOf:
        """With a row for every place in memory: points, ghosts and what is beside the rows."""
        places, points = self.make("g").total, int(np.prod(self.shape))
        return SetOf(points, places - points, grid=self)

    def steps(self, axis: int, low: int, high: int) -> tuple[int, int]:
        """How far an offset may go down and up along an axis from points between two indices."""
        ghosts = self.ghosts[axis]
        if self.periodic[axis] and not ghosts:
            return 2, 2
        return min(low + ghosts, 2), min(self.shape[axis] + ghosts - high, 2)

    def __str__(self) -> str:
        return f"ml.Grid({self.shape}, periodic={self.periodic}, ghosts={self.ghosts}, aligned={self.aligned})"


@dataclass(frozen=True)
class SetOf:
    """``grid``: a structured grid instead of a size alone."""

    size: int
    halo: int = 0
    numbering: tuple[int, ...] | None = None
    grid: GridOf | None = None

    @property
    def total(self) -> int:
        return self.size + self.halo


@dataclass(frozen=True)
class MapOf:
    source: int
    target: int
    rows: np.ndarray  # (source.total, arity)
    wide: bool = False  # 64-bit indices

    @property
    def distinct(self) -> bool:
        return len(np.unique(self.rows)) == self.rows.size


@dataclass(frozen=True)
class Storage:
    """A field (``on`` a set) or a Global (``on`` is None); ``data`` has shape (n,), (n, dim), () or (dim,).

    ``components``: the shape of the field's components, where it is not (dim,); kernels flatten it before they begin.
    """

    data: np.ndarray
    dim: int
    on: int | None = None
    layout: str | None = None
    components: Index | None = None


@dataclass(frozen=True)
class Param:
    """An argument: storage ``which``, through ``through`` (a map, or offsets), in a mode."""

    which: int
    mode: str
    through: int | None = None
    offsets: tuple[Index, ...] = ()


@dataclass(frozen=True)
class Statement:
    """``param[index] op value``; ``op``: "=", "+=", "-=" or "*="."""

    param: int
    index: tuple[Any, ...]
    op: str
    value: Node


@dataclass(frozen=True)
class LoopOf:
    """``ordered``: each statement reads what those before it have written; otherwise all is read first.

    ``lifted``: the literals of the kernel are given to it as plain numbers, by name.
    """

    over: int
    params: tuple[Param, ...]
    statements: tuple[Statement, ...]
    ordered: bool = False
    box: tuple[Index, Index] | None = None
    lifted: bool = False

    def numbers(self) -> dict[str, Node]:
        """What is lifted, by name: single numbers, but for exponents, which must be known beforehand."""
        nodes = list(nodes_of([s.value for s in self.statements])) if self.lifted else []
        exponents = {id(n.args[1]) for n in nodes if n.op == "pow"}
        found = [n for n in nodes if n.op == "lit" and not isinstance(n.value, list) and id(n) not in exponents]
        return {f"n{k}": node for k, node in enumerate(found)}


@dataclass(frozen=True)
class Case:
    sets: tuple[SetOf, ...]
    maps: tuple[MapOf, ...]
    storages: tuple[Storage, ...]
    loops: tuple[LoopOf, ...]
    seed: int = 0
    known: frozenset[str] = field(default_factory=frozenset)
