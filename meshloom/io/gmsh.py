"""Gmsh meshes (.msh), formats 2.2 and 4.1, text and binary. Physical groups of faces are boundary groups, those of
cells are cell groups; ``$Periodic`` says which groups of faces belong together.

The file is cut into its ``$Section ... $EndSection`` parts; a ``_Numbers`` hands out the numbers of a part in turn,
so that text and binary are read by the same code. Writing uses binary 2.2, which every Gmsh reads.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from meshloom.errors import MeshError, is_text, whole_number
from meshloom.io.blocks import ALL_CELLS, ELEMENTS, NO_GROUP, Listing, MeshBlock, Twins, dissolve, with_boundary
from meshloom.io.rank_rows import on_every_rank
from meshloom.io.text import as_integers, parse_numbers, rows_of_changing_length
from meshloom.mesh.mesh import Mesh

CODES = {1: "line", 2: "triangle", 3: "quad", 4: "tetrahedron", 5: "hexahedron", 6: "prism", 7: "pyramid", 15: "vertex"}

_PRISM = (0, 2, 1, 3, 5, 4)  # the nodes of a prism of VTK as Gmsh has them: it goes round the first triangle inwards


class _GmshNumbers:
    """The numbers of one section, handed out in turn: from text, or from bytes by their types."""

    def __init__(self, body: bytes, section: str, binary: bool, swapped: bool):
        self.section, self.binary, self.swapped = section, binary, swapped
        self.body = body if binary else b""
        self.values = np.zeros(0) if binary else parse_numbers(body, f"${section}")
        self.position = 0

    def integers(self, count: int, width: int = 4) -> np.ndarray:
        """Integers; in binary of ``width`` bytes (4: int, 8: size_t)."""
        if self.binary:
            return self._bytes(count, f"i{width}").astype(np.int64)
        return as_integers(self._text(count), f"${self.section}")

    def sizes(self, count: int) -> np.ndarray:
        return self.integers(count, 8)

    def doubles(self, count: int) -> np.ndarray:
        return self._bytes(count, "f8").astype(np.float64) if self.binary else self._text(count)

    def size(self) -> int:
        """One number that counts something."""
        count = int(self.sizes(1)[0])
        if count < 0:
            raise MeshError(f"${self.section}: {count} cannot be a number of things: the file is malformed")
        return count

    def rest(self) -> np.ndarray:
        """All numbers that are left of a text section, as integers."""
        return self.integers(len(self.values) - self.position)

    def first_line(self) -> int:
        """The count with which a section of format 2.2 begins, as text in binary files, too."""
        if not self.binary:
            return self.size()
        line, _, self.body = self.body.partition(b"\n")
        found = as_integers(parse_numbers(line, f"${self.section}"), f"${self.section}")
        if len(found) != 1 or found[0] < 0:
            raise MeshError(f"${self.section}: the first line must be one whole number from 0")
        return int(found[0])

    def finish(self) -> None:
        """Nothing may be left."""
        rest = self.body[self.position :].strip() if self.binary else self.values[self.position :]
        if len(rest):
            raise MeshError(f"${self.section} holds more than it announces: the file is malformed")

    def records(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Structured records of a binary section."""
        return self._bytes(count, dtype)

    def _bytes(self, count: int, dtype: str | np.dtype) -> np.ndarray:
        kind = np.dtype(dtype).newbyteorder("S") if self.swapped else np.dtype(dtype)
        end = self.position + count * kind.itemsize
        self._check(count, end, len(self.body))
        values = np.frombuffer(self.body, kind, count, self.position)
        self.position = end
        return values

    def _text(self, count: int) -> np.ndarray:
        end = self.position + count
        self._check(count, end, len(self.values))
        values = self.values[self.position : end]
        self.position = end
        return values

    def _check(self, count: int, end: int, available: int) -> None:
        if count < 0 or end > available:
            raise MeshError(f"${self.section} ends too early: the file is truncated or malformed")


