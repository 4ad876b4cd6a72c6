"""Memory layouts: how the (n, dim) values of a field lie in one flat buffer.

``aos``       element by element:    value(e, c) at  e*dim + c
``soa``       component by component: value(e, c) at  c*stride + e
``aosoa<w>``  groups of w elements:   value(e, c) at  (e//w)*dim*w + c*w + e%w

The buffer is padded so that every group is whole; ``stride`` is the padded number of elements.
"""

from __future__ import annotations

import re

import numpy as np

from meshloom.errors import ScheduleError, shown, whole_number
from meshloom.records import dataclass

MOST_WIDTH = 1024  # elements of a group
_ALLOWED = f"allowed: aos, soa, aosoa<width> such as aosoa8, width from 1 to {MOST_WIDTH}"
_PAD = 8  # SoA columns start on multiples of 8 values: whole cache lines in double


@dataclass(frozen=True)
class Layout:
    """One layout. ``width`` is the group size of AoSoA, 0 for the other two."""

    kind: str  # "aos" | "soa" | "aosoa"
    width: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("aos", "soa", "aosoa"):
            raise ScheduleError(f"unknown layout {shown(self.kind)}; {_ALLOWED}")
        if self.kind == "aosoa":
            whole_number("layout aosoa: width", self.width, 1, MOST_WIDTH, error=ScheduleError)

    def __str__(self) -> str:
        return f"{self.kind}{self.width or ''}"

    def stride(self, n: int) -> int:
        """Number of elements after padding."""
        unit = {"aos": 1, "soa": _PAD, "aosoa": self.width}[self.kind]
        return -(-n // unit) * unit if n else unit

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Flat buffer (stride*dim,) holding ``values`` (n, dim)."""
        n, dim = values.shape
        padded = np.zeros((self.stride(n), dim), values.dtype)
        padded[:n] = values
        if self.kind == "soa":
            padded = padded.T
        elif self.kind == "aosoa":
            padded = padded.reshape(-1, self.width, dim).transpose(0, 2, 1)
        return np.ascontiguousarray(padded).reshape(-1)

    def unpack(self, buffer: np.ndarray, n: int, dim: int) -> np.ndarray:
        """The values (n, dim) held in a flat buffer; a fresh array."""
        if self.kind == "aos":
            values = buffer.reshape(-1, dim)
        elif self.kind == "soa":
            values = buffer.reshape(dim, -1).T
        else:
            values = buffer.reshape(-1, dim, self.width).transpose(0, 2, 1).reshape(-1, dim)
        return np.array(values[:n], order="C")


def parse_layout(text: str | Layout) -> Layout:
    """``"aos"``, ``"soa"`` or ``"aosoa8"`` (a width from 1 to ``MOST_WIDTH``) as a Layout."""
    if isinstance(text, Layout):
        return text
    if isinstance(text, str) and text in ("aos", "soa"):
        return Layout(text)
    match = re.fullmatch(r"aosoa([1-9][0-9]{0,8})", text) if isinstance(text, str) else None
    if match:
        return Layout("aosoa", int(match[1]))
    raise ScheduleError(f"unknown layout {shown(text)}; {_ALLOWED}")
