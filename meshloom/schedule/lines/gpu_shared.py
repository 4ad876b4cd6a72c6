"""Line loops on a GPU through shared memory: operands are evaluated once at every point, however many there are.

Contiguous lines go this way so that loads and stores are coalesced; lines whose points lie apart do where several
operands come from the same fields, which are then read once.
"""

from __future__ import annotations

from collections.abc import Callable

from meshloom.schedule.code import Pass, Phase, Scratch
from meshloom.schedule.lines.gpu_text import SegmentText, strided_rows
from meshloom.schedule.lines.spec import Group
from meshloom.schedule.lines.text import LINE_START, raw
from meshloom.schedule.nest.nodes import Name, Number


class SharedText(SegmentText):
    """Several lines of a block in shared memory: loaded, solved operand after operand, stored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stencils = [one.stencil for one in self.spec.distinct]
        far = [abs(o) for s in stencils for row in s.closures for o in row]
        self.halo = max([self.reach, *far])
        self.contiguous, self.gap = self.spec.form.kind == "contiguous", self.spec.form.spaced(self.spec.dtype)
        #: May solutions go from registers to the fields? Where points of lines side by side are, too, and no result
        #: needs two operands.
        self.straight = not self.contiguous and (self.spec.separable or len(self.spec.operands) == 1)

    def line_number(self) -> str:
        return "wanted" if self.contiguous else "o * lanes + wanted"

    def cell(self, slot: str) -> str:
        return f"({slot}) * {self.tile} + line"

    def position(self, a: str) -> str:
        """Row in shared memory of local row a, which is not negative unless it is one of the halo before."""
        return f"{a} + {self.m} + (({a} + {self.m}) >> {self.m.bit_length() - 1})" if self.gap else f"{a} + {self.m}"

    def beside(self, offset: str) -> str:
        """Row in shared memory that is so far from the first one of the thread's segment, halo included."""
        m, reach = self.m, self.reach
        if not self.gap:
            return f"(slot + 1) * {m} + {offset}"
        past = f"({offset} < 0 ? -1 : {offset} < {m} ? 0 : 1)" if reach else "0"  # rows left out
        return f"(slot + 1) * {m + 1} + {offset} + {past}"

    def kept(self, v: int, row: str) -> str:
        """The operand (later the solution) v of the thread's line in a row of shared memory."""
        return f"s{v}[line * padded + {row}]" if self.contiguous else f"s{v}[({row}) * {self.tile} + line]"

    def made(self) -> Pass:
        body = [*self._where(), *self.special(), *self.pivots(), *self._load(), *self.ask_ahead()]
        body += ["{", *self._solving()]
        side = max(1, self.spec.form.side)
        for first in range(0, self.count, side):
            body += self._solve(list(range(first, min(first + side, self.count))))
        body += ["}"]
        body += ["__syncthreads();", *self._store()] if self.level != 1 and not self.straight else []
        names = [f"s{v}" for v in range(self.count)]
        scratch = tuple(Scratch(self.t, name, Number(self.tile) * Name("padded")) for name in names)
        cells = Number(min(side, self.count)) * Name("cells")
        scratch += (*(Scratch(self.t, name, cells) for name in ("ahead", "behind")), *self.factor_room())
        return Pass("lines", Name("tiles"), (Phase(raw(body), whole=True),), blocked=True, scratch=scratch)

    def _where(self) -> list[str]:
        """The line and the first row that a thread loads and stores: neighbouring threads have neighbouring points."""
        if not self.contiguous:
            return [*self.block_place(), *self._side_by_side(), *self._line_place(), self._mine("own == slot")]
        return [
            *self.block_place(),
            "const ml_index row_of_block = (ml_index)threadIdx.x / window;",
            f"const ml_index line = ml_min<ml_index>(row_of_block, {self.tile - 1});",
            "const ml_index slot = (ml_index)threadIdx.x - row_of_block * window;",
            *self._line_place(),
            self._mine("row_of_block == line"),
        ]

    def _line_place(self) -> list[str]:
        first = f"const ml_index first = (chunk * core - overlap) * {self.m};"
        wanted = f"const ml_index wanted = tile * {self.tile} + line;"
        if self.contiguous:
            return [wanted, "const ml_index o = ml_min<ml_index>(wanted, outer - 1);",
                    f"const ml_index start = {LINE_START};", first]  # fmt: skip
        return [wanted, "const ml_index o = place / (across * chunks);",
                f"const ml_index start = {LINE_START} + ml_min<ml_index>(wanted, lanes - 1);", first]  # fmt: skip

    def rows_asked(self) -> tuple[str, list[str], str, str]:
        if not self.contiguous:
            return strided_rows(self.m, self.tile)
        first, behind = "ml_max<ml_index>(0, begin)", f"ml_min<ml_index>(begin + window * {self.m}, length)"
        before = [f"const ml_index o = tile * {self.tile} + r, begin = (chunk * core - overlap) * {self.m};"]
        return (f"ml_min<ml_index>({self.tile}, outer - tile * {self.tile})", before, f"{LINE_START} + {first}",
                f"{behind} - {first}")  # fmt: skip

    def _mine(self, thread: str) -> str:
        """Has the thread a line of its own?"""
        return f"const bool mine = {thread} && wanted < {'outer' if self.contiguous else 'lanes'};"

    def _side_by_side(self) -> list[str]:
        """Neighbouring threads have neighbouring lines."""
        return [
            f"const ml_index own = (ml_index)threadIdx.x / {self.tile}, slot = ml_min<ml_index>(own, window - 1);",
            f"const ml_index line = (ml_index)threadIdx.x % {self.tile};",
        ]

    def _solving(self) -> list[str]:
        """While lines are solved, segments of several lines lie side by side in a warp: those at the ends together."""
        wanted = f"const ml_index wanted = tile * {self.tile} + line;"
        lines = [*self._side_by_side(), wanted, self._mine("own == slot")] if self.contiguous else []
        return [*lines, f"const ml_index j0 = first + slot * {self.m};", *self.segment()]

    def _element(self, row: str) -> str:
        return f"start + {row}" if self.contiguous else f"start + ({row}) * step"

    def _within(self, inside: Callable[[Group | None], list[str]], outside: Callable[[Group | None], list[str]],
                only: Group | None) -> list[str]:  # fmt: skip
        """``inside`` for whole lines, whose places are just counted up, else ``outside``."""
        step, gaps = "" if self.contiguous else " * step", f" + window / {self.m}" if self.gap else ""
        return [f"if (chunks == 1 && window % {self.m} == 0) {{",
                f"const ml_index row = {self.position('slot')}, hop = window{gaps};",
                f"const ml_index begin = {self._element('slot')}, stride = window{step}, whole = length{step};",
                *inside(only), "} else {", *outside(only), "}"]  # fmt: skip

    def _load(self) -> list[str]:
        def kept(row: str, element: str, only: Group | None) -> list[str]:
            load, names = self.operands(element, only)
            return [*load, *(f"{self.kept(v, row)} = {n};" for v, n in enumerate(names))]

        def anywhere(only: Group | None) -> list[str]:
            at = "const ml_index place_of_a = " + self.position("a") + ";"
            return [at, *kept("place_of_a", self._element(self.wrapped("first + a")), only)]

        def inside(only: Group | None) -> list[str]:
            around = "(slot + i * window < length ? 0 : whole)"  # what is behind the end, or any point of the line
            return self.unrolled(*kept("row + i * hop", f"begin + i * stride - {around}", only))

        def outside(only: Group | None) -> list[str]:
            return self.unrolled("const ml_index a = slot + i * window;", *anywhere(only))

        lines = self.each(lambda only: self._within(inside, outside, only))
        if self.halo:
            lines += [f"for (ml_index h = slot; h < {2 * self.halo}; h += window) {{",
                      f"const ml_index a = h < {self.halo} ? h - {self.halo} : window * {self.m} + h - {self.halo};",
                      *self.each(anywhere), "}"]  # fmt: skip
        return [*lines, "__syncthreads();"]

    def _solve(self, operands: list[int]) -> list[str]:
        """Some operands side by side, from shared memory to where they belong."""
        m, reach = self.m, self.reach
        lines = ["{"]
        for v in operands:
            place = self.kept(v, self.beside(f"(i - {reach})"))
            lines += [f"{self.t} x{v}[{m}];", "{", f"{self.t} f{v}[{m + 2 * reach}];",
                      *self.unrolled(f"f{v}[i] = {place};", end=m + 2 * reach),
                      *self.right_hand_sides(v), "}"]  # fmt: skip
        lines += self.solve(operands)
        if self.straight and self.level != 1:
            return [*lines, *self._straight(operands), "}"]
        for v in operands:
            lines += self.unrolled(f"{self.kept(v, f'(slot + 1) * {m + self.gap} + i')} = x{v}[i];")
        return [*lines, "}"]

    def _straight(self, operands: list[int]) -> list[str]:
        """Solutions of some operands from registers to the fields; which operands these are, the group says."""
        lines = ["if (mine && slot >= overlap && slot < window - overlap) {"]
        for v in operands:

            def store(group: Group | None, v: int = v) -> list[str]:
                own = (tuple(range(self.count)) if group is None else group)[v : v + 1]
                if not own:
                    return []
                return self.stores("start + (j0 + i) * step", "j0 + i < length", [f"x{v}[i]"], own)

            lines += self.each(store)
        return [*lines, "}"]

    def operand_sum(self, v: int, width: int, table: str) -> list[str]:
        at = self.code.table(self.spec.number(v), "closure_at")
        least, most = -self.halo, f"window * {self.m} + {self.halo - 1}"
        return [f"for (int q = 0; q < {width}; ++q) {{", f"const ml_index wish = j - first + {at}[row] + q;",
                f"const ml_index a = ml_max<ml_index>({least}, ml_min<ml_index>(wish, {most}));",
                f"sum += {table} * {self.kept(v, self.position('a'))};", "}"]  # fmt: skip

    def _store(self) -> list[str]:
        def stored(row: str, element: str, condition: str, only: Group | None, *point: str) -> list[str]:
            return self.stores(element, condition, [self.kept(v, row) for v in range(self.count)], only, *point)

        def inside(only: Group | None) -> list[str]:
            return stored("row + i * hop", "begin + i * stride", "slot + i * window < length", only)

        def outside(only: Group | None) -> list[str]:
            own = f"a >= overlap * {self.m} && a < (window - overlap) * {self.m} && first + a < length"
            point = "const ml_index a = slot + i * window;"
            return stored(self.position("a"), self._element("first + a"), own, only, point)

        return ["if (mine) {", *self.each(lambda only: self._within(inside, outside, only)), "}"]
