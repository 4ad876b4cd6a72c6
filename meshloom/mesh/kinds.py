"""Sets of several kinds: which elements are of each, by number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, shown
from meshloom.mesh.values import whole_numbers

Kinds = dict[str, np.ndarray | range]  # a range: where a set has one kind, no array is kept for it


def checked_kinds(given: Mapping[str, ArrayLike], name: str, size: int) -> Kinds:
    """The numbers of the elements of each kind, ascending, after checking that each of them has one."""
    if not isinstance(given, Mapping) or not all(isinstance(kind, str) for kind in given):
        raise MeshError(f"set {name}: kinds are names and the numbers of their elements, got {shown(given)}")
    kinds: dict[str, np.ndarray] = {}
    times = np.zeros(size, np.int64)
    for kind, numbers in given.items():
        listed = whole_numbers(numbers, f"set {name}: the elements of kind {kind}")
        outside = listed[(listed < 0) | (listed >= size)] if listed.ndim == 1 else listed
        if listed.ndim != 1 or outside.size:
            wrong = f"got shape {listed.shape}" if listed.ndim != 1 else f"there is no element {outside[0]}"
            raise MeshError(f"set {name}: kind {kind} takes a list of numbers from 0 to {size - 1}; {wrong}")
        np.add.at(times, listed, 1)
        kinds[kind] = np.sort(listed).astype(np.int64)
        kinds[kind].flags.writeable = False
    if (times != 1).any():
        element = int(np.argmax(times != 1))
        raise MeshError(f"set {name}: every element is of one kind, and element {element} of {times[element]}")
    return dict(kinds)
