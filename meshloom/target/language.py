"""What the C++ of one maker's GPUs calls things: all that generated text says otherwise than on another target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Protocol

from meshloom.records import dataclass

_LANES = "//@ lanes\n"  # parts a file of words in two


class Multiprocessor(Protocol):
    """What a target tells of a multiprocessor: threads in step, and those that it has room for."""

    @property
    def lanes(self) -> int: ...
    @property
    def resident_threads(self) -> int: ...


#: (threads of a block, blocks that must fit a multiprocessor at a time, target) -> what a kernel says of them
Bounds = Callable[[int, int, Multiprocessor], str]


@dataclass(frozen=True)
class Language:
    """C++ for a GPU, as text in front of generated kernels. ``ML_EMULATED`` is defined where a CPU's compiler reads it.

    ``words`` come first: types, mathematics, shared memory, rounding. ``lanes``: how threads of a warp ask each other
    (``ml_lane`` and ``ml_from``). ``emulation``: what a CPU's compiler is told before of the language's own words.
    """

    name: str
    words: str = field(repr=False)
    lanes: str = field(repr=False)
    emulation: str = field(repr=False)
    bounds: Bounds = field(repr=False)


def language(name: str, file: Path, emulation: Path, bounds: Bounds) -> Language:
    """A language by the file of its words, with the lanes' behind a line of their own, and by that of its emulation."""
    words, lanes = file.read_text().split(_LANES)
    return Language(name, words, lanes, emulation.read_text(), bounds)
