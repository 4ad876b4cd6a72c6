"""VTI and VTR files: parsed by hand, since meshio reads neither."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.io.grids import suffix_of, write_grid

TYPES = {"Float64": np.float64, "Float32": np.float32, "Int64": np.int64}


def arrays(path: Path, tag: str) -> dict[str, np.ndarray]:
    """The arrays of a section, as the standard describes them: a length of 8 bytes, then the values."""
    found = {}
    for one in ElementTree.parse(path).getroot().find(f".//{tag}").iter("DataArray"):
        data = b64decode(one.text)
        assert int(np.frombuffer(data[:8], np.uint64)[0]) == len(data) - 8
        values = np.frombuffer(data[8:], TYPES[one.get("type")])
        found[one.get("Name")] = values.reshape(-1, int(one.get("NumberOfComponents", 1))).squeeze()
    return found


def test_an_even_grid_comes_out_with_x_fastest(tmp_path: Path) -> None:
    grid = ml.Grid((3, 2, 4), extent=((-1.0, 1.0), 2.0, 8.0), periodic=(False, False, True), ghosts=1)
    x, y, z = grid.meshgrid()
    velocity = grid.field("velocity", 3, data=np.stack([x, y, z], axis=-1), dtype=np.float32)
    path = tmp_path / f"a{suffix_of(grid)}"
    write_grid(path, grid, {"velocity": velocity, "z": z, "number": np.arange(24).reshape(3, 2, 4)})
    image = ElementTree.parse(path).getroot().find("ImageData")
    assert path.suffix == ".vti" and image.get("WholeExtent") == "0 2 0 1 0 3"
    assert image.get("Origin") == "-1.0 0.0 0.0" and image.get("Spacing") == "1.0 2.0 2.0"
    found = arrays(path, "PointData")
    np.testing.assert_allclose(found["velocity"][:4], [[-1, 0, 0], [0, 0, 0], [1, 0, 0], [-1, 2, 0]])
    np.testing.assert_allclose(found["z"], np.repeat([0, 2, 4, 6], 6))
    assert found["number"][1] == 8


def test_a_stretched_grid_has_its_coordinates(tmp_path: Path) -> None:
    grid = ml.Grid((3, 2), coordinates=([0.0, 1.0, 4.0], None))
    path = tmp_path / f"a{suffix_of(grid)}"
    write_grid(path, grid, {"f": np.arange(6.0).reshape(3, 2)})
    found = arrays(path, "Coordinates")
    assert path.suffix == ".vtr" and found["x"].tolist() == [0, 1, 4] and found["y"].tolist() == [0, 1]
    assert arrays(path, "PointData")["f"].tolist() == [0, 2, 4, 1, 3, 5]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    grid = ml.Grid((3, 2), coordinates=([0.0, 1.0, 4.0], None))
    with pytest.raises(MeshError, match=r"stretched axis, which \.vtr files hold"):
        write_grid(tmp_path / "a.vti", grid)
    with pytest.raises(MeshError, match=r"shape \(2, 3\) does not fit"):
        write_grid(tmp_path / "a.vtr", grid, {"f": np.zeros((2, 3))})
    with pytest.raises(MeshError, match=r"\.vti or \.vtr"):
        ml.write(tmp_path / "a.vtu", grid)
    with pytest.raises(MeshError, match="a grid has no cells"):
        ml.write(tmp_path / "a.vtr", grid, {"f": np.zeros((3, 2))})
    ml.write(tmp_path / "a.vtr", grid, node_fields={"f": grid.field("f")})
    with pytest.raises(MeshError, match="exists already"):
        ml.write(tmp_path / "a.vtr", grid)
