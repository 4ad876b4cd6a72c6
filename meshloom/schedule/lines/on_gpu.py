"""Line loops on a GPU: a thread owns some consecutive points of a line, in registers.

It evaluates their right-hand sides, sweeps forwards with nothing coming in, hands what goes out to its neighbours
through shared memory, adds what really comes in, and does the same backwards. Lines that are not contiguous are taken
in tiles of contiguous points, so that loads are coalesced; contiguous lines go through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from meshloom.kernel.emit import literal
from meshloom.schedule.code import Pass, Phase, Scratch
from meshloom.schedule.lines.segments import Cut, carries_needed, joints, separate_tables, tables, turns
from meshloom.schedule.lines.spec import Geometry, LineForm, LineSpec, PointCode
from meshloom.schedule.lines.text import LINE_START, closure_tables, stencil_expression

MOST_THREADS = 1024
LINE_THREADS = 128  # of a block that takes whole contiguous lines
SHARED_BYTES = 48 * 1024  # of it, so that some blocks run at a time
CHUNK_THREADS = 256  # of one that takes a part of a long contiguous line


def form(spec: LineSpec, lines: Geometry, wish: Mapping[str, int]) -> LineForm:
    """How lines are cut up."""
    apart = spec.separable and bool(wish.get("apart", 1))
    spec = replace(spec, form=replace(spec.form, per_variable=apart))
    together = 1 if lines.contiguous else _together(spec)
    usual = 16 if together <= 5 else 8 if together <= 10 else 4
    points = wish.get("points", max(4, min(usual, 1 << (lines.length - 1).bit_length())))
    kind = "contiguous" if lines.contiguous else "strided"
    segments = -(-lines.length // points)
    bytes_per_line = (segments + 2) * (points + 1) * (1 if apart else len(spec.operands)) * spec.dtype.itemsize
    made = LineForm(kind, points, 0, wish.get("tile", _tile(lines, segments, bytes_per_line, _most_threads(spec))), apart)
    made = replace(made, ahead=wish.get("ahead", 0) if kind == "strided" else 0)
    made = replace(made, carries=wish.get("carries", _carries(replace(spec, form=made), lines)))
    if _fits(replace(spec, form=made), lines):
        return made
    return replace(made, levels=2, carries=_most_segments(replace(spec, form=made), lines))


def registers(spec: LineSpec) -> int | None:
    """Registers of a thread that leave room for enough others, where it loads and stores one operand as it is."""
    if not spec.plain or _together(spec) > 1 or spec.form.points > 16:
        return None
    return (80 if spec.periodic else 96) if spec.form.kind == "contiguous" else 64


def _together(spec: LineSpec) -> int:
    """Operands that a thread holds in its registers at a time."""
    return 1 if spec.form.per_variable else len(spec.operands)


def _most_threads(spec: LineSpec) -> int:
    """Threads of a block of lines that are not contiguous: kernels and many operands together want more registers."""
    if _together(spec) == 1:
        return MOST_THREADS if spec.plain else MOST_THREADS // 2
    return MOST_THREADS // 2 if _together(spec) == 2 else MOST_THREADS // 4


def _tile(lines: Geometry, segments: int, bytes_per_line: int, most: int) -> int:
    """Lines of a block: contiguous ones to fill it, others as many as make loads wide and still fit."""
    if lines.contiguous:
        return max(1, min(LINE_THREADS // segments, lines.outer, SHARED_BYTES // bytes_per_line))
    wide = 32 if lines.lanes * 8 > 1 << 20 else 16  # lines whose points lie far apart want wider tiles
    while wide * segments > most and wide > 8:
        wide //= 2
    while wide * segments < LINE_THREADS and wide < min(128, lines.lanes):
        wide *= 2
    return wide


def _most_segments(spec: LineSpec, lines: Geometry) -> int:
    return CHUNK_THREADS if lines.contiguous else max(1, _most_threads(spec) // spec.form.tile)


def cut_of(spec: LineSpec, lines: Geometry, carries: int) -> Cut:
    """How a line is cut: whole while it fits a block, else in windows that overlap by the carries (on two levels: that
    do not)."""
    form, segments, most = spec.form, -(-lines.length // spec.form.points), _most_segments(spec, lines)
    if segments <= most or not carries:
        return Cut(lines.length, form.points, segments)
    return Cut(lines.length, form.points, most, 0 if form.levels == 2 else carries)


def _carries(spec: LineSpec, lines: Geometry) -> int:
    whole = cut_of(spec, lines, 0)
    return max(carries_needed(tables(one, whole, spec.dtype), whole, spec.dtype) for one in spec.distinct)


def _fits(spec: LineSpec, lines: Geometry) -> bool:
    """Is a line whole in a block, or are the overlaps of its parts small enough to be read again?"""
    cut = cut_of(spec, lines, spec.form.carries)
    return cut.chunks == 1 or 3 * cut.overlap <= cut.window


def in_parts(spec: LineSpec, lines: Geometry) -> bool:
    """Does a line go to several blocks?"""
    return cut_of(spec, lines, spec.form.carries).chunks > 1


def arrays(spec: LineSpec, lines: Geometry) -> tuple[dict[str, np.ndarray], dict[str, int], int]:
    """Tables, sizes and the threads of a block."""
    form, cut = spec.form, cut_of(spec, lines, spec.form.carries)
    found: dict[str, np.ndarray] = {}
    first, last = [], []
    for k, one in enumerate(spec.distinct):
        made = (separate_tables if form.levels == 2 else tables)(one, cut, spec.dtype)
        if form.levels == 2:
            found[f"joined{k}"], found[f"joints{k}"] = joints(one, cut, spec.dtype)
        found |= {f"lower{k}": made.lower, f"inverse{k}": made.inverse, f"upper{k}": made.upper}
        found |= {f"forward{k}": made.forward.astype(spec.dtype), f"backward{k}": made.backward.astype(spec.dtype)}
        found[f"turn{k}"] = np.array(turns(made, cut, form.carries), spec.dtype)
        found[f"steady{k}"] = np.array([one.matrix.constants[1] * one.scale], spec.dtype)
        found[f"closure{k}"], found[f"closure_at{k}"] = closure_tables(one.stencil, spec.dtype)
        first.append(made.first)
        last.append(made.last)
    across = -(-lines.outer // form.tile) if lines.contiguous else -(-lines.lanes // form.tile)
    sizes = {"window": cut.window, "overlap": cut.overlap, "core": cut.core, "chunks": cut.chunks, "across": across,
             "steady_low": max(first), "steady_high": min(last), "cells": cut.window * form.tile,
             "padded": _padded(cut, form, spec.dtype)}  # fmt: skip
    per_variable = across * cut.chunks * (1 if lines.contiguous else lines.outer)
    sizes["per_variable"] = per_variable
    sizes["tiles"] = per_variable * (len(spec.operands) if form.per_variable else 1)
    return found, sizes, cut.window * form.tile


def _padded(cut: Cut, form: LineForm, dtype: np.dtype) -> int:
    """Entries of a line in shared memory: segments of several lines, side by side, must lie in different banks."""
    banks = 128 // dtype.itemsize
    wanted, least = max(1, banks // form.tile), (cut.window + 2) * (form.points + 1)
    return least + (wanted - least) % banks


def passes(spec: LineSpec) -> list[Pass]:
    """One pass over tiles of lines; on two levels, one for the ends of parts and one with the ends known."""
    kind = _Contiguous if spec.form.kind == "contiguous" else _Strided
    return [kind(spec, level).made() for level in ((1, 2) if spec.form.levels == 2 else (0,))]


@dataclass
class _Text:
    """What both forms share: the solve in registers and the exchange of carries."""

    spec: LineSpec
    level: int = 0  # 1: leave the ends of a part in ``ends``; 2: take those of the neighbours from there

    def __post_init__(self) -> None:
        form = self.spec.form
        self.m, self.k, self.tile, self.t = form.points, form.carries, form.tile, self.spec.ctype
        self.reach = self.spec.reach
        self.count = 1 if form.per_variable else len(self.spec.operands)
        self.code = PointCode(self.spec)

    def number(self, value: float) -> str:
        return literal(self.spec.dtype.type(value).item(), self.spec.dtype)

    def unrolled(self, *inside: str, start: int = 0, end: int | None = None) -> list[str]:
        last = self.m if end is None else end
        return ["#pragma unroll", f"for (int i = {start}; i < {last}; ++i) {{", *inside, "}"]

    def wrapped(self, j: str) -> str:
        """Row j, which may lie a little outside the line, as a row of it."""
        if not self.spec.periodic:
            return f"ml_max<ml_index>(0, ml_min<ml_index>({j}, length - 1))"
        return f"ml_min<ml_index>(({j}) < 0 ? ({j}) + length : ({j}) >= length ? ({j}) - length : ({j}), length - 1)"

    def block_place(self) -> list[str]:
        """Which variable, tile and window a block has. Blocks that read the same points follow each other."""
        lines, count = ["const ml_index place = b;"], len(self.spec.operands)
        if self.spec.form.per_variable and not self._simple:
            lines = [f"const ml_index place = b / {count}, variable = b - place * {count};"]
        elif self.spec.form.per_variable:
            lines = ["const ml_index variable = b / per_variable, place = b - variable * per_variable;",
                     *self._pointers()]  # fmt: skip
        return [*lines, "const ml_index tile = place % across, chunk = (place / across) % chunks;"]

    @property
    def _simple(self) -> bool:
        """Do the places of all operands and results follow from one pointer each?"""
        return self.spec.plain and all(p.dim == 1 or p.layout.kind == "soa" for p in self.spec.params)

    def each(self, text: Callable[[int | None], list[str]]) -> list[str]:
        """Text that depends on the block's operand, where blocks have one each and it is not just a pointer."""
        if not self.spec.form.per_variable or self._simple:
            return text(None)
        lines = ["switch (variable) {"]
        for v in range(len(self.spec.operands)):
            lines += [f"case {v}: {{" if v else "default: {", *text(v), "break;", "}"]
        return [*lines, "}"]

    def _pointers(self) -> list[str]:
        """Where the operand and the result of the block's variable begin."""
        loads = [self.code.place(*n.value).replace("[e", "[0") for n in self.spec.operands]
        stores = [self.code.place(o.param, 0, o.comp).replace("[e", "[0") for o in self.spec.results]
        return [f"{kind}{self.t}* {name} = " + "".join(
            f"variable == {v} ? &{place} : " for v, place in enumerate(places[:-1])) + f"&{places[-1]};"
            for kind, name, places in (("const ", "source", loads), ("", "target", stores))]  # fmt: skip

    def fetch_ahead(self, element: str, width: int) -> list[str]:
        """Ask for what a block that comes later will read, where the form says so, a cache line of it at a time."""
        if not self.spec.form.ahead:
            return []
        places = ["source[e]"] if self.spec.form.per_variable and self._simple else self.code.touched()
        return [f"if (lane % {width} == 0) {{", *self.unrolled(
            f"const ml_index e = {element};", *(f"ml_prefetch(&{p});" for p in places)), "}"]  # fmt: skip

    def operands(self, element: str, only: int | None = None) -> tuple[list[str], list[str]]:
        if self.spec.form.per_variable and self._simple:
            return [f"const ml_index e = {element};"], ["source[e]"]
        return self.code.operands(element, only)

    def after(self, element: str, results: list[str], only: int | None = None) -> list[str]:
        if self.spec.form.per_variable and self._simple:
            return [f"target[{element}] = {results[0]};"]
        return self.code.after(element, results, only)

    # ----- the solve ----------------------------------------------------------------------------------------------
    def cell(self, slot: str) -> str:
        raise NotImplementedError

    def operand_sum(self, v: int, width: int, table: str) -> list[str]:
        """Statements that add a closure row of operand v at row j to ``sum``."""
        raise NotImplementedError

    def solve(self, operands: list[int]) -> list[str]:
        """Right-hand sides x of some operands to solutions x, side by side."""
        lines = []
        for v in operands:
            lines += self._ends(v)
            lines += self._joined(v) if self.level == 2 else []
        for v in operands:
            lines += [*self._sweep(v, forward=True), f"ahead[{self._share(operands, v)}{self.cell('slot')}] = x{v}[{self.m - 1}];"]
        lines.append("__syncthreads();")
        for v in operands:
            lines += self._carry(v, operands, forward=True)
            lines += [*self._sweep(v, forward=False), f"behind[{self._share(operands, v)}{self.cell('slot')}] = x{v}[0];"]
        lines.append("__syncthreads();")
        for v in operands:
            lines += self._carry(v, operands, forward=False)
            lines += self._left(v) if self.level == 1 else []
        return lines

    # ----- two levels ---------------------------------------------------------------------------------------------
    def line_number(self) -> str:
        """C expression of the number of a thread's line."""
        raise NotImplementedError

    def _ends_of_line(self, v: int) -> str:
        """Where the ends of the parts of the thread's line begin in ``ends``."""
        number = "variable" if self.spec.form.per_variable else str(v)
        return f"(({self.line_number()}) * {len(self.spec.operands)} + {number}) * 2 * chunks"

    def _last_row(self) -> str:
        return f"ml_min<ml_index>((chunk + 1) * window * {self.m}, length) - 1"

    def _left(self, v: int) -> list[str]:
        """The first and last values of a part, for its neighbours."""
        return ["if (mine) {", f"const ml_index at = {self._ends_of_line(v)} + 2 * chunk, end = {self._last_row()};",
                f"if (slot == 0) ends[at] = x{v}[0];",
                *self.unrolled(f"if (j0 + i == end) ends[at + 1] = x{v}[i];"), "}"]  # fmt: skip

    def _joined(self, v: int) -> list[str]:
        """The right-hand sides of the first and last rows of a part, without the share of its neighbours' ends."""
        k = self.spec.number(v)

        def end(row: str) -> list[str]:
            return [f"{self.t} beside = 0;", f"const ml_index at = {self._ends_of_line(v)};",
                    "for (ml_index q = 0; q < 2 * chunks; ++q)",
                    f"  beside += joined{k}[({row}) * 2 * chunks + q] * ends[at + q];"]  # fmt: skip

        before = "(chunk == 0 ? chunks - 1 : chunk - 1) * 2 + 1"
        behind = "(chunk == chunks - 1 ? 0 : chunk + 1) * 2"
        return [f"if (slot == 0 && joints{k}[2 * chunk] != 0) {{", *end(before),
                f"x{v}[0] -= joints{k}[2 * chunk] * beside;", "}",
                f"if (const ml_index last = {self._last_row()}; last >= j0 && last < j0 + {self.m} && joints{k}[2 * chunk + 1] != 0) {{",
                *end(behind), f"const {self.t} share = joints{k}[2 * chunk + 1] * beside;",
                *self.unrolled(f"x{v}[i] -= j0 + i == last ? share : 0;"), "}"]  # fmt: skip

    @staticmethod
    def _share(operands: list[int], v: int) -> str:
        return f"{operands.index(v)} * cells + " if operands.index(v) else ""

    def _ends(self, v: int) -> list[str]:
        """Right-hand sides of rows at the ends of a closed line, and of rows beyond the end."""
        k, stencil = self.spec.number(v), self.spec.operators[v].stencil
        low, rows = len(stencil.low), len(stencil.closures)
        lines = ["if (edge) {"]
        if rows:
            width = closure_tables(stencil, self.spec.dtype)[0].shape[1]
            lines += [f"for (int row = 0; row < {rows}; ++row) {{",
                      f"const ml_index j = row < {low} ? row : length - 1 - (row - {low});",
                      f"if (j < j0 || j >= j0 + {self.m}) continue;", f"{self.t} sum = 0;",
                      *self.operand_sum(v, width, f"closure{k}[row * {width} + q]"),
                      *self.unrolled(f"x{v}[i] = j0 + i == j ? sum : x{v}[i];"), "}"]  # fmt: skip
        lines += self.unrolled(f"x{v}[i] = j0 + i >= 0 && j0 + i < length ? x{v}[i] : 0;") if not (
            self.spec.periodic) else self.unrolled(f"x{v}[i] = j0 + i < length ? x{v}[i] : 0;")  # fmt: skip
        return [*lines, "}"]

    def _sweep(self, v: int, *, forward: bool) -> list[str]:
        k, m = self.spec.number(v), self.m
        lower, _, upper = self.spec.operators[v].matrix.constants
        row = f"j0 + overlap * {m}"
        if forward:
            edge = self.unrolled(f"x{v}[i] -= lower{k}[{row} + i] * x{v}[i - 1];", start=1)
            inner = self.unrolled(f"x{v}[i] -= {self.number(lower)} * x{v}[i - 1];", start=1)
        else:
            last = f"x{v}[{m - 1}] *="
            i = f"{m - 2} - i"
            edge = [f"{last} inverse{k}[{row} + {m - 1}];", *self.unrolled(
                f"x{v}[{i}] = x{v}[{i}] * inverse{k}[{row} + {i}] - upper{k}[{row} + {i}] * x{v}[{i} + 1];", end=m - 1)]  # fmt: skip
            inner = [f"{last} pivot{k};", *self.unrolled(
                f"x{v}[{i}] = x{v}[{i}] * pivot{k} - {self.number(upper)} * x{v}[{i} + 1];", end=m - 1)]  # fmt: skip
        return ["if (edge) {", *edge, "} else {", *inner, "}"]

    def _carry(self, v: int, operands: list[int], *, forward: bool) -> list[str]:
        """What comes in from the neighbours, and what that changes in the segment."""
        k, m, share = self.spec.number(v), self.m, self._share(operands, v)
        name, products = ("ahead", f"forward{k}") if forward else ("behind", f"backward{k}")
        move = "t = t == 0 ? window - 1 : t - 1;" if forward else "t = t == window - 1 ? 0 : t + 1;"
        turn = [f"carry *= turn{k}[{0 if forward else 1}];"] if self.spec.periodic else []
        lines = ["{", f"{self.t} carry = 0, weight = 1;", "ml_index t = slot;", "#pragma unroll" if self.k <= 8 else "",
                 f"for (int q = 0; q < {self.k}; ++q) {{", move, f"carry += weight * {name}[{share}{self.cell('t')}];",
                 f"weight *= {products}[chunk * core + t];", "}", *turn]  # fmt: skip
        lower, _, upper = self.spec.operators[v].matrix.constants
        i = "i" if forward else f"{m - 1} - i"
        table = f"{'lower' if forward else 'upper'}{k}[j0 + overlap * {m} + {i}]"
        edge = [f"{self.t} part = carry;", *self.unrolled(f"part *= -{table};", f"x{v}[{i}] += part;")]
        factor = -(lower if forward else upper)
        inner = [f"x{v}[{p if forward else m - 1 - p}] += {self.number(factor ** (p + 1))} * carry;" for p in range(m)]
        return [*lines, "if (edge) {", *edge, "} else {", *inner, "}", "}"]

    def pivots(self) -> list[str]:
        return [f"const {self.t} pivot{k} = steady{k}[0];" for k in range(len(self.spec.distinct))]


