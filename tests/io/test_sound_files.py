"""Mesh files are sound or refused: round trips of all that is made, malformed files by name, numbers of the file."""

from __future__ import annotations

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.io import meshes
from meshloom.mesh.mesh import Mesh
from tests.attacks.mesh_files import VTU, Parts, content_of, mesh_of, written
from tests.attacks.mesh_judge import faults
from tests.mesh.test_validation import made

FORMATS = (".msh", ".su2", ".dat", *(VTU and (".vtu",)))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mesh=made(), extension=st.sampled_from(FORMATS))
def test_what_is_made_comes_back(tmp_path_factory: pytest.TempPathFactory, mesh: Mesh, extension: str) -> None:
    if extension == ".dat" and mesh.kind != "quad":
        return
    path = tmp_path_factory.mktemp("made") / f"mesh{extension}"
    ml.write(path, mesh)
    if extension != ".dat" and "wall" in mesh.groups:  # a wake cut is a slit to formats that hold no faces
        with pytest.raises(MeshError, match=r"lie at one place: cells .* do not meet"):
            ml.read(path)
        return
    found = ml.read(path)
    assert not faults(found)
    np.testing.assert_array_equal(found.coordinates.numpy(), mesh.coordinates.numpy())
    np.testing.assert_array_equal(found.cell_nodes.indices, mesh.cell_nodes.indices)
    if extension == ".dat":
        np.testing.assert_array_equal(found.face_cells.indices, mesh.face_cells.indices)


@pytest.mark.skipif(not VTU, reason="meshio is not installed")
def test_readers_leave_the_streams_of_the_process_alone(tmp_path: Path) -> None:
    """Another thread may print meanwhile, and several may read."""
    path, stop, before = tmp_path / "mesh.vtu", threading.Event(), sys.stderr
    ml.write(path, ml.generate.box((4, 4)))

    def talk() -> None:
        while not stop.is_set():
            print("progress", file=sys.stderr)

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            found = [*pool.map(lambda _: len(ml.read(path).cells), range(12))]
    finally:
        stop.set()
        talker.join()
    assert found == [16] * 12 and sys.stderr is before


@pytest.mark.skipif(not VTU, reason="meshio is not installed")
@pytest.mark.slow
def test_another_thread_may_import_meanwhile() -> None:
    from meshloom.io.vtu import _heard

    stop, before = threading.Event(), sys.getswitchinterval()

    def imports() -> None:
        while not stop.is_set():
            names = [f"none_{k}" for k in range(100)]
            for name in names:
                sys.modules[name] = sys
            for name in names:
                del sys.modules[name]

    other = threading.Thread(target=imports)
    sys.setswitchinterval(1e-6)
    other.start()
    try:
        for _ in range(300):
            with _heard() as said:
                assert not said
    finally:
        stop.set()
        other.join()
        sys.setswitchinterval(before)


@pytest.mark.parametrize("name", ["22.msh", "41 binary.msh", "mesh.su2", *VTU[:1]])
@pytest.mark.parametrize("kind", ["quad", "triangle", "tetrahedron", "hexahedron"])
def test_cells_that_go_round_the_other_way_are_turned_round(tmp_path: Path, name: str, kind: str) -> None:
    parts = Parts.of(mesh_of(kind))
    mirrored = {"quad": [0, 3, 2, 1], "triangle": [0, 2, 1], "tetrahedron": [0, 2, 1, 3],
                "hexahedron": [4, 5, 6, 7, 0, 1, 2, 3]}[kind]  # fmt: skip
    cells = parts.cells.copy()
    cells[::2] = cells[::2][:, mirrored]
    path = tmp_path / f"mesh{Path(name).suffix}"
    path.write_bytes(written(name, Parts(kind, parts.x, cells, parts.groups, parts.faces, parts.boundary)))
    found = ml.read(path)
    assert not faults(found)
    np.testing.assert_array_equal(found.cell_nodes.indices, mesh_of(kind).cell_nodes.indices)


