"""The text of line loops on a GPU: the solve in registers, and where values come from and go to in either form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from meshloom.kernel.emit import literal
from meshloom.schedule.code import Pass, Phase, Scratch
from meshloom.schedule.lines.operator import Offsets
from meshloom.schedule.lines.spec import Group, LinePointCode, LineSpec
from meshloom.schedule.lines.text import LINE_START, closure_tables, first_of, raw, stencil_expression
from meshloom.schedule.nest.nodes import Name
from meshloom.schedule.plan import Plan

#: The tile of lines and the part of them that a place in the launch means.
TILE = "const ml_index tile = place % across, chunk = (place / across) % chunks;"


@dataclass
class SegmentText(ABC):
    """What both forms share: the solve in registers and the exchange of carries."""

    spec: LineSpec
    plan: Plan
    level: int = 0  # 1: leave the ends of a part in ``ends``; 2: take those of the neighbours from there

    def __post_init__(self) -> None:
        form = self.spec.form
        self.m, self.k, self.tile, self.number_type = form.points, form.carries, form.tile, self.spec.ctype
        #: What a thread holds of a point: a number, or those of two lines side by side, which make wide loads.
        self.t = f"ml_pair<{self.number_type}>" if form.pair else self.number_type
        self.reach = self.spec.reach
        self.count = form.group or len(self.spec.operands)  # of operands that a block solves
        self.code = LinePointCode(self.spec, self.plan)

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
        """Which group, tile and window a block has. Blocks that read the same points follow each other."""
        lines, count = ["const ml_index place = b;"], len(self.spec.groups)
        if self.spec.single and count > 1:
            lines = ["const ml_index group = b / per_group, place = b - group * per_group;"]
        elif count > 1:
            lines = [f"const ml_index place = b / {count}, group = b - place * {count};"]
        return [*lines, *(self._pointers() if self.spec.single else []), TILE]

    def each(self, text: Callable[[Group | None], list[str]]) -> list[str]:
        """Text that depends on the block's operands, where blocks have different ones and it is not just a pointer."""
        groups = self.spec.groups
        if len(groups) == 1 or self.spec.single:
            return text(None)
        lines = ["switch (group) {"]
        for g, members in enumerate(groups):
            lines += [f"case {g}: {{" if g else "default: {", *text(members), "break;", "}"]
        return [*lines, "}"]

    def _pointers(self) -> list[str]:
        """Where the operand and the result of the block begin."""
        loads = first_of(self.code.place(*n.value) for n in self.spec.operands)
        stores = first_of(self.code.place(o.param, 0, o.comp) for o in self.spec.results)
        return [f"{kind}{self.t}* {name} = ({kind}{self.t}*)(" + "".join(
            f"group == {v} ? &{place} : " for v, place in enumerate(places[:-1])) + f"&{places[-1]});"
            for kind, name, places in (("const ", "source", loads), ("", "target", stores))]  # fmt: skip

    # ----- asking for values before they are needed ---------------------------------------------------------------
    @abstractmethod
    def rows_asked(self) -> tuple[str, list[str], str, str]:
        """The rows of contiguous points that a block takes: their number, and of row ``r`` statements, its first
        element, and its number of points."""

    def ask_ahead(self) -> list[str]:
        """Ask for the operands of a place that comes so much later, which will be in the cache then; its blocks for
        several groups share the work."""
        if not self.spec.form.ahead:
            return []
        count, before, element, points = self.rows_asked()

        def fetch(only: Group | None) -> list[str]:
            groups, places = self.spec.groups, ["source[e]"] if self.spec.single else self.code.touched()
            mine = places if only is None else places[groups.index(only) :: len(groups)]
            asked = [f"ml_prefetch(&{place}, (int)(({points}) * sizeof({self.t})));" for place in mine]
            return [f"const ml_index e = {element};", *asked]

        later = f"place + {self.spec.form.ahead}"
        return [f"if (const ml_index later = {later}; later < per_group) {{", "const ml_index place = later;", TILE,
                f"for (ml_index r = (ml_index)threadIdx.x; r < {count}; r += (ml_index)blockDim.x) {{", *before,
                *self.each(fetch), "}", "}"]  # fmt: skip

    def operands(self, element: str, only: Group | None = None) -> tuple[list[str], list[str]]:
        """Statements and values at a point, as many as a block solves: the last group may want some zeros."""
        if self.spec.single:
            return [f"const ml_index e = {element};"], ["source[e]"]
        lines, names = self.code.operands(element, only)
        return lines, names + [self.number(0.0)] * (self.count - len(names))

    def stores(self, element: str, inside: str, results: list[str], only: Group | None, *point: str) -> list[str]:
        """The results of a thread's points i brought to the fields, where ``inside`` holds; ``point`` comes before.

        What they are merged with is read for several points before any is written: the compiler cannot know that a
        store does not change what the next load reads, so one point after the other would wait for memory each time.
        """
        if self.spec.single:
            return self.unrolled(*point, f"if ({inside}) target[{element}] = {results[0]};")
        merged = self.code.merged(only)
        if not merged:
            return self.unrolled(*point, f"if ({inside}) {{", *self.code.after(element, results, only), "}")
        lines, batch = [], self.spec.form.batch
        names = {k: f"old{k}" for k in merged}
        for start in range(0, self.m, batch):
            end = min(start + batch, self.m)
            read = [f"{names[k]}[i - {start}] = {place};" for k, place in merged.items()]
            old = {k: f"{name}[i - {start}]" for k, name in names.items()}
            lines += ["{", f"{self.t} {', '.join(f'{name}[{end - start}]' for name in names.values())};"]
            for text in ([f"const ml_index e = {element};", *read], self.code.after(element, results, only, old)):
                lines += self.unrolled(*point, f"if ({inside}) {{", *text, "}", start=start, end=end)
            lines.append("}")
        return lines

    # ----- the solve ----------------------------------------------------------------------------------------------
    @abstractmethod
    def cell(self, slot: str) -> str:
        """C expression of a thread's place among the carries."""

    @abstractmethod
    def operand_sum(self, v: int, width: int, table: str) -> list[str]:
        """Statements that add a closure row of operand v at row j to ``sum``."""

    def solve(self, operands: list[int]) -> list[str]:
        """Right-hand sides x of some operands to solutions x, side by side."""
        lines = []
        for v in operands:
            lines += self._joined(v) if self.level == 2 else []
        for v in operands:
            lines += [
                *self._sweep(v, forward=True),
                f"ahead[{self._share(operands, v)}{self.cell('slot')}] = x{v}[{self.m - 1}];",
            ]
        lines.append("__syncthreads();")
        for v in operands:
            lines += self._carry(v, operands, forward=True)
            lines += [
                *self._sweep(v, forward=False),
                f"behind[{self._share(operands, v)}{self.cell('slot')}] = x{v}[0];",
            ]
        lines.append("__syncthreads();")
        for v in operands:
            lines += self._carry(v, operands, forward=False)
            lines += self._left(v) if self.level == 1 else []
        return lines

    # ----- two levels ---------------------------------------------------------------------------------------------
    @abstractmethod
    def line_number(self) -> str:
        """C expression of the number of a thread's line."""

    def _ends_of_line(self, v: int) -> str:
        """Where the ends of the parts of the thread's line begin in ``ends``."""
        number = "group" if len(self.spec.groups) > 1 else str(v)  # groups are of one operand then
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
        joined, joints = (self.code.table(self.spec.number(v), "ends", word) for word in ("joined", "joints"))

        def end(row: str) -> list[str]:
            return [f"{self.t} beside = 0;", f"const ml_index at = {self._ends_of_line(v)};",
                    "for (ml_index q = 0; q < 2 * chunks; ++q)",
                    f"  beside += {joined}[({row}) * 2 * chunks + q] * ends[at + q];"]  # fmt: skip

        before = "(chunk == 0 ? chunks - 1 : chunk - 1) * 2 + 1"
        behind = "(chunk == chunks - 1 ? 0 : chunk + 1) * 2"
        return [f"if (slot == 0 && {joints}[2 * chunk] != 0) {{", *end(before),
                f"x{v}[0] -= {joints}[2 * chunk] * beside;", "}",
                f"if (const ml_index last = {self._last_row()};",
                f"    last >= j0 && last < j0 + {self.m} && {joints}[2 * chunk + 1] != 0) {{", *end(behind),
                f"const {self.t} share = {joints}[2 * chunk + 1] * beside;",
                *self.unrolled(f"x{v}[i] -= j0 + i == last ? share : 0;"), "}"]  # fmt: skip

    @staticmethod
    def _share(operands: list[int], v: int) -> str:
        return f"{operands.index(v)} * cells + " if operands.index(v) else ""

    def right(self, v: int) -> str:
        """The right-hand side of an inner row, point i of the segment, from the operands f around it."""
        return stencil_expression(
            self.spec.operators[v].stencil, lambda o: f"f{v}[i + {self.reach + o}]", self.spec.dtype
        )

    def right_hand_sides(self, v: int) -> list[str]:
        """x from the operands f around the segment; rows at the ends of a closed line first, while f is all there."""
        near = self._near_rows(v)
        names = sorted({name for name, *_ in near})
        lines = [f"{self.t} {', '.join(f'{name} = 0' for name in names)};"] if near else []
        for name, where, i, row in near:
            terms = " + ".join(f"{self.number(c)} * f{v}[{i + o + self.reach}]" for o, c in row.items())
            lines.append(f"if ({where}) {name} = {terms};")
        lines += self.unrolled(f"x{v}[i] = {self.right(v)};")
        lines += [f"if ({where}) x{v}[{i}] = {name};" for name, where, i, _ in near]
        return [*lines, *self.beyond(v)]

    def _near_rows(self, v: int) -> list[tuple[str, str, int, Offsets]]:
        """(variable, condition, point of the segment, stencil) of rows at the ends whose operands are all around their
        segment: those at the low end, and at the high one where the last segment is full and not the first, too."""
        stencil, m = self.spec.operators[v].stencil, self.m
        rows = [(f"end{k}", f"j0 == {k // m * m}", k % m, row) for k, row in enumerate(stencil.low)]
        rows += [(f"end{d}", self._last_is_full, m - 1 - d, row) for d, row in enumerate(stencil.high)]
        return [one for one in rows if one[2] >= 0 and self._around(one[2], one[3])]

    @property
    def _last_is_full(self) -> str:
        return f"j0 + {self.m} == length && j0 != 0"

    def _around(self, i: int, row: Offsets) -> bool:
        return i + min(row) + self.reach >= 0 and i + max(row) < self.m + self.reach

    def beyond(self, v: int) -> list[str]:
        """Rows at the ends that are not ``_near_rows``, and 0 in rows beyond the line."""
        k, stencil, m = self.spec.number(v), self.spec.operators[v].stencil, self.m
        low, near = len(stencil.low), {(where, i) for _, where, i, _ in self._near_rows(v)}
        far = [f"row == {r}" for r in range(low) if (f"j0 == {r // m * m}", r % m) not in near]
        for d in range(len(stencil.high)):
            known = (self._last_is_full, m - 1 - d) in near
            far.append(f"row == {low + d} && !({self._last_is_full})" if known else f"row == {low + d}")
        lines = ["if (edge) {"]
        if far:
            width, closure = closure_tables(stencil, self.spec.dtype)[0].shape[1], self.code.table(k, "closure")
            lines += [f"for (int row = 0; row < {len(stencil.closures)}; ++row) {{",
                      f"const ml_index j = row < {low} ? row : length - 1 - (row - {low});",
                      f"if (j < j0 || j >= j0 + {m} || !({' || '.join(f'({one})' for one in far)})) continue;",
                      f"{self.t} sum = 0;", *self.operand_sum(v, width, f"{closure}[row * {width} + q]"),
                      *self.unrolled(f"x{v}[i] = j0 + i == j ? sum : x{v}[i];"), "}"]  # fmt: skip
        inside = "j0 + i < length" if self.spec.periodic else "j0 + i >= 0 && j0 + i < length"
        return [*lines, *self.unrolled(f"x{v}[i] = {inside} ? x{v}[i] : {self.t}(0);"), "}"]

    # ----- factors of segments that are not like the others -------------------------------------------------------
    def special(self) -> list[str]:
        """Which segments these are, and their factors in shared memory, where there are but a few."""
        if not self.spec.form.special:
            return []
        count = len(self.spec.distinct) * 3 * self.m
        return [f"for (ml_index s = (ml_index)threadIdx.x; s < specials * {count}; s += (ml_index)blockDim.x)",
                "  factors[s] = special[s];"]  # fmt: skip

    def segment(self) -> list[str]:
        """Is the thread's segment one of them, and where are its factors?"""
        if not self.spec.form.special:
            return [f"const bool edge = j0 < steady_low || j0 + {self.m} > steady_high;"]
        count = 3 * self.m
        lines = ["const int kind = which[chunk * core + slot];", "const bool edge = kind != 0;"]
        operators = len(self.spec.distinct)
        first = f"factors + ml_max(kind - 1, 0) * {operators * count}"
        return lines + [f"const {self.number_type}* own{k} = {first} + {k * count};" for k in range(operators)]

    def factor(self, table: str, k: int, i: str) -> str:
        """The factor of point i of a segment that is not like the others; ``table``: lower, inverse or upper."""
        if not self.spec.form.special:
            return f"{self.code.table(k, table)}[j0 + overlap * {self.m} + {i}]"
        return f"own{k}[{('lower', 'inverse', 'upper').index(table) * self.m} + {i}]"

    def factor_room(self) -> tuple[Scratch, ...]:
        size = len(self.spec.distinct) * 3 * self.m * Name("specials")
        return (Scratch(self.number_type, "factors", size),) if self.spec.form.special else ()

    def _sweep(self, v: int, *, forward: bool) -> list[str]:
        k, m = self.spec.number(v), self.m
        lower, _, upper = self.spec.operators[v].matrix.constants
        if forward:
            edge = self.unrolled(f"x{v}[i] -= {self.factor('lower', k, 'i')} * x{v}[i - 1];", start=1)
            inner = self.unrolled(f"x{v}[i] -= {self.number(lower)} * x{v}[i - 1];", start=1)
            return ["if (edge) {", *edge, "} else {", *inner, "}"]
        last, i = f"x{v}[{m - 1}] *=", f"{m - 2} - i"
        own, behind = self.factor("inverse", k, i), f"{self.factor('upper', k, i)} * x{v}[{i} + 1]"
        edge = [f"{last} {self.factor('inverse', k, str(m - 1))};"]
        edge += self.unrolled(f"x{v}[{i}] = x{v}[{i}] * {own} - {behind};", end=m - 1)
        inner = [f"{last} pivot{k};"]
        inner += self.unrolled(f"x{v}[{i}] = x{v}[{i}] * pivot{k} - {self.number(upper)} * x{v}[{i} + 1];", end=m - 1)
        return ["if (edge) {", *edge, "} else {", *inner, "}"]

    def _carry(self, v: int, operands: list[int], *, forward: bool) -> list[str]:
        """What comes in from the neighbours, and what that changes in the segment."""
        k, m, share = self.spec.number(v), self.m, self._share(operands, v)
        name, products = ("ahead", "forward") if forward else ("behind", "backward")
        move = "t = t == 0 ? window - 1 : t - 1;" if forward else "t = t == window - 1 ? 0 : t + 1;"
        turn = [f"carry *= {self.code.table(k, 'turn')}[{0 if forward else 1}];"] if self.spec.periodic else []
        lines = ["{", f"{self.t} carry = 0;", f"{self.number_type} weight = 1;", "ml_index t = slot;",
                 "#pragma unroll" if self.k <= 8 else "",
                 f"for (int q = 0; q < {self.k}; ++q) {{", move, f"carry += weight * {name}[{share}{self.cell('t')}];",
                 f"weight *= {self.code.table(k, products)}[chunk * core + t];", "}", *turn]  # fmt: skip
        lower, _, upper = self.spec.operators[v].matrix.constants
        i = "i" if forward else f"{m - 1} - i"
        table = self.factor("lower" if forward else "upper", k, i)
        edge = [f"{self.t} part = carry;", *self.unrolled(f"part *= -{table};", f"x{v}[{i}] += part;")]
        factor = -(lower if forward else upper)
        inner = [f"x{v}[{p if forward else m - 1 - p}] += {self.number(factor ** (p + 1))} * carry;" for p in range(m)]
        return [*lines, "if (edge) {", *edge, "} else {", *inner, "}", "}"]

    def pivots(self) -> list[str]:
        steady = (self.code.table(k, "steady") for k in range(len(self.spec.distinct)))
        return [f"const {self.number_type} pivot{k} = {one}[0];" for k, one in enumerate(steady)]


