"""What a field is as a whole: its sum, extremes, mean, norm and products, as Globals that loops make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from meshloom.mesh.globals import Global

#: What reduces a field, and perhaps another one, by name: whoever has loops puts it here (``library.reductions``).
reducer: list[Callable[[str, Any, Any], Any]] = []


class Reduced:
    """The values of all elements as one Global, over all components; of a grid without its ghosts, of a set with a halo
    without that.

    A loop on the back end in use makes it; inside a program it is recorded. ``float(u.sum())`` reads it. With arguments
    (``axis=0``), as NumPy's functions call them, it is NumPy that answers, with an array.
    """

    __slots__ = ()

    def sum(self, *how: Any, **options: Any) -> Global | Any:
        """In double precision, or 64 bits of integers: MeshError where they may be too few; in a program they wrap."""
        return self._reduced("sum", how, options)

    def min(self, *how: Any, **options: Any) -> Global | Any:
        """The lowest value; NaN where one is."""
        return self._reduced("min", how, options)

    def max(self, *how: Any, **options: Any) -> Global | Any:
        """The highest value; NaN where one is."""
        return self._reduced("max", how, options)

    def mean(self, *how: Any, **options: Any) -> Global | Any:
        """The sum by the number of values, in double precision."""
        return self._reduced("mean", how, options)

    def norm(self) -> Global:
        """The root of the sum of squares, in double precision."""
        return reducer[0]("norm", self, None)

    def dot(self, other: Self) -> Global:
        """The sum of products with another field of the same set and components; as ``sum`` of these."""
        return reducer[0]("dot", self, other)

    def _reduced(self, what: str, how: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if how or options:
            return getattr(np.asarray(self), what)(*how, **options)
        return reducer[0](what, self, None)
