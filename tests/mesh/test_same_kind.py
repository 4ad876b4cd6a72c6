"""Values that become those of a field, a global, a map or a grid: same-kind casting as NumPy's, or one line."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.values import FIELD_DTYPES
from tests.findings import none_fails
from tests.one_line import one_line_from

N = 4
LARGE = 2**53 + 1  # not a double


def as_data(value: Any, dtype: str | None) -> Any:
    return ml.Set(N).field("u", dtype=dtype, data=[value] * N).numpy()[0]


def as_scalar_data(value: Any, dtype: str | None) -> Any:
    return ml.Set(N).field("u", dtype=dtype, data=value).numpy()[0]


def assigned(value: Any, dtype: str | None) -> Any:
    field = ml.Set(N).field("u", dtype=dtype)
    field.assign([value] * N)
    return field.numpy()[0]


def filled(value: Any, dtype: str | None) -> Any:
    field = ml.Set(N).field("u", dtype=dtype)
    field.fill(value)
    return field.numpy()[0]


def recorded(value: Any, dtype: str | None) -> Any:
    field = ml.Set(N).field("u", dtype=dtype)

    @ml.program
    def step() -> None:
        field.fill(value)

    step.run(1)
    return field.numpy()[0]


def as_global(value: Any, dtype: str | None) -> Any:
    return ml.Global(value, dtype=dtype).numpy()[()]


def set_global(value: Any, dtype: str | None) -> Any:
    one = ml.Global(0, dtype=dtype or "float64")
    one.value = value
    return one.numpy()[()]


def as_vector(value: Any, dtype: str | None) -> Any:
    one = ml.Global([0, 0], dtype=dtype or "float64")
    one.value = [value, value]
    return one.numpy()[1]


WAYS = [as_data, as_scalar_data, assigned, filled, recorded, as_global, set_global, as_vector]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
NEVER = [None, "3", "x", b"3", 1j, np.complex64(2), Decimal(1), Fraction(1, 2), {}, [None], object(),
         np.datetime64("2020-01-01"), np.timedelta64(3, "s"), np.array([(1, 2.0)], "i4,f8")[0], 10**400]  # fmt: skip


@every_way
def test_what_is_no_real_number_is_refused(way: Callable[..., Any]) -> None:
    def check(dtype: str, value: Any) -> None:
        with one_line_from(MeshError):
            way(value, dtype)

    given = [value for value in NEVER if value is not None or way is not as_scalar_data]  # None there is no data
    none_fails(product(["float32", "float64", "int32", "int64"], given), check)


@every_way
def test_integers_take_integers_that_fit(way: Callable[..., Any]) -> None:
    def check(dtype: str, value: Any) -> None:
        with one_line_from(MeshError, dtype):
            way(value, dtype)

    values = [1.9, 2.0, np.nan, np.inf, -0.0, np.float32(1), np.float16(3), 2**63, 2**64, 10**30, -(2**63) - 1]
    none_fails(product(["int32", "int64"], values), check)


@every_way
@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, np.int64(2**40), np.uint32(2**32 - 1)])
def test_values_beyond_32_bits_are_refused_not_wrapped(way: Callable[..., Any], value: Any) -> None:
    with one_line_from(MeshError, "int32"):
        way(value, "int32")
    assert way(value, "int64") == value


@every_way
@pytest.mark.parametrize(("value", "dtype"), [
    (3, "int32"), (np.uint8(200), "int32"), (True, "int64"), (np.bool_(True), "float32"), (-(2**31), "int32"),
    (2**63 - 1, "int64"), (np.uint64(7), "int64"), (7, "float32"), (2.5, "float32"), (np.float16(0.5), "float64"),
    (np.longdouble(1.5), "float64"), (np.nan, "float32"), (-np.inf, "float64"), (np.array(3), "int32"),
])  # fmt: skip
def test_same_kinds_pass(way: Callable[..., Any], value: Any, dtype: str) -> None:
    np.testing.assert_array_equal(way(value, dtype), np.asarray(value).astype(dtype))


@pytest.mark.filterwarnings("error")
@every_way
def test_doubles_beyond_single_become_infinite_as_in_numpy(way: Callable[..., Any]) -> None:
    assert way(1e300, "float32") == np.inf and way(1e-300, "float32") == 0.0


@pytest.mark.parametrize("way", [as_data, as_scalar_data, as_global], ids=lambda way: way.__name__)
@pytest.mark.parametrize(("given_type", "chosen"), [
    ("bool", "int32"), ("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("uint16", "int32"),
    ("int32", "int32"), ("uint32", "int64"), ("int64", "int64"), ("uint64", "int64"), ("float16", "float32"),
    ("float32", "float32"), ("float64", "float64"), ("longdouble", "float64"),
])  # fmt: skip
def test_the_type_of_a_field_holds_its_values(way: Callable[..., Any], given_type: str, chosen: str) -> None:
    got = way(np.ones((), given_type)[()], None)
    assert got.dtype == chosen and got == 1


@pytest.mark.parametrize("way", [as_data, as_global], ids=lambda way: way.__name__)
def test_large_integers_are_kept_or_refused(way: Callable[..., Any]) -> None:
    assert way(np.uint64(LARGE), None) == LARGE == int(way(LARGE, None))
    with one_line_from(MeshError, "18446744073709551615"):
        way(np.uint64(2**64 - 1), None)


@given(st.sampled_from([t.str for t in FIELD_DTYPES]), st.sampled_from([*"?bBhHiIlLefdFDUMmO"]),
       st.integers(0, 100))  # fmt: skip
def test_a_type_passes_where_numpy_calls_it_the_same_kind(target: str, source: str, value: int) -> None:
    """Values that fit every type, so that the kind alone decides."""
    try:
        data = np.full(N, value).astype(source)
    except TypeError:
        return
    allowed = data.dtype.kind in "biuf" and np.can_cast(data.dtype, target, "same_kind")
    try:
        got = ml.Set(N).field("u", dtype=target, data=data).numpy()
    except MeshError:
        assert not allowed
    else:
        assert allowed
        np.testing.assert_array_equal(got, data.astype(target))


def test_masked_values_are_refused() -> None:
    data = np.ma.masked_equal([1.0, 2.0, 3.0, 4.0], 3.0)
    field = ml.Set(N).field("u")
    for way in (lambda: ml.Set(N).field("u", data=data), lambda: field.assign(data), lambda: ml.Global(data),
                lambda: field.fill(np.ma.masked)):  # fmt: skip
        with one_line_from(MeshError, "mask"):
            way()
    field.assign(np.ma.array([1.0, 2.0, 3.0, 4.0]))
    assert field.numpy().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_messages_say_what_came_and_what_would_be_right() -> None:
    count = ml.Set(2, "cells").field("count", dtype="int32")
    with one_line_from(MeshError, r"field count holds int32, got float64 such as 1\.9; .*float64.*rint"):
        count.assign([1.0, 1.9])
    with one_line_from(MeshError, r"field count holds int32, -2147483648 to 2147483647, got 2147483648"):
        count.fill(2**31)
    with one_line_from(MeshError, r"field q: .*complex128.*\.real"):
        ml.Set(2).field("q", data=[1j, 2])
    with one_line_from(MeshError, "global dt: .*None"):
        ml.Global(None, "dt")  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [[[1.0], [1.0, 2.0]], [1.0, None], np.array([1, "a"], object)])
def test_ragged_and_mixed_lists_are_refused(data: Any) -> None:
    with one_line_from(MeshError, "field u"):
        ml.Set(2).field("u", data=data)
    with one_line_from(MeshError, "global"):
        ml.Global(data)


@pytest.mark.parametrize("dtype", ["float16", "complex128", "nonsense", "U3", object, 3, "i4,f8"])
def test_unknown_types_are_named(dtype: Any) -> None:
    for way in (lambda: ml.Set(2).field("u", dtype=dtype), lambda: ml.Global(0, dtype=dtype)):
        with one_line_from(MeshError, "float32, float64, int32, int64"):
            way()


@pytest.mark.parametrize("wrong", [[1.0, 2.0, 3.0], np.ones((2, 2)), []])
def test_globals_take_their_own_shape(wrong: Any) -> None:
    one = ml.Global([1.0, 2.0], "g")
    with one_line_from(MeshError, "global g.*2 values"):
        one.value = wrong
    assert one.value.tolist() == [1.0, 2.0]
    with one_line_from(MeshError, "global"):
        ml.Global([])


@pytest.mark.parametrize("wrong", [[0.0, 1.0], [0.5, 1], ["0", "1"], [None, 1], [True, False], [1j, 0], [2**64, 0],
                                   np.ma.masked_equal([0, 1], 1), [[0], [0, 1]]])  # fmt: skip
def test_indices_and_numberings_are_whole_numbers(wrong: Any) -> None:
    two = ml.Set(2, "two")
    with one_line_from(MeshError, "map ends"):
        ml.Map(two, two, wrong, "ends")
    with one_line_from(MeshError, "set two"):
        ml.Set(2, "two", numbering=wrong)


@pytest.mark.parametrize("wrong", [["a", "b"], [1j, 2], [None, 1.0], "ab", np.array([1.0, object()])])
def test_places_are_real_numbers(wrong: Any) -> None:
    for make in (
        lambda: ml.Grid(2, coordinates=[wrong]),
        lambda: ml.Grid(2, extent=wrong),
        lambda: ml.Mesh.from_cells(np.stack([np.asarray(wrong)] * 3) if not isinstance(wrong, str) else wrong,
                                   [[0, 1, 2]], "triangle"),
        lambda: ml.generate.box((2, 2), extent=wrong),
        lambda: ml.Set(2, points=wrong),
    ):  # fmt: skip
        with one_line_from(MeshError):
            make()


@pytest.mark.parametrize("wrong", ["no", 2, None, 0.0])
def test_yes_and_no_are_true_and_false(wrong: Any) -> None:
    with one_line_from(MeshError, "periodic"):
        ml.Grid((3, 4), periodic=wrong)
    with one_line_from(MeshError, "periodic"):
        ml.Grid((3, 4), periodic=(True, wrong))
