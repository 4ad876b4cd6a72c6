"""Access modes: the annotations of a kernel's parameters, each with its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    _Array = np.ndarray  # so that kernels type-check as the NumPy functions they are
else:
    _Array = object


class Mode(_Array):
    """Base of the access modes. They are markers: never instantiated."""

    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = True
    combine: ClassVar[str] = ""  # IR operation that merges offers from several elements
    binned: ClassVar[bool] = False  # added up in bins at fixed places, so that the order does not matter
    open: ClassVar[bool] = False  # of which the bins are kept, not what they are rounded to
    fields: ClassVar[bool] = True
    globals: ClassVar[bool] = False
    control: ClassVar[bool] = False  # a Global may have it in a loop over one element, where nobody can meet
    shown: ClassVar[str] = ""  # as a script writes it

    def __init_subclass__(cls) -> None:
        cls.shown = vars(cls).get("shown", cls.__name__)


class Read(Mode):
    """Values are only read; there are no conflicts to handle."""

    reads, writes, globals = True, False, True


class Write(Mode):
    """Every component is set, never read; through a map each target may be hit by one element only (checked)."""

    control = True


class ReadWrite(Mode):
    """Read and set; through a map each target may be hit by one element only (checked)."""

    reads, control = True, True


class Inc(Mode):
    """Increments (``+=``, ``-=``) are added to what is there; the schedule handles conflicting updates."""

    combine = "add"


class Sum(Inc):
    """Increments of a Global; added up in a fixed order, so the same run gives the same bits."""

    fields, globals = False, True


class ReproducibleSum(Sum):
    """``Sum`` to a floating-point Global under ``ml.use(..., reproducible=True)``: the same bits in any order."""

    binned, shown = True, "Sum"


class OpenSum(ReproducibleSum):
    """The same of a part of the summands: bins are left, which whoever has all parts rounds (``dist/sums.py``)."""

    open, shown = True, "Sum"


class Min(Mode):
    """The smallest value offered (``p[0] = value``) survives; the schedule handles conflicting updates."""

    combine, globals = "minimum", True


class Max(Mode):
    """The largest value offered (``p[0] = value``) survives; the schedule handles conflicting updates."""

    combine, globals = "maximum", True


class RandomNumbers(Mode):
    """A source of random numbers (``r: ml.Random``); every element draws its own, so there are no conflicts."""

    reads, writes, fields, globals = True, False, False, True


MODES: dict[str, type[Mode]] = {m.__name__: m for m in (Read, Write, ReadWrite, Inc, Min, Max, Sum)}


def reproducible(mode: type[Mode], dtype: np.dtype) -> type[Mode]:
    """The mode of a Global where sums must not depend on the order; integers wrap round, so theirs never do."""
    return ReproducibleSum if mode is Sum and dtype.kind == "f" else mode


def identity(combine: str, dtype: np.dtype) -> float | int:
    """The value that changes nothing when combined: zero, of floating-point numbers the negative one, because 0.0 would
    turn -0.0 around; or the largest or smallest of the type."""
    if combine == "add":
        return -0.0 if dtype.kind == "f" else 0
    sign = 1 if combine == "minimum" else -1
    if dtype.kind == "f":
        return sign * np.inf
    return int(np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min)
