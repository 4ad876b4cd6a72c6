"""Figures of matplotlib without a window: made, saved in one step, and labelled with names as they are written; values
that are far from one are drawn in units that its label names."""

from __future__ import annotations

import io
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import UserError, install, one_line
from meshloom.io.files import write_atomically

DOTS_PER_INCH = 130
_LONGEST_NAME = 40  # letters of a name: more would leave no room to draw
_FAR = 100.0  # decades from one: squares and differences of what is nearer are numbers, too
_LEAST = -300.0  # decades: the unit is a number by which the least ones can be divided


def new_figure(size: tuple[float, float], dots: int = DOTS_PER_INCH) -> Any:
    """An empty figure of so many inches; UserError where matplotlib is missing."""
    try:
        _import_matplotlib()
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(f"matplotlib is not installed; {install('plot')}") from None
    figure = Figure(figsize=size, dpi=dots, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _import_matplotlib() -> None:
    """Also where MPLBACKEND is one that is not installed here, as in a process that a notebook has started."""
    try:
        import matplotlib
    except ValueError:
        wanted = os.environ.pop("MPLBACKEND", None)
        try:
            import matplotlib  # noqa: F401
        finally:
            if wanted is not None:
                os.environ["MPLBACKEND"] = wanted


def encoded(figure: Any, ending: str = "png", **options: Any) -> bytes:
    """A figure as the bytes of a file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters that the font lacks become boxes
        figure.savefig(buffer, format=ending, **options)
    return buffer.getvalue()


def save_figure(figure: Any, path: Path, ending: str = "png") -> None:
    """A file that is there as a whole or not at all."""
    write_atomically(path, encoded(figure, ending))


def plain(label: str) -> str:
    """A label that is shown as it is written, in one line and not too long."""
    return unread(short(label))


def unread(text: str) -> str:
    """A text that matplotlib takes for no mathematics."""
    return text.replace("$", r"\$")


def short(name: str) -> str:
    """A name in one line and not too long."""
    name = one_line(name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def unit_of(*several: Any) -> float:
    """A power of ten near the greatest size of finite values, where that is far from one; else one."""
    sizes = [np.abs(np.asarray(one, np.float64)) for one in several]
    greatest = max((float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes), default=0.0)
    decades = math.log10(greatest) if greatest > 0.0 else 0.0
    return 1.0 if abs(decades) < _FAR else float(10.0 ** math.floor(max(decades, _LEAST)))


def in_units(label: str, unit: float) -> str:
    """``pressure / 1e+308`` of values that are drawn in such units."""
    return label if unit == 1.0 else f"{label} / {unit:g}"
