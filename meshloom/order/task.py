"""What is to be ordered: the elements of a map, or its targets.

An ordering is written once against ``Task``; the two kinds of task differ only in how a numbering of the targets, a
graph or a greedy growth applies to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from meshloom.errors import ScheduleError
from meshloom.native.algorithms import color_elements, grow_blocks, grow_target_blocks
from meshloom.order.graph import Graph, element_graph, lexicographic, renumbered, target_graph
from meshloom.records import dataclass


@dataclass(frozen=True)
class Task(ABC):
    """``indices`` (rows, arity), checked; ``points`` (n, d) of what to order, or None; ``block``: run length."""

    indices: np.ndarray
    n_targets: int
    points: np.ndarray | None
    block: int
    seed: int

    @property
    @abstractmethod
    def n(self) -> int:
        """How many things are to be ordered."""

    @abstractmethod
    def by_targets(self, target_order: np.ndarray) -> np.ndarray:
        """The order that a numbering of the targets gives to these things."""

    @abstractmethod
    def weighted_graph(self) -> Graph:
        """These things, joined when they share data."""

    @abstractmethod
    def grow(self, target_order: np.ndarray) -> np.ndarray:
        """Their order by greedy growing of blocks, started along a numbering of the targets."""

    def targets_joined(self) -> Graph:
        """The targets, joined by the rows of the map."""
        return target_graph(self.indices, self.n_targets)

    @abstractmethod
    def by_color(self) -> np.ndarray:
        """Their order by color: those of one color have no data in common."""

    def positions(self, ordering: str) -> np.ndarray:
        """``points``, or an error in the name of an ordering that cannot do without."""
        if self.points is None:
            raise ScheduleError(
                f"ordering '{ordering}' needs the positions of what it orders and none are known;"
                " give points, or use one that needs none: greedy, rcm, gps"
            )
        return self.points


class Elements(Task):
    """The rows of the map: faces, which touch cells."""

    @property
    def n(self) -> int:
        return len(self.indices)

    def by_targets(self, target_order: np.ndarray) -> np.ndarray:
        return lexicographic(self.indices, target_order)

    def weighted_graph(self) -> Graph:
        return element_graph(self.indices, self.n_targets, weighted=True)

    def grow(self, target_order: np.ndarray) -> np.ndarray:
        seeds = self.by_targets(target_order)
        local = renumbered(self.indices, seeds, target_order)
        return seeds[grow_blocks(local, self.n_targets, self.block, np.arange(self.n))]

    def by_color(self) -> np.ndarray:
        return np.argsort(color_elements([self.indices], [self.n_targets]), kind="stable")


class Targets(Task):
    """The targets of the map: cells, joined by faces."""

    @property
    def n(self) -> int:
        return self.n_targets

    def by_targets(self, target_order: np.ndarray) -> np.ndarray:
        return target_order

    def weighted_graph(self) -> Graph:
        return target_graph(self.indices, self.n_targets, weighted=True)

    def grow(self, target_order: np.ndarray) -> np.ndarray:
        local = renumbered(self.indices, lexicographic(self.indices, target_order), target_order)
        return target_order[grow_target_blocks(local, self.n_targets, self.block, np.arange(self.n))]

    def by_color(self) -> np.ndarray:
        return np.arange(self.n, dtype=np.int64)  # each is by itself, whatever the order
