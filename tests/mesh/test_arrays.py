"""Fields as arrays: reductions are those of NumPy, on every back end and in programs; copies, views, wrapped arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError, MeshloomError, ScheduleError
from tests.one_line import one_line_from

NUMPYS: dict[str, Callable[[np.ndarray], Any]] = {
    "sum": np.sum, "min": np.min, "max": np.max, "mean": np.mean, "norm": lambda x: np.linalg.norm(x.reshape(-1)),
}  # fmt: skip


@pytest.fixture(params=["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    with ml.using(request.param):
        yield request.param


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("components", [1, (1,), 3, (2, 3)])
def test_reductions_are_numpys(back_end: str, components: Any, dtype: Any) -> None:
    if back_end == "emulated" and (components, dtype) not in (((2, 3), np.float64), (1, np.int32)):
        pytest.skip("slow, and the text is that of cuda")
    rng = np.random.default_rng(1)
    for on in (ml.Set(40, "s"), ml.Grid((5, 6), ghosts=1), ml.Set(6, "n", numbering=[3, 1, 0, 2, 5, 4])):
        u = on.field("u", components, dtype=dtype)
        u.fill(100)  # ghosts take no part
        values = rng.integers(-50, 50, u.shape).astype(dtype)
        u.assign(values)
        for name, expected in NUMPYS.items():
            found = getattr(u, name)()
            assert isinstance(found, ml.Global) and found.name == f"{name} of u"
            assert float(found) == pytest.approx(float(expected(values.astype(np.float64))), rel=1e-12)
        assert int(u.dot(u)) == (values.astype(np.int64) ** 2).sum()
        assert u.sum().dtype == (np.int64 if dtype == np.int32 else np.float64) and u.max().dtype == dtype


def test_reductions_in_a_program_are_made_at_every_replay(back_end: str) -> None:
    s = ml.Set(5, "s")
    u, v = s.field("u", data=np.arange(1.0, 6.0)), s.field("v", 2, data=1.0)
    found: dict[str, ml.Global] = {}

    @ml.kernel
    def scale(u: ml.ReadWrite, by: ml.Read):
        u[...] = u / by

    @ml.program
    def step() -> None:
        found["norm"] = u.norm()
        scale(s, u, found["norm"])
        found["mean"], found["dot"], found["most"] = u.mean(), v.dot(v), u.max()

    expected = np.arange(1.0, 6.0)
    for _ in range(2):
        step()
        norm = np.linalg.norm(expected)
        expected = expected / norm
        assert found["norm"].value == pytest.approx(norm) and found["mean"].value == pytest.approx(expected.mean())
        assert found["dot"].value == 10.0 and found["most"].value == pytest.approx(expected.max())


def test_results_stay_as_they_are_and_compare() -> None:
    u = ml.Set(3, "s").field("u", data=1.0)
    first = u.sum()
    u.fill(2.0)
    assert (float(first), float(u.sum()), int(u.max())) == (3.0, 6.0, 2)
    assert first < 4.0 and u.sum() > first
    u.assign([np.nan, 1.0, 2.0])
    assert np.isnan(float(u.min())) and np.isnan(float(u.max()))


def test_numpys_functions_and_arguments_give_numpys_answers() -> None:
    u = ml.Set(3, "s").field("u", 2, data=np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(u.sum(axis=0), [6.0, 9.0])
    np.testing.assert_array_equal(u.max(1), [1.0, 3.0, 5.0])
    assert np.sum(u) == 15.0 and np.mean(u) == 2.5 and np.max(u) == 5.0 and isinstance(np.sum(u), np.float64)
    assert len(u) == 3 and np.asarray(u).shape == (3, 2) and np.asarray(u, dtype=np.float32).dtype == np.float32


def test_reductions_that_have_no_answer() -> None:
    s, none = ml.Set(3, "s"), ml.Set(0, "none").field("u")
    u, pair, other = s.field("u"), s.field("pair", 2), ml.Set(3, "t").field("other")
    assert float(none.sum()) == 0.0 and float(none.norm()) == 0.0
    for call, expected in (
        (none.min, "field u: none has no elements, so there is no min"),
        (none.mean, "so there is no mean"),
        (lambda: u.dot(pair), r"field u has the components \(\), and pair \(2,\): they have no product"),
        (lambda: u.dot(other), "field u lives on s, and other on t: they have no product"),
        (lambda: u.dot(np.zeros(3)), "what it is multiplied with"),  # type: ignore[arg-type]
        (lambda: int(ml.Global([1.0, 2.0], "v")), "global v has 2 values, so it is not one number"),
    ):
        with one_line_from(MeshError, expected):
            call()


def test_a_copy_has_its_own_values_and_name(back_end: str) -> None:
    s = ml.Set(4, "s", numbering=[3, 0, 1, 2])
    u = s.field("u", 2, data=np.arange(8.0).reshape(4, 2), layout="soa")
    v = u.copy("v")
    u.fill(0.0)
    assert (v.name, v.set, v.layout, u.copy().name) == ("v", s, u.layout, "u")
    np.testing.assert_array_equal(v.numpy(), np.arange(8.0).reshape(4, 2))
    with one_line_from(MeshError, "a field has a name, a string; got 3"):
        u.copy(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["aos", "soa"])
def test_a_view_is_the_memory_itself(layout: str) -> None:
    ml.use("numpy")
    u = ml.Set(5, "s").field("u", (2, 3), layout=layout)
    view = u.view()
    view[3, 1, 2] = 7.0
    assert view.shape == u.shape and u.numpy()[3, 1, 2] == 7.0
    u.fill(2.0)
    assert (view == 2.0).all()
    points = ml.Grid((3, 4), ghosts=1, aligned=True).field("p", data=1.0)
    points.view()[1, 2] = 5.0
    assert points.view().shape == (3, 4) and points.numpy()[1, 2] == 5.0


def test_where_there_is_no_view() -> None:
    arranged = ml.Set(3, "cells", numbering=[2, 0, 1]).field("u")
    grouped = ml.Set(8, "s").field("v", 2, layout="aosoa4")
    for one, expected in ((arranged, "cells is arranged in memory"), (grouped, "layout aosoa4 cannot be shared")):
        with one_line_from(MeshError, expected):
            one.view()
    with one_line_from(MeshError, "is arranged in memory, so sharing it would show another numbering"):
        np.from_dlpack(arranged)  # type: ignore[arg-type]


@ml.kernel
def double(u: ml.ReadWrite):
    u *= 2.0


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_wrapped_array_is_the_field(backend: str) -> None:
    with ml.using(backend):
        mine = np.arange(12.0).reshape(4, 3)
        s = ml.Set(4, "s")
        u = s.field("u", 3, wrap=mine)
        double(s, u)
        np.testing.assert_array_equal(mine, 2.0 * np.arange(12.0).reshape(4, 3))
        mine[2, 1] = -1.0
        assert u.numpy()[2, 1] == -1.0 and np.shares_memory(u.view(), mine)
        ml.program(lambda: double(s, u)).run(3)
        assert mine[0, 1] == 16.0
        points = np.ones((3, 5), np.float32)
        p = ml.Grid((3, 5)).field("p", wrap=points)
        double(p.set, p)
        assert (points == 2.0).all() and p.dtype == np.float32
        other = u.copy("other")
        other.relayout("soa")
        double(s, other)
        assert mine[0, 1] == 16.0 and other.numpy()[0, 1] == 32.0


def test_a_wrapped_field_stays_where_it_is() -> None:
    mine = np.zeros((8, 2))
    u = ml.Set(8, "s").field("u", 2, wrap=mine)
    with one_line_from(MeshError, r"u wraps an array .* or take a copy\(\)"):
        u.relayout("soa", free=True)
    with one_line_from(MeshError, "u wraps an array"):
        u.move(np.zeros(16))
    u.fill(3.0)
    assert (mine == 3.0).all() and str(u.layout) == "aos" and not u.layout_is_free


class Metres(np.ndarray):
    """As libraries of units have them."""


def test_a_file_in_memory_is_wrapped(tmp_path: Path) -> None:
    """The one kind of array that is its values and nothing else."""
    mine = np.memmap(tmp_path / "values", np.float64, "w+", shape=(4,))
    ml.Set(4, "s").field("u", wrap=mine).fill(3.0)
    assert (np.fromfile(tmp_path / "values") == 3.0).all()


read_only = np.zeros(4)
read_only.flags.writeable = False
WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "shape": (np.zeros(5), {}, r"it has the shape \(5,\), expected \(4,\); data= takes a copy"),
    "type": (np.zeros(4, np.float16), {}, "it is of float16, allowed: float32"),
    "complex": (np.zeros(4, complex), {}, "it is of complex128"),
    "byte order": (np.zeros(4, ">f8"), {}, "it is of >f8"),
    "strides": (np.zeros(8)[::2], {}, "do not lie one after the other"),
    "read-only": (read_only, {}, "it is read-only"),
    "unaligned": (np.frombuffer(bytearray(33), np.uint8)[1:].view(np.float64), {}, "its memory is not aligned"),
    "masked": (np.ma.array(np.zeros(4), mask=[0, 1, 0, 0]), {}, r"a MaskedArray, whose values .* np.asarray\(array\)"),
    "nothing masked yet": (np.ma.zeros(4), {}, "cannot wrap a MaskedArray"),
    "a kind of array": (np.zeros(4).view(Metres), {}, "cannot wrap a Metres"),
    "a record": (np.zeros(4).view(np.recarray), {}, "cannot wrap a recarray"),
    "a list": ([0.0] * 4, {}, "wraps NumPy's and CuPy's arrays, got"),
    "data": (np.zeros(4), {"data": 1.0}, "has its values, its type and its order"),
    "layout": (np.zeros(4), {"layout": "soa"}, "has its values, its type and its order"),
    "temporary": (np.zeros(4), {"temporary": True}, "it is not temporary"),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_cannot_be_wrapped(which: str) -> None:
    array, options, expected = WRONG[which]
    with one_line_from(MeshloomError, expected):
        ml.Set(4, "s").field("u", wrap=array, **options)


def test_sets_that_arrays_do_not_fit() -> None:
    for on, array, expected in (
        (ml.Set(3, "cells", numbering=[2, 0, 1]), np.zeros(3), "cells is arranged otherwise in memory"),
        (ml.Grid((3, 3), ghosts=1), np.zeros((3, 3)), "grid has ghosts or padding"),
    ):
        with one_line_from(MeshError, expected):
            on.field("u", wrap=array)


def test_a_back_end_for_a_block() -> None:
    ml.use("cpu", threads=2, contract=False)
    try:
        with ml.using("numpy", threads=1, strict=True):
            assert (ml.backend(), ml.threads()) == ("numpy", 1)
            with ml.using("emulated", lanes=64):
                assert ml.backend() == "emulated"
            assert ml.backend() == "numpy"
        assert (ml.backend(), ml.threads()) == ("cpu", 2)
        with pytest.raises(ZeroDivisionError), ml.using("numpy"):
            raise ZeroDivisionError
        assert ml.backend() == "cpu"
        with one_line_from(ScheduleError, "unknown back end 'gpu'"), ml.using("gpu"):
            threading.Event()
        assert (ml.backend(), ml.threads()) == ("cpu", 2)
    finally:
        ml.use("cpu", contract=True)
