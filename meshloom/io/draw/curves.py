"""Curves over one axis, no two of which look the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from meshloom.io.draw.canvas import in_units, short, unit_of

_MOST_NAMES = 40  # in a legend: more would leave no room to draw
_COLOURS, _DASHES = 10, ("-", "--", ":", "-.")  # of matplotlib: after ten curves the colours come again


def draw_curves(axes: Any, x: np.ndarray, curves: Mapping[str, np.ndarray], dots: Collection[str] = ()) -> None:
    """Each of ``curves`` (n,) over ``x`` (n,), with a legend of the first ones, which names their unit."""
    unit = unit_of(*curves.values())
    axes.grid(True, which="major", alpha=0.4)
    styles = ["o" if name in dots else _DASHES[number // _COLOURS % len(_DASHES)] for number, name in enumerate(curves)]
    drawn = zip((np.asarray(series) / unit for series in curves.values()), styles, strict=True)
    plotted = [axes.plot(x, series, style, linewidth=1.4)[0] for series, style in drawn][:_MOST_NAMES]
    if plotted:
        # matplotlib leaves names out that begin with "_" and reads "$" as mathematics: they are put in afterwards.
        size = "medium" if len(plotted) <= _COLOURS else "x-small"
        legend = axes.legend(plotted, ["x"] * len(plotted), fontsize=size)
        for text, name in zip(legend.get_texts(), curves, strict=False):
            text.set_parse_math(False)
            text.set_text(in_units(short(name), unit))
