"""Small meshes of every kind as files of every format that is read, and ways to change what stands in them."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import meshloom as ml
from meshloom.mesh.mesh import Mesh
from tests.attacks.damage import damaged

GMSH = {"line": 1, "triangle": 2, "quad": 3, "tetrahedron": 4, "hexahedron": 5}
VTK = {"line": 3, "triangle": 5, "quad": 9, "tetrahedron": 10, "hexahedron": 12}
FACE = {2: "line", 3: "triangle", 4: "quad"}


def _there(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


FORMATS = ("22.msh", "22 binary.msh", "41.msh", "41 binary.msh", "mesh.su2", "mesh.dat")
VTU = ("text.vtu", "binary.vtu") if _there("meshio") else ()
KINDS = ("quad", "triangle", "hexahedron", "tetrahedron")
#: The kinds in files of each format.
FILES = {name: ("quad", "airfoil") if name == "mesh.dat" else KINDS for name in (*FORMATS, *VTU)}


def some_file(dice: random.Random) -> tuple[str, str]:
    """A format and a kind."""
    name = dice.choice([*FILES])
    return name, dice.choice(FILES[name])


@cache
def mesh_of(kind: str) -> Mesh:
    """A small mesh; those of boxes are jittered."""
    if kind == "airfoil":
        return ml.generate.naca0012(4, 3)
    mesh = ml.generate.box((4, 4) if kind in ("quad", "triangle") else (4, 3, 3), cells=kind)
    x, spread = mesh.coordinates.numpy(), 0.02 if kind == "tetrahedron" else 0.05
    x = x + np.random.default_rng(3).uniform(-spread, spread, x.shape)
    named = {name: mesh.boundary_nodes.indices[mesh.group(name)] for name in mesh.groups}
    return Mesh.from_cells(x, mesh.cell_nodes.indices, kind, named)


@dataclass(frozen=True)
class Parts:
    """What stands in a file, sound or not: points (n, d), cells (m, k), faces of each boundary group (b, f) by name;
    and for ``.dat`` files rows of faces (nodes and cells) and of boundary faces (nodes, cell and group)."""

    kind: str
    x: np.ndarray
    cells: np.ndarray
    groups: dict[str, np.ndarray]
    faces: np.ndarray
    boundary: np.ndarray

    @classmethod
    def of(cls, mesh: Mesh) -> Parts:
        ends, owners = mesh.boundary_nodes.indices, mesh.boundary_cells.indices
        faces = np.column_stack((mesh.face_nodes.indices, mesh.face_cells.indices))
        boundary = np.column_stack((ends, owners, mesh.boundary_group.numpy()))
        groups = {name: ends[mesh.group(name)] for name in mesh.groups}
        return cls(mesh.kind, mesh.coordinates.numpy(), mesh.cell_nodes.indices, groups, faces, boundary)


#: The first number of cells and nodes in Gmsh files; all others count from 0.
GMSH_CELL, GMSH_NODE = 101, 11


@cache
def content_of(name: str, kind: str) -> bytes:
    """A mesh as a file of that format."""
    if name != "binary.vtu":
        return written(name, Parts.of(mesh_of(kind)))
    with TemporaryDirectory() as folder:
        ml.write(Path(folder, "mesh.vtu"), mesh_of(kind))
        return Path(folder, "mesh.vtu").read_bytes()


def written(name: str, parts: Parts) -> bytes:
    """The file, from the manuals of the formats."""
    if name.endswith(".msh"):
        return gmsh(parts, version=name[:2], binary="binary" in name)
    return {"text.vtu": vtu_text, "mesh.su2": su2, "mesh.dat": dat}[name](parts)


def dat(parts: Parts) -> bytes:
    rows = [[len(parts.x), len(parts.cells), len(parts.faces), len(parts.boundary)]]
    for part in (parts.x, parts.cells, parts.faces, parts.boundary):
        rows += part.tolist()
    return "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()


def su2(parts: Parts) -> bytes:
    text = f"NDIME= {parts.x.shape[1]}\nNELEM= {len(parts.cells)}\n"
    text += "".join(f"{VTK[parts.kind]} {' '.join(map(str, row))} {k}\n" for k, row in enumerate(parts.cells.tolist()))
    text += f"NPOIN= {len(parts.x)}\n"
    text += "".join(f"{' '.join(map(repr, row))} {k}\n" for k, row in enumerate(parts.x.tolist()))
    text += f"NMARK= {len(parts.groups)}\n"
    for name, faces in parts.groups.items():
        text += f"MARKER_TAG= {name}\nMARKER_ELEMS= {len(faces)}\n"
        text += "".join(f"{VTK[FACE[len(row)]]} {' '.join(map(str, row))}\n" for row in faces.tolist())
    return text.encode()


def gmsh(parts: Parts, version: str, binary: bool) -> bytes:
    """As Gmsh 2.2 or 4.1."""
    dim = parts.x.shape[1]
    x = np.zeros((len(parts.x), 3))
    x[:, :dim] = parts.x
    faces = FACE[next(iter(parts.groups.values())).shape[1]]
    blocks = [(dim, 7, parts.kind, parts.cells + GMSH_NODE)]
    blocks += [(dim - 1, tag, faces, rows + GMSH_NODE) for tag, rows in enumerate(parts.groups.values(), start=1)]
    head = b"$MeshFormat\n" + f"{version[0]}.{version[1]} {int(binary)} 8\n".encode()
    head += struct.pack("=i", 1) + b"\n" if binary else b""
    names = [f'{dim} 7 "air"', *(f'{dim - 1} {tag} "{name}"' for tag, name in enumerate(parts.groups, start=1))]
    head += f"$EndMeshFormat\n$PhysicalNames\n{len(names)}\n".encode() + "\n".join(names).encode()
    head += b"\n$EndPhysicalNames\n"
    bodies = _bodies_22(x, blocks, binary) if version == "22" else _bodies_41(x, blocks, binary)
    return head + b"".join(f"${part}\n".encode() + body + f"$End{part}\n".encode() for part, body in bodies.items())


def _bodies_22(x: np.ndarray, blocks: list, binary: bool) -> dict[str, bytes]:
    total, number = sum(len(nodes) for *_, nodes in blocks), GMSH_CELL
    nodes, elements = f"{len(x)}\n".encode(), f"{total}\n".encode()
    for tag, point in enumerate(x.tolist(), start=GMSH_NODE):
        line = " ".join(map(repr, (tag, *point))) + "\n"
        nodes += struct.pack("=iddd", tag, *point) if binary else line.encode()
    for _, tag, kind, rows in blocks:
        elements += struct.pack("=iii", GMSH[kind], len(rows), 2) if binary else b""
        for row in rows.tolist():
            elements += (struct.pack(f"={3 + len(row)}i", number, tag, tag, *row) if binary else
                         " ".join(map(str, (number, GMSH[kind], 2, tag, tag, *row))).encode() + b"\n")  # fmt: skip
            number += 1
    end = b"\n" if binary else b""
    return {"Nodes": nodes + end, "Elements": elements + end}


def _bodies_41(x: np.ndarray, blocks: list, binary: bool) -> dict[str, bytes]:
    def row(pattern: str, *values: float) -> bytes:
        """i: int, q: size_t, d: double."""
        return struct.pack(f"={pattern}", *values) if binary else " ".join(map(repr, values)).encode() + b"\n"

    dimension = blocks[0][0]
    counts = [sum(block[0] == d for block in blocks) for d in range(4)]
    entities = row("qqqq", *counts)
    for _, tag, _, _ in sorted(blocks, key=lambda block: block[0]):
        entities += row("idddddd", tag, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0) + row("qi", 1, tag) + row("q", 0)
    nodes = row("qqqq", 1, len(x), GMSH_NODE, GMSH_NODE + len(x) - 1) + row("iiiq", dimension, 7, 0, len(x))
    nodes += b"".join(row("q", tag) for tag in range(GMSH_NODE, GMSH_NODE + len(x)))
    nodes += b"".join(row("ddd", *point) for point in x.tolist())
    total, number = sum(len(rows) for *_, rows in blocks), GMSH_CELL
    elements = row("qqqq", len(blocks), total, number, number + total - 1)
    for of, tag, kind, rows in blocks:
        elements += row("iiiq", of, tag, GMSH[kind], len(rows))
        for each in rows.tolist():
            elements += row("q" * (1 + len(each)), number, *each)
            number += 1
    end = b"\n" if binary else b""
    return {"Entities": entities + end, "Nodes": nodes + end, "Elements": elements + end}


def vtu_text(parts: Parts) -> bytes:
    """A VTU file with all arrays as text, as other programs write it; without groups."""
    x = np.zeros((len(parts.x), 3))
    x[:, : parts.x.shape[1]] = parts.x
    cells = parts.cells
    arrays = {"connectivity": cells.ravel(), "offsets": cells.shape[1] * np.arange(1, len(cells) + 1),
              "types": np.full(len(cells), VTK[parts.kind])}  # fmt: skip
    texts = {name: " ".join(map(str, values)) for name, values in arrays.items()}
    listed = "".join(f'<DataArray type="Int64" Name="{name}" format="ascii">\n{text}\n</DataArray>\n'
                     for name, text in texts.items())  # fmt: skip
    points = "\n".join(" ".join(map(repr, point)) for point in x.tolist())
    return f"""<?xml version="1.0"?>
