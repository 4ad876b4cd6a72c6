"""CGNS files in HDF5 with one unstructured zone (.cgns), read only.

A CGNS file is a tree of nodes; in HDF5 each is a group whose attribute "label" tells what it is and whose dataset
" data" holds its values, arrays in the order of Fortran. Elements of sections count from 1 through the zone; those of
lower dimension are faces of the boundary. Boundary conditions, which list faces or points, are the boundary groups;
faces that none lists are in the group that has the name of their section.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.blocks import ELEMENTS, Listing, MeshBlock
from meshloom.io.text import rows_of_changing_length
from meshloom.mesh.cell_kinds import FACE_KINDS
from meshloom.mesh.connectivity import CellTable, NodeLists
from meshloom.mesh.faces import checked_cells, derive_faces
from meshloom.native.algorithms import distinct

CODES = {
    2: "vertex",
    3: "line",
    5: "triangle",
    7: "quad",
    10: "tetrahedron",
    12: "pyramid",
    14: "prism",
    17: "hexahedron",
}
_MIXED = 20
_NAMES = {4: "BAR_3", 6: "TRI_6", 8: "QUAD_8", 9: "QUAD_9", 11: "TETRA_10", 13: "PYRA_14", 15: "PENTA_15",
          18: "HEXA_20", 19: "HEXA_27", 22: "NGON_n", 23: "NFACE_n"}  # fmt: skip
_CONVERT = "write it as one unstructured zone with sections of TETRA_4, PYRA_5, PENTA_6, HEXA_8, TRI_3, QUAD_4 or MIXED"


def read_cgns(path: Path) -> Listing:
    """The content of a CGNS file."""
    import h5py  # here, because importing it takes longer than reading most files

    with path.open("rb") as file:
        head = file.read(64)
    if b"ADF" in head:
        raise MeshError("a CGNS file of the old kind, ADF; turn it into HDF5 by adf2hdf of the CGNS tools")
    if not h5py.is_hdf5(path):
        raise MeshError("not a CGNS file in HDF5: truncated or malformed")
    try:
        with h5py.File(path, "r") as tree:
            return _listing(tree)
    except (OSError, KeyError, RuntimeError) as error:
        raise MeshError(f"not a readable CGNS file ({' '.join(str(error).split())[:100]}): malformed") from error


def _listing(tree: Any) -> Listing:
    base = _only(tree, "CGNSBase_t", "base", "keep one")
    dimension, in_space = _integers(base, 2)[:2].tolist()
    if not 2 <= dimension <= in_space <= 3:
        raise MeshError(
            f"base {_name(base)} holds cells of dimension {dimension} in a space of {in_space}; expected 2 or 3"
        )
    zone = _only(base, "Zone_t", "zone", f"merge them, and {_CONVERT}")
    kind = _text(_only(zone, "ZoneType_t", "zone type", _CONVERT))
    if kind != "Unstructured":
        raise MeshError(f"zone {_name(zone)} is {kind.lower()}; {_CONVERT}")
    points = _points(zone, in_space)
    announced = int(_integers(zone, 1)[0])
    if announced != len(points):
        raise MeshError(f"zone {_name(zone)} announces {announced} points and holds {len(points)}: malformed")
    sections = [found for section in _children(zone, "Elements_t") for found in _section(section)]
    blocks = [block for _, block in sections]
    numbers = np.concatenate([np.asarray(block.numbers) for block in blocks] or [np.zeros(0, np.int64)])
    if len(distinct(numbers)) < len(numbers):
        raise MeshError("two sections have an element of the same number: the file is malformed")
    for block in blocks:
        if len(block.nodes) and (block.nodes.min() < 0 or block.nodes.max() >= len(points)):
            raise MeshError(f"a {block.kind} element names a point beyond the {len(points)} that there are: malformed")
    groups = [one for all_ in _children(zone, "ZoneBC_t") for one in _children(all_, "BC_t")]
    return _grouped(points, sections, groups, dimension)


def _grouped(points: np.ndarray, sections: list[tuple[str, MeshBlock]], groups: list[Any], dimension: int) -> Listing:
    """The listing with the groups of boundary conditions and, for faces that none lists, of sections."""
    cells = [block for _, block in sections if block.dimension == dimension]
    faces = [(name, block) for name, block in sections if block.dimension == dimension - 1]
    last = max((int(np.max(block.numbers, initial=0)) for _, block in sections if block.numbers is not None), default=0)
    tags: dict[str, int] = {}
    by_points: list[MeshBlock] = []
    for group in groups:
        name, listed = _name(group), _listed(group, last)
        tag = tags.setdefault(name, len(tags) + 1)
        if listed is None:
            by_points += _by_points(_integers(_point_set(group)), cells, points, tag, name)
        else:
            faces = _tagged(faces, listed, tag, tags)
    if not by_points:  # else points have named what there is to name
        for at, (name, block) in enumerate(faces):
            if (block.tags == 0).any():
                tag = tags.setdefault(name, len(tags) + 1)
                faces[at] = name, replace(block, tags=np.where(block.tags == 0, tag, block.tags))
    names = {(dimension - 1, tag): name for name, tag in tags.items()}
    return Listing(points, [*cells, *(block for _, block in faces), *by_points], names)


def _tagged(
    faces: list[tuple[str, MeshBlock]], listed: np.ndarray, tag: int, tags: dict[str, int]
) -> list[tuple[str, MeshBlock]]:
    """Faces by section, those that are listed by number with a tag; ``tags``: of all groups by name."""
    names, found, done = {number: name for name, number in tags.items()}, 0, []
    for section, block in faces:
        numbers = np.asarray(block.numbers)
        here = np.isin(numbers, listed)
        taken = np.flatnonzero(here & (block.tags != 0))
        if len(taken):
            both = f"{names[int(block.tags[taken[0]])]} and {names[tag]}"
            raise MeshError(f"element {numbers[taken[0]]} is in the boundary conditions {both}; it can be in one")
        done.append((section, replace(block, tags=np.where(here, tag, block.tags))))
        found += int(here.sum())
    if found < len(distinct(listed)):
        count = len(distinct(listed))
        raise MeshError(f"boundary condition {names[tag]} lists {count} elements, of which {found} are faces")
    return done


def _by_points(listed: np.ndarray, cells: list[MeshBlock], points: np.ndarray, tag: int, name: str) -> list[MeshBlock]:
    """The boundary faces of cells all of whose nodes are in a list of points, which count from 1."""
    inside = np.zeros(len(points), dtype=bool)
    if len(listed) and (listed.min() < 1 or listed.max() > len(points)):
        raise MeshError(f"boundary condition {name} lists a point beyond the {len(points)} that there are: malformed")
    inside[listed - 1] = True
    table = CellTable.in_turn([(block.kind, NodeLists.of_rows(block.nodes)) for block in cells])
    found = []
    for part in derive_faces(checked_cells(table, len(points)), len(points)).boundary_nodes.sizes:
        nodes = part.nodes[inside[part.nodes].all(axis=1)]
        found.append(MeshBlock(FACE_KINDS[part.nodes.shape[1]], nodes, np.full(len(nodes), tag)))
    return found


# ---- sections and boundary conditions -------------------------------------------------------------------------------


def _section(section: Any) -> Iterator[tuple[str, MeshBlock]]:
    """The elements of a section, with its name; one of mixed elements has many blocks."""
    name, code = _name(section), int(_integers(section, 1)[0])
    first, last = _integers(section["ElementRange"], 2)[:2].tolist()
    entries = _integers(section["ElementConnectivity"])
    if not 1 <= first <= last + 1:
        raise MeshError(f"section {name} has the elements {first} to {last}: malformed")
    if code == _MIXED:
        what = f"section {name}"

        def length(head: np.ndarray) -> int:
            return 1 + _width(name, int(head[0]))

        for run in rows_of_changing_length(entries, last - first + 1, slice(0, 1), length, what):
            yield name, _block(CODES[int(run[0, 0])], run[:, 1:], first)
            first += len(run)
        return
    width, count = _width(name, code), last - first + 1
    if len(entries) != count * width:
        found = f"holds {len(entries)} numbers: malformed"
        raise MeshError(f"section {name} announces {count} elements of {width} points and {found}")
    yield name, _block(CODES[code], entries.reshape(-1, width), first)


def _block(kind: str, nodes: np.ndarray, first: int) -> MeshBlock:
    return MeshBlock(kind, nodes - 1, np.zeros(len(nodes), np.int64), numbers=np.arange(first, first + len(nodes)))


def _width(section: str, code: int) -> int:
    if code not in CODES:
        raise MeshError(f"section {section} has elements of type {_NAMES.get(code, code)}; {_CONVERT}")
    return ELEMENTS[CODES[code]][1]


def _point_set(group: Any) -> Any:
    sets = [group[one] for one in ("PointList", "PointRange", "ElementList", "ElementRange") if one in group]
    if len(sets) != 1:
        raise MeshError(f"boundary condition {_name(group)} has {len(sets)} lists of points or elements; expected one")
    return sets[0]


def _listed(group: Any, last: int) -> np.ndarray | None:
    """The elements of a boundary condition, by number, ``last`` at most; None where it lists points (ranges of which
    are refused)."""
    listed = _point_set(group)
    place = next((_text(one) for one in _children(group, "GridLocation_t")), "Vertex")
    kind, values = _name(listed), _integers(listed)
    if kind.endswith("Range"):
        if kind == "PointRange" and place == "Vertex":
            raise MeshError(f"boundary condition {_name(group)} is a range of points; list its points or its faces")
        if len(values) != 2 or not 1 <= values[0] <= values[1] <= last:
            found = f"has the range {values.tolist()[:4]} of elements; there are 1 to {last}"
            raise MeshError(f"boundary condition {_name(group)} {found}: malformed")
        return np.arange(values[0], values[1] + 1)
    if kind == "ElementList" or place in ("FaceCenter", "EdgeCenter", "CellCenter"):
        return values
    return None


def _points(zone: Any, in_space: int) -> np.ndarray:
    grid = _only(zone, "GridCoordinates_t", "set of coordinates", "keep the first one")
    names = [f"Coordinate{axis}" for axis in "XYZ"[:in_space]]
    missing = [name for name in names if name not in grid]
    if missing:
        raise MeshError(f"no {missing[0]}; coordinates must be {', '.join(names)}")
    columns = [_values(grid[name], "iuf").astype(np.float64) for name in names]
    if len({len(column) for column in columns}) > 1:
        raise MeshError("coordinates of different lengths: the file is malformed")
    return np.stack(columns, axis=1)


# ---- the tree -------------------------------------------------------------------------------------------------------


def _children(node: Any, label: str) -> list[Any]:
    """The nodes below one that are of a kind, in the order of their names unless the file keeps another."""
    found = []
    for name in node:
        child = node.get(name)
        if child is None or _attribute(child, "type") == "LK":
            raise MeshError(f"{name} is a link to another file; copy what it leads to into this one")
        if _attribute(child, "label") == label:
            found.append(child)
    return found


def _only(node: Any, label: str, what: str, otherwise: str) -> Any:
    found = _children(node, label)
    if len(found) != 1:
        names = f" ({', '.join(_name(one) for one in found[:5])})" if found else ""
        raise MeshError(f"{len(found)} {what}s{names}; expected one: {otherwise}")
    return found[0]


def _attribute(node: Any, name: str) -> str:
    value = node.attrs.get(name, b"")
    return (value.decode(errors="replace") if isinstance(value, bytes) else str(value)).rstrip("\0 ")


def _name(node: Any) -> str:
    return str(node.name).rsplit("/", 1)[-1]


def _values(node: Any, kinds: str = "iu") -> np.ndarray:
    """What a node holds, one after the other: numbers of these kinds of types."""
    if " data" not in node:
        raise MeshError(f"{_name(node)} holds no values: malformed")
    values = np.ravel(np.asarray(node[" data"]))
    if values.dtype.kind not in kinds:
        raise MeshError(f"{_name(node)} holds values of type {values.dtype}: malformed")
    return values


def _integers(node: Any, least: int = 0) -> np.ndarray:
    """Whole numbers, at least so many."""
    values = _values(node)
    if len(values) < least:
        raise MeshError(f"{_name(node)} holds {len(values)} numbers; expected {least}: malformed")
    return values.astype(np.int64)


def _text(node: Any) -> str:
    return bytes(_values(node).astype(np.uint8)).decode(errors="replace").strip("\0 ")
