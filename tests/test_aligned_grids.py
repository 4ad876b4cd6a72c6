"""Aligned grids: rows begin at whole cache lines, and no number that anybody sees depends on it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom import compact
from meshloom.errors import MeshError
from meshloom.mesh.box import ALIGNMENT

SHAPE = (5, 7, 19)
FEW = (2, 3, 5)  # lines, where every thread of a block is a fibre
BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
METHODS = ("segmented", "thomas", "cyclic_reduction", "pcr", "cgs", "bicgstab")
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def numbers(shape: tuple[int, ...], *more: int) -> np.ndarray:
    return np.random.default_rng(prod(shape)).random((*shape, *more))


# ----- where points lie -------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(shape=st.lists(st.integers(1, 40), min_size=1, max_size=3), ghosts=st.integers(0, 20), dim=st.integers(1, 2),
       layout=st.sampled_from(["soa", "aos", "aosoa4"]))  # fmt: skip
def test_rows_begin_at_multiples_and_values_are_as_given(
    shape: list[int], ghosts: int, dim: int, layout: str
) -> None:
    width = min(ghosts, *shape)
    grid = ml.Grid(tuple(shape), ghosts=width, aligned=True)
    plain = ml.Grid(tuple(shape), ghosts=width)
    given_values = numbers(plain.stored, *([dim] if dim > 1 else []))
    field, same = grid.field("u", dim, layout=layout), plain.field("u", dim)
    for one in (field, same):
        one.restore(given_values.reshape(-1) if dim == 1 else given_values.reshape(-1, dim))
    starts = grid.box((0,) * grid.rank, (*grid.shape[:-1], 1)).rows()
    if grid.rank > 1:
        assert (starts % ALIGNMENT == 0).all() and grid.places[-1] % ALIGNMENT == 0
    else:
        assert grid.total == plain.total
    inside = tuple(slice(width, width + n) for n in shape)
    np.testing.assert_array_equal(grid.shaped(field, ghosts=True), given_values)
    np.testing.assert_array_equal(grid.shaped(field), given_values[inside])
    np.testing.assert_array_equal(field.numpy(), given_values[inside])
    np.testing.assert_array_equal(field.saved(), same.saved())
    np.testing.assert_array_equal(grid.everything.rows(), np.delete(np.arange(grid.total), grid.padding))
    assert not np.delete(field.numbered(), grid.everything.rows(), axis=0).any()  # padding is zero
    for number in (int(starts[-1]), int(grid.everything.rows()[0])):
        index = grid.index_at(number)
        assert grid.box(index, [i + 1 for i in index]).rows() == [number]
    other = grid.field("v", dim)
    other.restore(field.saved())
    np.testing.assert_array_equal(grid.shaped(other, ghosts=True), given_values)
    assert grid.digest == plain.digest


def test_a_grid_that_is_aligned_anyway_stays_as_it_is() -> None:
    grid = ml.Grid((3, 32), aligned=True)
    assert grid.places == grid.stored == (3, 32) and not len(grid.padding)
    assert ml.Grid((3, 33), aligned=True).places == (3, 48) and ml.Grid(33, aligned=True).places == (33,)
    assert repr(grid) == "Grid(grid: 3 x 32)" and "rows of 48" in repr(ml.Grid((3, 33), aligned=True))
    assert ml.Grid((3, 32), ghosts=(0, 2), aligned=True).first == (0, ALIGNMENT)


def test_auto_takes_an_eighth_of_the_memory_at_most() -> None:
    assert [ml.Grid((3, n), aligned="auto").places[-1] for n in (17, 61, 65, 101, 509)] == [17, 64, 65, 112, 512]
    assert ml.Grid((3, 30), ghosts=(0, 2), aligned="auto").first == (0, 2)  # 48 places for 34 points
    with pytest.raises(MeshError, match="aligned is True, False or 'auto', got 'yes'"):
        ml.Grid((3, 4), aligned="yes")


# ----- loops ------------------------------------------------------------------------------------------------------
@ml.kernel
def star(u: ml.Read, out: ml.Write, most: ml.Max):
    out[...] = u[1, 0, 0] + 2 * u[-1, 0, 0] + 3 * u[0, 1, 0] + 4 * u[0, -1, 0] + 5 * u[0, 0, 1] + 6 * u[0, 0, -2]
    most[...] = u[0, 0, -2]


@ml.kernel
def inverse(u: ml.Read, out: ml.ReadWrite, total: ml.Sum, least: ml.Min):
    out[...] = 1.0 / u + out
    total += 1.0
    least[...] = u


OFFSETS = ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -2))


def looped(backend: str, periodic: Any, ghosts: Any, aligned: bool) -> list[Any]:
    """What loops over the whole of a grid, with and without neighbours, give."""
    ml.use(backend)
    grid = ml.Grid((5, 7, 70), periodic=periodic, ghosts=ghosts, aligned=aligned)
    u, out = grid.field("u", data=1.0 + numbers(grid.shape)), grid.field("out")
    most, total, least = ml.Global(-np.inf), ml.Global(0.0), ml.Global(np.inf)
    ml.fill_ghosts(u, closed="mirror")
    star(grid, u[grid.offsets(*OFFSETS)], out, most)
    inverse(grid, u, out, total, least)
    assert total.value == prod(grid.shape) and least.value >= 1.0  # padding, which is zero, has no part in it
    assert not out.numbered()[grid.padding].any()
    return [grid.shaped(u, ghosts=True), grid.shaped(out), most.value, least.value]


@every_backend
@pytest.mark.parametrize(("periodic", "ghosts"), [(True, 0), ((True, False, True), (0, 1, 2))])
def test_loops_give_the_same_numbers(periodic: Any, ghosts: Any, backend: str) -> None:
    plain, padded = (looped(backend, periodic, ghosts, aligned) for aligned in (False, True))
    for one, other in zip(plain, padded, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15)


def test_plain_execution_leaves_padding_out() -> None:
    grid = ml.Grid((2, 3), aligned=True)
    u, out, total = grid.field("u", data=1.0 + numbers(grid.shape)), grid.field("out"), ml.Global(0.0)
    inverse.python(grid, u, out, total, ml.Global(np.inf))
    np.testing.assert_allclose(grid.shaped(out), 1.0 / grid.shaped(u), rtol=1e-15)
    assert total.value == 6.0


def test_vectors_of_points_are_loaded_at_once_where_rows_are_aligned() -> None:
    ml.use("emulated")
    u = {aligned: ml.Grid((7, 69), aligned=aligned).field("u") for aligned in (False, True)}
    grain = {aligned: grain_of(one) for aligned, one in u.items()}
    assert grain == {False: 1, True: 4}


def grain_of(u: ml.Field) -> int:
    grid: Any = u.set

    @ml.kernel
    def shifted(u: ml.Read, out: ml.Write):
        out[...] = u[0, 1]

    box = shifted.loop(grid.interior(1), u[grid.offsets((0, 1))], grid.field("out")).spec.box
    assert box is not None
    return box.grain


# ----- lines ------------------------------------------------------------------------------------------------------
def solved(backend: str, method: str, axis: int, aligned: bool) -> np.ndarray:
    ml.use(backend)
    shape = FEW if backend == "emulated" else SHAPE
    grid = ml.Grid(shape, aligned=aligned)
    matrix = ml.linalg.Tridiagonal(0.25, 1.0, 0.25)
    f, out = grid.field("f", data=numbers(shape)), grid.field("out")
    ml.linalg.tridiagonal.solve(matrix, f, out, axis, method)
    return grid.shaped(out)


@every_backend
@pytest.mark.parametrize("method", METHODS)
def test_every_solver_gives_the_same_numbers(method: str, backend: str) -> None:
    for axis in range(3):
        plain, padded = (solved(backend, method, axis, aligned) for aligned in (False, True))
        np.testing.assert_allclose(plain, padded, rtol=1e-14, atol=1e-15)


@every_backend
def test_derivatives_give_the_same_numbers(backend: str) -> None:
    found = []
    for aligned in (False, True):
        ml.use(backend)
        grid = ml.Grid(SHAPE, periodic=(False, True, False), ghosts=(0, 1, 2), aligned=aligned)
        f = grid.field("f", data=numbers(SHAPE))
        found.append([grid.shaped(compact.d(f, axis)) for axis in range(3)])
    np.testing.assert_allclose(*found, rtol=1e-13, atol=1e-13)
