"""cgs and bicgstab: a block iterates on a line, its vectors in shared memory, until the residual is at rounding.

Rounding can keep the residual just above that and drive it up again: such a start is repeated up to the iteration where
it was smallest. A line on which nothing succeeds is filled with NaN, so that nobody takes it for solved.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from meshloom.schedule.code import Pass, Phase, Scratch
from meshloom.schedule.lines.classic import Classic, MatrixTables, operand
from meshloom.schedule.lines.decay import negligible
from meshloom.schedule.lines.operator import LineOperator
from meshloom.schedule.lines.reduction import start_of_block
from meshloom.schedule.lines.spec import Geometry, LinePointCode, LineSpec
from meshloom.target import Target

MOST_ITERATIONS = 500
SHORT = 32
MOST_STARTS = 9  # from the residual that rounding has left, repetitions included


class _Krylov(Classic):
    vectors: tuple[str, ...] = ()
    threads = 128  # a power of two: sums are trees
    shared_values = threads + 32  # for these trees, and to begin every vector at a multiple of 16 bytes

    @property
    def shared_vectors(self) -> int:  # type: ignore[override]
        return len(self.vectors)

    def declines(self, spec: LineSpec, lines: Geometry, *, target: Target) -> str | None:
        ends = [row for one in spec.operators for row in (*one.matrix.low, *one.matrix.high)]
        if lines.length < SHORT and any(abs(b) <= abs(a) + abs(c) for a, b, c in ends):
            return f"on lines of less than {SHORT} points it needs rows dominated by their diagonal, also at the ends"
        return super().declines(spec, lines, target=target)

    def tables(self, operator: LineOperator, n: int) -> MatrixTables:
        below, middle, above = operator.matrix.rows(n).T
        return MatrixTables(below, middle, above, np.array([operator.scale]))

    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        words, t = _Words(spec, code, v, target.together), spec.ctype
        load, name = operand(code, v, "start + j * step")
        close, lost = negligible(spec.dtype) ** 2, float(np.finfo(spec.dtype).eps)  # squares of residuals, as a share
        start = ["s_x[j] = 0; s_r[j] = s_b[j]; s_0[j] = s_b[j]; s_p[j] = s_b[j];"]
        start += ["s_u[j] = s_b[j];"] if "u" in self.vectors else []
        scale = code.table(words.k, "scale")
        body = [*start_of_block(), *words.loop(*load, f"s_b[j] = {name} * {scale}[0]; s_y[j] = 0;"),
                *words.total("size", "s_b[j] * s_b[j]"), f"const {t} least = {close!r} * size, whole = size;",
                f"int rounds = {MOST_ITERATIONS};",
                f"for (int start_anew = 0; start_anew < {MOST_STARTS} && size > least; ++start_anew) {{",
                *words.loop(*start), f"{t} rho = size, smallest = size; int until = 0;",
                "for (int round = 0; round < rounds; ++round) {", *self.iteration(words),
                "if (left < smallest) { smallest = left; until = round + 1; }",
                f"if (!(left > least && left < {1.0 / negligible(spec.dtype)!r} * size && rho != 0)) break;", "}",
                *words.loop(f"s_r[j] = s_b[j] - {words.product('s_x[{}]')};"), *words.total("now", "s_r[j] * s_r[j]"),
                "if (!(now < size)) { if (until == 0 || until >= rounds) break; rounds = until; continue; }",
                f"size = now; rounds = {MOST_ITERATIONS};", *words.loop("s_y[j] += s_x[j]; s_b[j] = s_r[j];"), "}",
                *words.loop(f"const {t} x = size > {lost!r} * whole ? ({t})NAN : s_y[j];",
                            *code.after("start + j * step", ["x"], (v,)))]  # fmt: skip
        scratch = [Scratch(t, f"s_{n}", "length") for n in self.vectors]
        scratch += [Scratch(t, "room", str(self.threads))] if target.together else []
        phase = Phase("0", "1", tuple(body), whole=True)
        return [Pass("iterated", "lines", (phase,), blocked=True, scratch=tuple(scratch))]

    @abstractmethod
    def iteration(self, words: _Words) -> list[str]:
        """Statements of one iteration, which set ``left``, the square of the residual."""


class _Words:
    """What the text of an iteration is made of: loops over the points of a line, products with A, sums."""

    def __init__(self, spec: LineSpec, code: LinePointCode, v: int, together: bool):
        self.code, self.t, self.k, self.periodic = code, spec.ctype, spec.number(v), spec.periodic
        self.together = together
        self.barrier = "__syncthreads();" if together else ""

    def loop(self, *inside: str) -> list[str]:
        first, by = ("(ml_index)threadIdx.x", "j += (ml_index)blockDim.x") if self.together else ("0", "++j")
        return [f"for (ml_index j = {first}; j < length; {by}) {{", *inside, "}", self.barrier]

    def product(self, x: str) -> str:
        """A x at row j; ``x``: C expression of an entry, with {}."""
        before, behind = ("length - 1", "0") if self.periodic else ("0", "length - 1")
        below, middle, above = (self.code.table(self.k, word) for word in ("below", "middle", "above"))
        return (f"({below}[j] * {x.format(f'(j > 0 ? j - 1 : {before})')} + {middle}[j] * {x.format('j')}"
                f" + {above}[j] * {x.format(f'(j < length - 1 ? j + 1 : {behind})')})")  # fmt: skip

    def total(self, name: str, term: str) -> list[str]:
        """``name``: the sum of a term over the line."""
        lines = [f"{self.t} {name} = 0;", *self.loop(f"{name} += {term};")]
        return [*lines, f"{name} = ml_block_sum({name}, room);"] if self.together else lines


class ConjugateGradientSquared(_Krylov):
    """CGS (Sonneveld 1989)."""

    name = "cgs"
    summary = "a line in shared memory, conjugate gradients squared"
    vectors = ("y", "b", "x", "r", "0", "p", "u", "v", "q")

    def iteration(self, words: _Words) -> list[str]:
        t = words.t
        return [
            *words.loop(f"s_v[j] = {words.product('s_p[{}]')};"),
            *words.total("along", "s_0[j] * s_v[j]"), "if (!(along != 0)) break;", f"const {t} alpha = rho / along;",
            *words.loop("s_q[j] = s_u[j] - alpha * s_v[j]; s_v[j] = s_u[j] + s_q[j];"),
            *words.loop("s_x[j] += alpha * s_v[j];", f"s_r[j] -= alpha * {words.product('s_v[{}]')};"),
            *words.total("left", "s_r[j] * s_r[j]"), *words.total("next", "s_0[j] * s_r[j]"),
            f"const {t} beta = next / rho; rho = next;",
            *words.loop("s_u[j] = s_r[j] + beta * s_q[j]; s_p[j] = s_u[j] + beta * (s_q[j] + beta * s_p[j]);"),
        ]  # fmt: skip


class BiCgStab(_Krylov):
    """BiCGSTAB (van der Vorst 1992)."""

    name = "bicgstab"
    summary = "a line in shared memory, stabilised biconjugate gradients"
    vectors = ("y", "b", "x", "r", "0", "p", "v", "t")

    def iteration(self, words: _Words) -> list[str]:
        t = words.t
        return [
            *words.loop(f"s_v[j] = {words.product('s_p[{}]')};"),
            *words.total("along", "s_0[j] * s_v[j]"), "if (!(along != 0)) break;", f"const {t} alpha = rho / along;",
            *words.loop("s_r[j] -= alpha * s_v[j];"),
            *words.loop(f"s_t[j] = {words.product('s_r[{}]')};"),
            *words.total("top", "s_t[j] * s_r[j]"), *words.total("bottom", "s_t[j] * s_t[j]"),
            f"const {t} omega = bottom > 0 ? top / bottom : 0;",
            *words.loop("s_x[j] += alpha * s_p[j] + omega * s_r[j]; s_r[j] -= omega * s_t[j];"),
            *words.total("left", "s_r[j] * s_r[j]"), *words.total("next", "s_0[j] * s_r[j]"),
            f"const {t} beta = omega != 0 ? next / rho * (alpha / omega) : 0; rho = omega != 0 ? next : 0;",
            *words.loop("s_p[j] = s_r[j] + beta * (s_p[j] - omega * s_v[j]);"),
        ]  # fmt: skip
