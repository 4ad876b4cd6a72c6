"""Maps by a formula: the same bits as with the indices stored, by every strategy, and nothing is stored."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError, MeshloomError
from meshloom.mesh.formula import computed_rows, least_and_most, traced_formula
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip
N = 300
FORMULAS: dict[str, Callable[[Any], Any]] = {
    "ring": lambda e: (e, (e + 1) % N),
    "far": lambda e: ((7 * e + 3) % N, (e * e) % N, N - 1 - e),
    "bits": lambda e: (((e >> 2) << 3 | (e & 3)) % N, (e ^ 5) % N),
    "one place": lambda e: 4,
    "choice": lambda e: (np.where(e % 3 == 0, e // 3, N - 1 - e), np.minimum(e, 17), np.abs(e - 150)),
    "floor": lambda e: ((e - 200) // 7 + 50, (e - 200) % 7),
}


@ml.kernel
def spread(q: ml.Read, weight: ml.Read, res: ml.Inc, low: ml.Min):
    for k in range(q.shape[0]):
        res[k] += weight * (k + 1.0) * q[q.shape[0] - 1 - k]
        low[k] = weight - q[k]


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_with_stored_indices_by_every_strategy(backend: str, name: str) -> None:
    ml.use(backend)
    things, places = ml.Set(N, "things"), ml.Set(N, "places")
    dice = np.random.default_rng(1)
    formula = FORMULAS[name]
    slots = formula(np.arange(N))
    rows = np.stack([np.broadcast_to(one, N) for one in (slots if isinstance(slots, tuple) else (slots,))], axis=1)
    computed, stored = ml.Map.computed(things, places, formula, name), ml.Map(things, places, rows, "stored")
    assert computed.arity == rows.shape[1] and "stored" not in repr(computed)
    np.testing.assert_array_equal(computed.indices, rows)
    q = places.field("q", 2, data=dice.integers(-9, 9, (N, 2)).astype(float))
    weight = things.field("weight", data=dice.integers(1, 5, N))
    ran = 0
    for wish in ("auto", *ml.strategies()):
        found = []
        for through in (computed, stored):
            res, low = places.field("res", 2), places.field("low", 2)
            arguments = (q[through], weight, res[through], low[through])
            loop = spread.loop(things, *arguments, schedule=ml.Schedule(wish, block=32))
            if loop.applies:
                loop()
                found.append((res.numpy(), low.numpy()))
        if found:
            ran += 1
            np.testing.assert_array_equal(found[0][0], found[1][0], err_msg=wish)
            np.testing.assert_array_equal(found[0][1], found[1][1], err_msg=wish)
    assert ran > 4
    res, low = places.field("res", 2), places.field("low", 2)
    spread.python(things, q[computed], weight, res[computed], low[computed])
    np.testing.assert_array_equal(res.numpy(), found[0][0])


def test_nothing_is_stored_or_counted() -> None:
    ml.use("cpu")
    things, places = ml.Set(N, "things"), ml.Set(N, "places")
    computed = ml.Map.computed(things, places, FORMULAS["ring"], "ring")
    stored = ml.Map(things, places, computed.indices, "ring")
    q, weight, res, low = places.field("q"), things.field("w"), places.field("res"), places.field("low")
    made, kept = (spread.loop(things, q[m], weight, res[m], low[m], schedule="atomic") for m in (computed, stored))
    assert kept.compulsory - made.compulsory == 2 * 4 * N
    made()
    gc.collect()
    assert computed._made is not None and computed._made() is None  # type: ignore[attr-defined]


def test_in_a_program_fused_with_others() -> None:
    for backend in ("cpu", "emulated"):
        ml.use(backend)
        places = ml.Set(N, "places")
        ring = ml.Map.computed(places, places, FORMULAS["ring"], "ring")
        u, change = places.field("u", data=np.arange(N) % 11.0), places.field("change", temporary=True)

        @ml.kernel
        def differences(u: ml.Read, change: ml.Inc):
            change[0] += u[1] - u[0]
            change[1] -= u[1] - u[0]

        @ml.kernel
        def advance(change: ml.Read, u: ml.ReadWrite):
            u += 0.25 * change

        @ml.program
        def step(u=u, change=change, ring=ring, places=places, differences=differences, advance=advance) -> None:
            change.fill(0.0)
            differences(places, u[ring], change[ring])
            advance(places, change, u)

        step.run(5)
        values = (np.arange(N) % 11).astype(float)
        for _ in range(5):
            values = values + 0.25 * (np.roll(values, -1) - 2 * values + np.roll(values, 1))
        np.testing.assert_allclose(u.numpy(), values, rtol=1e-13)


@pytest.mark.parametrize(("formula", "words"), [
    (lambda e: e + 1, "index 6 at row 5, slot 0 is out of range"),
    (lambda e: (e, -e), "index -1 at row 1, slot 1 is out of range"),
    (lambda e: e / 2, "a formula gives whole numbers, got float64"),
    (lambda e: 1.5, "a formula gives whole numbers, got 1.5"),
    (lambda e: True, "a formula gives whole numbers, got True"),
    (lambda e: e > 2, "a formula gives whole numbers, got bool"),
    (lambda e: (), "a formula gives one number or more"),
    (lambda e: None, "a formula gives whole numbers, got None"),
    (lambda e: e if e > 2 else 0, "a kernel cannot branch"),
    (lambda e: int(e), "cannot become a Python number"),
    (lambda e: [0, 1][e], "cannot be a loop count, nor say where"),
    (lambda e: unknown(e), "NameError"),  # type: ignore[name-defined]  # noqa: F821
    (lambda e, f: e, "missing 1 required positional argument"),
    ("no function", "map m"),
])  # fmt: skip
def test_what_is_no_formula_is_refused(formula: Any, words: str) -> None:
    with one_line_from(MeshloomError, re.escape(words)):
        ml.Map.computed(ml.Set(6, "things"), ml.Set(6, "places"), formula, "m")


def test_sets_that_lie_otherwise_in_memory_are_refused() -> None:
    arranged = ml.Set(4, "arranged", numbering=[3, 2, 1, 0])
    with one_line_from(MeshError, "arranged does not"):
        ml.Map.computed(arranged, ml.Set(4), lambda e: e, "m")


def test_a_number_that_64_bits_do_not_hold_is_refused() -> None:
    some = ml.Set(3, "some")
    with pytest.raises(MeshError, match="which 64 bits do not hold"):
        ml.Map.computed(some, some, lambda e: 2**80)


@pytest.mark.parametrize("name", FORMULAS)
def test_intervals_hold_all_that_a_formula_gives(name: str) -> None:
    formula = traced_formula(FORMULAS[name], name)
    for first, last in ((0, N), (3, 4), (100, 207)):
        rows, span = computed_rows(formula, first, last), least_and_most(formula, first, last)
        assert span is None or (span[0] <= rows.min() and rows.max() <= span[1])
    assert (least_and_most(formula, 0, N) is None) == (name in ("bits", "choice"))


def test_intervals_that_would_overflow_say_nothing() -> None:
    formula = traced_formula(lambda e: e * 2**40 * 2**20 % 7, "far")
    assert least_and_most(formula, 0, 100) is None and computed_rows(formula, 0, 100).max() <= 6


def test_targets_that_ascend_are_told() -> None:
    """Over several chunks of elements, stored or computed; the last place counts as the others."""
    n = 150_000
    few, many = ml.Set(n, "few"), ml.Set(3 * n, "many")
    order = np.arange(n)
    for formula, expected in ((lambda e: 3 * e + 1, True), (lambda e: 3 * n - 1 - e, False), (lambda e: e // 2, False),
                              (lambda e: np.minimum(e, n - 2), False), (lambda e: (e, e + 1), False)):  # fmt: skip
        stored = ml.Map(few, many, np.stack(np.broadcast_arrays(*np.atleast_2d(formula(order))), axis=-1), "stored")
        assert ml.Map.computed(few, many, formula, "computed").ascends == stored.ascends == expected
    assert ml.Map(ml.Set(0, "none"), many, np.zeros((0, 1), np.int32), "nobody").ascends


def test_nobody_writes_down_a_formula_that_is_only_read_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a map of 134 million elements would be half a gigabyte, and many seconds of one core."""
    n = 70_000
    fine, coarse = ml.Set(n, "fine"), ml.Set(n // 2, "coarse")
    above = ml.Map.computed(fine, coarse, lambda e: [e // 2], "above")
    x, y = coarse.field("x", data=np.arange(n / 2)), fine.field("y")

    @ml.kernel
    def brought(x: ml.Read, y: ml.Write):
        y[...] = x[0]

    def made(*_: object) -> np.ndarray:
        raise AssertionError("rows of a formula were made")

    monkeypatch.setattr(type(above), "rows", made)
    ml.use("cpu")
    brought(fine, x[above], y)
    np.testing.assert_array_equal(y.numpy(), np.arange(n) // 2)
