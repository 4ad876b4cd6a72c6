"""Where the time of a run goes: seconds, calls, bytes and flops of whatever was timed by itself.

That is a loop, or several loops that became one; a solver or function that is called, as a whole; and on a device all
that a program replays as one graph. Every replay takes these times anyway, so that knowing them costs nothing. Bytes
are the compulsory ones, each datum once, and flops are counted; what nobody knows is None, and never a guess.
On several ranks a row is that of the rank which took longest for it, next to the mean of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import field, fields, replace
from types import NoneType
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from meshloom.errors import CompilerError, MeshloomError, one_line
from meshloom.operation.call import CalledFunction
from meshloom.operation.execution import Spent
from meshloom.operation.operation import Operation
from meshloom.operation.past_times import Timed
from meshloom.operation.program import Program
from meshloom.operation.replay import backends_of
from meshloom.operation.tape import Tape
from meshloom.operation.tape_times import executed, fused_times
from meshloom.process.ranks import MessageCounts, launched, ranks
from meshloom.records import dataclass
from meshloom.run.rank_table import (
    EXPLAINED,
    MESSAGE_HEADINGS,
    RankTable,
    joined,
    message_rows,
    owned_elements,
    rank_headings,
    rank_rows,
    side_by_side,
)
from meshloom.target.limit import Peaks, in_turn

REST = "everything else"
_UNITS = {
    "loops": "A row is a loop by itself.",
    "fused": "Loops that became one have one time, since values pass between them in registers: a row with + is such"
             " a group.",
    "functions": "A solver or function that is called is timed as a whole.",
    "messages": "An exchange between ranks is a row, and so is a reduction of Globals over them, waiting included.",
    "graph": "The device replays all operations of a program as one graph, which is the unit of time: asking for a"
             " single one would break it up.",
}  # fmt: skip
_CALLED = {"functions": "solver or function", "messages": "messages between ranks"}
_SLOWEST = (" Seconds are those of the slowest rank, next to the mean of all {}: where one computes longer others wait,"
            " so rows need not add up.")  # fmt: skip
_MOST_RANKS = 16  # that have a row each in a terminal
_LONGEST = 44  # letters of a name in the table
_NUMBERS = (int, float)
_PLAIN: dict[str, tuple[type, ...]] = {  # as annotated
    "str": (str,), "int": (int,), "float": _NUMBERS, "float | None": (*_NUMBERS, NoneType),
}  # fmt: skip
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class LoopTime:
    """What was timed by itself: seconds and calls in all, bytes and flops of one call. On several ranks those of the
    slowest, and ``mean``, the seconds of a rank on average; None on one."""

    name: str
    what: str  # in a few words
    seconds: float
    calls: int
    bytes: float | None = None
    flops: float | None = None
    mean: float | None = None
    limit: float | None = None  # seconds of a call at least, as far as that was measured
    binds: str = ""  # what of it takes longest

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
    second of copying on this machine, which is the limit of what moves bytes; None where nobody has measured it.
    ``ranks``: what each rank did, where there are several."""

    seconds: float
    rows: tuple[LoopTime, ...]
    unit: str  # what a row is, in words
    copy: float | None = None
    ranks: RankTable | None = None

    def __str__(self) -> str:
        return as_text(self)

    def share(self, row: LoopTime) -> float:
        return row.seconds / self.seconds if self.seconds > 0.0 else 0.0

    def of_limit(self, row: LoopTime) -> float | None:
        """How close it comes to its own limit (``target/limit.py``); what lies in caches may go beyond 1."""
        return row.limit * row.calls / row.seconds if row.limit and row.seconds > 0.0 else None

    def of_copy(self, row: LoopTime) -> float | None:
        """How close its bytes come to the speed of copying."""
        return row.rate / self.copy if row.rate is not None and self.copy else None

    @classmethod
    def from_json(cls, found: Any) -> TimeTable:
        """What ``asdict`` made of one; KeyError or TypeError where it is something else."""
        rows = tuple(of_types(LoopTime(**row)) for row in found["rows"])
        over = found.get("ranks")  # accounts of before do not know of ranks
        of_ranks = None if over is None else RankTable.from_json(over)
        return of_types(cls(float(found["seconds"]), rows, str(found["unit"]), found["copy"], of_ranks))


