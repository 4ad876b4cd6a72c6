"""A renumbering of the elements of a mesh, there and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, nearest
from meshloom.mesh.core import Field
from meshloom.records import dataclass

SETS = ("nodes", "cells", "faces", "boundary_faces")


def inverse(order: np.ndarray) -> np.ndarray:
    """Where each number stands in an order of all of them."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


@dataclass(frozen=True, eq=False)
class Permutation:
    """Where everything came from: position k of each array holds the old number of what is now number k.

    ``flipped`` (faces,) is true where a face changed its direction: its two cells and its nodes are swapped, so a
    value that has a sign by the direction of the face (a flux) changes its sign too.
    """

    nodes: np.ndarray
    cells: np.ndarray
    faces: np.ndarray
    boundary_faces: np.ndarray
    flipped: np.ndarray

    @classmethod
    def identity(cls, nodes: int, cells: int, faces: int, boundary_faces: int) -> Permutation:
        flipped = np.zeros(faces, dtype=bool)
        return cls(np.arange(nodes), np.arange(cells), np.arange(faces), np.arange(boundary_faces), flipped)

    def of(self, on: str) -> np.ndarray:
        """The array of one set, new to old."""
        if on not in SETS:
            raise MeshError(f"unknown set {on!r} of a mesh{nearest(str(on), SETS)}")
        array: np.ndarray = getattr(self, on)
        return array

    def inverse(self, on: str) -> np.ndarray:
        """Old to new: position k holds the new number of what was number k."""
        return inverse(self.of(on))

    def apply(self, on: str, values: Field | ArrayLike) -> np.ndarray:
        """Values (n, ...) in the old numbering, brought into the new one."""
        return self._rows(on, values)[self.of(on)]

    def undo(self, on: str, values: Field | ArrayLike) -> np.ndarray:
        """Values (n, ...) in the new numbering, brought back into the old one."""
        new = self._rows(on, values)
        old = np.empty_like(new)
        old[self.of(on)] = new
        return old

    def then(self, later: Permutation) -> Permutation:
        """This renumbering followed by ``later``, as one."""
        return Permutation(
            self.nodes[later.nodes],
            self.cells[later.cells],
            self.faces[later.faces],
            self.boundary_faces[later.boundary_faces],
            self.flipped[later.faces] ^ later.flipped,
        )

    def _rows(self, on: str, values: Field | ArrayLike) -> np.ndarray:
        array = values.numpy() if isinstance(values, Field) else np.asarray(values)
        if array.ndim == 0 or len(array) != len(self.of(on)):
            raise MeshError(f"values of shape {array.shape} do not fit {on}, which has {len(self.of(on))} elements")
        return array
