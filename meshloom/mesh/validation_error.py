"""What is wrong with certain cells and nodes of a mesh; the numbers of a file can take the place of ours."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from meshloom.errors import MeshError

_MOST_LISTED = 12


class ValidationError(MeshError):
    """A MeshError about cells and nodes.

    ``text`` has places for them: ``{cells[0]}`` is the first cell, ``{cells}`` all of them, ``{node}`` the first node,
    ``{nodes}`` all of them, in brackets; a place in space, once it is known, goes to the end.
    """

    def __init__(self, text: str, *, cells: Iterable[int] = (), nodes: Iterable[int] = (), place: str = ""):
        self.text, self.place = text, place
        self.cells, self.nodes = [int(cell) for cell in cells], [int(node) for node in nodes]
        listed, node = f"({_Numbers(self.nodes)})", self.nodes[0] if self.nodes else None
        super().__init__(text.format(cells=_Numbers(self.cells), nodes=listed, node=node) + place)

    def placed(self, x: np.ndarray) -> ValidationError:
        """The same with the place of its nodes: their mean, given the coordinates (n, d) of all."""
        known = [node for node in self.nodes if 0 <= node < len(x)]
        if self.place or not known:
            return self
        mean = ", ".join(f"{value:.6g}" for value in x[known].mean(axis=0))
        return ValidationError(self.text, cells=self.cells, nodes=self.nodes, place=f" (near {mean})")

    def renumbered(self, cells: np.ndarray | None, nodes: np.ndarray | None) -> ValidationError:
        """The same with the numbers that a file gives its cells and nodes; None: they are ours."""
        named = {"cells": _named(self.cells, cells), "nodes": _named(self.nodes, nodes)}
        return ValidationError(self.text, **named, place=self.place)


class _Numbers(list[int]):
    def __format__(self, how: str) -> str:
        more = ", ..." if len(self) > _MOST_LISTED else ""
        return ", ".join(map(str, self[:_MOST_LISTED])) + more


def _named(numbers: list[int], names: np.ndarray | None) -> list[int]:
    if names is None:
        return numbers
    return [int(names[number]) if 0 <= number < len(names) else number for number in numbers]