def read_gmsh(data: bytes) -> Listing:
    """The content of a Gmsh file."""
    sections = _once(_sections(data))
    if "MeshFormat" not in sections:
        raise MeshError("no $MeshFormat; a Gmsh mesh begins with it")
    version, binary, swapped = _format(sections["MeshFormat"])
    for name in ("Nodes", "Elements"):
        if name not in sections:
            raise MeshError(f"no ${name} section; a Gmsh mesh has $Nodes and $Elements")
    parts = {
        name: _GmshNumbers(sections[name], name, binary, swapped)
        for name in ("Entities", "Nodes", "Elements")
        if name in sections
    }
    names = _physical_names(sections["PhysicalNames"]) if "PhysicalNames" in sections else {}
    if version == "4.1":
        physical = _entities_41(parts["Entities"]) if "Entities" in parts else {}
        tags, points = _nodes_41(parts["Nodes"])
        blocks = _elements_41(parts["Elements"], physical)
    else:
        tags, points = _nodes_22(parts["Nodes"])
        blocks = _elements_22(parts["Elements"])
    for part in parts.values():
        part.finish()
    twins = []
    if "Periodic" in sections:
        numbers = _GmshNumbers(_bare(sections["Periodic"]) if version == "2.2" else sections["Periodic"], "Periodic",
                               binary and version != "2.2", swapped)  # fmt: skip
        twins = [replace(one, nodes=_found_nodes(one.nodes, tags)) for one in _periodic(numbers, version)]
        numbers.finish()
    return Listing(points, _renumbered(blocks, tags), names, numbers=tags, twins=twins)


#: Sections of which a file has one; others, such as those of fields, may come again.
_SINGLE = ("MeshFormat", "PhysicalNames", "Entities", "Nodes", "Elements", "Periodic")