class Stopwatch:
    """Tells apart what a program has done before a run from what it does in it."""

    def __init__(self, program: Program):
        self._program = program
        self._before: WeakKeyDictionary[Operation, Spent] = WeakKeyDictionary()  # of a program that may record anew
        for one, spent in program.timed():
            self._before[one] = spent
        self._units_before = _by_unit(program)
        self._graphs_before = WeakKeyDictionary({one: one.spent for one in _segments(program)})

    def table(self, seconds: float, iterations: int, peaks: Peaks | None = None) -> TimeTable:
        """Where the seconds of so many iterations went; ``peaks``: of where loops run, if they were measured."""
        ran, dropped = self._in_run()
        rows = [_of_operation(*one, peaks) for one in ran]
        rows += [_of_dropped(*unit, spent) for unit, spent in dropped.items()]
        kinds = {_kind_of(one.operation) for one in ran} | ({"loops"} if dropped else set())
        if not rows or any(one.operation.domain.is_call for one in ran):
            graphs = self._graphs({one.operation for one in ran}, Spent(seconds, iterations), peaks)
            rows, kinds = rows + graphs, kinds | ({"graph"} if graphs else set())
        rows.sort(key=lambda row: -row.seconds)
        rest = seconds - sum(row.seconds for row in rows)
        if rows and rest > 0.0:
            rows.append(LoopTime(REST, "Python between the loops, monitors", rest, 0))
        return TimeTable(seconds, tuple(rows), " ".join(text for kind, text in _UNITS.items() if kind in kinds),
                         None if peaks is None else peaks.copy)  # fmt: skip

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

    def _graphs(self, timed: set[Operation], everything: Spent, peaks: Peaks | None) -> list[LoopTime]:
        """What a device replays as one: all of a program, or what lies between two calls."""
        segments, found = _segments(self._program), []
        for number, one in enumerate(segments, 1):
            operations = {*one.loops, *[step.operation for step in fused_times(one)]}
            spent = one.spent.minus(self._graphs_before.get(one, Spent())) if one.spent.calls else everything
            if spent.seconds > 0.0 and not operations & timed:
                name = f"{self._program.name}{f', part {number}' if len(segments) > 1 else ''}"
                what = f"{len(one.steps)} operations as one graph"
                found.append(LoopTime(one_line(name), what, *spent, **_figures(one.steps, peaks)))
        return found


class RunTimes:
    """The stopwatch of a run. Its first chunk, which may compile, is not counted, unless there is no other."""

    def __init__(self, program: Program):
        self.program = program
        self._watch, self._counted = Stopwatch(program), _Counted()
        self._first: tuple[Stopwatch, _Counted] | None = None

    def done(self, iterations: int, seconds: float, sent: MessageCounts | None = None) -> None:
        """A chunk took so long; what this rank has ``sent`` in it."""
        chunk = _Counted(seconds, iterations, sent or {})
        if self._first is None:
            self._first = self._watch, chunk
            self._watch = Stopwatch(self.program)
        else:
            self._counted = self._counted.plus(chunk)

    def table(self, *, measured: bool) -> TimeTable | None:
        """Where the time went, of all ranks, which all must ask; None where there was no iteration. ``measured``: also
        how fast memory can be copied, which takes a moment, and some memory itself."""
        if self._first is None:
            return None
        peaks = _peaks(self.program) if measured else None
        watch, counted = (self._watch, self._counted) if self._counted.iterations else self._first
        found = watch.table(counted.seconds, counted.iterations, peaks)
        words = ("The first iteration, which may compile, is not counted." if self._counted.iterations else
                 "There was no second iteration: compiling may be among this.")  # fmt: skip
        return _of_all_ranks(replace(found, unit=f"{found.unit} {words}"), counted, self.program)


