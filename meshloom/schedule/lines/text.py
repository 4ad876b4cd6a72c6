"""Pieces of text that all line loops share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from meshloom.kernel.emit import literal
from meshloom.schedule.lines.operator import Stencil
from meshloom.schedule.nest.nodes import Body, Expr, Number, Raw
from meshloom.schedule.nest.walk import substituted


def raw(lines: Iterable[str]) -> Body:
    """Lines of text as the body of a phase."""
    return tuple(map(Raw, lines))


def first_of(places: Iterable[Expr]) -> list[Expr]:
    """The places at element 0 instead of ``e``."""
    return [substituted(one, {"e": Number(0)}) for one in places]


#: Number of a line's first point: ``o`` counts lines that are not side by side.
LINE_START = "offset + (o / inner) * outer_step + (o % inner) * inner_step"


def stencil_expression(stencil: Stencil, at: Callable[[int], str], dtype: np.dtype) -> str:
    """The right-hand side of an inner row; ``at(offset)``: the operand there. Mirrored coefficients share a product."""
    terms = []
    for o, c in stencil.inner.items():
        mirrored = stencil.inner.get(-o)
        if o == 0:
            terms.append(at(0) if c == 1.0 else f"{literal(c, dtype)} * {at(0)}")
        elif mirrored is not None and abs(mirrored) == abs(c):
            if o > 0:
                terms.append(f"{literal(c, dtype)} * ({at(o)} {'+' if mirrored == c else '-'} {at(-o)})")
        else:
            terms.append(f"{literal(c, dtype)} * {at(o)}")
    return " + ".join(terms)


def closure_tables(stencil: Stencil, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (rows, width), padded with zeros, and first offsets (rows,) of the rows at the ends."""
    rows = stencil.closures
    if not rows:
        return np.zeros((1, 1), dtype), np.zeros(1, np.int32)
    width = max(max(r) - min(r) + 1 for r in rows)
    table = np.zeros((len(rows), width), dtype)
    starts = np.zeros(len(rows), np.int32)
    for k, row in enumerate(rows):
        # the window must stay inside the line: rows at the low end start where they do, at the high end they end there
        starts[k] = min(row) if k < len(stencil.low) else max(row) - width + 1
        for o, c in row.items():
            table[k, o - starts[k]] = c
    return table, starts