def changed(tmp_path: Path, name: str, kind: str, old: str, new: str) -> str:
    """The line with which a file is refused after one change."""
    text = content_of(name, kind).decode()
    assert len(re.findall(old, text, re.M)) >= 1, old
    path = tmp_path / f"mesh{Path(name).suffix}"
    path.write_text(re.sub(old, new, text, count=1, flags=re.M))
    with pytest.raises(MeshError) as caught:
        ml.read(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ") and "\n" not in line and "not a readable" not in line
    return line.removeprefix(f"{path}: ")


NODES, ELEMENTS = r"(\$Nodes\n[^$]*\$EndNodes\n)", r"(\$Elements\n[^$]*\$EndElements\n)"


@pytest.mark.parametrize("name, kind, old, new, message", [
    ("22.msh", "quad", NODES, r"\1\1", "two $Nodes sections"),
    ("41.msh", "quad", ELEMENTS, r"\1\1", "two $Elements sections"),
    ("22.msh", "quad", r"\$PhysicalNames\n5", "$PhysicalNames\n6", "announces 6 and holds 5 names"),
    ("22.msh", "quad", r"\$PhysicalNames\n5", "$PhysicalNames\n", "announces nothing and holds 5 names"),
    ("22.msh", "quad", r'1 2 "xmax"', '1 1 "xmax"', "names the group 1 of dimension 1 twice"),
    ("22.msh", "quad", r'1 2 "xmax"', '1 99999999999999999999 "xmax"', "expected a line such as"),
    ("22.msh", "quad", r"\$Nodes\n25", "$Nodes\n1000000000000000", "$Nodes ends too early"),
    ("22.msh", "quad", r"\$Nodes\n25", "$Nodes\n1000000000000000000", "$Nodes: too large a number, found 1e+18"),
    ("22.msh", "quad", r"\$Nodes\n25", "$Nodes\n-1", "-1 cannot be a number of things"),
    ("22.msh", "quad", r"\$Nodes\n25", "$Nodes\nnan", "$Nodes: whole numbers expected, found nan"),
    ("22.msh", "quad", r"\$Nodes\n25", "$Nodes\n24", "$Nodes holds more than it announces"),
    ("22.msh", "quad", r"\$Nodes\n25\n11 \S+", "$Nodes\n25\n11 nan", "node 11 has the coordinates [nan"),
    ("22.msh", "quad", r"0\.0\n12 ", "inf\n12 ", "node 11 has the coordinates ["),  # z, which is dropped
    ("22.msh", "quad", r"\$Nodes\n25\n11 ", "$Nodes\n25\n-11 ", "$Nodes numbers a node -11"),
    ("22.msh", "quad", r"\$Elements\n32", "$Elements\n1000000000000000", "rows are missing"),
    ("41.msh", "quad", r"\$Nodes\n1 25", "$Nodes\n1000000000000000 25", "$Nodes ends too early"),
    ("41.msh", "quad", r"\$Nodes\n(.*)\n2 7 0", "$Nodes\n\\1\n-3 7 1", "an entity of dimension -3"),
    ("41.msh", "quad", r"\$Entities\n0 4", "$Entities\n0 -4", "-4 cannot be a number of things"),
    ("41.msh", "quad", r"\$Entities\n0 4", "$Entities\n0 1000000000000000", "ends too early"),
    ("41.msh", "quad", r"^2 7 3 16$", "1 7 3 16", "quad elements on an entity of dimension 1"),
    ("mesh.su2", "quad", r"(NPOIN= 25\n\S+) \S+", r"\1 1,5", "NPOIN: numbers expected, found '1,5'"),
    ("mesh.su2", "quad", r"(NPOIN= 25\n\S+) \S+", r"\1 1_5", "NPOIN: numbers expected, found '1_5'"),
    ("mesh.su2", "quad", r"(NPOIN= 25\n\S+) \S+", rf"\1 {'z' * 99}", f"NPOIN: numbers expected, found '{'z' * 36}..."),
    ("22.msh", "quad", r" \S+\n\$EndElements", "\n$EndElements", "rows are missing, or a row is too short"),
    ("mesh.su2", "quad", r"NELEM= 16\n", "NELEM= 16\nNELEM= 16\n", "2 NELEM= lines"),
    ("mesh.su2", "quad", r"(NPOIN= 25\n[^=]*\n)NMARK", r"\1\1NMARK", "2 NPOIN= lines"),
    ("mesh.su2", "quad", r"MARKER_TAG= xmax", "MARKER_TAG= xmin", "two markers xmin"),
    ("mesh.su2", "quad", r"^9 0 1 6 5 0$", "9 0 1 6 5 0 0 0", "expected a code, its nodes"),
    ("mesh.su2", "quad", r"^9 0 1 6 5 0$", "9 0 1 1e18 5 0", "too large a number, found 1e+18"),
    ("mesh.su2", "quad", r"^9 0 1 6 5 0$", "9 0 1 99 5 0", "cell 0 has nodes (0, 1, 99, 5), but nodes go from 0 to 24"),
    ("mesh.su2", "quad", r"^9 0 1 6 5 0$", "9 0 1 5 6 0", "cell 0 is folded over: nodes (0, 1, 5, 6)"),
    ("mesh.su2", "triangle", r"NMARK= 4\n", "NMARK= 5\nMARKER_TAG= odd\nMARKER_ELEMS= 1\n5 0 1 6\n", "which are cells"),
    ("mesh.dat", "quad", r"^25 16 ", "1000000000000000 16 ", "numbers after the first line"),
    ("mesh.dat", "quad", r"^0 1 6 5$", "5 6 1 0", "cell 0 has a negative area"),
])  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, name: str, kind: str, old: str, new: str, message: str) -> None:
    assert message in changed(tmp_path, name, kind, old, new)