@dataclass(frozen=True)
class _Counted:
    """Seconds of so many iterations, and what this rank sent in them."""

    seconds: float = 0.0
    iterations: int = 0
    sent: MessageCounts = field(default_factory=dict)

    def plus(self, other: _Counted) -> _Counted:
        return _Counted(self.seconds + other.seconds, self.iterations + other.iterations, joined(self.sent, other.sent))


def _segments(program: Program) -> list[Tape]:
    """What is replayed of a program without a call in between."""
    return [part for one in program.segments for part in executed(one)]


# ----- of several ranks -----------------------------------------------------------------------------------------------
def _of_all_ranks(here: TimeTable, counted: _Counted, program: Program) -> TimeTable:
    """The same table on all ranks, from that of each; all must ask."""
    if ranks().size == 1:
        return here
    told = ranks().allgathered((here, counted.sent, owned_elements(program)), "times of loops")
    tables, sent, owned = zip(*told, strict=True)
    each = side_by_side(counted.iterations, [one.seconds for one in tables], sent, owned)
    return replace(slowest(tables), ranks=each)


def slowest(tables: Sequence[TimeTable]) -> TimeTable:
    """Of each row that of the rank which took longest for it, with the mean of all; a rank that has none took no
    time. ``tables``: by rank."""
    of_ranks = [_by_name(one.rows) for one in tables]
    found: list[LoopTime] = []
    for key in dict.fromkeys(key for rows in of_ranks for key in rows):
        have = [rows[key] for rows in of_ranks if key in rows]
        longest = max(have, key=lambda row: row.seconds)
        where = "" if len(have) == len(tables) else f", on {len(have)} of {len(tables)} ranks"
        average = sum(row.seconds for row in have) / len(tables)
        found.append(replace(longest, what=f"{longest.what}{where}", mean=average))
    found.sort(key=lambda row: (row.name == REST, -row.seconds))
    copies = [one.copy for one in tables if one.copy is not None]
    return TimeTable(max(one.seconds for one in tables), tuple(found), tables[0].unit + _SLOWEST.format(len(tables)),
                     min(copies, default=None))  # fmt: skip


def _by_name(rows: Iterable[LoopTime]) -> dict[tuple[str, str], LoopTime]:
    """Rows of one rank by name and what they are: a loop has one, however often a program has it, and into how many
    pieces it is cut for the sake of messages."""
    found: dict[tuple[str, str], LoopTime] = {}
    for row in rows:
        before = found.get((row.name, row.what))
        found[row.name, row.what] = row if before is None else _together(before, row)
    return found