<VTKFile type="UnstructuredGrid" version="0.1" byte_order="LittleEndian">
<UnstructuredGrid>
<Piece NumberOfPoints="{len(x)}" NumberOfCells="{len(cells)}">
<Points>
<DataArray type="Float64" Name="Points" NumberOfComponents="3" format="ascii">
{points}
</DataArray>
</Points>
<Cells>
{listed}</Cells>
</Piece>
</UnstructuredGrid>
</VTKFile>
""".encode()


# ---- changes --------------------------------------------------------------------------------------------------------

_ODD = ("0", "-1", "1", "2", "3", "7", "11", "1.5", "nan", "inf", "-inf", "1e300", "1e-300", "-0.0",
        "1000000000000000000", "99999999999999999999", "2147483648", "-2147483648",
        "x", "", "1 2", "0x10", "\x00", "é")  # fmt: skip


def _number(dice: random.Random, word: bytes) -> bytes:
    """Another number in the place of one."""
    if dice.random() < 0.5:
        return dice.choice(_ODD).encode()
    try:
        value = float(word)
    except ValueError:
        return word + b"9"
    near = [value + 1, value - 1, -value, 10 * value, value + dice.randint(-20, 20)]
    if value.is_integer() and b"." not in word:
        return str(int(dice.choice(near))).encode()
    return repr(dice.choice([*near, value + dice.uniform(-1, 1)])).encode()


def numbers_changed(dice: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    for _ in range(dice.choice((1, 1, 1, 3))):
        at = dice.randrange(len(lines))
        words = lines[at].split(b" ")
        slot = dice.randrange(len(words))
        words[slot] = _number(dice, words[slot])
        lines[at] = b" ".join(words)
    return b"\n".join(lines)


def lines_moved(dice: random.Random, data: bytes) -> bytes:
    """Lines dropped, doubled, swapped, or a piece of them twice."""
    lines = data.split(b"\n")
    a, b = sorted(dice.randrange(len(lines)) for _ in range(2))
    way = dice.choice(("drop", "double", "swap", "piece", "join", "reverse"))
    if way == "drop":
        del lines[a]
    elif way == "double":
        lines.insert(a, lines[a])
    elif way == "swap":
        lines[a], lines[b] = lines[b], lines[a]
    elif way == "piece":
        lines[b:b] = lines[a:b]
    elif way == "join":
        lines[a : a + 2] = [b" ".join(lines[a : a + 2])]
    else:
        lines[a:b] = lines[a:b][::-1]
    return b"\n".join(lines)


def words_moved(dice: random.Random, data: bytes) -> bytes:
    """Words of a line in another order, or one of them moved to another line: nodes of cells permuted, mostly."""
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    words = lines[at].split(b" ")
    if dice.random() < 0.8:
        a, b = (dice.randrange(len(words)) for _ in range(2))
        words[a], words[b] = words[b], words[a]
    else:
        words.insert(dice.randrange(len(words)), dice.choice(dice.choice(lines).split(b" ")))
    lines[at] = b" ".join(words)
    return b"\n".join(lines)


def sections_doubled(dice: random.Random, data: bytes) -> bytes:
    """A section again, in its place or at the end."""
    marks = [found.start() + 1 for found in re.finditer(rb"\n[$NM<]", data)]
    if len(marks) < 2:
        return data + data
    begin = dice.randrange(len(marks) - 1)
    end = marks[min(len(marks) - 1, begin + dice.choice((1, 2, 2, 4)))]
    piece = data[marks[begin] : end]
    return data[:end] + piece + data[end:] if dice.random() < 0.5 else data + piece


def words_of_bytes(dice: random.Random, data: bytes) -> bytes:
    """An integer or double of a binary file changed."""
    kind, values = dice.choice((
        ("i", (0, -1, 1, 5, 2**31 - 1, -(2**31), dice.randrange(1, 80))),
        ("q", (0, -1, 1, 2**62, -(2**63), dice.randrange(1, 80))),
        ("d", (float("nan"), float("inf"), 1e300, dice.uniform(-2, 2), 0.0)),
    ))  # fmt: skip
    word = struct.pack(f"={kind}", dice.choice(values))
    at = dice.randrange(max(1, len(data) - len(word)))
    return data[:at] + word + data[at + len(word) :]


WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    numbers_changed, numbers_changed, lines_moved, words_moved, words_moved, sections_doubled, words_of_bytes, damaged,
)  # fmt: skip


def changed(dice: random.Random, data: bytes) -> bytes:
    """Other content, in one way or two."""
    found = data
    while found == data:
        for _ in range(dice.choice((1, 1, 1, 2))):
            found = dice.choice(WAYS)(dice, found) if found else found
    return found
