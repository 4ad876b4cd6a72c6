"""thomas: LU factored once, a thread goes along a line, there and back; as it lies or through a transposed copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.schedule.code import Pass, Phase, Scratch
from meshloom.schedule.declare import Number, holds
from meshloom.schedule.lines.classic import START_OF_LINE, Classic, ClassicPlan, FactorTables, factor_tables, operand
from meshloom.schedule.lines.operator import LineOperator
from meshloom.schedule.lines.spec import Geometry, LineForm, LinePointCode, LineSpec
from meshloom.schedule.lines.text import raw
from meshloom.schedule.nest.nodes import Name, value
from meshloom.schedule.spec import LoopSpec
from meshloom.target import Target

EDGE = 32  # of the squares that are transposed


@dataclass(frozen=True, eq=False)
class SquaresPlan(ClassicPlan):
    """Lines, and the squares of points in which they are transposed."""

    squares: int = holds(Number(), "in all")
    along: int = holds(Number(), "along a line")


class Thomas(Classic):
    """Every line by one thread. Contiguous lines, whose points neighbouring threads would read far apart, are
    transposed before and after; ``tuning={"transposed": 0}`` reads them as they lie."""

    plans = SquaresPlan
    name = "thomas"
    summary = "LU factors, one thread goes along a line"

    def form(self, spec: LineSpec, lines: Geometry, wish: Mapping[str, int], *, target: Target) -> LineForm:
        transposed = wish.get("transposed", int(lines.contiguous))
        return LineForm("transposed" if transposed else "strided", 1, 0, 1)

    def tables(self, operator: LineOperator, n: int) -> FactorTables:
        return factor_tables(operator, n)

    def counts(self, lines: Geometry) -> dict[str, Any]:
        along, beside = -(-lines.length // EDGE), -(-lines.lines // EDGE)
        return {"squares": along * beside, "along": along}

    def temporaries(self, spec: LoopSpec) -> list[tuple[str, np.dtype, int]]:
        assert isinstance(spec, LineSpec)
        return [("work", spec.dtype, 1)]

    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        if spec.form.kind == "strided":
            start = [f"const ml_index start = {START_OF_LINE};"]
            load, name = operand(code, v, "start + j * step")
            store = code.after("start + j * step", ["x"], (v,))
            return [_sweeps(spec, code, v, [*start], load, name, store)]
        place = "work[j * lines + i]"
        there, name = operand(code, v, "start + j * step")
        return [
            _transpose(spec, [*there, f"square[p * {EDGE + 1} + q] = {name};"], load=True),
            _sweeps(spec, code, v, [], [], place, [f"{place} = x;"]),
            _transpose(spec, code.after("start + j * step", [f"square[p * {EDGE + 1} + q]"], (v,)), load=False),
        ]


def _sweeps(
    spec: LineSpec, code: LinePointCode, v: int, start: list[str], load: list[str], name: str, store: list[str]
) -> Pass:
    """Forwards into ``work``, which has the lines side by side, and backwards."""
    k, t, place = spec.number(v), spec.ctype, "work[j * lines + i]"
    back = f"x = {place} * {code.table(k, 'inverse')}[j] - {code.table(k, 'upper')}[j] * x;"
    body = [*start, f"{t} g = 0;", "for (ml_index j = 0; j < length; ++j) {", *load,
            f"g = {name} - {code.table(k, 'lower')}[j] * g;", f"{place} = g;", "}", f"{t} x = 0;"]  # fmt: skip
    if spec.periodic:
        body += [f"{t} high = 0;", "for (ml_index j = length - 1; j >= 0; --j) {",
                 back, f"{place} = x;",
                 "high = j == length - 1 ? x : high;", "}", f"const {t} mixed = x + {code.table(k, 'mix')}[0] * high;",
                 "for (ml_index j = 0; j < length; ++j) {",
                 f"const {t} x = {place} - {code.table(k, 'corner')}[j] * mixed;", *store, "}"]  # fmt: skip
    else:
        body += ["for (ml_index j = length - 1; j >= 0; --j) {", back,
                 *store, "}"]  # fmt: skip
    return Pass("sweeps", Name("lines"), (Phase(raw(body)),))


def _transpose(spec: LineSpec, inside: list[str], *, load: bool) -> Pass:
    """Squares of points between the fields, along the lines, and ``work``, across them."""
    corner = f"const ml_index across = (b / along) * {EDGE}, down = (b % along) * {EDGE};"
    at_field = (f"const ml_index p = s / {EDGE}, q = s % {EDGE}, i = across + p, j = down + q;",
                "if (i < lines && j < length) {", f"const ml_index start = {START_OF_LINE};", *inside, "}")  # fmt: skip
    work = (
        f"work[j * lines + i] = square[p * {EDGE + 1} + q];"
        if load
        else f"square[p * {EDGE + 1} + q] = work[j * lines + i];"
    )
    at_work = (f"const ml_index q = s / {EDGE}, p = s % {EDGE}, i = across + p, j = down + q;",
               "if (i < lines && j < length) {", work, "}")  # fmt: skip
    order = (at_field, at_work) if load else (at_work, at_field)
    each = (raw((corner, "const ml_index s = i;", "{", *body, "}")) for body in order)
    phases = tuple(Phase(body, value(0), value(EDGE * EDGE)) for body in each)
    scratch = (Scratch(spec.ctype, "square", value(EDGE * (EDGE + 1))),)
    return Pass("transposed", Name("squares"), phases, blocked=True, scratch=scratch)