class _Strided(_Text):
    def line_number(self) -> str:
        return "o * lanes + column"

    def cell(self, slot: str) -> str:
        return f"{slot} * {self.tile} + lane"

    def made(self) -> Pass:
        m, vs = self.m, list(range(self.count))
        body = [*self._where(), *self.pivots(), *self._right_hand_sides(vs), *self._ahead(), *self.solve(vs)]
        element = "start + (j0 + i) * step"
        if self.level != 1:
            results = [f"x{v}[i]" for v in vs]
            body += ["if (mine) {", *self.each(
                lambda v: self.unrolled("if (j0 + i < length) {", *self.after(element, results, v), "}")), "}"]  # fmt: skip
        scratch = tuple(Scratch(self.t, name, f"{self.count} * cells") for name in ("ahead", "behind"))
        return Pass("lines", "tiles", (Phase("0", "1", tuple(body), whole=True),), blocked=True, scratch=scratch)

    def _where(self) -> list[str]:
        return [
            *self.block_place(),
            "const ml_index o = place / (across * chunks);",
            f"const int lane = (int)(threadIdx.x % {self.tile});",
            f"const ml_index own = (ml_index)(threadIdx.x / {self.tile}), slot = ml_min<ml_index>(own, window - 1);",
            f"const ml_index column = tile * {self.tile} + lane;",
            f"const ml_index start = {LINE_START} + ml_min<ml_index>(column, lanes - 1);",
            f"const ml_index j0 = (chunk * core - overlap + slot) * {self.m};",
            f"const bool edge = j0 < steady_low || j0 + {self.m} > steady_high;",
            "const bool mine = own == slot && column < lanes && slot >= overlap && slot < window - overlap;",
        ]

    def _ahead(self) -> list[str]:
        """The tile that comes ``ahead`` blocks later, in the same row of tiles, while the own one is solved."""
        ahead = self.spec.form.ahead
        point = f"start + {ahead * self.tile} + ml_min<ml_index>(j0 + i, length - 1) * step"
        fetch = self.fetch_ahead(point, max(1, 128 // self.spec.dtype.itemsize))
        return [f"if (column + {ahead * self.tile} < lanes && j0 >= 0) {{", *fetch, "}"] if fetch else []

    def _right_hand_sides(self, vs: list[int]) -> list[str]:
        m, reach = self.m, self.reach
        lines = [f"{self.t} {', '.join(f'x{v}[{m}]' for v in vs)};"]
        if not reach and all(self._identity(v) for v in vs):
            return [*lines, *self._loads(vs, "x")]
        lines += ["{", f"{self.t} {', '.join(f'f{v}[{m + 2 * reach}]' for v in vs)};", *self._loads(vs, "f")]
        for v in vs:
            right = stencil_expression(
                self.spec.operators[v].stencil, lambda o, v=v: f"f{v}[i + {reach + o}]", self.spec.dtype  # type: ignore[misc]
            )
            lines += self.unrolled(f"x{v}[i] = {right};")
        return [*lines, "}"]

    def _loads(self, vs: list[int], into: str) -> list[str]:
        """Operands of the segment and of ``reach`` points at either side; well inside a line without looking out."""
        rows = self.m + 2 * self.reach

        def loads(element: str, *move: str) -> list[str]:
            def text(only: int | None) -> list[str]:
                load, names = self.operands(element, only)
                keep = [f"{into}{v}[i] = {n};" for v, n in zip(vs, names, strict=True)]
                return self.unrolled(*load, *keep, *move, end=rows)

            return self.each(text)

        round_end = "j = j + 1 == length ? 0 : j + 1;"
        outside = ["ml_index j = before < 0 ? before + length : before >= length ? before - length : before;",
                   *loads("start + j * step", round_end)] if self.spec.periodic else (
                   loads(f"start + {self.wrapped('before + i')} * step"))  # fmt: skip
        return [f"const ml_index before = j0 - {self.reach};", f"if (before >= 0 && before + {rows} <= length) {{",
                "const ml_index begin = start + before * step;", *loads("begin + i * step"), "} else {",
                *outside, "}"]  # fmt: skip

    def _identity(self, v: int) -> bool:
        return self.spec.operators[v].stencil.inner == {0: 1.0}

    def operand_sum(self, v: int, width: int, table: str) -> list[str]:
        point = f"start + {self.wrapped(f'j + closure_at{self.spec.number(v)}[row] + q')} * step"

        def text(only: int | None) -> list[str]:
            load, names = self.operands(point, only)
            return [*load, f"sum += {table} * {names[v]};"]

        return [f"for (int q = 0; q < {width}; ++q) {{", *self.each(text), "}"]


class _Contiguous(_Text):
    def __post_init__(self) -> None:
        super().__post_init__()
        stencils = [one.stencil for one in self.spec.distinct]
        far = [abs(o) for s in stencils for row in s.closures for o in row]
        self.halo = max([self.reach, *far])

    def line_number(self) -> str:
        return "wanted"

    def cell(self, slot: str) -> str:
        return f"({slot}) * {self.tile} + line"

    def position(self, a: str) -> str:
        """Place in shared memory of local row a, which is not negative unless it is one of the halo before."""
        return f"{a} + {self.m} + (({a} + {self.m}) >> {self.m.bit_length() - 1})"

    def made(self) -> Pass:
        body = [*self._where(), *self.pivots(), *self._load()]
        body += ["{", *self._solving()]
        for v in range(self.count):
            body += self._solve_one(v)
        body += ["}"]
        body += ["__syncthreads();", *self._store()] if self.level != 1 else []
        names = [f"s{v}" for v in range(self.count)]
        scratch = tuple(Scratch(self.t, name, f"{self.tile} * padded") for name in names)
        scratch += tuple(Scratch(self.t, name, "cells") for name in ("ahead", "behind"))
        return Pass("lines", "tiles", (Phase("0", "1", tuple(body), whole=True),), blocked=True, scratch=scratch)

    def _where(self) -> list[str]:
        return [
            *self.block_place(),
            "const ml_index row_of_block = (ml_index)threadIdx.x / window;",
            f"const ml_index line = ml_min<ml_index>(row_of_block, {self.tile - 1});",
            "const ml_index slot = (ml_index)threadIdx.x - row_of_block * window;",
            f"const ml_index wanted = tile * {self.tile} + line, o = ml_min<ml_index>(wanted, outer - 1);",
            f"const ml_index start = {LINE_START};",
            f"const ml_index first = (chunk * core - overlap) * {self.m};",
            "const bool mine = row_of_block == line && wanted < outer;",
        ]

    def _solving(self) -> list[str]:
        """While lines are solved, segments of several lines lie side by side in a warp: those at the ends together."""
        return [
            f"const ml_index own = (ml_index)threadIdx.x / {self.tile}, slot = ml_min<ml_index>(own, window - 1);",
            f"const ml_index line = (ml_index)threadIdx.x % {self.tile}, wanted = tile * {self.tile} + line;",
            "const bool mine = own == slot && wanted < outer;",
            f"const ml_index j0 = first + slot * {self.m};",
            f"const bool edge = j0 < steady_low || j0 + {self.m} > steady_high;",
        ]

    def _load(self) -> list[str]:
        def inside(only: int | None) -> list[str]:
            load, names = self.operands(f"start + {self.wrapped('first + a')}", only)
            keep = [f"s{v}[line * padded + place_of_a] = {n};" for v, n in enumerate(names)]
            return ["const ml_index place_of_a = " + self.position("a") + ";", *load, *keep]

        lines = self.each(lambda v: self.unrolled("const ml_index a = slot + i * window;", *inside(v)))
        if self.halo:
            lines += [f"for (ml_index h = slot; h < {2 * self.halo}; h += window) {{",
                      f"const ml_index a = h < {self.halo} ? h - {self.halo} : window * {self.m} + h - {self.halo};",
                      *self.each(inside), "}"]  # fmt: skip
        return [*lines, "__syncthreads();"]

    def _solve_one(self, v: int) -> list[str]:
        m = self.m

        def at(o: int) -> str:
            return f"f[i + {o + self.reach}]"

        right = stencil_expression(self.spec.operators[v].stencil, at, self.spec.dtype)
        own = f"s{v}[line * padded + (slot + 1) * {m + 1} + "
        gap = f"(i < {self.reach} ? i - {self.reach + 1} : i < {m + self.reach} ? i - {self.reach} : i - {self.reach - 1})"
        return ["{", f"{self.t} x{v}[{m}];", "{", f"{self.t} f[{m + 2 * self.reach}];",
                *self.unrolled(f"f[i] = {own}{gap}];", end=m + 2 * self.reach), *self.unrolled(f"x{v}[i] = {right};"), "}",
                *self.solve([v]), *self.unrolled(f"{own}i] = x{v}[i];"), "}"]  # fmt: skip

    def operand_sum(self, v: int, width: int, table: str) -> list[str]:
        k = self.spec.number(v)
        place = f"j - first + closure_at{k}[row] + q"
        return [f"for (int q = 0; q < {width}; ++q) {{",
                f"const ml_index a = ml_max<ml_index>({-self.halo}, ml_min<ml_index>({place}, window * {self.m} + {self.halo - 1}));",
                f"sum += {table} * s{v}[line * padded + {self.position('a')}];", "}"]  # fmt: skip

    def _store(self) -> list[str]:
        results = [f"s{v}[line * padded + {self.position('a')}]" for v in range(self.count)]
        own = f"a >= overlap * {self.m} && a < (window - overlap) * {self.m} && first + a < length"
        return ["if (mine) {", *self.each(lambda v: self.unrolled(
            "const ml_index a = slot + i * window;", f"if ({own}) {{", *self.after("start + first + a", results, v), "}")),
            "}"]  # fmt: skip
