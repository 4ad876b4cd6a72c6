"""Faces that join two sides of a mesh, as periodic boundaries have them.

The two sides of such a face, a joint, lie apart by a shift. The face has the nodes, and so the place, of its first
cell's side; its second cell lies next to it once the shift is added to its place. Nodes stay what they are: those
of the two sides are different ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.permutation import Permutation
from meshloom.records import dataclass


@dataclass(frozen=True, eq=False)
class Joints:
    """The faces that join two sides of a mesh: their numbers (p,); what to add to the place of the second cell of each
    (p, d); its nodes as its second cell has them, in the order of the first one's; the numbers of the groups that its
    two sides were in (p, 2), which ``groups`` names."""

    faces: np.ndarray
    shifts: np.ndarray
    nodes: NodeLists
    sides: np.ndarray
    groups: Mapping[str, int]

    @classmethod
    def none(cls, dimension: int) -> Joints:
        """Those of most meshes."""
        nodes = NodeLists.of_rows(np.zeros((0, dimension), np.int64))
        return cls(np.zeros(0, np.int64), np.zeros((0, dimension)), nodes, np.zeros((0, 2), np.int64), {})

    def __len__(self) -> int:
        return len(self.faces)

    @property
    def digest(self) -> str:
        """SHA-256 of all that makes them."""
        state = hashlib.sha256(f"{sorted(self.groups.items())} {self.nodes.digest()}".encode())
        for one in (self.faces, self.shifts, self.sides):
            state.update(np.ascontiguousarray(one, one.dtype.newbyteorder("<")).data)
        return state.hexdigest()

    def second(self, faces: NodeLists) -> NodeLists:
        """The nodes of all faces as their second cells have them."""
        return replaced(faces, self.faces, self.nodes)

    def renumbered(self, step: Permutation, new_node: np.ndarray, faces: NodeLists) -> tuple[Joints, NodeLists]:
        """After a renumbering; and the nodes of all faces before it, by the side that is the first one after it.

        A face that changes its direction has its place at its other side.
        """
        if len(self) == 0:
            return self, faces
        number = step.inverse("faces")[self.faces]
        flipped = step.flipped[number]
        mine, theirs = faces.taken(self.faces), self.nodes
        nodes = choice(flipped, mine, theirs).mapped(new_node).turned(flipped)
        joints = Joints(number, np.where(flipped[:, None], -self.shifts, self.shifts), nodes,
                        np.where(flipped[:, None], self.sides[:, ::-1], self.sides), self.groups)  # fmt: skip
        return joints, replaced(faces, self.faces, choice(flipped, theirs, mine))


def replaced(lists: NodeLists, numbers: np.ndarray, new: NodeLists) -> NodeLists:
    """Lists some of which have other nodes, as many as before."""
    if len(numbers) == 0:
        return lists
    entries = lists.entries.copy()
    places = np.arange(new.starts[-1]) + np.repeat(lists.starts[numbers] - new.starts[:-1], new.lengths)
    entries[places] = new.entries
    return NodeLists(lists.starts, entries, None if lists.rows is None else entries.reshape(lists.rows.shape))


def choice(first: np.ndarray, one: NodeLists, other: NodeLists) -> NodeLists:
    """Of each element the nodes of ``one`` where ``first`` (n,) is true, else those of the other."""
    numbers = np.flatnonzero(first)
    return replaced(other, numbers, one.taken(numbers))
