"""Systems with coefficients of their own on a GPU: see ``systems.py`` for the idea."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.records import dataclass
from meshloom.schedule.lines.gpu_block import LineNest
from meshloom.schedule.lines.nest_parts import (
    ACROSS,
    ALONG_LINE,
    J0,
    LANES,
    LENGTH,
    LINE,
    LINES,
    MINE,
    OUTER,
    OUTER_LINE,
    OWN,
    PADDED,
    POINT,
    SLOT,
    START,
    STEP,
    TILE,
    WANTED,
    WINDOW,
    J,
    Q,
    along_line,
    chained,
    lets,
    line_start,
    lower_of,
    pass_over_tiles,
    start_of_line,
)
from meshloom.schedule.lines.spec import LinePointCode, LineSpec
from meshloom.schedule.lines.systems import SWEPT, beyond
from meshloom.schedule.lines.tables import negligible
from meshloom.schedule.nest.code import BLOCK, ITEM, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INDEX,
    INT,
    Barrier,
    Block,
    Body,
    Cast,
    Expr,
    For,
    Grouped,
    If,
    Name,
    Select,
    Statement,
    Store,
    UnsignedThread,
    all_of,
    let,
    no,
    value,
    variable,
)
from meshloom.schedule.plan.plan import Plan, part_of

#: What a segment makes of what comes in: (share, product), its own and those of all segments in shared memory.
SHARE, PRODUCT, CARRY, WEIGHT, T = map(Name, ("share", "product", "carry", "weight", "t"))
#: The number of a segment among those before, nearest first, itself, and its place in shared memory.
REACHED, FROM, CELL = map(Name, ("reached", "from", "cell"))


def passes(spec: LineSpec, plan: Plan, unrolled_segments: int) -> list[Pass]:
    """One pass over tiles of lines, or over lines that are swept. ``unrolled_segments``: those whose shares are
    read before it is asked whether they count."""
    if spec.tiling.kind == SWEPT:
        return [SweptSystems(spec, plan).made()]
    kind = ContiguousSystems if spec.tiling.kind == "contiguous" else StridedSystems
    return [kind(spec, plan, unrolled_segments).made()]


@dataclass
class SystemsNest(LineNest):
    """In registers are the right-hand sides x0, x1 and so on, and behind them the coefficients."""

    unrolled_segments: int

    def registers(self) -> list[Statement]:
        return self.rooms([f"x{v}" for v in range(len(self.spec.operands))], self.m)

    def nothing(self, v: int) -> Expr:
        """What an operand is in rows beyond the end: see ``beyond``."""
        if v < self.spec.values:
            return self.number(0.0)
        return self.number(1.0 if v == self.spec.coefficient("inverse") else beyond(self.spec.periodic))

    def coefficient(self, name: str, i: Expr) -> Expr:
        """At point i of the segment."""
        v = self.spec.coefficient(name)
        return part_of(self.plan, name)[chained(J0, i)] if v is None else self.x(v, i)

    def carries(self) -> tuple[Scratch, ...]:
        return tuple(Scratch(self.t, name, WINDOW * self.tile) for direction in ("forward", "backward")
                     for name in (f"{direction}_shares", f"{direction}_products"))  # fmt: skip

    def solve(self) -> list[Statement]:
        """Right-hand sides to solutions, one operand after the other."""
        return [Block((*self._swept(v, forward=True), *self._passed(v), *self._swept(v, forward=False)))
                for v in range(self.spec.values)]  # fmt: skip

    def _passed(self, v: int) -> list[Statement]:
        """Rows beyond the end of a periodic line have let through what came, and have nothing of their own again."""
        if not self.spec.periodic:
            return []
        keep = Store(self.x(v, POINT), Select(J0 + POINT < LENGTH, self.x(v, POINT), self.number(0.0)))
        return [If(J0 + self.m > LENGTH, (self.unrolled(keep),))]

    def _swept(self, v: int, *, forward: bool) -> list[Statement]:
        """What comes in by the other segments, then along the own one."""
        i = POINT if forward else self.m - 1 - POINT
        here, inverse = self.x(v, i), self.coefficient("inverse", i)
        entry = self.coefficient("lower" if forward else "upper", i)
        direction = "forward" if forward else "backward"
        shares, products = Name(f"{direction}_shares"), Name(f"{direction}_products")
        own = inverse * here if forward else here
        find = self.unrolled(let("t", inverse * entry, self.t), Store(SHARE, own - T * SHARE), Store(PRODUCT, -T, "*"))
        go = inverse * (here - entry * CARRY) if forward else here - inverse * entry * CARRY
        return [
            Block((variable("share", 0, self.t), variable("product", 1, self.t), find,
                   Store(shares[self.cell(SLOT)], SHARE), Store(products[self.cell(SLOT)], PRODUCT))),
            Barrier(),
            Block((variable("carry", 0, self.t), *self._comes_in(shares, products, forward=forward),
                   self.unrolled(Store(CARRY, go), Store(here, CARRY)))),
        ]  # fmt: skip

    def _comes_in(self, shares: Name, products: Name, *, forward: bool) -> list[Statement]:
        """Shares of the segments before, nearest first and some at a time, until they no longer count; what is no
        number goes on."""
        least = self.number(negligible(self.spec.dtype))
        before = SLOT - 1 - REACHED if forward else SLOT + 1 + REACHED
        count: Expr = SLOT if forward else WINDOW - 1 - SLOT
        place: Expr = before
        if self.spec.periodic:
            count = WINDOW
            place = Select(FROM < 0, FROM + WINDOW, FROM) if forward else (
                Select(FROM < WINDOW, FROM, FROM - WINDOW))  # fmt: skip
        one = (
            let("reached", Q + Name("u")),
            let("from", before),
            let(CELL.name, self.cell(Grouped(place) if place is not before else FROM)),
            Store(CARRY, Select(REACHED < count, WEIGHT * shares[CELL], self.number(0.0)), "+"),
            Store(WEIGHT, Select(REACHED < count, products[CELL], self.number(1.0)), "*"),
        )
        some = For("u", value(0), value(self.unrolled_segments), one, INT, unroll=0)
        counts = no(Grouped(all_of([WEIGHT <= least, WEIGHT >= -least])))
        made: list[Statement] = [variable("weight", 1, self.t),
                                 For("q", value(0), count, (some,), step=some.last, also=counts)]  # fmt: skip
        return [*made, Store(CARRY, 1 - WEIGHT, "/")] if self.spec.periodic else made


class StridedSystems(SystemsNest):
    """Tiles of contiguous points, loaded straight into registers: neighbouring threads have neighbouring lines."""

    def cell(self, slot: Expr) -> Expr:
        return slot * self.tile + LINE

    def made(self) -> Pass:
        results = [self.x(v, POINT) for v in range(self.spec.values)]
        store = self.code.after(START + (J0 + POINT) * STEP, results)
        stored = If(MINE, (self.unrolled(If(J0 + POINT < LENGTH, tuple(store))),))
        body = (*self._where(), *self.registers(), *self._loads(), *self.solve(), stored)
        return pass_over_tiles(body, self.carries())

    def _where(self) -> list[Statement]:
        line, own = UnsignedThread() % self.tile, UnsignedThread() / self.tile
        return [
            let("line", Cast(INDEX, line)),
            lets(own=Cast(INDEX, own), slot=lower_of(OWN, WINDOW - 1)),
            lets(o=BLOCK / ACROSS, tile=BLOCK % ACROSS),
            let("wanted", TILE * self.tile + LINE),
            let("start", line_start(OUTER_LINE) + lower_of(WANTED, LANES - 1)),
            let("j0", SLOT * self.m),
            let("mine", all_of([OWN.equals(SLOT), WANTED < LANES]), BOOL),
        ]

    def _loads(self) -> list[Statement]:
        """Well inside a line without looking out."""

        def kept(row: Expr, *, inside: bool) -> For:
            load, found = self.code.operands(START + row * STEP)
            new = found if inside else [Select(J0 + POINT < LENGTH, one, self.nothing(v))
                                        for v, one in enumerate(found)]  # fmt: skip
            return self.unrolled(*load, *(Store(self.x(v, POINT), one) for v, one in enumerate(new)))

        outside = kept(lower_of(J0 + POINT, LENGTH - 1), inside=False)
        return [If(J0 + self.m <= LENGTH, (kept(Grouped(J0 + POINT), inside=True),), (outside,))]


class ContiguousSystems(SystemsNest):
    """Several lines of a block in shared memory, so that neighbouring threads load and store neighbouring points."""

    def cell(self, slot: Expr) -> Expr:
        return LINE * WINDOW + slot

    def _kept(self, v: int, row: Expr) -> Expr:
        """Operand v of the thread's line in a row of shared memory."""
        return Name(f"s{v}")[chained(LINE * PADDED, row)]

    def _position(self, a: Expr) -> Expr:
        return a + Grouped(a / self.m)

    def made(self) -> Pass:
        count, row = range(len(self.spec.operands)), SLOT * (self.m + 1) + POINT
        take = self.unrolled(*(Store(self.x(v, POINT), self._kept(v, row)) for v in count))
        solved = range(self.spec.values)
        give = self.unrolled(*(Store(self._kept(v, row), self.x(v, POINT)) for v in solved))
        body = (*self._where(), *self._loads(), Barrier(), *self.registers(), take, *self.solve(), give, Barrier(),
                *self._stores())  # fmt: skip
        return pass_over_tiles(body, [*(Scratch(self.t, f"s{v}", self.tile * PADDED) for v in count), *self.carries()])

    def _where(self) -> list[Statement]:
        return [
            let("own", Cast(INDEX, UnsignedThread()) / WINDOW),
            let("line", lower_of(OWN, self.tile - 1)),
            let("slot", Cast(INDEX, UnsignedThread()) - OWN * WINDOW),
            let("wanted", BLOCK * self.tile + LINE),
            let("o", lower_of(WANTED, OUTER - 1)),
            lets(start=line_start(OUTER_LINE), j0=SLOT * self.m),
            let("mine", all_of([OWN.equals(LINE), WANTED < OUTER]), BOOL),
        ]

    def _each(self, inside: Sequence[Statement]) -> For:
        """For every point ``a`` of the line that the thread brings or takes away."""
        return self.unrolled(let("j", SLOT + POINT * WINDOW), *inside)

    def _loads(self) -> list[Statement]:
        load, found = self.code.operands(START + lower_of(J, LENGTH - 1))
        kept = [Store(self._kept(v, self._position(J)), Select(J < LENGTH, one, self.nothing(v)))
                for v, one in enumerate(found)]  # fmt: skip
        return [self._each([*load, *kept])]

    def _stores(self) -> list[Statement]:
        results = [self._kept(v, self._position(J)) for v in range(self.spec.values)]
        return [If(MINE, (self._each([If(J < LENGTH, tuple(self.code.after(START + J, results)))]),))]


