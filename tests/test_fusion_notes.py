"""What ``program.explain()`` says of values that points of a grid compute again, or do not: in words, and once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import meshloom as ml
from tests.fitted import changed
from tests.test_fusion_recompute import Case, compare, laplace, refused


def test_what_is_not_made_inside_is_stored_and_says_how_it_need_not() -> None:
    """Fluxes that last are stored, read or not; what is printed is words, not names of our own."""

    def lasting(case: Case) -> Callable[[], None]:
        u, rate, first, at = case.field("u", 10), case.field("rate"), case.field("first"), case.grid.star(1)

        def step() -> None:
            laplace(case.grid, u[at], first)
            laplace(case.grid, first[at], rate)

        return step

    case = Case("cpu", lasting, periodic=True, shape=(300, 300))
    refused(case, "by the cost model; made inside the program, or temporary, it need not be stored at all")


def test_a_note_names_the_loop_it_speaks_of_and_is_told_once() -> None:
    def with_ghosts(case: Case) -> Callable[[], None]:
        u, rate = case.field("u", 10), case.field("rate")

        def step() -> None:
            ml.fill_ghosts(u, closed="copy")
            laplace(case.grid, u[case.grid.star(1)], rate)

        return step

    notes = Case("cpu", with_ghosts, ghosts=1).notes
    assert len(notes) == len(set(notes)) == 2
    assert all("fill_ghosts stays by itself: it reads at other points what it writes" in note for note in notes), notes


def test_what_was_written_beside_its_place_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, fusion={"worth": math.inf, "worth_again": math.inf})  # computed again though it may not pay

    def in_place(case: Case) -> Callable[[], None]:
        u, at = case.field("u", 11), case.grid.star(1)

        def step() -> None:
            first = case.grid.field("first")
            laplace(case.grid, u[at], first)
            laplace(case.grid, first[at], u)

        return step

    (case,) = compare(in_place, ["cpu"], periodic=True)
    text = case.program.explain().split("\n\n")[0]
    assert "laplace over plane[0:11, 0:9]" in text and "u copied back" in text and "_" not in text, text


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_a_fused_loop_without_elements_is_told(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it moves for each of its elements was divided by their number."""
    changed(monkeypatch, fusion={"worth": math.inf})
    ml.use(backend)
    cells = ml.Set(0, "cells")
    a, b, c = (cells.field(name) for name in "abc")

    @ml.kernel
    def copy(a: ml.Read, b: ml.Write) -> None:
        b[...] = a

    @ml.program
    def twice() -> None:
        copy(cells, a, b)
        copy(cells, b, c)

    assert "copy+copy as one loop over cells: 0 bytes per element" in twice.explain()