def _together(one: LoopTime, other: LoopTime) -> LoopTime:
    """One row of two; bytes and flops of a call are the mean of all calls."""
    calls = one.calls + other.calls

    def each(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None or not calls else (a * one.calls + b * other.calls) / calls

    return LoopTime(one.name, one.what, one.seconds + other.seconds, calls, each(one.bytes, other.bytes),
                    each(one.flops, other.flops), limit=each(one.limit, other.limit), binds=one.binds)  # fmt: skip


def _peaks(program: Program) -> Peaks | None:
    """Of where its loops run; None where that is in several places, or nothing can measure it."""
    backends = backends_of(program.loops)
    if len(backends) == 1:
        with suppress(CompilerError):
            return backends.pop().peaks()
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


def _of_operation(one: Operation, spent: Spent, peaks: Peaks | None) -> LoopTime:
    over = one.over if ranks().size == 1 or one.domain.set is None else one.domain.set.name  # no box of a slab
    if one.domain.is_call:
        what = _CALLED[_kind_of(one)]
    elif one.domain.all_memory:
        what = "in memory"
    elif len(_loops_in(one)) > 1:
        what = f"{len(_loops_in(one))} loops as one over {over}"
    else:
        what = f"loop over {over}"
    return LoopTime(one_line(one.name), one_line(what), *spent, **_figures([one], peaks))


def _kind_of(one: Operation) -> str:
    """What is timed as one: see ``_UNITS``."""
    if one.domain.is_call:
        return cast(CalledFunction, one.body).timed_as
    return "fused" if len(_loops_in(one)) > 1 else "loops"


def _loops_in(one: Operation) -> list[Operation]:
    """Those that became it."""
    return [part for part in one.composed if not part.domain.all_memory]


def _figures(steps: Iterable[Operation], peaks: Peaks | None) -> dict[str, Any]:
    """Compulsory bytes and flops of one call each, and its limit by the peaks; none where somebody cannot say them."""
    listed = list(steps)
    try:
        moved, flops = sum(one.compulsory for one in listed), sum(one.flops for one in listed)
        found = {"bytes": float(moved), "flops": float(flops)}
        limit = None if peaks is None else in_turn([one.limit_by(peaks) for one in listed])
    except MeshloomError:
        return {}
    return found if limit is None else {**found, "limit": limit.seconds, "binds": limit.binds}


# ----- as text ------------------------------------------------------------------------------------------------------
def headings(table: TimeTable) -> tuple[str, ...]:
    of_ranks = ("mean",) if table.ranks is not None else ()
    return ("loop", "seconds", *of_ranks, "share", "calls", "ms each", "MB each", "GB/s", "GFlop/s", "of limit", "by")


def cells(table: TimeTable, row: LoopTime) -> tuple[str, ...]:
    """One row in words, below the ``headings``; what is unknown is empty."""
    share = table.of_limit(row)
    return (
        row.name,
        f"{row.seconds:.3f}",
        *((f"{row.mean:.3f}" if row.mean is not None else "",) if table.ranks is not None else ()),
        f"{100.0 * table.share(row):.1f} %",
        f"{row.calls:,}" if row.calls else "",
        f"{1e3 * row.seconds / row.calls:.4g}" if row.calls else "",
        f"{row.bytes / 1e6:.4g}" if row.bytes else "",
        f"{row.rate / 1e9:.3g}" if row.rate else "",
        f"{row.flop_rate / 1e9:.3g}" if row.flop_rate else "",
        f"{share:.2f}" if share is not None else "",
        row.binds if share is not None else "",
    )


def limit_text(table: TimeTable) -> str:
    """What the share of the limit is a share of."""
    if table.copy is None:
        return ("The limit, by the speed of copying memory and of arithmetic, was not measured; meshloom run --profile,"
                " and profile=True in a script, do that.")  # fmt: skip
    return (f"\"of limit\": the time that a loop takes at least, by the bytes that it has to move or by its arithmetic,"
            f" as a share of what it took. Both were measured here: copying memory runs at {table.copy / 1e9:.3g} GB/s."
            " What lies in caches may go beyond 1.")  # fmt: skip


def as_text(table: TimeTable | None) -> str:
    """The table for a terminal, and what its figures mean; None: there is none."""
    if table is None:
        return "time by loop: there was no iteration"
    if not table.rows:
        return "time by loop: nothing was iterated"
    head = f"time by loop, {table.seconds:.3g} s of iterations"
    rows = _aligned(headings(table), [cells(table, row) for row in table.rows])
    text = [head, *rows, f"  {table.unit}", f"  {limit_text(table)}"]
    return "\n".join(text if table.ranks is None else [*text, *_ranks_as_text(table.ranks)])


def _ranks_as_text(table: RankTable) -> list[str]:
    """Balance, waits and messages; of many ranks the means alone."""
    few = len(table.seconds) <= _MOST_RANKS
    head = f"{len(table.seconds)} ranks, {table.iterations:,} iterations"
    return [head, *_aligned(rank_headings(table), rank_rows(table)[: None if few else 2]),
            *_aligned(MESSAGE_HEADINGS, message_rows(table)), f"  {EXPLAINED}"]  # fmt: skip


def _aligned(heads: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; the first column is names."""
    texts = [(_shortened(name), *rest) for name, *rest in (heads, *body)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [(f"  {row[0]:{widths[0]}}" + "".join(f"  {row[k]:>{widths[k]}}" for k in range(1, len(row)))).rstrip()
            for row in texts]  # fmt: skip


class Profile(NamedTuple):
    """Whether a script wants the table, and whether it may be printed."""

    wanted: bool
    says: bool

    def tell(self, table: TimeTable | None) -> None:
        """Print it, where it is wanted."""
        if self.wanted and self.says and launched().rank == 0:
            print(as_text(table), flush=True)


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
