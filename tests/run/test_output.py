"""What a case writes for people to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshloom.config import Setting, build
from meshloom.run.output import in_space
from meshloom.solvers import cases


def test_vectors_of_the_plane_have_three_components() -> None:
    """And what is no vector stays: numbers at 3 x 2 points, four components, matrices."""
    given = {"u": np.ones((3, 2, 2)), "p": np.ones((3, 2)), "q": np.ones((3, 2, 4)), "t": np.ones((3, 2, 2, 2))}
    found = in_space(given, 2)
    assert found["u"].shape == (3, 2, 3) and found["u"][..., :2].all() and not found["u"][..., 2].any()
    assert all(found[name] is given[name] for name in "pqt")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("cavity2d", {"mesh.cells": (4, 4)}), ("cavity2d", {"mesh.cells": (4, 4), "mesh.stretch": 1.0}),
     ("airfoil", {"mesh.i": 8, "mesh.j": 12})],
)  # fmt: skip
def test_paraview_finds_the_velocity_of_plane_cases(tmp_path: Path, name: str, settings: dict[str, object]) -> None:
    kind = cases()[name]
    case = kind(build(kind.Config, [Setting(tuple(key.split(".")), value, "test") for key, value in settings.items()]))
    path = case.write_fields(tmp_path / "fields")
    assert 'Name="velocity" NumberOfComponents="3"' in path.read_bytes().decode("latin-1")
    if path.suffix == ".vtu":
        meshio = pytest.importorskip("meshio")
        assert meshio.read(path).cell_data["velocity"][0].shape[1] == 3
