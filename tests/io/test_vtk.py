"""VTU files and the PVD series: read back by an independent reader, valid at every moment."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from meshloom.errors import MeshError, RunError, UserError
from meshloom.io.vtk import Series, write_vtu
from meshloom.mesh.generate import box, naca0012

meshio = pytest.importorskip("meshio")

MESHIO_KINDS = {"quad": "quad", "triangle": "triangle", "hexahedron": "hexahedron", "tetrahedron": "tetra"}


@pytest.mark.parametrize("kind", MESHIO_KINDS)
def test_mesh_and_fields_come_back(tmp_path: Path, kind: str) -> None:
    mesh = box((3, 2) if kind in ("quad", "triangle") else (2, 3, 2), cells=kind)
    rng = np.random.default_rng(0)
    cell_fields = {
        "q": mesh.cells.field("q", 4, data=rng.random((len(mesh.cells), 4)), layout="soa"),
        "single": rng.random(len(mesh.cells)).astype(np.float32),
        "number": np.arange(len(mesh.cells)),
        'flag <&> "quoted"': np.arange(len(mesh.cells)) % 2 == 0,
    }
    node_fields = {"velocity": rng.random((len(mesh.nodes), 3)), "small": np.arange(len(mesh.nodes), dtype=np.int16)}
    write_vtu(tmp_path / "m.vtu", mesh, cell_fields, node_fields)
    found = meshio.read(tmp_path / "m.vtu")
    assert [block.type for block in found.cells] == [MESHIO_KINDS[kind]]
    np.testing.assert_array_equal(found.cells[0].data, mesh.cell_nodes.indices)
    np.testing.assert_array_equal(found.points[:, : mesh.dim], mesh.coordinates.numpy())
    assert found.points.shape[1] == 3 and set(found.cell_data) == set(cell_fields)
    np.testing.assert_array_equal(found.cell_data["q"][0], cell_fields["q"].numpy())
    assert found.cell_data["single"][0].dtype == np.float32 and found.cell_data["number"][0].dtype == np.int64
    for name in ("single", "number", 'flag <&> "quoted"'):
        np.testing.assert_array_equal(found.cell_data[name][0], cell_fields[name])
    for name, values in node_fields.items():
        np.testing.assert_array_equal(found.point_data[name], values)


def test_file_says_what_paraview_needs(tmp_path: Path) -> None:
    write_vtu(tmp_path / "m.vtu", box((2, 1)), {"p": np.zeros(2)}, boundary=True)
    root = ElementTree.parse(tmp_path / "m.vtu").getroot()
    assert root.attrib["type"] == "UnstructuredGrid" and root.attrib["header_type"] == "UInt64"
    piece = root.find("UnstructuredGrid/Piece")
    assert piece is not None and piece.attrib == {"NumberOfPoints": "6", "NumberOfCells": "8"}
    assert [array.attrib["Name"] for array in root.findall(".//Cells/DataArray")] == [
        "connectivity",
        "offsets",
        "types",
    ]
    names = {array.attrib["Name"]: array.attrib["NumberOfTuples"] for array in root.findall(".//FieldData/DataArray")}
    assert names == {"group:xmin": "1", "group:xmax": "1", "group:ymin": "1", "group:ymax": "1"}


def test_infinite_and_missing_values_survive(tmp_path: Path) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0])
    write_vtu(tmp_path / "m.vtu", box((2, 2)), {"p": values})
    np.testing.assert_array_equal(meshio.read(tmp_path / "m.vtu").cell_data["p"][0], values)


def test_wrong_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match=r"field p: shape \(3,\) does not fit the 4 cells"):
        write_vtu(tmp_path / "m.vtu", box((2, 2)), {"p": np.zeros(3)})
    assert not list(tmp_path.iterdir())


def test_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.vtu"
    write_vtu(path, box((2, 2)))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .*m\.vtu: disk full"):
        write_vtu(path, naca0012(4, 4))
    series = Series(tmp_path / "m.pvd")
    with pytest.raises(RunError, match=r"cannot write .*m\.pvd: disk full"):
        series.add(0.0, path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.vtu"]


def listed(path: Path) -> list[tuple[float, str]]:
    root = ElementTree.parse(path).getroot()
    assert root.attrib["type"] == "Collection"
    return [(float(entry.attrib["timestep"]), entry.attrib["file"]) for entry in root.iter("DataSet")]


def test_series_is_valid_after_every_step(tmp_path: Path) -> None:
    series = Series(tmp_path / "run.pvd")
    for step in range(3):
        series.add(step / 3, tmp_path / "frames" / f"f <{step}>.vtu")
        assert listed(tmp_path / "run.pvd") == [(k / 3, f"frames/f <{k}>.vtu") for k in range(step + 1)]


def test_series_replaces_an_entry_of_the_same_time(tmp_path: Path) -> None:
    series = Series(tmp_path / "run.pvd")
    for time, name in ((1.0, "a.vtu"), (0.0, "b.vtu"), (1.0, "c.vtu")):
        series.add(time, tmp_path / name)
    assert listed(tmp_path / "run.pvd") == [(0.0, "b.vtu"), (1.0, "c.vtu")]


def test_resumed_series_drops_what_came_later(tmp_path: Path) -> None:
    first = Series(tmp_path / "run.pvd")
    for time in (0.0, 0.1, 0.30000000000000004):
        first.add(time, tmp_path / f"{time}.vtu")
    assert Series.resume(tmp_path / "run.pvd").entries == first.entries
    again = Series.resume(tmp_path / "run.pvd")
    again.drop_after(0.1)
    assert Series.resume(tmp_path / "run.pvd").entries == again.entries == first.entries[:2]
    again.add(0.2, tmp_path / "new.vtu")
    assert listed(tmp_path / "run.pvd") == [(0.0, "0.0.vtu"), (0.1, "0.1.vtu"), (0.2, "new.vtu")]
    again.drop_after(-1.0)
    assert not (tmp_path / "run.pvd").exists(), "a list of nothing is none"
    assert Series.resume(tmp_path / "none.pvd").entries == []


@pytest.mark.parametrize(
    "content", ["", "<VTKFile>", "<a><DataSet timestep='1'/></a>", "<a><DataSet timestep='x' file='b'/></a>"]
)
def test_broken_series_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.pvd").write_text(content)
    with pytest.raises(UserError, match=r"run\.pvd: not a ParaView series") as caught:
        Series.resume(tmp_path / "run.pvd")
    assert "\n" not in str(caught.value)
