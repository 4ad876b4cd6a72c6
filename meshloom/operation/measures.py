"""Measures of a mesh that operations use: those of its nodes as they are when a run begins.

A part of a mesh measures its elements anew when ``wall.normal`` is asked for after nodes have moved. A program asks
when it is recorded, and its replays never: so whatever runs it asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import ref

from meshloom.errors import ProgramError
from meshloom.mesh.core import Field
from meshloom.mesh.owner_mesh import owner_of
from meshloom.mesh.parts import MeshPart, measured_by
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation


class Measures:
    """The fields of parts of a mesh, such as ``wall.normal``, among what operations use. It holds none of them."""

    def __init__(self, operations: Sequence[Operation]):
        self._measured = tuple([(ref(part), name) for part, name in _measured(operations)])

    def follow(self) -> None:
        """Measure again those whose nodes have moved since."""
        for part, name in self._measured:
            found = part()
            if found is not None:
                found.measure(name)


def _measured(operations: Sequence[Operation]) -> Iterator[tuple[MeshPart, str]]:
    """The parts and the names of their measures, each once."""
    for one in Dataflow(operations).storages:
        found = measured_by(one) if isinstance(one, Field) else None
        if found is not None:
            yield found


def check_nodes_stay(program: str, operations: Sequence[Operation]) -> None:
    """ProgramError where operations move the nodes of a mesh whose measures they use: what is measured on the host
    between two runs cannot follow what moves within one."""
    written = Dataflow(operations).written
    for part, name in _measured(operations):
        mesh = owner_of(part)
        if mesh is not None and mesh.coordinates in written:
            raise ProgramError(
                f"program {program} moves the nodes of a mesh and uses {part.name}.{name}, which is measured before a"
                " run: move them in a program of its own, compute it from the coordinates in a kernel, or use a"
                f" {part.name}.{name}.copy() where that of the old nodes is meant"
            )