def _once(sections: Iterator[tuple[str, bytes]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, body in sections:
        if name in found and name in _SINGLE:
            raise MeshError(f"two ${name} sections; expected one")
        found[name] = body
    return found


def _sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section; the closing line of each must be there."""
    position = 0
    while True:
        start = data.find(b"$", position)
        if start < 0:
            return
        line_end = data.find(b"\n", start)
        name = data[start + 1 : line_end if line_end >= 0 else len(data)].strip()
        end = data.find(b"$End" + name, line_end) if name and line_end >= 0 else -1
        if end < 0:
            label = name[:40].decode(errors="replace")
            raise MeshError(f"section ${label} is not closed by $End{label}: the file is truncated or malformed")
        yield name.decode(errors="replace"), data[line_end + 1 : end]
        position = end + len(b"$End" + name)


def _format(body: bytes) -> tuple[str, bool, bool]:
    """Version "2.2" or "4.1", whether binary, and whether its bytes are in the other order."""
    line, _, rest = body.partition(b"\n")
    words = line.decode(errors="replace").split()
    version = {"2": "2.2", "2.1": "2.2", "2.2": "2.2", "4.1": "4.1"}.get(words[0] if words else "")
    if version is None or len(words) != 3 or words[1] not in ("0", "1"):
        raise MeshError(f"$MeshFormat {' '.join(words)!r}; supported: formats 2.2 and 4.1, text or binary")
    if words[1] == "0":
        return version, False, False
    if words[2] != "8":
        raise MeshError(f"$MeshFormat {' '.join(words)!r}; binary files with numbers of 8 bytes are supported")
    one = np.frombuffer(rest[:4].ljust(4, b"\0"), np.int32)[0]
    if one not in (1, 1 << 24):
        raise MeshError("$MeshFormat: the binary number 1 that tells the byte order is missing")
    return version, True, bool(one != 1)


def _physical_names(body: bytes) -> dict[tuple[int, int], str]:
    names: dict[tuple[int, int], str] = {}
    head, *text_lines = body.decode(errors="replace").split("\n")  # a name may hold what else ends a line
    count = as_integers(parse_numbers(head, "$PhysicalNames"), "$PhysicalNames").tolist()
    for line in filter(str.strip, text_lines):
        try:
            dimension, tag, name = shlex.split(line)
            number = whole_number("number", int(tag), -(2**31), 2**31 - 1)
            group = whole_number("dimension", int(dimension), 0, 3), number
        except ValueError:  # which a UserError is, too
            raise MeshError(f'$PhysicalNames: {line[:40]!r}; expected a line such as: 1 2 "wall"') from None
        if group in names:
            raise MeshError(f"$PhysicalNames names the group {group[1]} of dimension {group[0]} twice")
        names[group] = name
    if count != [len(names)]:
        announced = " ".join(map(str, count)) or "nothing"
        raise MeshError(f"$PhysicalNames announces {announced} and holds {len(names)} names")
    return names


def _entities_41(numbers: _GmshNumbers) -> dict[tuple[int, int], list[int]]:
    """The physical groups of each entity (dimension, tag) that has some."""
    physical = {}
    for dimension, count in enumerate([numbers.size() for _ in range(4)]):
        for _ in range(count):
            tag = int(numbers.integers(1)[0])
            numbers.doubles(3 if dimension == 0 else 6)
            groups = numbers.integers(numbers.size())
            if len(groups):
                physical[dimension, tag] = np.abs(groups).tolist()
            if dimension > 0:
                numbers.integers(numbers.size())
    return physical


def _nodes_41(numbers: _GmshNumbers) -> tuple[np.ndarray, np.ndarray]:
    blocks, total, _, _ = numbers.sizes(4).tolist()
    tags, points = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 3))]
    for _ in range(blocks):
        dimension, _, parametric = numbers.integers(3).tolist()
        if dimension not in range(4) or parametric not in (0, 1):
            raise MeshError(f"$Nodes: an entity of dimension {dimension}, parametric {parametric}: malformed")
        count = numbers.size()
        tags.append(numbers.sizes(count))
        columns = 3 + (dimension if parametric else 0)
        points.append(numbers.doubles(count * columns).reshape(count, columns)[:, :3])
    if sum(map(len, tags)) != total:
        raise MeshError(f"$Nodes announces {total} nodes and holds {sum(map(len, tags))}")
    return np.concatenate(tags), np.concatenate(points)


def _elements_41(numbers: _GmshNumbers, physical: Mapping[tuple[int, int], list[int]]) -> list[MeshBlock]:
    entity_blocks, total, _, _ = numbers.sizes(4).tolist()
    blocks = []
    for _ in range(entity_blocks):
        dimension, tag, code = numbers.integers(3).tolist()
        kind, width = _element(code)
        if dimension != ELEMENTS[kind][0]:
            raise MeshError(f"$Elements: {kind} elements on an entity of dimension {dimension}: the file is malformed")
        count = numbers.size()
        rows = numbers.sizes(count * (1 + width)).reshape(count, 1 + width)
        group, *more = physical.get((dimension, tag), [0])
        blocks.append(MeshBlock(kind, rows[:, 1:], np.full(count, group), tuple(more), numbers=rows[:, 0]))
    if sum(len(block.nodes) for block in blocks) != total:
        raise MeshError(f"$Elements announces {total} elements and holds {sum(len(b.nodes) for b in blocks)}")
    return blocks


def _nodes_22(numbers: _GmshNumbers) -> tuple[np.ndarray, np.ndarray]:
    count = numbers.first_line()
    if numbers.binary:
        records = numbers.records(count, np.dtype([("tag", "i4"), ("x", "f8", (3,))]))
        return records["tag"].astype(np.int64), records["x"].astype(np.float64)
    rows = numbers.doubles(count * 4).reshape(count, 4)
    return as_integers(rows[:, 0], "$Nodes"), rows[:, 1:]


def _elements_22(numbers: _GmshNumbers) -> list[MeshBlock]:
    blocks: list[MeshBlock] = []
    total = left = numbers.first_line()
    if not numbers.binary:
        for run in rows_of_changing_length(numbers.rest(), total, slice(1, 3), _length_22, "$Elements"):
            kind, width = _element(int(run[0, 1]))
            groups = run[:, 3] if run[0, 2] else np.zeros(len(run), dtype=np.int64)
            blocks.append(MeshBlock(kind, run[:, -width:], groups, numbers=run[:, 0]))
        return blocks
    while left > 0:
        code, count, tags = numbers.integers(3).tolist()
        kind, width = _element(code)
        if not 1 <= count <= left or tags < 0:
            raise MeshError(f"$Elements: a block of {count} elements where {left} of {total} are left, each with {tags}"
                            " tags: the file is malformed")  # fmt: skip
        rows = numbers.integers(count * (1 + tags + width)).reshape(count, 1 + tags + width)
        groups = rows[:, 1] if tags else np.zeros(count, dtype=np.int64)
        blocks.append(MeshBlock(kind, rows[:, 1 + tags :], groups, numbers=rows[:, 0]))
        left -= count
    return blocks


def _length_22(head: np.ndarray) -> int:
    """Numbers in a row: its own number, code, number of tags, tags, nodes."""
    code, tags = head.tolist()
    if tags < 0:
        raise MeshError(f"$Elements: {tags} tags: the file is malformed")
    return 3 + tags + _element(code)[1]


def _element(code: int) -> tuple[str, int]:
    """Kind and number of nodes of an element code."""
    if code not in CODES:
        raise MeshError(
            f"$Elements: type {code} is not supported; first-order elements are: {', '.join(CODES.values())}"
        )
    return CODES[code], ELEMENTS[CODES[code]][1]


def _bare(body: bytes) -> bytes:
    """A $Periodic section of format 2.2, which is text in binary files, too, without the lines that say Affine."""
    return b"\n".join(line for line in body.split(b"\n") if not line.strip().startswith(b"Affine"))


def _periodic(numbers: _GmshNumbers, version: str) -> list[Twins]:
    """Of every pair of periodic entities the nodes that belong together, by tag."""
    found = []
    for _ in range(numbers.size()):
        dimension = int(numbers.integers(3)[0])
        if version == "4.1":
            numbers.doubles(numbers.size())
        count = numbers.size()
        found.append(Twins(dimension, numbers.sizes(2 * count).reshape(count, 2)))
    return found


def _found_nodes(wanted: np.ndarray, tags: np.ndarray) -> np.ndarray:
    """Node tags as positions in the list of nodes."""
    order = np.argsort(tags, kind="stable")
    at = np.minimum(np.searchsorted(tags[order], wanted), max(len(tags) - 1, 0))
    if wanted.size and not (tags[order][at] == wanted).all():
        raise MeshError(f"$Periodic names node {wanted[tags[order][at] != wanted][0]}, which $Nodes does not list")
    return order[at]


def _renumbered(blocks: list[MeshBlock], tags: np.ndarray) -> list[MeshBlock]:
    """Blocks whose nodes are positions in the list of nodes instead of node tags."""
    order = np.argsort(tags, kind="stable")
    ordered = tags[order]
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(ordered) and ordered[0] < 0:
        raise MeshError(f"$Nodes numbers a node {ordered[0]}; numbers are positive")
    if len(repeated):
        raise MeshError(f"$Nodes lists node {ordered[repeated[0]]} twice")
    renumbered = []
    for block in blocks:
        at = np.searchsorted(ordered, block.nodes)
        found = (np.append(ordered, -1)[at] == block.nodes) & (block.nodes >= 0)
        if not found.all():
            row, place = np.argwhere(~found)[0]
            element = "" if block.numbers is None else f": element {block.numbers[row]}"
            raise MeshError(f"$Elements{element} names node {block.nodes[row, place]}, which $Nodes does not list")
        renumbered.append(replace(block, nodes=order[at]))
    return renumbered


def write_gmsh(
    mesh: Mesh, cell_fields: Mapping[str, np.ndarray], node_fields: Mapping[str, np.ndarray]
) -> Iterator[bytes]:
    """The mesh as pieces of a binary 2.2 file; boundary faces have the field values of their cells."""
    listing = dissolve(mesh, "Gmsh")
    cell_names, cell_tags = _cell_tags(mesh)
    codes = {kind: code for code, kind in CODES.items()}
    if max(mesh.nodes.total, mesh.cells.total + mesh.boundary_faces.total) >= 2**31:
        raise MeshError("too many elements for a Gmsh 2.2 file (2147483647)")
    yield b"$MeshFormat\n2.2 1 8\n" + np.array(1, dtype=np.int32).tobytes() + b"\n$EndMeshFormat\n"
    yield from _write_names(mesh, cell_names)
    points = np.zeros((mesh.nodes.total, 3))
    points[:, : mesh.dim] = listing.points
    yield f"$Nodes\n{len(points)}\n".encode()
    yield _numbered(points)
    yield f"\n$EndNodes\n$Elements\n{sum(len(block.nodes) for block in listing.blocks)}\n".encode()
    for block in listing.blocks:
        numbers, is_cell = np.asarray(block.numbers), block.dimension == mesh.dim
        tags = cell_tags[numbers] if is_cell else block.tags
        nodes = block.nodes[:, _PRISM] if block.kind == "prism" else block.nodes
        if len(nodes):
            yield np.array((codes[block.kind], len(nodes), 2), dtype=np.int32).tobytes()
            own = numbers + 1 + (0 if is_cell else mesh.cells.total)
            yield np.column_stack((own, tags, tags, nodes + 1)).astype(np.int32).tobytes()
    yield b"\n$EndElements\n"
    for name, values in node_fields.items():
        yield from _write_field("NodeData", name, values)
    for name, values in cell_fields.items():
        yield from _write_field("ElementData", name, on_every_rank(with_boundary(values, mesh)))


def _cell_tags(mesh: Mesh) -> tuple[dict[str, int], np.ndarray]:
    """Numbers of the cell groups, and the tag of each cell. Gmsh drops what is in no group, so every cell gets one."""
    names = {name: number for number, name in enumerate(mesh.cell_groups, start=1)}
    tags = np.zeros(mesh.cells.total, dtype=np.int32)
    for name, number in names.items():
        cells = mesh.cell_groups[name]
        taken = cells[tags[cells] > 0]
        if len(taken):
            other = list(names)[tags[taken[0]] - 1]
            raise MeshError(f"cell {taken[0]} is in the groups {other!r} and {name!r}; in a Gmsh file a cell has one"
                            " (.vtu files hold several)")  # fmt: skip
        tags[cells] = number
    if not names or (tags == 0).any():
        names[NO_GROUP if names else ALL_CELLS] = len(names) + 1
        tags[tags == 0] = len(names)
    return names, tags


def _write_names(mesh: Mesh, cell_names: Mapping[str, int]) -> Iterator[bytes]:
    """The names of the groups of boundary faces and cells."""
    for what, names in (("boundary", mesh.groups), ("cell", cell_names)):
        for name in names:
            if set(name) & set('"\\\n\r') or not name or not is_text(name):
                raise MeshError(f"{what} group {name!r}: a Gmsh name is text without quotes and backslashes")
    text_lines = [f'{mesh.dim - 1} {number} "{name}"\n' for name, number in mesh.groups.items()]
    text_lines += [f'{mesh.dim} {number} "{name}"\n' for name, number in cell_names.items()]
    yield (f"$PhysicalNames\n{len(text_lines)}\n" + "".join(text_lines) + "$EndPhysicalNames\n").encode()


def _write_field(section: str, name: str, values: np.ndarray) -> Iterator[bytes]:
    """One field; Gmsh knows 1, 3 and 9 components, so others are filled up with zeros."""
    if set(name) & set('"\n\r'):
        raise MeshError(f"field {name!r}: a Gmsh name has no quotes")
    values = values.reshape(len(values), -1)
    width = next((width for width in (1, 3, 9) if width >= values.shape[1]), None)
    if width is None:
        raise MeshError(f"field {name}: {values.shape[1]} components; a Gmsh file holds at most 9")
    padded = np.zeros((len(values), width))
    padded[:, : values.shape[1]] = values
    yield f'${section}\n1\n"{name}"\n1\n0.0\n3\n0\n{width}\n{len(values)}\n'.encode()
    yield _numbered(padded)
    yield f"\n$End{section}\n".encode()


def _numbered(values: np.ndarray) -> bytes:
    """Rows of doubles, each after its number from 1 (int32)."""
    records = np.empty(len(values), dtype=[("number", "i4"), ("values", "f8", (values.shape[1],))])
    records["number"] = np.arange(1, len(values) + 1)
    records["values"] = values
    return records.tobytes()
