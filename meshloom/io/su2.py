"""SU2 meshes (.su2): text with ``KEY= value`` lines, each followed by its rows. Markers are boundary groups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.blocks import ELEMENTS, Listing, MeshBlock, dissolve
from meshloom.io.text import as_integers, format_rows, parse_numbers, rows_of_changing_length
from meshloom.mesh.mesh import Mesh

#: The element codes of SU2 are those of VTK.
CODES = {3: "line", 5: "triangle", 9: "quad", 10: "tetrahedron", 12: "hexahedron", 13: "prism", 14: "pyramid"}


def read_su2(data: bytes) -> Listing:
    """The content of an SU2 file."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise MeshError("not text; an SU2 mesh is a text file") from None
    sections = _sections(text)
    if "NZONE" in sections and _single(sections.value("NZONE"), "NZONE") > 1:
        raise MeshError("more than one zone; expected one")
    dimension = _single(sections.value("NDIME"), "NDIME")
    if dimension not in (2, 3):
        raise MeshError(f"NDIME= {dimension}; expected 2 or 3")
    points = _points(sections.value("NPOIN"), sections.rows("NPOIN"), dimension)
    blocks = _elements(sections.value("NELEM"), sections.rows("NELEM"), "NELEM", tag=0)
    highest = max((block.dimension for block in blocks), default=0)
    names: dict[tuple[int, int], str] = {}
    for tag, (name, count, rows) in enumerate(sections.markers(), start=1):
        if name in names.values():
            raise MeshError(f"two markers {name}; each may be given once")
        names[dimension - 1, tag] = name
        faces = _elements(count, rows, f"marker {name}", tag)
        if any(block.dimension >= highest for block in faces):
            raise MeshError(f"marker {name} holds {faces[0].kind} elements, which are cells; markers hold faces")
        blocks += faces
    expected = _single(sections.value("NMARK"), "NMARK")
    if expected != len(names):
        raise MeshError(f"NMARK= {expected}, but {len(names)} markers found: the file is truncated")
    return Listing(points, blocks, names)


class _Sections:
    """Keys in the order of the file, each with its value and the lines up to the next key."""

    def __init__(self, found: list[tuple[str, str, list[str]]]):
        self.found = found

    def __contains__(self, key: str) -> bool:
        return any(name == key for name, _, _ in self.found)

    def value(self, key: str) -> str:
        return self._one(key)[1]

    def rows(self, key: str) -> list[str]:
        return self._one(key)[2]

    def _one(self, key: str) -> tuple[str, str, list[str]]:
        fitting = [section for section in self.found if section[0] == key]
        if len(fitting) != 1:
            problem = f"{len(fitting)} {key}= lines" if fitting else f"no {key}= line"
            raise MeshError(f"{problem}; an SU2 mesh has one of NDIME, NELEM, NPOIN and NMARK each")
        return fitting[0]

    def markers(self) -> Iterator[tuple[str, str, list[str]]]:
        """Name, number of elements and rows of each marker."""
        for position, (key, name, _) in enumerate(self.found):
            if key == "MARKER_TAG":
                following = self.found[position + 1 : position + 2]
                if not following or following[0][0] != "MARKER_ELEMS":
                    raise MeshError(f"marker {name} is not followed by a MARKER_ELEMS= line")
                yield name, following[0][1], following[0][2]


def _sections(text: str) -> _Sections:
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        content = line.split("%", 1)[0].strip()
        if not content:
            continue
        key, equals, value = content.partition("=")
        if equals:
            found.append((key.strip(), value.strip(), []))
        elif found:
            found[-1][2].append(content)
        else:
            raise MeshError(f"found {content[:40]!r}; an SU2 mesh begins with a line such as NDIME= 2")
    return _Sections(found)


def _single(text: str, key: str) -> int:
    """The first number after a key; NPOIN may carry a second one."""
    values = as_integers(parse_numbers(text, f"{key}="), f"{key}=")
    if len(values) == 0 or values[0] < 0:
        raise MeshError(f"{key}= {text}: a whole number from 0 expected")
    return int(values[0])


def _points(count: str, rows: list[str], dimension: int) -> np.ndarray:
    """Coordinates (n, d); a row may end with its own number, which is dropped."""
    n = _single(count, "NPOIN")
    numbers = parse_numbers(" ".join(rows), "NPOIN")
    columns = len(numbers) // n if n else dimension
    if columns not in (dimension, dimension + 1, dimension + 2) or columns * n != len(numbers):
        raise MeshError(f"NPOIN= {n}, but {len(numbers)} numbers follow: expected {n} rows of {dimension} coordinates")
    return numbers.reshape(n, columns)[:, :dimension]


def _elements(count: str, rows: list[str], what: str, tag: int) -> list[MeshBlock]:
    """Blocks of equal elements; a row is code, nodes and, if the file has it, its own number."""
    n = _single(count, what)
    numbers = as_integers(parse_numbers(" ".join(rows), what), what)
    extra = len(rows[0].split()) - _width(numbers, 0, what) if len(numbers) else 0
    if extra not in (0, 1):
        raise MeshError(f"{what}: {rows[0][:40]!r}; expected a code, its nodes and perhaps the number of the row")
    runs = rows_of_changing_length(numbers, n, slice(0, 1), lambda head: _width(head, extra, what), what)
    blocks, first = [], 0
    for run in runs:
        kind, own = CODES[int(run[0, 0])], np.arange(first, first + len(run))
        blocks.append(MeshBlock(kind, run[:, 1 : 1 + ELEMENTS[kind][1]], np.full(len(run), tag), numbers=own))
        first += len(run)
    return blocks


def _width(head: np.ndarray, extra: int, what: str) -> int:
    code = int(head[0])
    if code not in CODES:
        allowed = ", ".join(f"{known} ({kind})" for known, kind in CODES.items())
        raise MeshError(f"{what}: element code {code} is not known; allowed: {allowed}")
    return 1 + ELEMENTS[CODES[code]][1] + extra


def write_su2(mesh: Mesh) -> Iterator[bytes]:
    """The mesh as pieces of an SU2 file; coordinates with all digits."""
    for name in mesh.groups:
        if set(name) & set("%=") or name != name.strip() or not name or not name.isprintable():
            raise MeshError(f"boundary group {name!r}: an SU2 marker has a name without '%', '=' and blank ends")
    listing = dissolve(mesh, "SU2")
    codes = {kind: code for code, kind in CODES.items()}
    cells = [block for block in listing.blocks if block.dimension == mesh.dim]
    faces = [block for block in listing.blocks if block.dimension < mesh.dim]
    yield f"NDIME= {mesh.dim}\nNELEM= {mesh.cells.total}\n".encode()
    for block in cells:
        pattern = f"{codes[block.kind]} " + "%d " * block.nodes.shape[1] + "%d\n"
        yield from format_rows(pattern, np.column_stack((block.nodes, np.asarray(block.numbers))))
    yield f"NPOIN= {len(listing.points)}\n".encode()
    yield from format_rows(
        "%.17g " * mesh.dim + "%d\n", np.column_stack((listing.points, np.arange(len(listing.points))))
    )
    yield f"NMARK= {len(mesh.groups)}\n".encode()
    for name, number in mesh.groups.items():
        count = sum(int((block.tags == number).sum()) for block in faces)
        yield f"MARKER_TAG= {name}\nMARKER_ELEMS= {count}\n".encode()
        for block in faces:
            nodes = block.nodes[block.tags == number]
            yield from format_rows(f"{codes[block.kind]}" + " %d" * nodes.shape[1] + "\n", nodes)
