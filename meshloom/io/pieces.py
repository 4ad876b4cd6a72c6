"""Fields in pieces, a file of each rank, and the list of them, which ParaView opens: ``.pvtu`` of meshes, ``.pvti`` and
``.pvtr`` of grids. No rank needs what it does not show itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from meshloom.io.blocks import checked_numbers, field_rows
from meshloom.io.collective import Segment
from meshloom.io.field_rows import as_rows
from meshloom.io.files import write_atomically, write_own, writing
from meshloom.io.grids import RECTILINEAR, extent, grid_segments, places_of, suffix_of, tag_of, x_fastest
from meshloom.io.rank_rows import AnyRows, RankRows
from meshloom.io.vtk import described, head, points_in_space, quoted, unstructured
from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh
from meshloom.process.ranks import agreed, by_root, ranks

Fields = Mapping[str, Field | AnyRows]
Sections = Mapping[str, Mapping[str, np.ndarray]]  # arrays by the names of the sections of a list, and by their own


def write_mesh_pieces(
    stem: Path, mesh: Mesh, cell_fields: Fields, node_fields: Fields, points: AnyRows | None = None
) -> Path:
    """The cells of each rank with their nodes; returns the list, ``stem`` with an ending. All ranks must call it."""
    mine, table = mesh.cells.mine, mesh.lists.cells
    corners = table.nodes.taken(mine)
    used, local = np.unique(corners.entries, return_inverse=True)
    elements = NodeLists(corners.starts, local.reshape(-1))
    kinds = {kind: np.flatnonzero(np.isin(mine, np.asarray(numbers))) for kind, numbers in table.kinds.items()}
    on_cells = {name: _own(rows, mine) for name, rows in field_rows(cell_fields, mesh.cells.total, "cells").items()}
    on_nodes = {name: _at(rows, used) for name, rows in field_rows(node_fields, mesh.nodes.total, "nodes").items()}
    places = _at(points_in_space(mesh.coordinates if points is None else points), used)
    content = unstructured(places, [(elements, dict(kinds))], on_cells, on_nodes, {})
    sections = {"PPointData": on_nodes, "PCellData": on_cells, "PPoints": {"Points": places}}
    return _written(stem, ".vtu", "UnstructuredGrid", sections, content, "" if len(mine) else None)


def write_grid_pieces(stem: Path, grid: Grid, fields: Fields) -> Path:
    """The planes of each rank, and the next one, so that no cell between two ranks is missing; all must call it."""
    suffix, each = suffix_of(grid), int(np.prod(grid.shape[1:]))
    mine = grid.mine // each
    first, last = (int(mine[0]), min(int(mine[-1]) + 2, grid.shape[0])) if len(mine) else (0, 0)

    def in_planes(name: str, rows: AnyRows) -> np.ndarray:
        if isinstance(rows, RankRows):
            found = rows.at(np.arange(first * each, last * each))
            values = found.reshape(last - first, *grid.shape[1:], *found.shape[1:])
        else:
            values = rows[first:last]
        return x_fastest(checked_numbers(name, values), grid.rank)

    arrays = {name: in_planes(name, as_rows(one)) for name, one in fields.items()}
    axes = {"PCoordinates": dict.fromkeys("xyz", np.zeros(1))} if suffix == RECTILINEAR else {}
    everything = f' WholeExtent="{extent(grid, (0, grid.shape[0]))}"{places_of(suffix, grid)}'
    content = grid_segments(suffix, grid, arrays, (first, last))
    return _written(stem, suffix, tag_of(suffix), {"PPointData": arrays, **axes}, content,
                    f' Extent="{extent(grid, (first, last))}"' if last > first else None, everything)  # fmt: skip


def _own(rows: AnyRows, numbers: np.ndarray) -> np.ndarray:
    """The rows of this rank's own elements; no other rank is asked."""
    return rows.taken(numbers).values if isinstance(rows, RankRows) else rows[numbers]


def _at(rows: AnyRows, numbers: np.ndarray) -> np.ndarray:
    """The rows of some elements, whoever has them; all ranks must ask."""
    return rows.at(numbers) if isinstance(rows, RankRows) else rows[numbers]


def _written(
    stem: Path, suffix: str, tag: str, sections: Sections, content: Iterable[Segment], part: str | None,
    everything: str = "",
) -> Path:  # fmt: skip
    """The file of this rank, of which the list says that it is the ``part`` of ``everything``; None: it has none. The
    list comes last, when all pieces are there."""

    def write() -> None:
        if part is not None:
            text = b"".join(bytes(one.between([(0, one.length)] * ranks().size)) for one in content)
            write_own(_piece(stem, ranks().rank, suffix), text)

    agreed(write)
    parts = dict(enumerate(ranks().allgathered(part, "pieces")))
    listed = "".join(f"<Piece{one} Source={quoted(_piece(stem, rank, suffix).name)}/>\n" for rank, one in parts.items()
                     if one is not None)  # fmt: skip
    arrays = "".join(_section(name, of) for name, of in sections.items())
    text = f'<P{tag} GhostLevel="0"{everything}>\n{arrays}{listed}</P{tag}>\n</VTKFile>\n'
    path = stem.with_suffix(f".p{suffix[1:]}")
    write_atomically(path, head(f"P{tag}").content + text.encode())
    _remove_others(stem, suffix, {rank for rank, one in parts.items() if one is not None})
    return path


def _section(name: str, arrays: Mapping[str, np.ndarray]) -> str:
    """What arrays the pieces have, in a list of them."""
    listed = "".join(f"<PDataArray {described(one, rows)}/>\n" for one, rows in arrays.items())
    return f"<{name}>\n{listed}</{name}>\n"


def _piece(stem: Path, rank: int, suffix: str) -> Path:
    return stem.with_name(f"{stem.name}_{rank:04d}{suffix}")


@by_root
def _remove_others(stem: Path, suffix: str, known: set[int]) -> None:
    """Pieces of a run on more ranks that went on from here before."""
    named = re.compile(rf"{re.escape(stem.name)}_(\d+){re.escape(suffix)}")
    for path in stem.parent.iterdir():
        if (found := named.fullmatch(path.name)) and int(found[1]) not in known:
            with writing(path):
                path.unlink()
