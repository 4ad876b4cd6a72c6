"""Reading ``.vtu`` files of any program through meshio, the extra "io"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import MeshError, UserError
from meshloom.io.blocks import ELEMENTS, Block, Listing
from meshloom.io.vtk import GROUP_ARRAY, GROUP_PREFIX

#: The arrays in which programs keep the tags of elements, ours first.
_TAG_ARRAYS = (GROUP_ARRAY, "gmsh:physical", "su2:tag", "medit:ref", "CellEntityIds")


def read_vtu(path: Path) -> Listing:
    """The content of a VTU file with one piece."""
    try:
        import meshio
    except ModuleNotFoundError:
        raise UserError("reading .vtu files needs meshio: pip install 'meshloom[io]'") from None
    if path.read_bytes().count(b"<Piece ") > 1:  # meshio would keep the last one alone
        raise MeshError("more than one piece; expected a file with one")
    try:
        found = meshio.vtu.read(path)
    except Exception as error:  # on a malformed file meshio raises a dozen kinds, its own and Python's
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise MeshError(f"not a readable VTU file ({reason}): truncated or malformed") from error
    return _listing(found)


def _listing(found: Any) -> Listing:
    """The content of a meshio mesh; tags are named by field data such as "group:wall" = 1."""
    names = {
        (dimension, int(np.ravel(value)[0])): name.removeprefix(GROUP_PREFIX)
        for name, value in found.field_data.items()
        if name.startswith(GROUP_PREFIX)
        for dimension in (1, 2)
    }
    tag_array = next((name for name in _TAG_ARRAYS if name in found.cell_data), None)
    blocks = []
    for number, block in enumerate(found.cells):
        kind = {"tetra": "tetrahedron"}.get(block.type, block.type)
        if kind not in ELEMENTS:
            raise MeshError(f"elements of type {kind} are not supported; allowed: {', '.join(ELEMENTS)}")
        tags = np.zeros(len(block.data)) if tag_array is None else np.ravel(found.cell_data[tag_array][number])
        blocks.append(Block(kind, np.asarray(block.data), tags.astype(np.int64)))
    return Listing(np.asarray(found.points, dtype=np.float64), blocks, names)
