"""The verifier of exchange lists: what is wrong with them, in one line that names rank, neighbour and element.

Lists that pass are those that the links demand, on both sides of every message: each element comes from its owner,
once, where and only where it is needed, and in ascending order, which both sides count on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from meshloom.dist.halo import DistributedSet, ExchangeLists, needs
from meshloom.dist.ownership import Link
from meshloom.errors import PlanError
from meshloom.native.algorithms import distinct


def verify(sets: Mapping[Any, DistributedSet], links: Sequence[Link], ranks: int) -> None:
    """PlanError unless cores, rims and exchange lists of all sets are right for these links and for who owns what."""
    demanded = needs({key: one.owner for key, one in sets.items()}, links, ranks)
    for key, one in sets.items():
        _demand(_wrong_rim(one, demanded[key].rim), f"{_name(key)}:")
        for name, layer, pairs in (("exec halo", one.exec_halo, demanded[key].executed),
                                   ("import halo", one.import_halo, demanded[key].imported)):  # fmt: skip
            for side, lists in (("receives", layer.receives), ("sends", layer.sends)):
                _demand(_wrong_lists(lists, side == "receives", one.owner, pairs, ranks), f"{_name(key)}, {name}:")


def _name(key: Hashable) -> str:
    return str(getattr(key, "name", key))


def _demand(fault: str, where: str) -> None:
    if fault:
        raise PlanError(f"{where} {fault}")


def _wrong_rim(one: DistributedSet, rim: np.ndarray) -> str:
    for element in np.flatnonzero(one.rim != rim):
        right, wrong = ("rim", "core") if rim[element] else ("core", "rim")
        return f"rank {one.owner[element]} has element {element} in its {wrong}, and it belongs to its {right}"
    return ""


def _wrong_lists(lists: ExchangeLists, received: bool, owner: np.ndarray, pairs: np.ndarray, ranks: int) -> str:
    """What is wrong with one side of a layer of which ``pairs`` (rank * n + element) are needed; '' if nothing is."""
    if not _has_form(lists, len(owner), ranks):
        return "its lists have no form: offsets do not ascend, or ranks and elements are out of bounds"
    here, there = (np.repeat(one, lists.lengths) for one in (lists.ranks, lists.neighbours))
    numbers = lists.numbers

    def told(k: int) -> str:
        done = f"receives element {numbers[k]} from" if received else f"sends element {numbers[k]} to"
        return f"rank {here[k]} {done} rank {there[k]}"

    sender, receiver = (there, here) if received else (here, there)
    for k in np.flatnonzero(owner[numbers] != sender).tolist():
        return f"{told(k)}, and rank {owner[numbers[k]]} owns it"
    step, inside = np.diff(numbers), np.ones(max(len(numbers) - 1, 0), bool)
    inside[lists.offsets[1:-1] - 1] = False
    for k in np.flatnonzero(inside & (step <= 0)).tolist():
        return f"{told(k + 1)} {'twice' if step[k] == 0 else f'after element {numbers[k]}, out of order'}"
    for m in np.flatnonzero(np.diff(lists.ranks.astype(np.int64) * ranks + lists.neighbours) <= 0):
        return f"{told(int(lists.offsets[m + 1]))} in a message out of order"
    found = distinct(receiver.astype(np.int64) * len(owner) + numbers)
    for pair in np.setdiff1d(found, pairs, assume_unique=True).tolist():
        k = int(np.argmax((receiver == pair // len(owner)) & (numbers == pair % len(owner))))
        return f"{told(k)}, {'and' if received else 'which'} does not need it"
    for pair in np.setdiff1d(pairs, found, assume_unique=True).tolist():
        rank, element = divmod(pair, len(owner))
        if received:
            return f"rank {rank} does not receive element {element} from rank {owner[element]}, and needs it"
        return f"rank {owner[element]} does not send element {element} to rank {rank}, which needs it"
    return ""


def _has_form(lists: ExchangeLists, elements: int, ranks: int) -> bool:
    """Are these messages of some elements between ranks that there are?"""
    offsets = lists.offsets
    return (
        len(lists.ranks) == len(lists.neighbours) == len(offsets) - 1
        and offsets[0] == 0
        and offsets[-1] == len(lists.numbers)
        and bool((np.diff(offsets) > 0).all())
        and all(bool(((one >= 0) & (one < end)).all()) for one, end in (
            (lists.ranks, ranks), (lists.neighbours, ranks), (lists.numbers, elements)))
    )  # fmt: skip
