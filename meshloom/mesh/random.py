"""Random: where random numbers of kernels come from. Its values are a seed and a count, which loops advance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshloom import markup
from meshloom.errors import MeshError, shown, whole_number
from meshloom.exclusion import Mutex, unowned
from meshloom.mesh.box import Box
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.values import whole_numbers
from meshloom.recording import MAKE_BEFORE, not_in_program, outside_program, recorder


class Random(Global):
    """A source of random numbers for kernels: ``r: ml.Random`` is a parameter, and ``ml.Random(seed=7)`` its argument.

    Numbers are those of Philox 4x32-10 for the seed, the element's number in its set and how often loops have drawn
    from this source: the same on every back end, by every schedule, and other ones at every call and replay. It is
    saved, loaded and continued as a Global.
    """

    __slots__ = ()
    draws = True  # its name is an annotation of parameters

    def __init__(self, seed: int, name: str = "random"):
        number = whole_number(f"random {name}: seed", seed, 0, 2**64 - 1, error=MeshError)
        with outside_program():
            super().__init__(np.array([number - 2**64 if number >= 2**63 else number, 0]), name, dtype=np.int64)
        if self.mutex is None:  # who draws counts behind it, and nobody draws between
            self.mutex = Mutex(f"random {name}")

    @property
    def seed(self) -> int:
        """The seed, as it was given."""
        return int(self.numpy()[0]) % 2**64

    @property
    def calls(self) -> int:
        """How many loops have drawn from it."""
        return int(self.numpy()[1])

    @not_in_program("setting random source {}", MAKE_BEFORE)
    def assign(self, data: ArrayLike) -> None:
        """Take what ``numpy()`` of another one gives: its seed, as an int64, and its number of calls."""
        values = whole_numbers(data, f"random {self.name}")
        if values.shape != (2,) or values[1] < 0:
            raise MeshError(f"random {self.name} has a seed and a number of calls, which are not set by {shown(data)};"
                            " make another one, ml.Random(seed=...), or assign both")  # fmt: skip
        super().assign(values)

    @not_in_program("copying random source {}", MAKE_BEFORE)
    def __copy__(self) -> Random:
        made = Random(0, self.name)
        made.assign(self.numpy())
        return made

    def __repr__(self) -> str:
        """Its seed, and how many loops have drawn from it; while a program is recorded nobody knows the latter."""
        known = "" if recorder.get() is not None else f", seed={self.seed}, calls={self.calls}"
        return f"Random({self.name}{known})"

    def _repr_html_(self) -> str:
        if recorder.get() is not None:
            return markup.table(f"Random {self.name}", [("calls", "known when the program has run")])
        return markup.table(f"Random {self.name}", [("seed", self.seed), ("calls", f"{self.calls:,}")])


def element_numbers(on: Set | Box) -> Field:
    """The number of every element, int64, whatever the order in memory: of parts in the whole set, of a grid's ghosts
    behind those of its points. One field for each set."""
    on = on.grid if isinstance(on, Box) else on.outermost
    if element_numbers not in on.kept:
        on.kept.setdefault(element_numbers, _new_element_numbers(on))
    found: Field = on.kept[element_numbers]
    return found


@unowned
@outside_program()
def _new_element_numbers(on: Set) -> Field:
    made = Field(on, "element number", dtype=np.int64)
    count = int(np.prod(on.array_shape))
    made.repack(np.arange(count, count + on.total).reshape(-1, 1))
    made.assign(np.arange(count).reshape(on.array_shape))
    return made
