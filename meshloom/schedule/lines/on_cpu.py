"""Line loops on a CPU: a thread takes some lines side by side and goes along them, forwards and backwards.

Operands and results of the lines lie in buffers of the thread, point by point and the lines beside each other, so that
every sweep is a loop over vectors. Fields are read once and written once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshloom.schedule.code import Pass, Phase, Scratch
from meshloom.schedule.declare import ANY, REALS, Array, Listed, Number, Numbers, Part, Reals, holds, maybe
from meshloom.schedule.lines.base import LinePlaces, LinePlan
from meshloom.schedule.lines.decay import decay_points, turn
from meshloom.schedule.lines.operator import LineOperator
from meshloom.schedule.lines.spec import Geometry, LineForm, LinePointCode, LineSpec
from meshloom.schedule.lines.text import LINE_START, closure_tables, raw, stencil_expression
from meshloom.schedule.nest.nodes import Name
from meshloom.schedule.plan import Plan

BUFFER = 1 << 18  # bytes that a buffer of a thread may have before fewer lines go side by side


def form(spec: LineSpec, lines: Geometry) -> LineForm:
    """Lines that go side by side: as many as keep the buffers in the cache."""
    row = lines.length * spec.dtype.itemsize
    fitting = [
        t
        for t in (8, 16, 32, 64)
        if t * row <= BUFFER and t < 2 * lines.lanes * (lines.outer if lines.contiguous else 1)
    ]
    most = 16 if lines.contiguous else 64
    return LineForm("contiguous" if lines.contiguous else "strided", 1, 0, min(max(fitting, default=8), most))


@dataclass(frozen=True, eq=False)
class SweepTables:
    """Of one operator, for lines of some length: (length,) factors, the scale in the pivots, and rows at the ends."""

    lower: Reals = holds(Array(REALS, ANY), "factors of the sweep forwards")
    inverse: Reals = holds(Array(REALS, ANY), "inverse pivots, scaled")
    upper: Reals = holds(Array(REALS, ANY), "factors of the sweep backwards")
    closure: Reals = holds(Array(REALS, ANY, ANY), "coefficients of the rows at the ends, padded with zeros")
    closure_at: Numbers = holds(Array(("int32",), ANY), "their first offsets")
    warm: int | None = holds(Number(), "of periodic lines the points after which what came before is forgotten", maybe)
    turn: Reals | None = holds(Array(REALS, 2), "what a carry is multiplied by for further turns round the line", maybe)


@dataclass(frozen=True, eq=False)
class SweepPlan(LinePlan):
    """Tiles of lines side by side, each by one thread."""

    operators: tuple[SweepTables, ...] = holds(Listed(Part(SweepTables)), "of each distinct operator")
    rows: int = holds(Number(), "rows of a thread's buffers")
    tiles: int = holds(Number(), "tiles of lines")
    across: int = holds(Number(), "tiles beside each other")


def plan(name: str, places: LinePlaces, spec: LineSpec, lines: Geometry) -> SweepPlan:
    """Tables of the factors, and how many tiles there are."""
    tile = spec.form.tile
    across = -(-lines.lanes // tile)
    tiles = -(-lines.lines // tile) if lines.contiguous else across * lines.outer
    rows, found = lines.length + 2 * spec.reach + 2, tuple(_tables(spec, one, lines.length) for one in spec.distinct)
    return SweepPlan(name, 1, places, found, rows, tiles, across)


def _tables(spec: LineSpec, operator: LineOperator, length: int) -> SweepTables:
    lower, inverse, upper = operator.matrix.factors(length).T
    warm, turned = None, None
    if spec.periodic:
        constants = operator.matrix.constants[0], operator.matrix.constants[2]
        warm = min(length, max(decay_points(abs(c), spec.dtype) for c in constants))
        turned = np.array([turn(-c, length) if warm == length else 1.0 for c in constants], spec.dtype)
    first, second, third = (np.ascontiguousarray(t, spec.dtype) for t in (lower, inverse * operator.scale, upper))
    return SweepTables(first, second, third, *closure_tables(operator.stencil, spec.dtype), warm, turned)


def passes(spec: LineSpec, plan: Plan) -> list[Pass]:
    """One pass over tiles of lines."""
    return [_Text(spec, plan).made()]


@dataclass
class _Text:
    spec: LineSpec
    plan: Plan

    def __post_init__(self) -> None:
        self.w, self.t, self.code = self.spec.form.tile, self.spec.ctype, LinePointCode(self.spec, self.plan)
        self.first = self.spec.reach + 1  # rows of a buffer before that of the first point

    def made(self) -> Pass:
        body = [*self._where(), *self._load()]
        for v in range(len(self.spec.operands)):
            body += self._sweeps(v, self.spec.number(v))
        body += self._store()
        names = [f"s{v}" for v in range(len(self.spec.operands))] + ["work"]
        scratch = tuple(Scratch(self.t, name, Name("rows") * self.w) for name in names)
        phase = Phase(raw(body), whole=True)
        return Pass("lines", Name("tiles"), (phase,), blocked=True, scratch=scratch)

    def _where(self) -> list[str]:
        if self.spec.form.kind == "contiguous":
            return [
                f"const ml_index begin = b * {self.w};",
                f"const ml_index here = ml_min<ml_index>({self.w}, outer - begin);",
            ]
        return [
            f"const ml_index o = b / across, begin = (b % across) * {self.w};",
            f"const ml_index here = ml_min<ml_index>({self.w}, lanes - begin);",
            f"const ml_index start = {LINE_START} + begin;",
        ]

    def _points(self, inside: list[str]) -> list[str]:
        """For all points of the lines: ``j`` along the line, ``l`` the line; the loop over neighbours is inside."""
        if self.spec.form.kind == "contiguous":
            return ["for (ml_index l = 0; l < here; ++l) {", "const ml_index o = begin + l;",
                    f"const ml_index start = {LINE_START};", "#pragma omp simd",
                    "for (ml_index j = 0; j < length; ++j) {", *inside, "}", "}"]  # fmt: skip
        return ["for (ml_index j = 0; j < length; ++j) {", "const ml_index row = start + j * step;", "#pragma omp simd",
                "for (ml_index l = 0; l < here; ++l) {", *inside, "}", "}"]  # fmt: skip

    @property
    def _element(self) -> str:
        return "start + j" if self.spec.form.kind == "contiguous" else "row + l"

    def _at(self, buffer: str, row: str) -> str:
        return f"{buffer}[({row} + {self.first}) * {self.w} + l]"

    def _load(self) -> list[str]:
        lines, names = self.code.operands(self._element)
        return self._points([*lines, *(f"{self._at(f's{v}', 'j')} = {name};" for v, name in enumerate(names))])

    def _store(self) -> list[str]:
        return self._points(
            self.code.after(self._element, [self._at(f"s{v}", "j") for v in range(len(self.spec.operands))])
        )

    def _lanes(self, *inside: str) -> list[str]:
        return ["#pragma omp simd", f"for (ml_index l = 0; l < {self.w}; ++l) {{", *inside, "}"]

    def _sweeps(self, v: int, k: int) -> list[str]:
        """Right-hand side, forwards and backwards for one operand; the results take the place of the operands."""
        stencil = self.spec.operators[v].stencil

        def right(row: str) -> str:
            return stencil_expression(
                stencil, lambda o: self._at(f"s{v}", f"{row} + {o}" if o else row), self.spec.dtype
            )

        lines = ["{", *(self._wrap(v) if self.spec.periodic else [])]
        lines += self._carry_in(k, right("j"))
        low, high = len(stencil.low), len(stencil.high)
        lines += self._closures(v, k, low, high)
        behind = f"{self._at('work', 'j - 1')}"
        factor = f"const {self.t} factor = {self.code.table(k, 'lower')}[j];"
        lines += [f"for (ml_index j = {low}; j < length - {high}; ++j) {{", factor]
        lines += self._lanes(f"{self._at('work', 'j')} = {right('j')} - factor * {behind};")
        lines.append("}")
        if high:
            here = self._at("work", "j")
            lines += [f"for (ml_index j = length - {high}; j < length; ++j) {{",
                      factor, *self._lanes(f"{here} = {here} - factor * {behind};"), "}"]  # fmt: skip
        lines += self._backward(v, k)
        return [*lines, "}"]

    def _wrap(self, v: int) -> list[str]:
        """Copies of the operands beyond both ends of a periodic line."""
        reach = self.spec.operators[v].stencil.reach
        if not reach:
            return []
        buffer = f"s{v}"
        return [f"for (ml_index j = 0; j < {reach}; ++j) {{",
                *self._lanes(f"{self._at(buffer, 'length + j')} = {self._at(buffer, 'j')};",
                             f"{self._at(buffer, '-1 - j')} = {self._at(buffer, 'length - 1 - j')};"), "}"]  # fmt: skip

    def _carry_in(self, k: int, right: str) -> list[str]:
        """What comes before the first point: nothing, or on a periodic line what the points before it leave."""
        before = self._at("work", "-1")
        lines = self._lanes(f"{before} = 0;")
        if not self.spec.periodic:
            return lines
        return [*lines, f"for (ml_index j = length - {self.code.table(k, 'warm')}; j < length; ++j) {{",
                f"const {self.t} factor = {self.code.table(k, 'lower')}[j];",
                *self._lanes(f"{before} = {right} - factor * {before};"), "}",
                *self._lanes(f"{before} *= {self.code.table(k, 'turn')}[0];")]  # fmt: skip

    def _closures(self, v: int, k: int, low: int, high: int) -> list[str]:
        """Right-hand sides of the rows at the ends; those at the low end go on at once."""
        if not low + high:
            return []
        width = closure_tables(self.spec.operators[v].stencil, self.spec.dtype)[0].shape[1]
        closure, closure_at, lower = (self.code.table(k, word) for word in ("closure", "closure_at", "lower"))
        sum_ = [f"{self.t} sum = 0;", f"for (ml_index q = 0; q < {width}; ++q) sum += {closure}[row * {width} + q] *"
                f" {self._at(f's{v}', 'j + at + q')};"]  # fmt: skip
        forward = f"{self._at('work', 'j')} = row < {low} ? sum - {lower}[j] * {self._at('work', 'j - 1')} : sum;"
        return [f"for (ml_index row = 0; row < {low + high}; ++row) {{",
                f"const ml_index j = row < {low} ? row : length - 1 - (row - {low}), at = {closure_at}[row];",
                f"for (ml_index l = 0; l < {self.w}; ++l) {{", *sum_, forward, "}", "}"]  # fmt: skip

    def _backward(self, v: int, k: int) -> list[str]:
        buffer, ahead = f"s{v}", self._at(f"s{v}", "length")
        lines = self._lanes(f"{ahead} = 0;")
        step = f"{self._at('work', 'j')} * inverse - factor *"
        upper, inverse = self.code.table(k, "upper"), self.code.table(k, "inverse")
        head = f"const {self.t} factor = {upper}[j], inverse = {inverse}[j];"
        if self.spec.periodic:
            lines += [f"for (ml_index j = {self.code.table(k, 'warm')} - 1; j >= 0; --j) {{", head,
                      *self._lanes(f"{ahead} = {step} {ahead};"), "}",
                      *self._lanes(f"{ahead} *= {self.code.table(k, 'turn')}[1];")]  # fmt: skip
        return [*lines, "for (ml_index j = length - 1; j >= 0; --j) {", head,
                *self._lanes(f"{self._at(buffer, 'j')} = {step} {self._at(buffer, 'j + 1')};"), "}"]  # fmt: skip