def strided_rows(points: int, tile: int) -> tuple[str, list[str], str, str]:
    """``rows_asked`` of lines whose points lie apart: for each of their points those of a tile."""
    row = f"ml_max<ml_index>(0, ml_min<ml_index>((chunk * core - overlap) * {points} + r, length - 1))"
    before = ["const ml_index o = place / (across * chunks);"]
    return (f"window * {points}", before, f"{LINE_START} + tile * {tile} + {row} * step",
            f"ml_min<ml_index>({tile}, lanes - tile * {tile})")  # fmt: skip


class StridedText(SegmentText):
    """Lines whose points lie apart: tiles of contiguous points, loaded straight into registers."""

    def line_number(self) -> str:
        return "o * lanes + column"

    def cell(self, slot: str) -> str:
        return f"{slot} * {self.tile} + lane"

    def made(self) -> Pass:
        vs = list(range(self.count))
        body = [*self._where(), *self.pivots(), *self._right_hand_sides(vs), *self.ask_ahead()]
        body += self.solve(vs)
        if self.level != 1:
            results = [f"x{v}[i]" for v in vs]

            def store(v: Group | None) -> list[str]:
                return self.stores("start + (j0 + i) * step", "j0 + i < length", results, v)

            body += ["if (mine) {", *self.each(store), "}"]
        cells = Name("cells")
        scratch = tuple(Scratch(self.t, name, self.count * cells) for name in ("ahead", "behind"))
        scratch += self.factor_room()
        if self.spec.form.exchange:
            scratch += (Scratch(self.t, "edges", 2 * self.reach * self.count * cells),)
        return Pass("lines", Name("tiles"), (Phase(raw(body), whole=True),), blocked=True, scratch=scratch)

    def _where(self) -> list[str]:
        return [
            *self.block_place(),
            f"const int lane = (int)(threadIdx.x % {self.tile});",
            f"const ml_index own = (ml_index)(threadIdx.x / {self.tile}), slot = ml_min<ml_index>(own, window - 1);",
            "const ml_index o = place / (across * chunks);",
            f"const ml_index column = tile * {self.tile} + lane;",
            f"const ml_index start = {LINE_START} + ml_min<ml_index>(column, lanes - 1);",
            f"const ml_index j0 = (chunk * core - overlap + slot) * {self.m};",
            "const bool mine = own == slot && column < lanes && slot >= overlap && slot < window - overlap;",
            *self.special(),
            *self.segment(),
        ]

    def rows_asked(self) -> tuple[str, list[str], str, str]:
        return strided_rows(self.m, self.tile)

    def _right_hand_sides(self, vs: list[int]) -> list[str]:
        m, reach, known = self.m, self.reach, ["__syncthreads();"] if self.spec.form.special else []
        lines = [f"{self.t} {', '.join(f'x{v}[{m}]' for v in vs)};"]
        if not reach and all(self._identity(v) for v in vs):
            return [*lines, *self._loads(vs, "x"), *(line for v in vs for line in self.beyond(v)), *known]
        lines += ["{", f"{self.t} {', '.join(f'f{v}[{m + 2 * reach}]' for v in vs)};"]
        if self.spec.form.exchange:
            lines += [*self._loads(vs, "f", first=reach, count=m), *self._exchanged(vs)]
            known = []
        else:
            lines += self._loads(vs, "f", count=m + 2 * reach)
        for v in vs:
            lines += ["{", *self.right_hand_sides(v), "}"]
        return [*lines, "}", *known]

    def _exchanged(self, vs: list[int]) -> list[str]:
        """Operands at the ends of segments given to the neighbours, which need not evaluate them again."""
        m, reach = self.m, self.reach

        def edge(v: int, q: int, slot: str) -> str:
            return f"edges[{2 * reach * v + q} * cells + {self.cell(slot)}]"

        before, behind = "(slot == 0 ? window - 1 : slot - 1)", "(slot == window - 1 ? 0 : slot + 1)"
        given = [f"{edge(v, q, 'slot')} = f{v}[{reach + q if q < reach else m - reach + q}];"
                 for v in vs for q in range(2 * reach)]  # fmt: skip
        taken = [f"f{v}[{q}] = {edge(v, reach + q, before)}; f{v}[{m + reach + q}] = {edge(v, q, behind)};"
                 for v in vs for q in range(reach)]  # fmt: skip
        return [*given, "__syncthreads();", *taken]

    def _loads(self, vs: list[int], into: str, *, first: int = 0, count: int | None = None) -> list[str]:
        """Operands of the segment, and of ``reach`` points at either side where they are counted in, too; well inside a
        line without looking out. ``first``: the number of the first one in its array."""
        rows = self.m if count is None else count
        before = 0 if rows == self.m else self.reach

        def loads(element: str, *move: str) -> list[str]:
            def text(only: Group | None) -> list[str]:
                load, names = self.operands(element, only)
                keep = [f"{into}{v}[i + {first}] = {n};" for v, n in zip(vs, names, strict=True)]
                return self.unrolled(*load, *keep, *move, end=rows)

            return self.each(text)

        round_end = "j = j + 1 == length ? 0 : j + 1;"
        outside = ["ml_index j = before < 0 ? before + length : before >= length ? before - length : before;",
                   *loads("start + j * step", round_end)] if self.spec.periodic else (
                   loads(f"start + {self.wrapped('before + i')} * step"))  # fmt: skip
        return [f"const ml_index before = j0 - {before};", f"if (before >= 0 && before + {rows} <= length) {{",
                "const ml_index begin = start + before * step;", *loads("begin + i * step"), "} else {",
                *outside, "}"]  # fmt: skip

    def _identity(self, v: int) -> bool:
        return self.spec.operators[v].stencil.inner == {0: 1.0}

    def operand_sum(self, v: int, width: int, table: str) -> list[str]:
        at = self.code.table(self.spec.number(v), "closure_at")
        point = f"start + {self.wrapped(f'j + {at}[row] + q')} * step"

        def text(only: Group | None) -> list[str]:
            load, names = self.operands(point, only)
            return [*load, f"sum += {table} * {names[v]};"]

        return [f"for (int q = 0; q < {width}; ++q) {{", *self.each(text), "}"]
