"""Cases in space draw what a person would show: surfaces, and planes through the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.case import SpacePicture
from meshloom.io.draw import surface
from meshloom.run.output import draw
from meshloom.solvers.finite_volume import FiniteVolumeCase

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    monkeypatch.setattr(surface, "can_render", lambda: False)
    monkeypatch.setattr(surface, "_PIXELS", 200)


def drawn(case: Any, picture: SpacePicture, path: Path, history: dict[str, np.ndarray]) -> np.ndarray:
    """Its pixels as a run draws it."""
    from matplotlib.image import imread

    draw(case, path, picture, "a title", history)
    pixels: np.ndarray = imread(path)[..., :3]
    return pixels


def test_the_planes_of_the_taylor_green_vortex(tmp_path: Path) -> None:
    case = make("taylor_green", "mesh.points=12")
    planes = case.maps()["planes"]
    assert len(planes.values) == 3 * 11 * 11 and planes.label == "vorticity" and planes.values.max() > 0.0
    pixels = drawn(case, planes, tmp_path / "planes.png", {})
    assert 0.1 < (pixels.min(axis=2) < 0.9).mean() < 0.7


def test_the_wing_in_space(tmp_path: Path) -> None:
    case = make("onera_m6", "mesh.cells=3000", "time.method=explicit")
    wing = case.maps()["wing"]
    assert len(wing.values) == len(wing.polygons) == len(case.mesh.group("wing")) and wing.points.shape[1] == 3
    pixels = drawn(case, wing, tmp_path / "wing.png", {})
    assert (pixels.min(axis=2) < 0.95).any(axis=0).mean() > 0.5


@pytest.mark.slow
def test_any_case_of_finite_volumes_in_space_draws_its_walls(tmp_path: Path) -> None:
    """With the monitors beside it; the tube has walls all round."""
    case = make("sod3d", "mesh.cells=[6, 2, 2]")
    picture = FiniteVolumeCase.picture(case)
    assert isinstance(picture, SpacePicture)
    walls = [side.name for side in case.flow.at.sides if side.condition.is_wall]
    faces = sum(len(case.mesh.group(name)) for name in walls) if walls else len(case.mesh.boundary_faces)
    assert len(picture.values) == len(picture.polygons) == faces > 0
    history = {name: np.geomspace(1.0, 0.01, 9) for name in picture.curves or ()}
    with_curves = drawn(case, picture, tmp_path / "beside.png", history)
    alone = drawn(case, picture, tmp_path / "alone.png", {})
    blue = np.array([31, 119, 180]) / 255.0  # matplotlib's first curve
    assert (np.abs(with_curves - blue).max(axis=2) < 0.01).any() and not (np.abs(alone - blue).max(axis=2) < 0.01).any()
