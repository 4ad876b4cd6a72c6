"""Grids as sets: places of points, spacings, metrics, values as shaped arrays, wrong input."""

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from tests.one_line import one_line_from


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
    assert field.numpy().shape == field.shape == grid.shaped(field).shape == (2, 3, 2)
    np.testing.assert_array_equal(grid.shaped(field)[..., 1], 10 * y)
    np.testing.assert_array_equal(field.numpy()[..., 0], x)
    np.testing.assert_array_equal(field.saved()[:, 0], x.reshape(-1))
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


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ghosts_are_zero_until_something_is_written_to_them(backend, aligned):
    ml.use(backend)
    grid = ml.Grid((3, 2), ghosts=(2, 1), aligned=aligned)
    ring = np.ones(grid.stored, bool)
    ring[2:5, 1:3] = False

    def ghosts(field):
        return set(grid.shaped(field, ghosts=True)[ring].tolist())

    for data in (1.0, np.ones((3, 2)), np.ones(6)):
        field = grid.field("u", data=data)
        assert ghosts(field) == {0.0} and (field.numpy() == 1.0).all()
    field.fill(5.0)
    assert ghosts(field) == {5.0} and (field.numpy() == 5.0).all()
    for data in (2.0, np.full((3, 2), 2.0)):
        field.assign(data)
        assert ghosts(field) == {5.0} and (field.numpy() == 2.0).all()
    ml.fill_ghosts(field)
    assert ghosts(field) == {2.0}
    saved, other = field.saved(), grid.field("v")
    other.restore(saved)
    assert ghosts(other) == {2.0} and saved.shape == (7 * 4,)


def test_what_does_not_fit_the_points_is_refused_and_changes_nothing():
    grid = ml.Grid((3, 2), ghosts=(2, 1))
    field, pair = grid.field("u", data=1.0), grid.field("p", 2, data=1.0)
    before = field.saved()
    for wrong in (np.zeros((7, 4)), np.zeros(28), np.zeros((2, 3)), np.zeros((3, 2, 2)), np.zeros(5)):
        with one_line_from(MeshError, r"field u on grid: data has shape .*, expected \(3, 2\)"):
            field.assign(wrong)
        with one_line_from(MeshError, r"expected \(28,\), ghosts included"):
            field.restore(wrong[:1])
    with one_line_from(MeshError, r"expected \(3, 2, 2\)"):
        pair.assign(np.zeros((3, 2)))
    with one_line_from(MeshError, r"expected \(28, 2\), ghosts included"):
        pair.restore(np.zeros((3, 2, 2)))
    np.testing.assert_array_equal(field.saved(), before)
    with one_line_from(ml.errors.ProgramError, "assigning to field u, but not to its ghosts, inside a program"):
        ml.program(lambda: field.assign(3.0)).run()
    flat = ml.Grid((3, 2)).field("u")
    ml.program(lambda: flat.assign(3.0)).run()
    assert (flat.numpy() == 3.0).all()


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


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_grid_counts_and_finds_its_points_and_no_ghosts(backend, aligned):
    ml.use(backend)
    grid = ml.Grid((4, 3), ghosts=(2, 1), aligned=aligned)
    field = grid.field("u", data=np.arange(12.0).reshape(4, 3) % 7.0)
    ml.fill_ghosts(field)  # the same values stand beside the points
    assert len(grid) == grid.size == 12 < grid.total and len(grid.field("v")) == 4
    np.testing.assert_array_equal(grid.numbers.numpy(), np.arange(12).reshape(4, 3))
    ghosts = np.ones(grid.stored, bool)
    ghosts[2:6, 1:4] = False
    assert set(grid.shaped(grid.numbers, ghosts=True)[ghosts].tolist()) == {-1}
    where = ml.Global(0, "where", dtype=np.int64)
    ml.locate(field, ml.Global(6.0), where)
    assert where.value == 6 == np.argmax(field.numpy()) and grid.index_of(where.value) == (2, 0)
    total = ml.Global(0.0)

    @ml.kernel
    def add_up(u: ml.Read, total: ml.Sum):
        total += u

    ones = grid.field("ones")
    ones.fill(1.0)
    add_up(grid, ones, total)
    add_up(grid.everything, ones, total)
    assert total.value == 12.0 + 8 * 5, "a loop over everything visits ghosts, too"
    with one_line_from(MeshError, "the number of a point must be a whole number from 0 to 11, got 12"):
        grid.index_of(12)


@pytest.mark.parametrize("aligned", [False, True])
def test_a_part_of_a_grid_is_chosen_among_its_points(aligned):
    grid = ml.Grid((4, 3), ghosts=1, aligned=aligned)
    mask = np.arange(12).reshape(4, 3) % 5 == 1
    field = grid.field("u", data=np.arange(12.0))

    @ml.kernel
    def mark(u: ml.ReadWrite):
        u += 100.0

    for some in (grid.subset(mask), grid.subset([11, 1, 6])):
        assert len(some) == 3
        mark(some, field)
    np.testing.assert_array_equal(field.numpy(), np.arange(12.0).reshape(4, 3) + 200.0 * mask)
    assert not grid.shaped(field, ghosts=True)[0].any()
    for wrong, words in ((mask.reshape(-1), r"has the shape \(4, 3\), got \(12,\)"), ([12], "no element 12; its 12")):
        with one_line_from(MeshError, words):
            grid.subset(wrong)


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_program_over_everything_visits_ghosts_fused_or_not(backend):
    ml.use(backend)
    grid = ml.Grid((5, 4), ghosts=(2, 1))
    u, v, total = grid.field("u"), grid.field("v"), ml.Global(0.0)

    @ml.kernel
    def first(v: ml.Read, u: ml.Write):
        u[...] = v + 1.0

    @ml.kernel
    def second(u: ml.Read, v: ml.Inc, total: ml.Sum):
        v += 2.0 * u
        total += u

    @ml.program
    def step():
        total.value = 0.0
        first(grid.everything, v, u)
        second(grid.everything, u, v, total)

    step.run(2)
    assert total.value == 3.0 * 54 and (grid.shaped(v, ghosts=True) == 8.0).all()
