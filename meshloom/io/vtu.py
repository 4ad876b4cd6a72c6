"""Reading ``.vtu`` files of any program through meshio, the extra "io"."""

from __future__ import annotations

import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import local
from typing import Any
from xml.etree import ElementTree

import numpy as np

from meshloom.errors import MeshError, UserError, install
from meshloom.io.blocks import ELEMENTS, Listing, MeshBlock
from meshloom.io.text import as_integers
from meshloom.io.vtk import CELL_GROUP_PREFIX, GROUP_ARRAY, GROUP_PREFIX
from meshloom.mesh.cell_kinds import POLYGON

#: The arrays in which programs keep the tags of elements, ours first.
_TAG_ARRAYS = (GROUP_ARRAY, "gmsh:physical", "su2:tag", "medit:ref", "CellEntityIds")


def read_vtu(path: Path) -> Listing:
    """The content of a VTU file with one piece."""
    try:
        import meshio
    except ModuleNotFoundError:
        raise UserError(f"reading .vtu files needs meshio: {install('io')}") from None
    data = path.read_bytes()
    for tag in (b"<Piece ", b"<Points>", b"<Cells>"):  # of pieces meshio would keep the last one alone
        if data.count(tag) > 1:
            raise MeshError(f"more than one {tag.decode().strip('< >').lower()}; expected a file with one")
    if b"<!" in data.partition(b"<VTKFile")[0].replace(b"<!--", b""):  # entities can make much out of little
        raise MeshError("it declares a document type; VTU files have none")
    try:
        with tempfile.TemporaryDirectory() as folder, _heard() as said:
            if b'encoding="raw"' in data:
                path = Path(folder, "inline.vtu")
                path.write_bytes(_inline(data))
            found = meshio.vtu.read(path)
    except OSError:
        raise
    except Exception as error:  # on a malformed file meshio raises a dozen kinds, its own and Python's
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise MeshError(f"not a readable VTU file ({reason}): truncated or malformed") from error
    if said:  # meshio leaves something out and says so
        raise MeshError(" ".join(" ".join(said).split())[:120])
    return _listing(found)


_listening = local()  # by thread: what meshio has said to it


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What meshio prints as a warning during the block, in this thread alone, instead of being printed."""
    for reader in [module for name, module in sys.modules.copy().items() if name.startswith("meshio.")]:
        printed = getattr(reader, "warn", None)
        if printed is not None and not isinstance(printed, partial):
            setattr(reader, "warn", partial(_warned, printed))  # noqa: B010 - modules have no such attribute for mypy
    _listening.said = []
    try:
        yield _listening.said
    finally:
        del _listening.said


def _warned(otherwise: Callable[..., None], *words: Any, **more: Any) -> None:
    said = getattr(_listening, "said", None)
    if said is None:
        otherwise(*words, **more)
    else:
        said.append(" ".join(map(str, words)))


def _inline(data: bytes) -> bytes:
    """The same file with its arrays as base64 text in their places instead of raw bytes at the end.

    meshio looks for raw arrays by offsets that it changes as it goes, and can take one array for another.
    """
    start, end = data.index(b"<AppendedData"), data.rindex(b"</AppendedData>")
    raw = data[data.index(b"_", data.index(b">", start)) + 1 : end]
    root = ElementTree.fromstring(data[:start] + b"</VTKFile>")
    order = ">" if root.get("byte_order") == "BigEndian" else "<"
    size = np.dtype(order + {"UInt32": "u4", "UInt64": "u8"}[root.get("header_type", "UInt32")])
    for array in root.iter("DataArray"):
        if array.get("format") == "appended":
            head, body = _raw_array(raw, int(array.attrib.pop("offset")), size, "compressor" in root.attrib)
            text = b64encode(head) + b64encode(body) if "compressor" in root.attrib else b64encode(head + body)
            array.set("format", "binary")
            array.text = text.decode()
    return ElementTree.tostring(root)


def _raw_array(raw: bytes, offset: int, size: np.dtype, compressed: bool) -> tuple[bytes, bytes]:
    """The sizes before an array, and its bytes: one size, or those of its compressed blocks."""
    words = 1
    if compressed:  # number of blocks, size of a block, size of the last one, compressed size of each
        words = 3 + int(np.frombuffer(raw, size, 1, offset)[0])
    sizes = np.frombuffer(raw, size, words, offset)
    begin = offset + words * size.itemsize
    end = begin + int(sizes[3:].sum() if compressed else sizes[0])
    if end > len(raw):
        raise ValueError("the appended data end too early")
    return raw[offset:begin], raw[begin:end]


def _listing(found: Any) -> Listing:
    """The content of a meshio mesh; tags of faces are named by field data such as "group:wall" = 1, cells of the group
    "air" are those where the array "cell_group:air" is not zero."""
    tag_array = next((name for name in _TAG_ARRAYS if name in found.cell_data), None)
    blocks: list[MeshBlock] = []
    first = 0
    for number, block in enumerate(found.cells):
        kind = {"tetra": "tetrahedron", "wedge": "prism"}.get(block.type, block.type)
        if kind not in ELEMENTS and kind != POLYGON:
            raise MeshError(f"elements of type {kind} are not supported; allowed: {', '.join((*ELEMENTS, POLYGON))}")
        nodes = np.asarray(block.data)
        if nodes.ndim != 2 or (kind != POLYGON and nodes.shape[1] != ELEMENTS[kind][1]):
            raise MeshError(f"{kind} elements with node numbers of shape {nodes.shape}: malformed")
        tags = np.zeros(len(nodes)) if tag_array is None else np.ravel(found.cell_data[tag_array][number])
        if len(tags) != len(nodes):
            raise MeshError(f"the array {tag_array} holds {len(tags)} values for {len(nodes)} {kind} elements")
        tag_of_cell = as_integers(tags, f"the array {tag_array}")
        blocks.append(MeshBlock(kind, nodes, tag_of_cell, numbers=np.arange(first, first + len(nodes))))
        first += len(nodes)
    dimension = max((block.dimension for block in blocks), default=0)
    names = {
        (dimension - 1, _single(name, value)): name.removeprefix(GROUP_PREFIX)
        for name, value in found.field_data.items()
        if name.startswith(GROUP_PREFIX)
    }
    cells = [number for number, block in enumerate(blocks) if block.dimension == dimension]
    sets = {
        name.removeprefix(CELL_GROUP_PREFIX): np.flatnonzero(np.concatenate([np.ravel(parts[k]) for k in cells]))
        for name, parts in found.cell_data.items()
        if name.startswith(CELL_GROUP_PREFIX)
    }
    if names and len(names) < sum(name.startswith(GROUP_PREFIX) for name in found.field_data):
        raise MeshError("two boundary groups have the same number")
    for name, members in sets.items():
        if len(members) and members[-1] >= sum(len(blocks[k].nodes) for k in cells):
            raise MeshError(f"the array {CELL_GROUP_PREFIX}{name} holds more values than there are cells")
    points = np.asarray(found.points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise MeshError(f"points of shape {points.shape}; expected three coordinates each")
    return Listing(points, blocks, names, sets)


def _single(name: str, value: Any) -> int:
    """The whole number that a field of the file holds."""
    numbers = np.ravel(value)
    if len(numbers) != 1 or numbers.dtype.kind not in "iuf":
        raise MeshError(f"the field {name!r} must hold one number, that of the group")
    return int(as_integers(numbers, f"the field {name!r}")[0])
