"""Pictures of values that are anything a number can be: drawn without a warning, with a label that says in what."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError, UserError
from meshloom.io.draw.canvas import in_units, unit_of
from meshloom.io.plots import save_curves, save_image, save_picture, save_surface, save_tiles
from tests.io.test_plot import drawn

pytest.importorskip("matplotlib")

LARGEST, LEAST = np.finfo(float).max, 5e-324  # the least one that is not 0
NAMES = [f"{name}.png" for name in ("picture", "image", "surface", "curves", "tiles")]
#: Two values, which alternate.
PAIRS: dict[str, tuple[Any, Any]] = {
    "both signs": (1e308, -1e308),
    "all there is": (LARGEST, -LARGEST),
    "one sign": (0.0, LARGEST),
    "one negative": (-LARGEST, -LARGEST),
    "great and alike": (LARGEST, np.nextafter(LARGEST, 0.0)),
    "great and unknown": (1e308, np.nan),
    "infinite": (np.inf, 1.0),
    "infinite both ways": (np.inf, -np.inf),
    "least": (LEAST, -LEAST),
    "subnormal": (1e-310, 3e-310),
    "constant": (3.0, 3.0),
    "nothing": (0.0, 0.0),
    "alike": (1.0, np.nextafter(1.0, 2.0)),
    "single precision": (np.finfo(np.float32).max, -np.finfo(np.float32).max),
    "least of single precision": (np.float32(1e-45), np.float32(0.0)),
    "whole numbers": (np.iinfo(np.int64).max, np.iinfo(np.int64).min),
}


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with ml.using("numpy"), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def meshes() -> dict[str, ml.Mesh]:
    """They must stay, for their sets to have places."""
    box = ml.generate.box
    return {"plane": box((3, 2)), "triangles": box((3, 2), cells="triangle"), "one": box((1, 1)), "two": box((2, 1)),
            "space": box((2, 2, 2))}  # fmt: skip


@pytest.fixture
def sets(meshes: dict[str, ml.Mesh]) -> dict[str, Any]:
    plane, space = meshes["plane"], meshes["space"]
    return {
        "cells": plane.cells, "nodes": meshes["triangles"].nodes, "faces": plane.faces, "one cell": meshes["one"].cells,
        "cells in space": space.cells, "nodes in space": space.nodes, "boundary in space": space.boundary_faces,
        "line": ml.Grid((7,)), "grid": ml.Grid((4, 3)), "set": ml.Set(6, "s"),
    }  # fmt: skip


def alternating(on: Any, pair: tuple[Any, Any], dim: int = 1) -> ml.Field:
    values = np.resize(np.array(pair), on.array_shape)
    data = values if dim == 1 else np.stack([values] * dim, axis=-1)
    return on.field("u", dim, data=data, dtype=values.dtype)  # type: ignore[no-any-return]


def check_drawn(name: str, on: Any, pair: str) -> None:
    field = alternating(on, PAIRS[pair])
    assert ml.plot(field)._repr_png_().startswith(b"\x89PNG")
    if name.endswith("s in space"):
        assert ml.plot(field, surface=True)._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("pair", PAIRS)
def test_all_values_are_drawn(pair: str, sets: dict[str, Any]) -> None:
    check_drawn("cells", sets["cells"], pair)
    check_drawn("line", sets["line"], pair)


@pytest.mark.slow
def test_every_set_is_drawn(sets: dict[str, Any]) -> None:
    for name, on in sets.items():
        check_drawn(name, on, "all there is")


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_all_values_on_every_set(pair: str, sets: dict[str, Any]) -> None:
    for name, on in sets.items():
        check_drawn(name, on, pair)


@pytest.mark.parametrize(
    "pair", ["all there is", *(pytest.param(p, marks=pytest.mark.slow) for p in ("infinite", "least"))]
)
@pytest.mark.slow
def test_vectors_are_drawn(pair: str, sets: dict[str, Any]) -> None:
    for name, dim in {"cells": 2, "nodes": 2, "grid": 2, "cells in space": 3, "line": 2, "set": 2}.items():
        assert ml.plot(alternating(sets[name], PAIRS[pair], dim))._repr_png_().startswith(b"\x89PNG")


def test_notebooks_show_them(sets: dict[str, Any]) -> None:
    for pair in PAIRS.values():
        assert "<img" in alternating(sets["cells"], pair)._repr_html_()


def test_what_is_far_from_one_is_drawn_in_units(meshes: dict[str, ml.Mesh]) -> None:
    two = meshes["two"].cells
    field = alternating(two, (1.5e308, -1e308))
    figure = ml.plot(field)
    cells = drawn(figure, "PolyCollection")
    assert np.allclose(cells.get_array(), [1.5, -1.0]) and cells.get_clim() == (-1.5, 1.5)
    assert figure.axes[1].get_ylabel() == "u / 1e+308" and figure._suptitle.get_text() == "u"
    assert ml.plot(field, label="p, Pa").axes[1].get_ylabel() == "p, Pa / 1e+308"
    limited = ml.plot(field, limits=(0.0, 1e308))
    assert np.allclose(drawn(limited, "PolyCollection").get_clim(), (0.0, 1.0))
    small = ml.plot(alternating(two, (1.0, 2.0)), limits=(-1e308, 1e308))
    assert np.allclose(drawn(small, "PolyCollection").get_clim(), (-1.0, 1.0))
    curve = ml.plot(alternating(ml.Grid((4,)), (1e308, -1e308)), window=(0.0, 1.0, -1.7e308, 1.7e308))
    assert np.allclose(curve.axes[0].get_ylim(), (-1.7, 1.7)) and curve.axes[0].get_ylabel() == "u / 1e+308"
    plain = ml.plot(alternating(two, (1e90, -1e-90)))
    assert plain.axes[1].get_ylabel() == "u"


@pytest.mark.parametrize(
    ("values", "unit"),
    [((), 1.0), ((0.0,), 1.0), ((np.nan, np.inf), 1.0), ((1e99, -2.0), 1.0), ((-3e200, np.inf), 1e200),
     ((LARGEST,), 1e308), ((2e-200, 1e-300), 1e-200), ((LEAST,), 1e-300), ((1, 2), 1.0)],
)  # fmt: skip
def test_units(values: tuple[float, ...], unit: float) -> None:
    assert unit_of(np.array(values)) == pytest.approx(unit, rel=1e-12)
    assert in_units("u", 1.0) == "u" and in_units("u", 1e308) == "u / 1e+308"


@pytest.mark.parametrize(
    "pair", ["all there is", *(pytest.param(p, marks=pytest.mark.slow) for p in ("infinite both ways", "least"))]
)
@pytest.mark.slow
def test_pictures_of_runs_and_studies(pair: str, meshes: dict[str, ml.Mesh], tmp_path: Path) -> None:
    """Maps beside monitors, curves, tiles: a run or a study that has ended must not fail for its picture."""
    mesh, space = meshes["plane"], meshes["space"]
    values = np.resize(np.array(PAIRS[pair], float), 6)
    monitors, paths = {"rms": values, "other": np.arange(6.0)}, (tmp_path / name for name in NAMES)
    save_picture(next(paths), mesh.coordinates.numpy(), mesh.lists.cells.nodes, values, label="u", window=(0, 1, 0, 1),
                 history=monitors, title="t")  # fmt: skip
    flow = (values.reshape(3, 2), -values.reshape(3, 2))
    save_image(next(paths), np.arange(3.0), np.arange(2.0), flow[0], label="u", history={}, title="t", flow=flow)
    faces = space.lists.boundary_faces
    save_surface(next(paths), space.coordinates.numpy(), faces, np.resize(values, len(faces)), label="u",
                 view=(1, 1, 1), history={}, title="t")  # fmt: skip
    save_curves(next(paths), np.sort(values), monitors, labels=("x", "y"), title="t")
    save_tiles(next(paths), flow[0], (["a", "b", "c"], ["d", "e"]), labels=("x", "y"), label="u", title="t")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in NAMES)


def test_what_has_no_picture_is_one_line() -> None:
    mesh = ml.generate.box((2, 2))
    cells = mesh.cells
    with pytest.raises(UserError, match="field u has no values to draw: part of cells has no elements"):
        ml.plot(cells.subset(np.zeros(4, bool)).field("u"))
    for kind in (complex, bool, np.float16, np.uint8, object):
        with pytest.raises(MeshloomError, match="is not supported; allowed: float32, float64, int32, int64"):
            cells.field("u", dtype=kind)
