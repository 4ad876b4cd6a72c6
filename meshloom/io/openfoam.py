"""Meshes of OpenFOAM, read only: a folder ``polyMesh`` with the files points, faces, owner, neighbour and boundary,
each in text, compressed (``points.gz``) or not.

OpenFOAM knows a cell by its faces alone. The four kinds are told by how many triangles and quadrilaterals a cell has,
and its nodes are found by walking around: from a base, each of whose nodes has one edge that leaves it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.text import as_integers, parse_numbers, rows_of_changing_length
from meshloom.mesh.connectivity import CellTable, NodeLists, starts_of
from meshloom.mesh.mesh import Mesh

FILES = ("points", "faces", "owner", "neighbour", "boundary")
#: Numbers of triangles and quadrilaterals of each kind, and the number of nodes of the base to start from.
_KINDS = {(4, 0): ("tetrahedron", 3), (4, 1): ("pyramid", 4), (2, 3): ("prism", 3), (0, 6): ("hexahedron", 4)}


def find_polymesh(path: Path) -> Path | None:
    """The folder of the mesh that a path leads to: itself, or ``constant/polyMesh`` of a case; None for any other."""
    for folder in (path, path / "polyMesh", path / "constant" / "polyMesh"):
        if _file(folder, "faces").is_file() and _file(folder, "owner").is_file():
            return folder
    return None


def read_openfoam(folder: Path) -> Mesh:
    """The mesh of such a folder. Patches are boundary groups; cells keep their numbers."""
    path = {name: _file(folder, name) for name in FILES}
    missing = [name for name in FILES if not path[name].is_file()]
    if missing:
        raise MeshError(f"no file {missing[0]}; a mesh of OpenFOAM has {', '.join(FILES)}, in text")
    points = _numbers(path["points"], 3)
    faces = _faces(path["faces"])
    owner, neighbour = (as_integers(_numbers(path[name]), name) for name in ("owner", "neighbour"))
    if len(owner) != len(faces) or len(neighbour) > len(faces):
        raise MeshError(f"faces lists {len(faces)}, owner {len(owner)} and neighbour {len(neighbour)}: malformed")
    patches = _patches(path["boundary"])
    x = points.reshape(-1, 3)
    if len(faces.entries) and (faces.entries.min() < 0 or faces.entries.max() >= len(x)):
        raise MeshError(f"faces names a point beyond the {len(x)} that there are: malformed")
    boundary = {}
    for name, (first, count) in patches.items():
        if first < len(neighbour) or first + count > len(faces):
            raise MeshError(f"patch {name} has the faces {first} to {first + count - 1}; those of the boundary are"
                            f" {len(neighbour)} to {len(faces) - 1}")  # fmt: skip
        boundary[name] = faces.taken(np.arange(first, first + count))
    mesh = Mesh.from_table(x, _cells(faces, owner, neighbour), boundary, order="given")
    mesh.check(faces=False)
    return mesh


def _cells(faces: NodeLists, owner: np.ndarray, neighbour: np.ndarray) -> CellTable:
    """The nodes of each cell from its faces, outwards from the first of the two cells of each."""
    of = np.concatenate((owner, neighbour))
    if len(of) == 0 or of.min() < 0:
        raise MeshError("no cells, or cells with negative numbers: malformed")
    if of.max() >= len(of):  # each of the cells from 0 on has some of the faces
        raise MeshError(
            f"owner or neighbour names cell {of.max()}, but {len(faces)} faces do not make so many: malformed"
        )
    side = np.concatenate((np.arange(len(owner)), np.arange(len(neighbour))))
    inwards = np.concatenate((np.zeros(len(owner), dtype=bool), np.ones(len(neighbour), dtype=bool)))
    order = np.lexsort((faces.lengths[side], of))  # triangles before quadrilaterals
    of, side, inwards = of[order], side[order], inwards[order]
    count = int(of[-1]) + 1
    lengths = faces.lengths[side]
    sizes = {k: np.bincount(of[lengths == k], minlength=count) for k in (3, 4)}
    total = np.bincount(of, minlength=count)
    starts = starts_of(total)
    kinds, nodes, done = {}, [], np.zeros(count, dtype=bool)
    for (triangles, quads), (kind, base) in _KINDS.items():
        cells = np.flatnonzero((sizes[3] == triangles) & (sizes[4] == quads) & (total == triangles + quads))
        if len(cells):
            rows = starts[cells][:, None] + np.arange(triangles + quads)
            nodes.append((cells, _walked(faces, side[rows], inwards[rows], base, kind, cells)))
            kinds[kind] = cells
            done[cells] = True
    if not done.all():
        cell = int(np.argmin(done))
        sizes_here, times = np.unique(lengths[of == cell], return_counts=True)
        have = ", ".join(f"{number} of {k} nodes" for k, number in zip(sizes_here, times, strict=True))
        raise MeshError(f"cell {cell} has other faces than a tetrahedron, pyramid, prism or hexahedron ({have}); split"
                        " it into such cells")  # fmt: skip
    lists = NodeLists.joined([NodeLists.of_rows(rows) for _, rows in nodes])
    place = np.argsort(np.concatenate([cells for cells, _ in nodes]))
    return CellTable.given(kinds if len(kinds) > 1 else next(iter(kinds)), lists.taken(place))


def _walked(
    faces: NodeLists, sides: np.ndarray, inwards: np.ndarray, base: int, kind: str, cells: np.ndarray
) -> np.ndarray:
    """The nodes (m, k) of cells with faces ``sides`` (m, f): those of a base, and above each what its edge leads to."""
    at = (
        0 if base == 3 else sides.shape[1] - 1
    )  # the first face is a triangle, if there is one, the last a quadrilateral
    bottom = _rows(faces, sides[:, at], base)
    bottom = np.where(inwards[:, at][:, None], bottom, bottom[:, ::-1])  # inwards, as a base in VTK's order
    others = [slot for slot in range(sides.shape[1]) if slot != at]
    above = np.full_like(bottom, -1)
    for slot in others:
        length = int(faces.lengths[sides[0, slot]])
        loop = _rows(faces, sides[:, slot], length)
        for here in range(length):
            for step in (1, -1):
                adjacent = loop[:, (here + step) % length]
                outside = ~(bottom == adjacent[:, None]).any(axis=1)
                for corner in range(base):
                    found = outside & (bottom[:, corner] == loop[:, here])
                    above[found, corner] = adjacent[found]
    if (above < 0).any():
        raise MeshError(
            f"the faces of cell {cells[np.argmax((above < 0).any(axis=1))]} do not close a {kind}: malformed"
        )
    return np.column_stack((bottom, above[:, :1] if kind in ("tetrahedron", "pyramid") else above))


def _rows(faces: NodeLists, numbers: np.ndarray, length: int) -> np.ndarray:
    return faces.entries[faces.starts[numbers][:, None] + np.arange(length)]


# ---- the files ------------------------------------------------------------------------------------------------------


def _file(folder: Path, name: str) -> Path:
    """The file of that name, or the compressed one where that is there instead."""
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() and not (folder / name).is_file() else folder / name


def _text(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise MeshError(f"{path.name} cannot be unpacked ({error}): truncated or malformed") from None
    return data.decode(errors="replace")


def _body(path: Path) -> tuple[str, int | None]:
    """What stands between the outer brackets of a file, without comments, and how many entries it announces."""
    text = _text(path)
    if re.search(r"format\s+binary", text[:2000]):
        raise MeshError(f"{path.name} is binary; write it as text: writeFormat ascii, then foamFormatConvert")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"FoamFile\s*\{.*?\}", " ", text, count=1, flags=re.DOTALL)
    first, last = text.find("("), text.rfind(")")
    if first < 0 or last < first:
        raise MeshError(f"{path.name} has no list in brackets: truncated or malformed")
    announced = as_integers(parse_numbers(text[:first], path.name), path.name)
    if len(announced) > 1:
        raise MeshError(f"{path.name}: expected one number before its list, got {len(announced)}")
    return text[first + 1 : last], int(announced[0]) if len(announced) else None


def _check_count(name: str, announced: int | None, found: int) -> None:
    """A list that was cut off can end in a bracket as well."""
    if announced is not None and announced != found:
        raise MeshError(f"{name} announces {announced} entries and holds {found}: truncated or malformed")


def _numbers(path: Path, each: int = 1) -> np.ndarray:
    """The numbers of a list, those of points, ``each`` of them, one after the other."""
    body, announced = _body(path)
    numbers = parse_numbers(body.replace("(", " ").replace(")", " "), path.name)
    if len(numbers) % each:
        raise MeshError(f"{path.name} holds {len(numbers)} numbers; expected three for each")
    _check_count(path.name, announced, len(numbers) // each)
    return numbers


def _faces(path: Path) -> NodeLists:
    body, announced = _body(path)
    flat = as_integers(parse_numbers(body.replace("(", " ").replace(")", " "), path.name), path.name)
    count = body.count("(")
    _check_count(path.name, announced, count)
    runs = [*rows_of_changing_length(flat, count, slice(0, 1), _face_length, path.name)]
    if not runs:
        raise MeshError(f"{path.name} lists no faces")
    return NodeLists.joined([NodeLists.of_rows(run[:, 1:]) for run in runs])


def _face_length(head: np.ndarray) -> int:
    """Numbers in a row: how many points, and these."""
    if head[0] < 3:
        raise MeshError(f"faces lists a face of {head[0]} points; expected three or more")
    return 1 + int(head[0])


def _patches(path: Path) -> dict[str, tuple[int, int]]:
    """First face and number of faces of each patch."""
    text, announced = _body(path)
    found: dict[str, tuple[int, int]] = {}
    for name, body in re.findall(r"([^\s(){};]+)\s*\{([^{}]*)\}", text):
        values = {key: re.search(rf"\b{key}\s+(\d+)\s*;", body) for key in ("startFace", "nFaces")}
        first, count = values["startFace"], values["nFaces"]
        if name in found:
            raise MeshError(f"two patches {name}; each may be given once")
        if first is None or count is None:
            raise MeshError(f"patch {name} has no startFace or no nFaces: malformed")
        found[name] = int(first[1]), int(count[1])
    _check_count(path.name, announced, len(found))
    return found
