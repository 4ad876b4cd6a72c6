"""Grids as sets: places of points, spacings, metrics, values as shaped arrays, wrong input."""

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError


def test_spacing_counts_both_ends_of_a_closed_axis_and_one_of_a_periodic_one():
    grid = ml.Grid((5, 4), extent=((-1.0, 1.0), 2.0), periodic=(False, True))
    assert grid.spacing == (0.5, 0.5) and grid.extent == (2.0, 2.0) and grid.origin == (-1.0, 0.0)
    np.testing.assert_allclose(grid.coordinates[0], [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_allclose(grid.coordinates[1], [0, 0.5, 1, 1.5])
    x, y = grid.meshgrid()
    assert x.shape == (5, 4) and x[1, 0] == -0.5 and y[0, 1] == 0.5
    assert len(grid) == 20 and grid.strides == (4, 1) and "5 x 4" in repr(grid)


def test_values_of_a_field_in_c_order():
    grid = ml.Grid((2, 3))
    x, y = grid.meshgrid()
    field = grid.field("v", 2, data=np.stack([x, 10 * y], axis=-1))
    assert str(field.layout) == "soa" and not field.layout_is_free
    assert field.numpy().shape == (6, 2) and grid.shaped(field).shape == (2, 3, 2)
    np.testing.assert_array_equal(grid.shaped(field)[..., 1], 10 * y)
    np.testing.assert_array_equal(field.numpy()[:, 0], x.reshape(-1))
    scalar = grid.field("s", data=x, layout="aos")
    np.testing.assert_array_equal(grid.shaped(scalar), x)
    scalar.assign(np.arange(6.0))
    assert grid.shaped(scalar)[1, 0] == 3.0


def test_ghost_layers_are_stored_but_not_shown_unless_asked_for():
    grid = ml.Grid((3, 2), ghosts=(2, 1))
    assert grid.stored == (7, 4) and grid.strides == (4, 1) and grid.total == 28
    field = grid.field("u", data=np.arange(6.0).reshape(3, 2))
    whole = grid.shaped(field, ghosts=True)
    assert whole.shape == (7, 4) and whole[2, 1] == 0.0 and whole[4, 2] == 5.0 and whole.sum() == 15.0
    np.testing.assert_array_equal(grid.shaped(field), np.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize("periodic", [False, True])
def test_metric_of_a_stretched_axis_is_of_high_order(periodic):
    errors = []
    for n in (16, 32):
        xi = np.arange(n) / (n if periodic else n - 1)
        slope = 1 + 0.5 * np.cos(2 * np.pi * xi) if periodic else 0.5 + xi
        x = xi + 0.25 / np.pi * np.sin(2 * np.pi * xi) if periodic else 0.5 * xi + 0.5 * xi**2
        grid = ml.Grid(n, extent=1.0, periodic=periodic, coordinates=(x,))
        errors.append(np.abs(grid.metric(0) * slope - 1).max())
    assert errors[1] < max(errors[0] / 2**5, 1e-12), errors
    np.testing.assert_array_equal(ml.Grid(4).metric(0), 1.0)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: ml.Grid((0, 3)), "shape must be whole numbers from 1"),
    (lambda: ml.Grid((2, 2, 2, 2)), "1 to 3 axes"),
    (lambda: ml.Grid((2.5, 3)), "shape must be whole numbers"),
    (lambda: ml.Grid((4, 4), periodic=(True,)), "periodic has 1 entries, but the grid has 2 axes"),
    (lambda: ml.Grid((4, 4), extent=(1, 2, 3)), "extent has 3 entries"),
    (lambda: ml.Grid((4, 4), extent=-1.0), "extent of axis x must be a length"),
    (lambda: ml.Grid((4,), coordinates=([0, 1, 1, 2],)), "4 ascending numbers"),
    (lambda: ml.Grid((4,), periodic=True, coordinates=([0, 1, 2, 3],)), "give an extent longer than 3"),
    (lambda: ml.Grid((2, 8), ghosts=3), "3 ghost layers on axis x need as many points"),
    (lambda: ml.Grid((2, 3)).field("u", data=np.zeros((3, 2))), "data has shape"),
    (lambda: ml.Grid((2, 3)).shaped(ml.Set(6).field("u")), "not on grid"),
    (lambda: ml.Grid((2, 3)).metric(2), "no axis 2"),
])  # fmt: skip
def test_wrong_grids_get_one_clear_line(make, words):
    with pytest.raises(MeshError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)
