"""Systems with coefficients of their own on a CPU: a thread sweeps along some lines side by side, as vectors."""

from __future__ import annotations

from dataclasses import replace

from meshloom.schedule.lines.on_cpu import FACTOR, ROWS, TILES, WORK, SweepNest
from meshloom.schedule.lines.spec import LineSpec
from meshloom.schedule.lines.terms import LENGTH, J, for_each
from meshloom.schedule.nest.code import Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import Block, Expr, Name, Statement, Store, let, value
from meshloom.schedule.plan.plan import Plan, part_of

T = Name("t")  # what a value that comes in is multiplied by at a point, its sign turned


def passes(spec: LineSpec, plan: Plan) -> list[Pass]:
    """One pass over tiles of lines."""
    return [SystemsSweep(spec, plan).made()]


class SystemsSweep(SweepNest):
    """What a thread does with a tile of lines: right-hand sides and coefficients of the lines lie in its buffers."""

    def made(self) -> Pass:
        sweeps = (self._solved(v) for v in range(self.spec.values))
        body = (*self._where(), *self._load(), *sweeps, *self._store())
        buffers = [f"s{v}" for v in range(len(self.spec.operands))] + ([WORK] if self.spec.periodic else [])
        scratch = tuple(Scratch(self.t, name, ROWS * self.w) for name in buffers)
        return Pass("lines", TILES, (Phase(body, of_block=True),), blocked=True, scratch=scratch)

    def _coefficient(self, name: str) -> Expr:
        """At point ``j`` of line ``l``; one that all lines have was named before."""
        systems = self.spec.systems
        assert systems is not None
        if name not in systems.varying:
            return FACTOR
        return self._at(f"s{self.spec.values + systems.varying.index(name)}", J)

    def _along(self, name: str, *step: Statement, down: bool) -> Statement:
        """A step for each point, of all lines side by side; ``name``: of the coefficient next to the diagonal."""
        systems = self.spec.systems
        assert systems is not None
        shared = [] if name in systems.varying else [let("factor", part_of(self.code.plan, name)[J], self.t)]
        one = (*shared, self._lanes(*step))
        return replace(for_each(J, LENGTH - 1, 0, *one), down=True) if down else for_each(J, 0, LENGTH, *one)

    def _solved(self, v: int) -> Statement:
        """Forwards and backwards for one operand; the results take the place of the right-hand sides."""
        here, before, behind = (self._at(f"s{v}", row) for row in (J, J - 1, J + 1))
        inverse, lower, upper = map(self._coefficient, ("inverse", "lower", "upper"))
        forward = self._along("lower", Store(here, inverse * (here - lower * before)), down=False)
        backward = self._along("upper", Store(here, here - inverse * upper * behind), down=True)
        first = self._at(f"s{v}", -1), self._at(f"s{v}", LENGTH)
        return Block((*self._comes_in("lower", first[0], inverse * here, down=False), forward,
                      *self._comes_in("upper", first[1], here, down=True), backward))  # fmt: skip

    def _comes_in(self, name: str, place: Expr, own: Expr, *, down: bool) -> list[Statement]:
        """What is there before the first point: nothing, or around a periodic line what all of it leaves: its share
        over 1 less its product."""
        if not self.spec.periodic:
            return [self._lanes(Store(place, value(0)))]
        share, product = self._at(WORK, 0), self._at(WORK, 1)
        t = let("t", self._coefficient("inverse") * self._coefficient(name), self.t)
        turn = self._along(name, t, Store(share, own - T * share), Store(product, -T, "*"), down=down)
        return [self._lanes(Store(share, value(0)), Store(product, value(1))), turn,
                self._lanes(Store(place, share / (1 - product)))]  # fmt: skip
