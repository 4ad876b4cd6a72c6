"""Numbers in text files, many at a time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from meshloom.errors import MeshError, shown

_CHUNK = 100_000


def parse_numbers(text: bytes | str, what: str) -> np.ndarray:
    """All numbers of a whitespace-separated text, float64; anything else in it is an error about ``what``."""
    if not text.strip():
        return np.zeros(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's way to say that it met something else
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            raise MeshError(f"{what}: numbers expected, found {_first_other(text)}") from None


def _first_other(text: bytes | str) -> str:
    """The first word of a text that is no number, for a message."""
    words = re.finditer(r"\S+", text if isinstance(text, str) else text.decode(errors="replace"))
    return next((shown(word[0], 40) for word in words if not _is_number(word[0])), "something else")


def _is_number(word: str) -> bool:
    """As files write them: Python's own underscores and digits of other scripts are none."""
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii() and "_" not in word


def as_integers(values: np.ndarray, what: str) -> np.ndarray:
    """Float values that must be whole numbers, as int64."""
    good = (values == np.trunc(values)) & (np.abs(values) < 2.0**53)
    if not good.all():
        wrong = values[~good][0]
        problem = "too large a number" if np.isfinite(wrong) and wrong == np.trunc(wrong) else "whole numbers expected"
        raise MeshError(f"{what}: {problem}, found {wrong:.17g}")
    return values.astype(np.int64)


def format_rows(pattern: str, rows: np.ndarray) -> Iterator[bytes]:
    """Each row of a 2-D array by a printf pattern such as ``"%d %d\\n"``, in large pieces of text."""
    for start in range(0, len(rows), _CHUNK):
        piece = rows[start : start + _CHUNK]
        yield (pattern * len(piece) % tuple(piece.ravel().tolist())).encode()


def rows_of_changing_length(
    flat: np.ndarray, count: int, signature: slice, length: Callable[[np.ndarray], int], what: str
) -> Iterator[np.ndarray]:
    """Cut ``count`` rows out of a flat array whose rows may differ in length; yields 2-D runs of equal ones.

    The columns ``signature`` of a row decide its length: ``length(row_start[signature])``.
    """
    position, left = 0, count
    while left:
        head = flat[position:][signature]
        if len(head) < signature.stop - signature.start:
            raise MeshError(f"{what}: {left} of {count} rows are missing, or a row is too short")
        width = length(head)
        window, run = 16, 0
        while True:  # look further ahead while all rows are alike
            possible = min(window, left, (len(flat) - position) // width)
            rows = flat[position : position + possible * width].reshape(possible, width)
            same = (rows[:, signature] == head).all(axis=1)
            run = possible if same.all() else int(np.argmin(same))
            if run < window or run == left:
                break
            window *= 4
        if run == 0:
            raise MeshError(f"{what}: {left} of {count} rows are missing, or a row is too short")
        yield rows[:run]
        position, left = position + run * width, left - run
    if position != len(flat):
        raise MeshError(f"{what}: more numbers than {count} rows need, or a row of wrong length")
