"""Gmsh's ``$Periodic``: which sides belong together is read, kept by every arrangement, and joined when asked for."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.mesh import Mesh
from tests.one_line import one_line_from

BOX = ml.generate.box((4, 3), cells="triangle")
SIDES = {"xmin": 1, "xmax": 2, "ymin": 3, "ymax": 4}
AFFINE = [1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


def twins(axis: int) -> np.ndarray:
    """Nodes at the far end of an axis, and those that they are copies of, by tag from 1."""
    x = BOX.coordinates.numpy()
    far, near = (np.flatnonzero(x[:, axis] == end) for end in (1.0, 0.0))
    return np.stack((far, near), axis=1) + 1


def elements() -> list[tuple[int, int, list[int]]]:
    """Code, group and nodes of each element; cells are in group 9."""
    groups = BOX.boundary_group.numpy()
    names = {number: name for name, number in BOX.groups.items()}
    faces = [
        (1, SIDES[names[g]], (row + 1).tolist()) for g, row in zip(groups, BOX.boundary_nodes.indices, strict=True)
    ]
    return faces + [(2, 9, (row + 1).tolist()) for row in BOX.cell_nodes.indices]


def names(sides: dict[str, int]) -> str:
    lines = [f'1 {number} "{name}"\n' for name, number in sides.items()] + ['2 9 "plate"\n']
    return f"$PhysicalNames\n{len(lines)}\n{''.join(lines)}$EndPhysicalNames\n"


def gmsh_22(links: list[tuple[int, int, int, np.ndarray]], *, one_group: bool = False, binary: bool = False) -> bytes:
    """The box with links (dimension, tag, tag of the master, nodes)."""
    x = np.column_stack((BOX.coordinates.numpy(), np.zeros(len(BOX.nodes))))
    sides = {"sides": 1} if one_group else SIDES
    rows = [(code, n, 1 if one_group and code == 1 else g, nodes) for n, (code, g, nodes) in enumerate(elements(), 1)]
    text = "".join(f"{d} {tag} {of}\nAffine {' '.join(map(str, AFFINE))}\n{len(nodes)}\n" +
                   "".join(f"{a} {b}\n" for a, b in nodes.tolist()) for d, tag, of, nodes in links)  # fmt: skip
    periodic = f"$Periodic\n{len(links)}\n{text}$EndPeriodic\n".encode()
    if binary:
        points = b"".join(struct.pack("<iddd", n, *place) for n, place in enumerate(x, 1))
        body = b"".join(struct.pack(f"<iiiiii{len(v)}i", c, 1, 2, n, g, g, *v) for c, n, g, v in rows)
        head = b"$MeshFormat\n2.2 1 8\n" + struct.pack("<i", 1) + b"\n$EndMeshFormat\n" + names(sides).encode()
        return (head + f"$Nodes\n{len(x)}\n".encode() + points + f"\n$EndNodes\n$Elements\n{len(rows)}\n".encode() +
                body + b"\n$EndElements\n" + periodic)  # fmt: skip
    points_text = "".join(f"{n} {a} {b} {c}\n" for n, (a, b, c) in enumerate(x.tolist(), 1))
    body_text = "".join(f"{n} {code} 2 {g} {g} {' '.join(map(str, nodes))}\n" for code, n, g, nodes in rows)
    return (f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n{names(sides)}$Nodes\n{len(x)}\n{points_text}$EndNodes\n"
            f"$Elements\n{len(rows)}\n{body_text}$EndElements\n").encode() + periodic  # fmt: skip


def gmsh_41(links: list[tuple[int, int, int, np.ndarray]], binary: bool) -> bytes:
    def i(*values: int) -> bytes:
        return struct.pack(f"<{len(values)}i", *values) if binary else (" ".join(map(str, values)) + "\n").encode()

    def s(*values: int) -> bytes:
        return struct.pack(f"<{len(values)}Q", *values) if binary else (" ".join(map(str, values)) + "\n").encode()

    def d(*values: float) -> bytes:
        return struct.pack(f"<{len(values)}d", *values) if binary else (" ".join(map(str, values)) + "\n").encode()

    entities = s(0, 4, 1, 0) + b"".join(i(k) + d(0, 0, 0, 1, 1, 0) + s(1) + i(k) + s(0) for k in SIDES.values())
    entities += i(1) + d(0, 0, 0, 1, 1, 0) + s(1) + i(9) + s(0)
    x, n = BOX.coordinates.numpy(), len(BOX.nodes)
    nodes = s(1, n, 1, n) + i(2, 1, 0) + s(n) + s(*range(1, n + 1)) + b"".join(d(*place, 0.0) for place in x.tolist())
    rows = elements()
    blocks, count = b"", 0
    for dimension, code, tag, group in [*((1, 1, k, k) for k in SIDES.values()), (2, 2, 1, 9)]:
        own = [row for c, g, row in rows if (c, g) == (code, group)]
        blocks += i(dimension, tag, code) + s(len(own)) + b"".join(s(count + k, *row) for k, row in enumerate(own, 1))
        count += len(own)
    periodic = s(len(links))
    for dimension, tag, of, pairs in links:
        periodic += i(dimension, tag, of) + s(16) + d(*AFFINE) + s(len(pairs)) + s(*pairs.ravel().tolist())
    head = (
        b"$MeshFormat\n4.1 " + (b"1 8\n" + struct.pack("<i", 1) + b"\n" if binary else b"0 8\n") + b"$EndMeshFormat\n"
    )
    return (head + names(SIDES).encode() + b"$Entities\n" + entities + b"\n$EndEntities\n$Nodes\n" + nodes +
            b"\n$EndNodes\n$Elements\n" + s(5, count, 1, count) + blocks + b"\n$EndElements\n$Periodic\n" + periodic +
            b"\n$EndPeriodic\n")  # fmt: skip


BOTH = [(1, 2, 1, twins(0)), (1, 4, 3, twins(1)), (0, 2, 1, twins(0)[:1])]
WAYS = {"2.2 text": gmsh_22(BOTH), "2.2 binary": gmsh_22(BOTH, binary=True), "4.1 text": gmsh_41(BOTH, False),
        "4.1 binary": gmsh_41(BOTH, True)}  # fmt: skip


def read(data: bytes, folder: Path, **how: str) -> Mesh:
    (folder / "box.msh").write_bytes(data)
    return ml.read(folder / "box.msh", **how)


@pytest.mark.parametrize("way", WAYS)
def test_sides_that_belong_together(way: str, tmp_path: Path) -> None:
    mesh = read(WAYS[way], tmp_path)
    assert mesh.periodic_sides == {"xmax": "xmin", "ymax": "ymin"} and len(mesh.groups) == 4
    assert "periodic by its file: xmax to xmin, ymax to ymin" in repr(mesh)
    joined = mesh.periodic()
    assert len(joined.boundary_faces) == 0 and len(joined.faces) == len(BOX.faces) + 7
    named = BOX.periodic({"xmin": "xmax", "ymin": "ymax"})
    far = sorted(np.linalg.norm(joined.cell_distances, axis=1))
    np.testing.assert_allclose(far, sorted(np.linalg.norm(named.cell_distances, axis=1)), atol=1e-14)


def test_it_is_kept_by_arrangements_and_pickles(tmp_path: Path) -> None:
    mesh = read(WAYS["2.2 text"], tmp_path, order="hilbert")
    for same in (mesh, mesh.arranged("given"), mesh.reordered("hilbert"), pickle.loads(pickle.dumps(mesh))):
        assert same.periodic_sides == {"xmax": "xmin", "ymax": "ymin"}
    half = mesh.periodic({"xmin": "xmax"})
    assert half.periodic_sides == {"ymax": "ymin"} and len(half.periodic().boundary_faces) == 0


def test_what_cannot_be_joined_is_told(tmp_path: Path) -> None:
    alone = read(gmsh_22(BOTH, one_group=True), tmp_path)
    assert alone.periodic_sides == {}
    with one_line_from(MeshError, "no file has told this mesh"):
        alone.periodic()
    wrong = twins(0).copy()
    wrong[1, 1] = 99
    with one_line_from(MeshError, r"\$Periodic names node 99, which \$Nodes does not list"):
        read(gmsh_22([(1, 2, 1, wrong)]), tmp_path)
    cut = WAYS["4.1 text"].replace(b"\n$EndPeriodic", b" 7\n$EndPeriodic")
    with one_line_from(MeshError, r"\$Periodic holds more than it announces"):
        read(cut, tmp_path)
    with one_line_from(MeshError, r"\$Periodic"):
        read(WAYS["2.2 text"].replace(b"$Periodic\n3", b"$Periodic\n9"), tmp_path)