class SweptSystems:
    """A line by one thread, which leaves in ``work`` what it has on the way forwards, for each operand."""

    def __init__(self, spec: LineSpec, plan: Plan):
        self.spec, self.plan, self.code = spec, plan, LinePointCode(spec, plan)
        self.right, everything = range(spec.values), range(len(spec.operands))
        self.all, self.given = tuple(everything), tuple(everything[spec.values :])

    def made(self) -> Pass:
        """Forwards, and backwards."""
        body = let("start", start_of_line(ITEM)), Block(self._forwards()), Block(self._backwards())
        return Pass("sweeps", LINES, (Phase(body),))

    def _work(self, v: int) -> Expr:
        return Name("work")[(v * LENGTH + J) * LINES + ITEM]

    def _coefficients(self, found: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
        """(inverse, lower, upper) at point ``j``; ``found``: those that vary."""
        inverse, lower, upper = (part_of(self.plan, name)[J] if v is None else found[v - self.spec.values]
                                 for name in ("inverse", "lower", "upper")
                                 for v in (self.spec.coefficient(name),))  # fmt: skip
        return inverse, lower, upper

    def _forwards(self) -> Body:
        load, found = self.code.operands(ALONG_LINE, self.all)
        inverse, lower, _ = self._coefficients(found[self.spec.values :])
        steps: list[Statement] = []
        for v in self.right:
            steps += [Store(_x(v), inverse * (found[v] - lower * _x(v))), Store(self._work(v), _x(v))]
        begin = self._comes_in(load, [inverse * found[v] for v in self.right], inverse * lower, down=False)
        return (*begin, along_line(*load, *steps))

    def _backwards(self) -> Body:
        load, found = self.code.operands(ALONG_LINE, self.given)
        inverse, _, upper = self._coefficients(found)
        steps = [Store(_x(v), self._work(v) - inverse * upper * _x(v)) for v in self.right]
        begin = self._comes_in(load, [self._work(v) for v in self.right], inverse * upper, down=True)
        store = self.code.after(ALONG_LINE, [_x(v) for v in self.right])
        return (*begin, along_line(Block((*load, *steps)), *store, down=True))

    def _comes_in(self, load: Sequence[Statement], own: Sequence[Expr], t: Expr, *, down: bool) -> list[Statement]:
        """x before the first point: 0, or around a periodic line what all of it leaves."""
        ctype = self.spec.ctype
        made: list[Statement] = [variable(_x(v).name, 0, ctype) for v in self.right]
        if not self.spec.periodic:
            return made
        find = [*load, let("t", t, ctype), *(Store(_x(v), own[v] - T * _x(v)) for v in self.right),
                Store(PRODUCT, -T, "*")]  # fmt: skip
        return [*made, variable("product", 1, ctype), along_line(*find, down=down),
                *(Store(_x(v), 1 - PRODUCT, "/") for v in self.right)]  # fmt: skip


def _x(v: int) -> Name:
    """What a thread has of operand v on its way."""
    return Name(f"x{v}")
