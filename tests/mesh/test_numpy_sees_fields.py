"""What NumPy and other libraries see of a Field or Global: its values by number, or one line that says why not."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError, UserError
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))


def arranged() -> ml.Set:
    """Five things that lie in memory from the last to the first."""
    return ml.Set(5, "cells", numbering=[4, 3, 2, 1, 0])


@pytest.mark.parametrize("make", [lambda: ml.Set(5, "cells"), arranged], ids=["plain", "arranged"])
@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa2"])
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_numpy_functions_take_values_by_number(make: Callable[[], ml.Set], layout: str, dim: int, dtype: str) -> None:
    values = (np.arange(5 * dim).reshape((5, dim) if dim > 1 else 5) - 3).astype(dtype)
    field = make().field("u", dim, data=values, layout=layout)
    seen = np.asarray(field)
    assert seen.dtype == dtype
    np.testing.assert_array_equal(seen, values)
    np.testing.assert_array_equal(field, field.numpy())
    assert (np.sum(field), np.max(field), np.min(field)) == (values.sum(), values.max(), values.min())
    assert np.mean(field) == values.mean() and np.linalg.norm(field) == np.linalg.norm(values)
    np.testing.assert_array_equal(np.add(field, 1), values + 1)
    assert np.asarray(field, np.float64).dtype == np.float64
    assert len(field) == 5 and np.shape(field) == values.shape


def test_what_numpy_gets_is_a_copy() -> None:
    field = ml.Set(3).field("u", data=np.zeros(3))
    np.asarray(field)[:] = 7.0
    assert not field.numpy().any()
    with one_line_from(MeshError, "without a copy"):
        np.array(field, copy=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_of_a_loop_reach_numpy_on_every_back_end(backend: str) -> None:
    ml.use(backend)

    @ml.kernel
    def double(u: ml.ReadWrite, total: ml.Sum):
        u *= 2.0
        total += u

    field, total = arranged().field("u", data=np.arange(5.0)), ml.Global(0.0, "total")
    double(field.set, field, total)
    np.testing.assert_array_equal(field, [0.0, 2.0, 4.0, 6.0, 8.0])
    assert np.sum(field) == 20.0 == float(total) == np.sum(total) and int(total) == 20


@pytest.mark.parametrize("symbol", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"])
def test_operators_give_plain_arrays(symbol: str) -> None:
    apply, values = getattr(operator, symbol), np.arange(1.0, 6.0)
    field, number = arranged().field("u", data=values), ml.Global(2.5, "g")
    for other in (3.0, np.float64(3.0), values + 1, field, number):
        plain = np.asarray(other)
        for got, expected in ((apply(field, other), apply(values, plain)), (apply(other, field), apply(plain, values))):
            assert type(got) is np.ndarray
            np.testing.assert_array_equal(got, expected)
    assert apply(number, 3.0) == apply(2.5, 3.0) and apply(3.0, number) == apply(3.0, 2.5)
    np.testing.assert_array_equal(-field, -values)
    np.testing.assert_array_equal(abs(-values + field), 0.0 * values)


@pytest.mark.parametrize("symbol", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"])
def test_operators_in_place_are_refused_and_change_nothing(symbol: str) -> None:
    apply = getattr(operator, symbol)
    for target in (arranged().field("u", data=np.ones(5)), ml.Global(1.0, "g")):
        for other in (1, np.ones(5), np.float64(2.0)):
            with one_line_from(MeshError, "use .*assign|use .*value"):
                apply(target, other)
        assert (np.asarray(target) == 1.0).all()
    array = same = np.ones(5)
    with one_line_from(MeshError, "by NumPy"):
        np.add(array, 1.0, out=arranged().field("u"))  # type: ignore[call-overload]
    with one_line_from(MeshError, "by NumPy"):
        np.add.at(arranged().field("u"), [1], 1.0)  # type: ignore[arg-type]
    array += arranged().field("u", data=np.ones(5))
    np.testing.assert_array_equal(same, 2.0 * np.ones(5))


@pytest.mark.parametrize("symbol", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_are_refused(symbol: str) -> None:
    """But that of a Global with one number asks a question (tests/test_conditions.py), unless for equality."""
    apply, ordered = getattr(operator, symbol), symbol[0] in "lg"
    for one in (ml.Global(1.0, "g"), ml.Global([1.0, 2.0], "vector"), ml.Set(2).field("u")):
        alone = ordered and isinstance(one, ml.Global) and one.dim == 1
        numbers = () if alone else (1e-6, np.float64(1e-6))
        for other in (np.ones(2), *numbers, *([one] if ordered and not alone else [])):
            for left, right in ((one, other), (other, one)):
                with one_line_from(MeshError, "compare"):
                    apply(left, right)


def test_fields_stay_themselves() -> None:
    one, other = ml.Set(2).field("u"), ml.Set(2).field("u")
    assert one == one and one != other and len({one, other, one}) == 2 and one != "u" and one in [other, one]
    total = ml.Global(0.0)
    assert total == total and total != ml.Global(0.0) and len({total, total}) == 1


def test_truth_and_iteration_are_refused() -> None:
    for one in (ml.Set(2).field("u"), ml.Set(0).field("u"), ml.Global(1.0), ml.Global([1.0, 2.0])):
        with one_line_from(MeshError, "neither true nor false"):
            bool(one)
        with one_line_from(MeshError, r"numpy\(\)"):
            list(one)  # type: ignore[arg-type]
        with one_line_from(MeshError, r"numpy\(\)"):
            1.0 in one  # type: ignore[operator]  # noqa: B015
    with one_line_from(MeshError, "2 values"):
        float(ml.Global([1.0, 2.0], "g"))


@pytest.mark.parametrize("formula", [
    lambda u, dt: u * dt, lambda u, dt: dt * u, lambda u, dt: np.multiply(dt, u), lambda u, dt: u + float(dt),
    lambda u, dt: u + int(dt), lambda u, dt: u + np.sqrt(dt), lambda u, dt: np.stack([dt, u])[0] + u,
    lambda u, dt: u * np.asarray(dt), lambda u, dt: u * (2 * dt), lambda u, dt: np.where(u > dt, u, 0.0),
])  # fmt: skip
@pytest.mark.parametrize("captured", [ml.Global(2.0, "dt"), ml.Set(1).field("dt")], ids=["global", "field"])
def test_a_kernel_takes_them_as_arguments_only(formula: Callable[..., Any], captured: Any) -> None:
    """Otherwise the value that the kernel saw when it was traced would stay for ever."""

    @ml.kernel
    def scale(u: ml.Read, out: ml.Write):
        out[...] = formula(u, captured)

    one = ml.Set(1)
    with one_line_from(UserError, "pass it as an argument|numbers, not with|compare|real number, not"):
        scale(one, one.field("u"), one.field("out"))


# ----- memory shared without copies -------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", ["aos", "soa"])
@pytest.mark.parametrize("dim", [1, 3])
def test_shared_memory_has_the_numbering_of_numpy(layout: str, dim: int) -> None:
    field = ml.Set(5).field("u", dim, data=np.arange(5.0 * dim).reshape((5, dim) if dim > 1 else 5), layout=layout)
    shared = np.from_dlpack(field)
    np.testing.assert_array_equal(shared, field.numpy())
    field.fill(3.0)
    assert (shared == 3.0).all()  # no copy


def test_shared_memory_in_another_numbering_is_refused() -> None:
    field = arranged().field("u", data=np.arange(5.0))
    with one_line_from(MeshError, r"arranged.*numpy\(\).*memory\(\)"):
        np.from_dlpack(field)
    np.testing.assert_array_equal(np.from_dlpack(field.memory()), field.set.numbering)
    assert np.shares_memory(field.memory(), field.storage)


def test_an_arranged_mesh_never_hands_out_another_numbering() -> None:
    mesh = ml.generate.box((6, 5)).arranged("random")
    heat = mesh.cells.field("heat", data=np.arange(30.0))
    np.testing.assert_array_equal(np.asarray(heat), np.arange(30.0))
    with one_line_from(MeshError, "arranged"):
        heat.__dlpack__()


@pytest.mark.parametrize("layout", ["soa", "aos"])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ghosts", [0, (2, 1)])
def test_of_a_grid_its_points_are_seen_in_its_shape(layout: str, dim: int, aligned: bool, ghosts: Any) -> None:
    """Neither ghosts nor padding, with copies and without."""
    grid = ml.Grid((3, 5), ghosts=ghosts, aligned=aligned)
    values = np.random.default_rng(1).random((3, 5) if dim == 1 else (3, 5, dim))
    field = grid.field("u", dim, layout=layout)
    field.fill(100.0)  # ghosts, too
    field.assign(values)
    for see in (np.asarray, ml.Field.numpy, grid.shaped, np.from_dlpack):
        np.testing.assert_array_equal(see(field), values)  # type: ignore[operator]
    assert field.shape == values.shape == field.numpy().shape and len(field) == 3 and np.max(field) < 100.0
    np.testing.assert_allclose(np.sum(field), values.sum(), rtol=1e-14)
    assert field.numpy().flags.c_contiguous and not np.shares_memory(field.numpy(), field.storage)
    assert np.shares_memory(np.from_dlpack(field), field.storage)
    assert field.memory().shape == ((grid.total,) if dim == 1 else (grid.total, dim))


class Interface:
    """A buffer on a device that does not exist here."""

    __cuda_array_interface__: dict[str, Any] = {"shape": (5,)}  # noqa: RUF012
    dtype, ndim, size, shape, flags = np.dtype(float), 1, 5, (5,), np.zeros(5).flags

    def __getitem__(self, key: object) -> Interface:
        return self


def test_the_cuda_interface_follows_the_same_rule() -> None:
    plain, other = ml.Set(5).field("u"), arranged().field("u")
    assert not hasattr(plain, "__cuda_array_interface__")  # in host memory
    plain.storage = other.storage = Interface()
    assert plain.__cuda_array_interface__ == {"shape": (5,)}
    with one_line_from(MeshError, "arranged"):
        _ = other.__cuda_array_interface__


@pytest.mark.parametrize("name", ["values", "value", "data", "numpy"])
def test_a_misspelt_attribute_of_a_field_does_not_swallow_values(name: str) -> None:
    u = ml.Set(3, "points").field("u")
    with pytest.raises(AttributeError, match=name):
        setattr(u, name, np.ones(3))
    with pytest.raises(AttributeError, match="val"):
        ml.Global(0.0, "dt").val = 0.1  # type: ignore[attr-defined]


def test_an_index_that_is_set_is_refused_in_one_line() -> None:
    on = ml.Set(3, "points")
    u, dt = on.field("u"), ml.Global([0.0, 0.0], "dt")
    with pytest.raises(MeshError, match=r"^field u cannot be changed by an index; use a loop, or u\.assign\(array\)$"):
        u[0] = 1.0
    with pytest.raises(MeshError, match=r"^global dt cannot be changed by an index; use a loop, or dt\.value = "):
        dt[0] = 1.0
