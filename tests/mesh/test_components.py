"""Fields whose components have a shape: values in and out, layouts, sharing, files, and what a kernel sees of them."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.io import checkpoint
from meshloom.io.grids import write_grid
from meshloom.schedule.choice.symmetry import swapped_maps

BACK_ENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
LAYOUTS = ("aos", "soa", "aosoa4")
rng = np.random.default_rng(0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_come_and_go_in_their_shape(layout: str) -> None:
    cells, values = ml.Set(11, "cells"), rng.random((11, 5, 3))
    slope = cells.field("slope", (5, 3), data=values, layout=layout)
    assert slope.shape == (11, 5, 3) and slope.components == (5, 3) and slope.dim == 15
    np.testing.assert_array_equal(slope.numpy(), values)
    np.testing.assert_array_equal(copy(slope).numpy(), values)
    slope.relayout("soa")
    np.testing.assert_array_equal(slope.memory(), values)
    np.testing.assert_array_equal(np.from_dlpack(slope), values)
    slope.assign(values[::-1])
    np.testing.assert_array_equal(np.asarray(slope), values[::-1])
    slope.fill(2.0)
    assert (slope.numpy() == 2.0).all()
    assert cells.field("single", (2, 2), dtype=np.float32).numpy().dtype == np.float32
    assert repr(slope) == "Field(slope: cells x (5, 3), float64, soa)"


def test_memory_is_no_copy() -> None:
    field = ml.Set(3, "s").field("m", (2, 2))
    for layout in ("aos", "soa"):
        field.relayout(layout)
        field.memory()[1, 0, 1] = 7.0
        assert field.numpy()[1, 0, 1] == 7.0
        field.fill(0.0)


def test_one_component_is_a_number_unless_its_shape_is_given() -> None:
    s = ml.Set(4, "s")
    assert s.field("a").shape == s.field("a", 1).shape == s.field("a", ()).shape == (4,)
    assert s.field("a", 3).shape == s.field("a", (3,)).shape == s.field("a", np.array([3])).shape == (4, 3)
    assert s.field("a", (1,)).shape == (4, 1) and s.field("a", (1, 1), data=np.ones((4, 1, 1))).shape == (4, 1, 1)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((5, 0), r"dim must be a whole number or a shape such as \(5, 3\), got \(5, 0\)"),
        ((5, 2.0), r"dim must be a whole number or a shape such as \(5, 3\), got \(5, 2.0\)"),
        ([2, True], r"dim must be a whole number or a shape such as \(5, 3\), got \[2, True\]"),
        ((300, 300), r"at most 8 axes and 65536 components, got \(300, 300\)"),
        ((1,) * 9, "at most 8 axes and 65536 components"),
        ("ab", "dim must be a whole number from 1 to 65536, got 'ab'"),
    ],
)
def test_shapes_that_are_none(shape, said: str) -> None:
    with pytest.raises(MeshError, match=f"^field a: .*{said}"):
        ml.Set(4, "s").field("a", shape)


@pytest.mark.parametrize("shape", [(4, 15), (4, 3, 5), (4, 5), (5, 3), (5, 5, 3)])
def test_data_of_another_shape_changes_nothing(shape: tuple[int, ...]) -> None:
    field = ml.Set(4, "s").field("a", (5, 3), data=np.ones((4, 5, 3)))
    with pytest.raises(MeshError, match=r"expected \(4, 5, 3\)"):
        field.assign(np.zeros(shape))
    assert (field.numpy() == 1.0).all()


@ml.kernel
def spread(slope: ml.Read, own: ml.Read, gain: ml.Inc, flux: ml.Write):
    jump = slope[1] - slope[0]                                           # (5, 3)
    gain[0] += jump * own
    gain[1] -= jump * own
    gain[1, 2] += slope[0, 2]                                            # a row
    gain[0, 4, 1] += slope[1, 0, 2]
    flux[...] = (jump.T @ slope[0]) @ own.T[:, :2]                       # (3, 5) @ (5, 3) @ (3, 2)


@pytest.mark.parametrize(
    ("back_end", "layout"), [("numpy", "soa"), *(("cpu", one) for one in LAYOUTS), ("emulated", "aosoa4")]
)
def test_a_kernel_sees_the_shape(back_end: str, layout: str) -> None:
    ml.use(back_end)
    cells, faces = ml.Set(20, "cells"), ml.Set(30, "faces")
    sides = ml.Map(faces, cells, rng.integers(0, 20, (30, 2)), "sides")
    slope = cells.field("slope", (5, 3), data=rng.random((20, 5, 3)), layout=layout)
    own = faces.field("own", (5, 3), data=rng.random((30, 5, 3)), layout=layout)
    gain, flux = cells.field("gain", (5, 3), layout=layout), faces.field("flux", (3, 2), layout=layout)
    arguments = (slope[sides], own, gain[sides], flux)
    spread(faces, *arguments)
    found = gain.numpy(), flux.numpy()
    gain.fill(0.0)
    spread.python(faces, *arguments)
    np.testing.assert_allclose(found[0], gain.numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found[1], flux.numpy(), rtol=1e-12, atol=1e-14)


def test_counts_are_those_of_flat_components() -> None:
    s = ml.Set(8, "s")

    @ml.kernel
    def twice(a: ml.Read, b: ml.Write):
        b[...] = 2.0 * a

    shaped = twice.counts(s, s.field("a", (5, 3)), s.field("b", (5, 3)))
    flat = twice.counts(s, s.field("a", 15), s.field("b", 15))
    assert shaped.flops == flat.flops == 15 and shaped.bytes == flat.bytes


def test_a_symmetric_kernel_is_seen_to_be_one() -> None:
    cells, faces = ml.Set(4, "cells"), ml.Set(3, "faces")
    sides = ml.Map(faces, cells, [[0, 1], [1, 2], [2, 3]], "sides")

    @ml.kernel
    def exchange(u: ml.Read, gain: ml.Inc):
        flux = np.abs(u[1].T + u[0].T) @ (u[1] - u[0])
        gain[0] += flux
        gain[1] -= flux

    @ml.kernel
    def lopsided(u: ml.Read, gain: ml.Inc):
        gain[0] += u[1]
        gain[1] -= u[0].T

    u, gain = cells.field("u", (3, 3)), cells.field("gain", (3, 3))
    assert swapped_maps(exchange.loop(faces, u[sides], gain[sides]).spec, 0) == {0}
    assert swapped_maps(lopsided.loop(faces, u[sides], gain[sides]).spec, 0) is None


def test_an_entry_that_is_never_set_is_named() -> None:
    s = ml.Set(8, "s")

    @ml.kernel
    def most(a: ml.Write):
        a[0] = 1.0
        a[1, 0] = 1.0

    with pytest.raises(ml.errors.KernelError, match=r"entry \[1, 1\] is never set"):
        most(s, s.field("a", (2, 2)))


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_on_a_grid(back_end: str) -> None:
    ml.use(back_end)
    grid = ml.Grid((6, 5), periodic=True)
    values = rng.random((6, 5, 2, 3))
    a, b = grid.field("a", (2, 3), data=values), grid.field("b", (2, 3))

    @ml.kernel
    def around(a: ml.Read, b: ml.Write):
        b[...] = a[1, 0] + a[0, -1]
        b[1, 2] = a[-1, 0][1, 2]

    around(grid, a[grid.star(1)], b)
    expected = np.roll(values, -1, 0) + np.roll(values, 1, 1)
    expected[:, :, 1, 2] = np.roll(values, 1, 0)[:, :, 1, 2]
    np.testing.assert_array_equal(grid.shaped(b), expected)


@pytest.mark.parametrize("stretched", [False, True])
def test_compact_differences_keep_the_shape(stretched: bool) -> None:
    ml.use("numpy")
    grid = ml.Grid((24, 4), coordinates=[np.linspace(0, 1, 24) ** 1.2, None] if stretched else None)
    values = rng.random((24, 4, 2, 2))
    shaped, flat = grid.field("z", (2, 2), data=values), grid.field("z", 4, data=values.reshape(24, 4, 4))
    for difference in (ml.compact.d, ml.compact.d2):
        one = difference(shaped, 0)
        assert one.components == (2, 2)
        np.testing.assert_array_equal(grid.shaped(one).reshape(24, 4, 4), grid.shaped(difference(flat, 0)))


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_a_fused_program_with_temporary_matrices(back_end: str) -> None:
    ml.use(back_end)
    s = ml.Set(9, "s")
    a = s.field("a", (2, 2), data=rng.random((9, 2, 2)))
    between, b = s.field("between", (2, 2), temporary=True), s.field("b", (2, 2))

    @ml.kernel
    def square(a: ml.Read, r: ml.Write):
        r[...] = a @ a

    @ml.program
    def fourth():
        square(s, a, between)
        square(s, between, b)

    fourth()
    np.testing.assert_allclose(b.numpy(), np.linalg.matrix_power(a.numpy(), 4), rtol=1e-13)


def test_checkpoints_keep_the_shape(tmp_path: Path) -> None:
    field = ml.Set(4, "s").field("a", (2, 3), data=rng.random((4, 2, 3)))
    state = {"a": field.saved()}
    checkpoint.save(tmp_path / "c.h5", checkpoint.Checkpoint("c", 0, "double", "", "", state, (), np.zeros((0, 0))))
    found = checkpoint.load(tmp_path / "c.h5").state["a"]
    before = field.numpy()
    field.fill(0.0)
    field.assign(found)
    np.testing.assert_array_equal(field.numpy(), before)


def test_vtk_files_hold_tensors_by_row(tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    mesh = ml.generate.box((3, 2))
    tensor = mesh.cells.field("tensor", (3, 3), data=rng.random((6, 3, 3)), layout="soa")
    slope = rng.random((12, 5, 3))
    ml.write(tmp_path / "m.vtu", mesh, {"tensor": tensor}, {"slope": slope})
    found = meshio.read(tmp_path / "m.vtu")
    np.testing.assert_array_equal(found.cell_data["tensor"][0], tensor.numpy().reshape(6, 9))
    np.testing.assert_array_equal(found.point_data["slope"], slope.reshape(12, 15))
    grid = ml.Grid((3, 2))
    write_grid(tmp_path / "g.vti", grid, {"t": grid.field("t", (2, 2), data=rng.random((3, 2, 2, 2)))})
    assert b'Name="t" NumberOfComponents="4"' in (tmp_path / "g.vti").read_bytes()
