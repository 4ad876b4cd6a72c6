"""Arranging a mesh in memory: neighbours side by side, while every number a person sees stays as it is.

This is done once, when a mesh is read or made from cells, and only where it pays: ``excess`` of ``meshloom.order``
judges the order in which faces use cells and cells use nodes. Faces keep their direction.
"""

from __future__ import annotations

from meshloom.errors import CompilerError, ScheduleError, known_name
from meshloom.mesh.permutation import Permutation
from meshloom.mesh.protocols import MeshData
from meshloom.mesh.reorder import ordering
from meshloom.records import dataclass

AUTO = "auto"
_BEST = "hilbert"  # cheap, works on any mesh, and as fast as the order of a structured grid


@dataclass(frozen=True, eq=False)
class Arrangement:
    """How a mesh lies in memory: ``order`` is the ordering, ``reason`` says why.

    ``numbers`` holds, set by set, the number of the element at each position; None where the two are the same.
    """

    order: str
    reason: str
    numbers: Permutation | None = None

    def __str__(self) -> str:
        return f"{'as given' if self.order == 'given' else f'renumbered by {self.order}'}: {self.reason}"


def arrangement(mesh: MeshData, order: str, *, block: int = 256, seed: int = 0) -> Arrangement:
    """The arrangement of ``mesh`` by an ordering, or by the rule above for "auto"."""
    from meshloom.order import BAD_EXCESS, blocks_of, excess, names

    if known_name("ordering", order, (AUTO, *names()), error=ScheduleError) != AUTO:
        numbers = None if order == "given" else ordering(mesh, order, block=block, seed=seed)
        return Arrangement(order, "asked for", numbers)
    rows = (
        (mesh.faces, mesh.face_cells.indices, mesh.cells),
        (mesh.cells, mesh.lists.cells.nodes.padded(), mesh.nodes),
    )
    found, where, size = max((excess(of[: one.owned], other.total), one.name, one.owned) for one, of, other in rows)
    blocks, times = blocks_of(size, where), f"{found:.2g}"
    if float(times) <= 1.0:
        return Arrangement("given", f"{blocks} load no more memory than they need")
    text = f"{blocks} load {times} times the memory they need"
    if found <= BAD_EXCESS:
        return Arrangement("given", f"{text}, which is good enough (up to {BAD_EXCESS:g})")
    try:
        numbers = ordering(mesh, _BEST, block=block, seed=seed)
    except CompilerError:
        return Arrangement("given", f"{text}, but renumbering needs a C++ compiler")
    return Arrangement(_BEST, f"{text} as given", numbers)
