"""Passes of nests as those of text, which the dialects still take."""

from __future__ import annotations

from collections.abc import Iterable

from meshloom.schedule import code
from meshloom.schedule.nest.nodes import Body, Expr, For, Raw, RawValue, Statement
from meshloom.schedule.nest.printer import Printer


class _Vectors(Printer):
    def advice(self, node: For) -> list[str]:
        return ["#pragma omp simd"] if node.independent else super().advice(node)


def phase(body: Body, first: Expr | None = None, last: Expr | None = None, *, whole: bool = False,
          repeat: Expr | None = None) -> code.Phase:  # fmt: skip
    text, ends = tuple(_Vectors().lines(body)), ("0", "1") if whole else ("", "")
    low, high = (one if given is None else str(given) for one, given in zip(ends, (first, last), strict=True))
    return code.Phase(low, high, text, whole=whole, repeat="" if repeat is None else str(repeat))


def scratch(ctype: str, name: str, size: Expr) -> code.Scratch:
    return code.Scratch(ctype, name, str(size))


def passed(name: str, count: Expr, phases: tuple[code.Phase, ...], *, blocked: bool = False,
           scratch: tuple[code.Scratch, ...] = ()) -> code.Pass:  # fmt: skip
    return code.Pass(name, str(count), phases, blocked=blocked, scratch=scratch)


def statements(text: Iterable[str]) -> list[Statement]:
    return [Raw(line) for line in text]


def values(text: Iterable[str]) -> list[Expr]:
    return [RawValue(one) for one in text]