def test_binary_sections_without_a_count(tmp_path: Path) -> None:
    content = content_of("22 binary.msh", "quad")
    for section in (b"$Nodes\n25", b"$Elements\n32"):
        for count in (b"", b"1 2", b"-5", b"nan"):
            (tmp_path / "m.msh").write_bytes(content.replace(section, section.partition(b"\n")[0] + b"\n" + count))
            with pytest.raises(MeshError, match=r"the first line must be one whole number|whole numbers expected"):
                ml.read(tmp_path / "m.msh")


@pytest.mark.parametrize("name, cell, nodes", [("22.msh", 105, 11), ("41 binary.msh", 105, 11), ("mesh.su2", 4, 0)])
def test_cells_and_nodes_have_the_numbers_of_the_file(tmp_path: Path, name: str, cell: int, nodes: int) -> None:
    parts = Parts.of(mesh_of("quad"))
    parts = replace(parts, cells=parts.cells.copy())
    parts.cells[4] = parts.cells[4][[0, 2, 1, 3]]
    (tmp_path / f"m{Path(name).suffix}").write_bytes(written(name, parts))
    listed = ", ".join(str(node + nodes) for node in parts.cells[4].tolist())
    message = rf"cell {cell} (has no area|is folded over): nodes \({listed}\).*\(near 0\.\d+, "
    with pytest.raises(MeshError, match=message):
        ml.read(tmp_path / f"m{Path(name).suffix}")


@pytest.mark.skipif(not VTU, reason="meshio is not installed")
def test_vtu_files_that_meshio_would_take(tmp_path: Path) -> None:
    assert "cannot handle" in changed(tmp_path, "text.vtu", "quad", "(\"types\" format=\"ascii\">\n)9", r"\g<1>6")
    cells = r"(<Cells>(?:.|\n)*</Cells>\n)"
    assert "more than one cells" in changed(tmp_path, "text.vtu", "quad", cells, r"\1\1")
    bomb = '<!DOCTYPE a [<!ENTITY b "ha">]><VTKFile'
    assert "declares a document type" in changed(tmp_path, "text.vtu", "quad", "<VTKFile", bomb)


def test_what_a_reader_overlooks_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path) -> Mesh:
        raise KeyError("nodes\nand more")

    format_ = meshes.Format("Odd", failing, meshes.FORMATS[".su2"].write)
    monkeypatch.setitem(meshes.FORMATS, ".odd", format_)
    with pytest.raises(MeshError) as caught:
        ml.read(tmp_path / "m.odd")
    assert str(caught.value).startswith(f"{tmp_path}/m.odd: not a readable Odd mesh (KeyError:")
    assert "\n" not in str(caught.value)
