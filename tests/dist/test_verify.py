"""Every corrupted exchange list is rejected, in one line that names rank, neighbour and element."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from meshloom.dist.halo import DistributedSet, ExchangeLists, distributed
from meshloom.dist.ownership import Link, owners
from meshloom.dist.verify import verify
from meshloom.errors import PlanError
from tests.one_line import one_line_from
from tests.order.meshes import quads

RANKS = 4
LAYERS, SIDES = ("exec_halo", "import_halo"), ("receives", "sends")


def sample() -> tuple[dict[Hashable, DistributedSet], list[Link]]:
    """A plate of 7 x 6 cells in four quarters; faces add to their cells."""
    sides, n, _, centres = quads(7, 6)
    cut = (2 * (centres[:, 0] > 3) + (centres[:, 1] > 3)).astype(np.int32)
    links = [Link("faces", "cells", sides, updated=True)]
    owner = owners({"cells": n, "faces": len(sides)}, {"cells": cut}, links, RANKS)
    return distributed(owner, links, RANKS), links


SETS, LINKS = sample()
#: (what is corrupted, its lists) of every list that has something in it.
LISTS = [(key, layer, side, lists) for key, one in SETS.items() for layer in LAYERS for side in SIDES
         if len((lists := getattr(getattr(one, layer), side)).numbers)]  # fmt: skip
Corruption = tuple[ExchangeLists, str]  # and what the line must say


def said(lists: ExchangeLists, m: int, element: int, side: str, neighbour: int | None = None) -> str:
    done = ("receives", "from") if side == "receives" else ("sends", "to")
    there = lists.neighbours[m] if neighbour is None else neighbour
    return f"rank {lists.ranks[m]} {done[0]} element {element} {done[1]} rank {there}"


def with_numbers(lists: ExchangeLists, m: int, numbers: list[int]) -> ExchangeLists:
    """The same with other elements in a message, which is left out where there are none."""
    parts = [numbers if k == m else numbers_of(lists, k) for k in range(len(lists.ranks))]
    there = [len(one) > 0 for one in parts]
    offsets = np.append(0, np.cumsum([len(one) for one in parts if one]))
    return ExchangeLists(lists.ranks[there], lists.neighbours[there], offsets, np.concatenate(parts).astype(np.int64))


def numbers_of(lists: ExchangeLists, m: int) -> list[int]:
    found: list[int] = lists.numbers[lists.offsets[m] : lists.offsets[m + 1]].tolist()
    return found


def lost_message(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    done = ("receive", "from") if side == "receives" else ("send", "to")
    for m in range(len(lists.ranks)):
        words = f"does not {done[0]} element {numbers_of(lists, m)[0]} {done[1]} rank {lists.neighbours[m]}"
        yield with_numbers(lists, m, []), f"rank {lists.ranks[m]} {words}"


def double_message(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    for m in range(len(lists.ranks)):
        numbers = numbers_of(lists, m)
        at = int(lists.offsets[m + 1])
        offsets = np.concatenate([lists.offsets[: m + 1], lists.offsets[m + 1 :] + len(numbers)])
        ranks, neighbours = (np.insert(one, m, one[m]) for one in (lists.ranks, lists.neighbours))
        wrong = ExchangeLists(ranks, neighbours, np.insert(offsets, m + 1, at), np.insert(lists.numbers, at, numbers))
        yield wrong, f"{said(lists, m, numbers[0], side)} in a message out of order"


def other_element(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    """One of the same owner stands in the place of what is needed: no length tells."""
    for m in range(len(lists.ranks)):
        numbers, sender = numbers_of(lists, m), (lists.neighbours if side == "receives" else lists.ranks)[m]
        for element in sorted(set(np.flatnonzero(owner == sender).tolist()) - set(numbers))[::4]:
            yield with_numbers(lists, m, sorted([*numbers[1:], element])), f"{said(lists, m, element, side)}, "


def wrong_rank(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    """Another rank has the message."""
    for m in range(len(lists.ranks)):
        for other in set(range(RANKS)) - {int(lists.ranks[m]), int(lists.neighbours[m])}:
            ranks = lists.ranks.copy()
            ranks[m] = other
            yield replace(lists, ranks=ranks), f"{'receives' if side == 'receives' else 'sends'} element"


def missing_element(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    for m in range(len(lists.ranks)):
        numbers = numbers_of(lists, m)
        for k, element in enumerate(numbers):
            done = ("receive", "from") if side == "receives" else ("send", "to")
            words = f"does not {done[0]} element {element} {done[1]} rank {lists.neighbours[m]}"
            yield with_numbers(lists, m, numbers[:k] + numbers[k + 1 :]), f"rank {lists.ranks[m]} {words}"


def double_element(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    for m in range(len(lists.ranks)):
        numbers = numbers_of(lists, m)
        for k, element in enumerate(numbers):
            yield with_numbers(lists, m, [*numbers[: k + 1], *numbers[k:]]), f"{said(lists, m, element, side)} twice"


def wrong_order(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    for m in range(len(lists.ranks)):
        numbers = numbers_of(lists, m)
        for k in range(len(numbers) - 1):
            swapped = [*numbers[:k], numbers[k + 1], numbers[k], *numbers[k + 2 :]]
            yield with_numbers(lists, m, swapped), f"{said(lists, m, numbers[k], side)} after element {numbers[k + 1]}"


def wrong_neighbour(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    for m in range(len(lists.ranks)):
        for other in set(range(RANKS)) - {int(lists.neighbours[m])}:
            neighbours = lists.neighbours.copy()
            neighbours[m] = other
            element = int(lists.numbers[lists.offsets[m]])
            if side == "receives":
                yield replace(lists, neighbours=neighbours), f"{said(lists, m, element, side, other)}, and rank"
            else:  # whoever it should have gone to does not get it, or another one gets what it does not need
                yield replace(lists, neighbours=neighbours), f"rank {lists.ranks[m]} sends element"


def superfluous_element(lists: ExchangeLists, side: str, owner: np.ndarray) -> Iterator[Corruption]:
    for m in range(len(lists.ranks)):
        numbers, sender = numbers_of(lists, m), (lists.neighbours if side == "receives" else lists.ranks)[m]
        for element in sorted(set(np.flatnonzero(owner == sender).tolist()) - set(numbers))[::4]:
            yield with_numbers(lists, m, sorted([*numbers, element])), f"{said(lists, m, element, side)}, "


CORRUPTIONS = (missing_element, double_element, wrong_order, wrong_neighbour, superfluous_element, lost_message,
               double_message, other_element, wrong_rank)  # fmt: skip


def with_lists(key: Hashable, layer: str, side: str, lists: ExchangeLists) -> dict[Hashable, DistributedSet]:
    changed = replace(getattr(SETS[key], layer), **{side: lists})
    return {**SETS, key: replace(SETS[key], **{layer: changed})}


@pytest.mark.parametrize("corrupted", CORRUPTIONS, ids=lambda one: one.__name__)
def test_each_is_rejected(corrupted: Callable[[ExchangeLists, str, np.ndarray], Iterator[Corruption]]) -> None:
    verify(SETS, LINKS, RANKS)
    tried = 0
    for key, layer, side, lists in LISTS:
        for wrong, expected in corrupted(lists, side, SETS[key].owner):
            words = {"exec_halo": "exec halo", "import_halo": "import halo"}[layer]
            with pytest.raises(PlanError) as caught:
                verify(with_lists(key, layer, side, wrong), LINKS, RANKS)
            assert str(caught.value).startswith(f"{key}, {words}: ") and expected in str(caught.value), expected
            tried += 1
    assert len(LISTS) == 4 and tried >= 10


def test_messages_out_of_order_are_rejected() -> None:
    for key, layer, side, lists in LISTS:
        order = np.array([1, 0, *range(2, len(lists.ranks))])
        parts = [numbers_of(lists, m) for m in order]
        offsets = np.append(0, np.cumsum([len(one) for one in parts]))
        wrong = ExchangeLists(lists.ranks[order], lists.neighbours[order], offsets, np.concatenate(parts))
        with one_line_from(PlanError, r"rank \d .* element \d+ .* rank \d in a message out of order"):
            verify(with_lists(key, layer, side, wrong), LINKS, RANKS)


@pytest.mark.parametrize("wrong", [
    {"ranks": -1}, {"ranks": RANKS}, {"neighbours": RANKS}, {"numbers": -1}, {"numbers": 10_000}, {"offsets": 5},
], ids=str)  # fmt: skip
def test_what_has_no_form_is_rejected(wrong: dict[str, int]) -> None:
    for key, layer, side, lists in LISTS:
        ((name, value),) = wrong.items()
        array = getattr(lists, name).copy()
        array[0] = value
        with one_line_from(PlanError, "lists have no form"):
            verify(with_lists(key, layer, side, replace(lists, **{name: array})), LINKS, RANKS)


def test_a_wrong_rim_is_rejected() -> None:
    for element in range(len(SETS["faces"].rim)):
        rim = SETS["faces"].rim.copy()
        rim[element] = not rim[element]
        with one_line_from(PlanError, rf"faces: rank \d has element {element} in its (core|rim), and it belongs"):
            verify({**SETS, "faces": replace(SETS["faces"], rim=rim)}, LINKS, RANKS)
