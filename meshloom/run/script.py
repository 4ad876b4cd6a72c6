"""The task that ``ml.march`` makes of a program: what a script wants to see of it, and when it is to end."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from meshloom.errors import RunError, UserError, one_line, shown
from meshloom.io.field_rows import all_finite, shown_rows
from meshloom.io.state import identity
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.globals import Condition
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh, mesh_of
from meshloom.operation.call import may_change_anything, with_loops_of_calls
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation
from meshloom.operation.parameters import name_of
from meshloom.operation.program import Program
from meshloom.process.ranks import ranks
from meshloom.records import dataclass
from meshloom.run.output import write_on_grid, write_on_mesh
from meshloom.run.samples import Sampled, Wishes
from meshloom.run.task import RunTask, SettingRow, by_global, is_due, shortened_text
from meshloom.run.verdict import BROKEN

Values = Field | Global
MOST_STEPS = 10**9
USUAL_SECONDS = 60.0  # between checkpoints, as in cases
_SHORTER = 1e-6  # of a step: less is rounding of the time
_ROUNDING = 1e-8  # of a step: a last one that is longer by so little is no reason for another one


@dataclass(frozen=True)
class Wanted:
    """What a script writes: see ``task.WantedOutput``."""

    vtu: bool
    every: int
    checkpoint_every: int
    checkpoint_seconds: float
    plot: bool = False


@dataclass(frozen=True)
class Until:
    """A run ends when ``time`` has come to ``end``, a number of its type; ``step``, where it is known, is cut so that
    it does so exactly."""

    time: Global
    end: float
    step: Global | None = None

    def sure(self, now: float) -> int:
        """Whole steps that can be taken without coming to the end, rounding included; 0 where nobody knows."""
        if self.step is None:
            return 0
        length = self._length()
        steps = (self.end - now) / length
        rounding = 4.0 * steps * float(np.finfo(self.time.dtype).eps) * max(abs(self.end), abs(now)) / length
        return max(0, math.floor(steps - 1.0 - rounding))

    def _length(self) -> float:
        assert self.step is not None
        length = float(self.step)
        if not (0.0 < length < math.inf):
            raise UserError(f"march: the step {self.step.name} is {length:g}; it must be a number above 0")
        return length

    def once(self, run: Callable[[], np.ndarray], column: int) -> np.ndarray:
        """One step, cut where it would go beyond the end: the row (1, recorded) after it. One that is too long or short
        by no more than the rounding of the time is whole: whoever goes on later has the steps of a run in one go."""
        left = self.end - float(self.time)
        if self.step is None or left > (length := self._length()) * (1.0 + _ROUNDING):
            return run()
        adding_up = 4.0 * abs(self.end) / length * float(np.finfo(self.time.dtype).eps) * abs(self.end)
        is_whole = abs(left - length) <= min(adding_up, _ROUNDING * length)
        self.step.value = length if is_whole else left
        try:
            row = run()
        finally:
            self.step.value = length
        # The sum of two numbers need not be the number that was meant, nor the step the one that was left.
        sizes = self.time.dtype.type(abs(self.end) + left), self.step.dtype.type(left)
        rounding = max(8.0 * max(float(np.spacing(size)) for size in sizes), 2.0 * adding_up if is_whole else 0.0)
        if row[0, column] != self.end and abs(row[0, column] - self.end) <= rounding:
            self.time.value = row[0, column] = self.end
        return row


class Script(RunTask):
    """A program that is repeated for a script. ``show``, ``fields`` and ``kept`` (what checkpoints hold) go by name."""

    # What a task is asked for, where it is known from the start.
    name: str = ""
    monitors: tuple[str, ...] = ()
    shown: tuple[str, ...] | None = ()
    element_name: str = "elements"
    iterations: int = 0
    elements: int = 0
    checkpointed: Mapping[str, Values] = MappingProxyType({})
    watched: tuple[Values, ...] | None = None
    wishes: Wishes = Wishes()

    def cure(self, state: str) -> str:
        return "with ml.debug(nan=True) the kernel's line and what it read are told, too" if state == BROKEN else ""

    def __init__(
        self, program: Program, steps: int, until: Until | None, stop: Condition | Callable[[], Any] | None,
        show: Mapping[str, Global], fields: Mapping[str, Field], kept: Mapping[str, Values], wanted: Wanted, *,
        watch: bool, wishes: Wishes | None = None,
    ):  # fmt: skip
        self.name, self._program, self.iterations, self.until, self.stop = program.name, program, steps, until, stop
        self.fields, self.checkpointed, self._wanted = fields, kept, wanted
        columns = dict(show)
        for one in (*((until.time,) if until else ()), *(stop.globals if isinstance(stop, Condition) else ())):
            if not any(one is known for known in columns.values()):
                columns[free_name(one.name, columns)] = one
        self.recorded = tuple(columns.values())
        self.monitors = tuple(name for key, one in columns.items() for name in column_names(key, one))
        self.shown = tuple(name for key, one in show.items() for name in column_names(key, one))
        self.changed = changed_by(program)
        self.state = tuple(kept.values()) or self.changed
        self.watched = tuple(one for one in self.state if _is_finite(one)) if watch else None
        sets = [one.set for one in self.state if isinstance(one, Field)]
        largest = max(sets, key=len, default=None)
        self.elements = 0 if largest is None else len(largest)
        self.element_name = "points" if isinstance(largest, Grid) else largest.name if largest else "elements"
        self._began = float(until.time) if until else 0.0
        self._iteration, self.stopped = 0, False
        self.wishes = wishes or Wishes()
        self._home = home_of(fields) if fields and (wanted.vtu or wishes) else None

    # --- as a task

    @property
    def program(self) -> Program:
        return self._program

    @property
    def output(self) -> Wanted:
        return self._wanted

    @property
    def shows_checkpoints(self) -> bool:
        kept = [*self.checkpointed.values()]
        return all(any(one is known for known in kept) or one not in self.changed for one in self.fields.values())

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded

    def digest(self) -> str:
        kept = sorted(self.checkpointed.items())
        parts = [f"{name} {identity(one.set)}" for name, one in kept if isinstance(one, Field)]
        return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()

    def write_fields(self, stem: Path) -> Path:
        if isinstance(self._home, Grid):
            return write_on_grid(stem, self._home, self.fields)
        assert self._home is not None
        return write_on_mesh(stem, self._home, *self._on_mesh)

    @property
    def _on_mesh(self) -> tuple[dict[str, Field], dict[str, Field]]:
        """The fields on cells, and those on nodes."""
        assert isinstance(self._home, Mesh)
        cells, nodes = self._home.cells, self._home.nodes
        return ({name: one for name, one in self.fields.items() if one.set is cells},
                {name: one for name, one in self.fields.items() if one.set is nodes})  # fmt: skip

    def sampled(self) -> Sampled | None:
        if self._home is None:
            return None
        if isinstance(self._home, Grid):
            return Sampled(self._home, points={name: shown_rows(one) for name, one in self.fields.items()})
        cells, nodes = ({name: shown_rows(one) for name, one in found.items()} for found in self._on_mesh)
        return Sampled(self._home, cells, nodes, positions=self._home.coordinates.numpy())

    def write_surface(self, stem: Path, groups: tuple[str, ...]) -> Path:
        assert isinstance(self._home, Mesh)
        return write_on_mesh(stem, self._home, *self._on_mesh, groups=groups)

    def setting_rows(self) -> tuple[SettingRow, ...]:
        """What ``ml.march`` was given."""
        until, stop, wanted, wishes = self.until, self.stop, self._wanted, self.wishes
        end = "" if until is None else f"{until.time.name} = {until.end:g}"
        told = {
            "steps": (f"{self.iterations:,}" if self.iterations < MOST_STEPS else "", "", "so many in all, at most"),
            "until": (end, "", "the time at which it ends"),
            "stop": (str(stop) if isinstance(stop, Condition) else name_of(stop) if stop else "", "", "ends it"),
            "every": (str(wanted.every), "0", "steps between files of fields"),
            "show": (", ".join(self.shown or ()), "", "monitors"),
            "fields": (", ".join(self.fields), "", "what goes into files"),
            "checkpoint": (", ".join(self.checkpointed), ", ".join(one.name for one in self.changed), "what is kept"),
            "checkpoint_every": (str(wanted.checkpoint_every), "0", "steps between checkpoints"),
            "checkpoint_seconds": (f"{wanted.checkpoint_seconds:g}", f"{USUAL_SECONDS:g}", "between checkpoints"),
            "watch": (str(self.watched is not None), "True", "ends it where something is not finite"),
            "probes": (", ".join(wishes.probes), "", "places whose values are written"),
            "lines": (", ".join(wishes.tracks), "", "lines along which values are written"),
            "integrals": (", ".join(wishes.integrals), "", "what is integrated"),
            "surface": (", ".join(wishes.surface), "", "boundary groups that are written"),
            "probe_every": (str(wishes.rows_every), "0", "steps between rows of probes and integrals"),
        }
        return tuple(SettingRow(key, *map(one_line, row)) for key, row in told.items())

    def heading(self, folder: Path) -> tuple[str, str]:
        """The name that a person gave to the run; that of its program says little."""
        return folder.resolve().name or self.name, f"program {self.name}"

    def going_on(self, folder: Path, finished: bool) -> str:
        more = " and a later end" if finished else ""
        return f"the same script with restart=True{more} in ml.march" if self.checkpointed else ""

    # --- computing

    def steps_left(self, recorded: np.ndarray) -> int | None:
        if self.stopped:
            return 0
        if self.until is None:
            return None
        now = recorded[self._time_column]
        if now >= self.until.end:
            return 0
        return self.until.sure(now) or None

    def is_past(self, history: np.ndarray) -> str:
        """What to say where these steps (n, monitors), gone on from here, have come further than to the end; '' where
        they have not. The last step goes beyond the end where nobody can cut it."""
        if self.until is None or not len(history):
            return ""
        times, exact = history[:, self._time_column], self.until.step is not None
        past = times[-1] > self.until.end if exact else len(times) > 1 and times[-2] >= self.until.end
        if not past:
            return ""
        return f"already at {self.until.time.name} = {times[-1]:g} of {self.until.end:g}; give a later end in until"

    def shortened(self, history: np.ndarray) -> str:
        """What to say where the last of these steps (n, monitors), gone on from here, was cut to end at a time."""
        if self.until is None or self.until.step is None or len(history) < 1:
            return ""
        now, step = float(history[-1, self._time_column]), float(self.until.step)
        before = float(history[-2, self._time_column]) if len(history) > 1 else self._began
        if not (now < self.until.end and now - before < (1.0 - _SHORTER) * step):
            return ""
        return shortened_text(f"{self.until.time.name} = {now:g}", self.until.end)

    def time_span(self, recorded: np.ndarray) -> tuple[float, float] | None:
        return None if self.until is None else (float(recorded[self._time_column]), self.until.end)

    def beginning(self) -> float:
        return self._began

    @property
    def has_end(self) -> bool:
        return self.until is not None or self.iterations < MOST_STEPS

    def early_end(self) -> str:
        return "" if self.stop is None else "stopped"

    @property
    def _time_column(self) -> int:
        assert self.until is not None
        before = self.recorded[: next(k for k, one in enumerate(self.recorded) if one is self.until.time)]
        return sum(one.dim for one in before)

    def advance(self, count: int) -> np.ndarray:
        asked_at_last = self.stop is None or (not isinstance(self.stop, Condition) and self._wanted.every > 0)
        now = float(self.until.time) if self.until else 0.0
        if asked_at_last and (self.until is None or count <= self.until.sure(now)):
            rows = self._program.run(count, record=self.recorded)
            self.stopped = self._says_stop(self._iteration + count)
        else:
            rows = np.concatenate(list(self._one_by_one(count)))
        self._check_time(now, rows)
        self._iteration += len(rows)
        return rows

    def _one_by_one(self, count: int) -> Iterator[np.ndarray]:
        """Rows (1, recorded) of at most so many steps: fewer where one of them is the last."""

        def run() -> np.ndarray:
            return self._program.run(1, record=self.recorded)

        for number in range(1, count + 1):
            row = run() if self.until is None else self.until.once(run, self._time_column)
            yield row
            self.stopped = self._says_stop(self._iteration + number)
            if self.stopped or (self.until is not None and not row[0, self._time_column] < self.until.end):
                return

    def _says_stop(self, iteration: int) -> bool:
        if isinstance(self.stop, Condition):
            return bool(self.stop)
        if self.stop is None or not is_due(iteration, self._wanted.every or 1):
            return False
        return ranks().broadcast(yes(self.stop()))

    def _check_time(self, before: float, rows: np.ndarray) -> None:
        """RunError where the time stands still: the run would never end."""
        if self.until is None:
            return
        times = np.concatenate(([before], rows[:, self._time_column]))
        still = np.flatnonzero(np.diff(times) <= 0.0)
        if still.size:
            raise RunError(f"march: {self.until.time.name} did not grow in step {self._iteration + still[0] + 1}, where"
                           f" it is {times[still[0] + 1]:g}: {self.name} must add its step to it")  # fmt: skip

    def resumed(self, iteration: int, last: np.ndarray) -> None:
        """A checkpoint of this iteration has been put in, ``last`` (recorded,) are the monitors after it."""
        for one, values in by_global(self.recorded, last):
            one.assign(np.rint(values).astype(one.dtype) if one.dtype.kind == "i" else values)
        self._iteration, self.stopped = iteration, self._says_stop(iteration)


# ----- what a program says of itself ------------------------------------------------------------------------------
def unsaid_calls(program: Program) -> list[Operation]:
    """Those that may change anything."""
    return [o for o in program.operations if may_change_anything(o)]


def _said(program: Program) -> list[Operation]:
    """Its operations; of calls that may change anything the loops that they show, if any."""
    unsaid = unsaid_calls(program)
    return [each for one in program.operations for each in (with_loops_of_calls([one]) if one in unsaid else (one,))]


def changed_by(program: Program) -> tuple[Values, ...]:
    """What its operations say that they change and leave to be read, each once."""
    return tuple(one for one in Dataflow(_said(program)).written if not (isinstance(one, Field) and one.temporary))


def handed_over(program: Program) -> list[Values]:
    """What one step certainly hands to the next: it is looked at before anything is written to it, and written."""
    graph = Dataflow(_said(program))
    needed = dict.fromkeys(one for loop, one in graph.exposed_uses() if not loop.domain.everything)
    return [one for one in needed if one in graph.written and not (isinstance(one, Field) and one.temporary)]


def home_of(fields: Mapping[str, Field]) -> Mesh | Grid:
    """The one mesh or grid that all of some fields live on; UserError where there is none that files show."""
    homes: list[Mesh | Grid] = []
    for name, one in fields.items():
        found = one.set if isinstance(one.set, Grid) else _mesh_with(name, one.set)
        if homes and found is not homes[0]:
            raise UserError(f"march: the fields {next(iter(fields))} and {name} live on two meshes or grids; one run"
                            " writes those of one")  # fmt: skip
        homes.append(found)
    return homes[0]


def _mesh_with(name: str, on: Set) -> Mesh:
    mesh = mesh_of(on)
    if mesh is None or not (on is mesh.cells or on is mesh.nodes):
        what = "which is no mesh's, or of one that is gone" if mesh is None else "where files have no place for it"
        raise UserError(f"march: field {name} lives on {on.name}, {what}; files show fields on cells and nodes of a"
                        " mesh and on grids")  # fmt: skip
    return mesh


def _is_finite(one: Values) -> bool:
    if isinstance(one, Field) and one.undefined_after:
        return False
    return one.dtype.kind == "f" and all_finite([one])


def column_names(name: str, one: Global) -> list[str]:
    """``rms``, or ``force[0]``, ``force[1]`` of a vector."""
    return [name] if one.shape == () else [f"{name}[{k}]" for k in range(one.dim)]


def free_name(name: str, taken: Mapping[str, Any]) -> str:
    """``u``, or ``u 2``, ``u 3`` where that is taken."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name} {number}", number + 1
    return found


def yes(answer: Any) -> bool:
    """What a function that is asked whether to stop says; UserError where that is neither yes nor no."""
    if isinstance(answer, bool | np.bool_ | Condition):
        return bool(answer)
    raise UserError(f"march: the function stop must return True or False, or a condition, got {shown(answer)}")
