"""Where the time of a run goes: seconds, calls, bytes and flops of whatever was timed by itself.

That is a loop, or several loops that became one; a solver or function that is called, as a whole; and on a device all
that a program replays as one graph. Every replay takes these times anyway, so that knowing them costs nothing. Bytes
are the compulsory ones, each datum once, and flops are counted; what nobody knows is None, and never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from meshloom.errors import CompilerError, MeshloomError, one_line
from meshloom.operation.execution import Spent
from meshloom.operation.operation import Operation
from meshloom.operation.past_times import Timed
from meshloom.operation.program import Program
from meshloom.operation.replay import backends_of
from meshloom.process.ranks import launched_rank

REST = "everything else"
_UNITS = {
    "loops": "A row is a loop by itself.",
    "fused": "Loops that became one have one time, since values pass between them in registers: a row with + is such"
             " a group.",
    "functions": "A solver or function that is called is timed as a whole.",
    "graph": "The device replays all operations of a program as one graph, which is the unit of time: asking for a"
             " single one would break it up.",
}  # fmt: skip
_LONGEST = 44  # letters of a name in the table
_NUMBERS = (int, float)
_PLAIN: dict[str, tuple[type, ...]] = {  # as annotated
    "str": (str,), "int": (int,), "float": _NUMBERS, "float | None": (*_NUMBERS, NoneType),
}  # fmt: skip
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class LoopTime:
    """What was timed by itself: seconds and calls in all, bytes and flops of one call."""

    name: str
    what: str  # in a few words
    seconds: float
    calls: int
    bytes: float | None = None
    flops: float | None = None

    @property
    def rate(self) -> float | None:
        """Compulsory bytes per second."""
        return self.bytes * self.calls / self.seconds if self.bytes and self.seconds > 0.0 else None

    @property
    def flop_rate(self) -> float | None:
        return self.flops * self.calls / self.seconds if self.flops and self.seconds > 0.0 else None


def of_types(read: _Read) -> _Read:
    """A dataclass that was read from a file; TypeError where a text or a number in it is something else."""
    for one in fields(read):  # type: ignore[arg-type]  # which it is
        value, allowed = getattr(read, one.name), _PLAIN.get(str(one.type), (object,))
        if not isinstance(value, allowed):
            raise TypeError(f"{one.name} is a {type(value).__name__}")
    return read


@dataclass(frozen=True)
class TimeTable:
    """The rows, the longest first; ``seconds``: of all iterations, Python between them included. ``copy``: bytes per
    second of copying on this machine, which is the limit of what moves bytes; None where nobody has measured it."""

    seconds: float
    rows: tuple[LoopTime, ...]
    unit: str  # what a row is, in words
    copy: float | None = None

    def __str__(self) -> str:
        return as_text(self)

    def share(self, row: LoopTime) -> float:
        return row.seconds / self.seconds if self.seconds > 0.0 else 0.0

    def of_limit(self, row: LoopTime) -> float | None:
        """How close it comes to the speed of copying; what lies in caches may go beyond 1."""
        return row.rate / self.copy if row.rate is not None and self.copy else None

    @classmethod
    def from_json(cls, found: Any) -> TimeTable:
        """What ``asdict`` made of one; KeyError or TypeError where it is something else."""
        rows = tuple(of_types(LoopTime(**row)) for row in found["rows"])
        return of_types(cls(float(found["seconds"]), rows, str(found["unit"]), found["copy"]))


class Stopwatch:
    """Tells apart what a program has done before a run from what it does in it."""

    def __init__(self, program: Program):
        self._program = program
        self._before: WeakKeyDictionary[Operation, Spent] = WeakKeyDictionary()  # of a program that may record anew
        for one, spent in program.timed():
            self._before[one] = spent
        self._units_before = _by_unit(program)
        self._graphs_before = WeakKeyDictionary({one: one.spent for one in program.segments})

    def table(self, seconds: float, iterations: int, copy: float | None = None) -> TimeTable:
        """Where the seconds of so many iterations went."""
        ran, dropped = self._in_run()
        rows = [_of_operation(*one) for one in ran] + [_of_dropped(*unit, spent) for unit, spent in dropped.items()]
        kinds = {_kind_of(one.operation) for one in ran} | ({"loops"} if dropped else set())
        if not rows or any(one.operation.domain.is_call for one in ran):
            graphs = self._graphs({one.operation for one in ran}, Spent(seconds, iterations))
            rows, kinds = rows + graphs, kinds | ({"graph"} if graphs else set())
        rows.sort(key=lambda row: -row.seconds)
        rest = seconds - sum(row.seconds for row in rows)
        if rows and rest > 0.0:
            rows.append(LoopTime(REST, "Python between the loops, monitors", rest, 0))
        return TimeTable(seconds, tuple(rows), " ".join(text for kind, text in _UNITS.items() if kind in kinds), copy)

    def _in_run(self) -> tuple[list[Timed], dict[tuple[str, str], Spent]]:
        """The operations that ran, and those that the program no longer has, by name."""
        found, before = list[Timed](), self._units_before
        gone = {unit: spent.minus(before.get(unit, Spent())) for unit, spent in _by_unit(self._program).items()}
        for timed in self._program.timed():
            spent = timed.spent.minus(self._before.get(timed.operation, Spent()))
            if spent.calls > 0:
                found.append(Timed(timed.operation, spent))
                gone[timed.unit] = gone[timed.unit].minus(spent)
        return found, {unit: spent for unit, spent in gone.items() if spent.calls > 0}

    def _graphs(self, timed: set[Operation], everything: Spent) -> list[LoopTime]:
        """What a device replays as one: all of a program, or what lies between two calls."""
        segments, found = self._program.segments, []
        for number, one in enumerate(segments, 1):
            operations = {*one.loops, *[step.operation for step in one.fused_times()]}
            spent = one.spent.minus(self._graphs_before.get(one, Spent())) if one.spent.calls else everything
            if spent.seconds > 0.0 and not operations & timed:
                name = f"{self._program.name}{f', part {number}' if len(segments) > 1 else ''}"
                what = f"{len(one.steps)} operations as one graph"
                found.append(LoopTime(one_line(name), what, *spent, *_figures(one.steps)))
        return found


class RunTimes:
    """The stopwatch of a run. Its first chunk, which may compile, is not counted, unless there is no other."""

    def __init__(self, program: Program):
        self.program = program
        self._watch, self._seconds, self._iterations = Stopwatch(program), 0.0, 0
        self._first: tuple[Stopwatch, float, int] | None = None

    def done(self, iterations: int, seconds: float) -> None:
        """A chunk took so long."""
        if self._first is None:
            self._first = self._watch, seconds, iterations
            self._watch = Stopwatch(self.program)
        else:
            self._seconds, self._iterations = self._seconds + seconds, self._iterations + iterations

    def table(self, *, measured: bool) -> TimeTable | None:
        """Where the time went; None where there was no iteration. ``measured``: also how fast memory can be copied,
        which takes a moment, and some memory itself."""
        if self._first is None:
            return None
        copy = _copy_bandwidth(self.program) if measured else None
        if self._iterations:
            found = self._watch.table(self._seconds, self._iterations, copy)
            return replace(found, unit=f"{found.unit} The first iteration, which may compile, is not counted.")
        watch, seconds, iterations = self._first
        found = watch.table(seconds, iterations, copy)
        return replace(found, unit=f"{found.unit} There was no second iteration: compiling may be among this.")


def _copy_bandwidth(program: Program) -> float | None:
    """Bytes per second where its loops run; None where that is in several places, or nothing can measure it."""
    backends = backends_of(program.loops)
    if len(backends) == 1:
        with suppress(CompilerError):
            return backends.pop().copy_bandwidth()
    return None


def _by_unit(program: Program) -> dict[tuple[str, str], Spent]:
    """What a program has spent so far, that of recordings which it has dropped included."""
    found = program.past_times()
    for one in program.timed():
        found[one.unit] = found.get(one.unit, Spent()).plus(one.spent)
    return found


def _of_dropped(name: str, over: str, spent: Spent) -> LoopTime:
    """What nobody can ask for its bytes any more."""
    return LoopTime(one_line(name), one_line(f"loop over {over}, recorded before"), *spent)


def _of_operation(one: Operation, spent: Spent) -> LoopTime:
    if one.domain.is_call:
        what = "solver or function"
    elif one.domain.all_memory:
        what = "in memory"
    elif len(_loops_in(one)) > 1:
        what = f"{len(_loops_in(one))} loops as one over {one.over}"
    else:
        what = f"loop over {one.over}"
    return LoopTime(one_line(one.name), one_line(what), *spent, *_figures([one]))


def _kind_of(one: Operation) -> str:
    """What is timed as one: see ``_UNITS``."""
    return "functions" if one.domain.is_call else "fused" if len(_loops_in(one)) > 1 else "loops"


def _loops_in(one: Operation) -> list[Operation]:
    """Those that became it."""
    return [part for part in one.composed if not part.domain.all_memory]


def _figures(steps: Iterable[Operation]) -> tuple[float | None, float | None]:
    """Compulsory bytes and flops of one call each; None where somebody cannot say them."""
    listed = list(steps)
    try:
        return float(sum(one.compulsory for one in listed)), float(sum(one.flops for one in listed))
    except MeshloomError:
        return None, None


# ----- as text ------------------------------------------------------------------------------------------------------
HEADINGS = ("loop", "seconds", "share", "calls", "ms each", "MB each", "GB/s", "of copy", "GFlop/s")


def cells(table: TimeTable, row: LoopTime) -> tuple[str, ...]:
    """One row in words, below ``HEADINGS``; what is unknown is empty."""
    limit = table.of_limit(row)
    return (
        row.name,
        f"{row.seconds:.3f}",
        f"{100.0 * table.share(row):.1f} %",
        f"{row.calls:,}" if row.calls else "",
        f"{1e3 * row.seconds / row.calls:.4g}" if row.calls else "",
        f"{row.bytes / 1e6:.4g}" if row.bytes else "",
        f"{row.rate / 1e9:.3g}" if row.rate else "",
        f"{limit:.2f}" if limit is not None else "",
        f"{row.flop_rate / 1e9:.3g}" if row.flop_rate else "",
    )


def limit_text(table: TimeTable) -> str:
    """What the share of the limit is a share of."""
    if table.copy is None:
        return ("The limit, which is the speed of copying memory, was not measured; meshloom run --profile, and"
                " profile=True in a script, do that.")  # fmt: skip
    return (f"\"of copy\" is the share of the limit: copying memory runs at {table.copy / 1e9:.3g} GB/s here, measured;"
            " what lies in caches may go beyond 1.")  # fmt: skip


def as_text(table: TimeTable | None) -> str:
    """The table for a terminal, and what its figures mean; None: there is none."""
    if table is None:
        return "time by loop: there was no iteration"
    if not table.rows:
        return "time by loop: nothing was iterated"
    body = [cells(table, row) for row in table.rows]
    short = [(_shortened(name), *rest) for name, *rest in body]
    widths = [max(len(row[k]) for row in (HEADINGS, *short)) for k in range(len(HEADINGS))]
    aligned = (
        f"  {row[0]:{widths[0]}}" + "".join(f"  {row[k]:>{widths[k]}}" for k in range(1, len(row)))
        for row in (HEADINGS, *short)
    )
    head = f"time by loop, {table.seconds:.3g} s of iterations"
    return "\n".join([head, *(text.rstrip() for text in aligned), f"  {table.unit}", f"  {limit_text(table)}"])


class Profile(NamedTuple):
    """Whether a script wants the table, and whether it may be printed."""

    wanted: bool
    says: bool

    def tell(self, table: TimeTable | None) -> None:
        """Print it, where it is wanted."""
        if self.wanted and self.says and launched_rank() == 0:
            print(as_text(table), flush=True)


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
