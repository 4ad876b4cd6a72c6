"""What a case is: physics on a mesh that a person can run by name.

A case is one subclass of ``Case``: in a module of ``solvers``, in an installed package, or in a file of your own. That
is all it takes for the command line to find, show and run it. The runner asks it for the answers below, and for those
of every task, and does the rest: the time loop, progress, monitors, fields, checkpoints, pictures.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case.even_steps import Clock
from meshloom.case.schedules import apply_schedules, loop_names, loops_text
from meshloom.case.settings import (
    MOST_ITERATIONS,
    PRECISIONS,
    OutputOptions,
    idle,
    measuring,
    setting_rows,
    wishes_of,
    with_measuring,
)
from meshloom.config import flatten, to_toml
from meshloom.errors import ConfigError, nearest, shown
from meshloom.records import dataclass
from meshloom.run.names import CHECKPOINT, restart_command
from meshloom.run.output import check_sizes, write_on_mesh
from meshloom.run.own_rows import AnyRows, on_every_rank, rows_of, rows_on, values_at
from meshloom.run.samples import Sampled, Wishes
from meshloom.run.task import Limit, Point, ResidualStop, RunTask, SettingRow, by_global, is_due, shortened_text
from meshloom.run.verdict import Verdict, judged
from meshloom.run.views import Corners


@dataclass(frozen=True)
class CaseSource:
    """The Python file that a case of a person's own is in."""

    path: Path  # absolute
    class_name: str
    sha256: str  # of the text that was run

    @property
    def target(self) -> str:
        """As it is named on the command line."""
        return f"{self.path}:{self.class_name}"


class Case(RunTask):
    """One problem, set up and ready to step. Subclasses build everything in ``__init__(config)``: ``config``, ``mesh``,
    ``state``, ``recorded`` and ``program``, and say in ``cell_fields`` what is to be seen of it."""

    name: ClassVar[str]
    title: ClassVar[str]  # one line for ``meshloom cases``
    Config: ClassVar[type]  # a dataclass with at least the sections run, output and schedule
    monitors: ClassVar[tuple[str, ...]]  # columns of the CSV
    shown: ClassVar[tuple[str, ...] | None] = None  # the monitors to show while it runs; None: all
    end_setting: ClassVar[str] = "time.end"  # what says when a case that ends at a time does so
    limits: Mapping[str, Limit] = MappingProxyType({})  # of fields and globals by name; recorded ones are watched
    small: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # settings that leave hardly any elements: to look at it

    not_on_ranks: ClassVar[str] = ""  # why it does not run on several: "whose ...", of the case; '': it does

    source: ClassVar[CaseSource | None] = None  # where it comes from a file of a person's own

    config: Any  # an instance of Config
    mesh: ml.Mesh
    run_clock: Clock | None = None  # where the run ends at its end, and not after so many iterations
    _program_as_set: ml.Program
    _is_scheduled: bool

    @abstractmethod
    def __init__(self, config: Any): ...

    @abstractmethod
    def cell_fields(self) -> dict[str, np.ndarray]:
        """What goes into VTU files: name -> (cells,) or (cells, dim), or a field. Of several ranks each makes it of its
        own cells, ``mesh.cells.mine``, whose values ``field.local()`` has; that of all cells will do."""

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        """Monitors (n, monitors) from the values (n, recorded) of ``recorded`` after n iterations: these themselves,
        unless a case makes something else of them."""
        return recorded

    # What there is of a mesh; a case on a grid answers otherwise (``GridCase``).

    @property
    def elements(self) -> int:
        return len(self.mesh.cells)

    element_name: ClassVar[str] = "cells"
    domain: ClassVar[str] = "mesh"  # the section of the configuration that says what the case runs on

    @property
    def partitioned(self) -> ml.Set | None:
        """What ``run.partition`` cuts over ranks; None: there is no mesh."""
        return self.mesh.cells

    def sizes(self) -> dict[str, int]:
        """What there is, by name."""
        mesh = self.mesh
        return {"nodes": len(mesh.nodes), "cells": len(mesh.cells), "faces": len(mesh.faces),
                "boundary_faces": len(mesh.boundary_faces)}  # fmt: skip

    def size_text(self) -> str:
        """The same in a few words."""
        return f"{len(self.mesh.cells):,} cells, {len(self.mesh.faces):,} faces"

    def numbering(self) -> str:
        """How elements lie in memory, in words."""
        return str(self.mesh.arrangement)

    def digest(self) -> str:
        return self.mesh.digest

    def location_of(self, on: ml.Set, element: int) -> str:
        if on is self.mesh.cells:
            corners = np.asarray(self.mesh.lists.cells.nodes[element])
            place = values_at(self.mesh.nodes, self._node_places(), corners).mean(axis=0)
        elif on is self.mesh.nodes:
            place = values_at(self.mesh.nodes, self._node_places(), np.array([element]))[0]
        elif type(self).node_positions is Case.node_positions:
            return RunTask.location_of(self, on, element)
        else:  # a set of its own does not know that nodes have moved
            return f"{on.name} element {element}"
        word = "cell" if on is self.mesh.cells else "node"
        return f"{word} {element} at ({', '.join(f'{part:.4g}' for part in place)})"

    fields_method: ClassVar[str] = "cell_fields"

    def write_fields(self, stem: Path) -> Path:
        return write_on_mesh(stem, self.mesh, *self._rows_on_mesh(), self._node_places(), pieces=self.in_pieces)

    def _rows_on_mesh(self) -> tuple[dict[str, AnyRows], dict[str, AnyRows]]:
        """What is to be seen on cells and on nodes, by number: of several ranks each may have its own."""
        return rows_on(self.mesh.cells, self.cell_fields()), rows_on(self.mesh.nodes, self.node_fields())

    def _node_places(self) -> AnyRows:
        """``node_positions``, of which each rank may have those of its own nodes."""
        moves = type(self).node_positions is not Case.node_positions
        return rows_of(self.mesh.nodes, self.node_positions() if moves else self.mesh.coordinates)

    @property
    def in_pieces(self) -> bool:
        """Does each rank write the fields of its own elements? Settings of a person's own may not say so."""
        return getattr(self.config.output, "pieces", False)

    def fields_by_name(self) -> dict[str, Any]:
        """All that is written for ParaView, on cells and nodes; of several ranks each gets all of it."""
        cells, nodes = self._rows_on_mesh()
        return {name: on_every_rank(rows) for name, rows in {**cells, **nodes}.items()}

    def try_fields(self) -> None:
        cells, nodes = self._rows_on_mesh()
        check_sizes(cells, (len(self.mesh.cells),), "one for each cell")
        check_sizes(nodes, (len(self.mesh.nodes),), "one for each node")

    def drawn_over(self) -> tuple[AnyRows, Corners] | None:
        return self._node_places(), self.mesh.lists.cells.nodes

    def drawn_rows(self, values: ml.Field | AnyRows) -> AnyRows:
        return rows_of(self.mesh.cells, values)

    def node_fields(self) -> dict[str, np.ndarray]:
        """The same for values on nodes."""
        return {}

    def node_positions(self) -> np.ndarray:
        """Where the nodes are now, (nodes, dim), or this rank's own, ``mesh.nodes.mine``; other than the mesh's
        coordinates where it moves."""
        return self.mesh.coordinates.numpy()

    def restored(self) -> None:
        """Make again what follows from ``state`` and is kept with it, such as ghosts: a checkpoint has been put in, and
        its run may have had other settings, which need less of that."""

    def why_not_after(self, before: Any) -> str:
        """Why a run with the settings ``before`` cannot go on with those of this case; '' where it can.

        For what neither mesh, state nor monitors tell, such as the meaning of a monitor, or tell less well: it is asked
        before the state is put in.
        """
        return ""

    def longer(self) -> str:
        """The option of ``meshloom run`` that lets this run go on for as long again when it has come to its end."""
        now = self.recorded_now()
        span, stop = self.time_span(now), self.stops_at
        if stop is not None:
            return f"--set run.stop.below={stop.below / 10.0:g}"
        if self.steps_left(now) != 0 or span is None:
            return f"--iterations {min(2 * self.config.run.iterations, MOST_ITERATIONS)}"
        return f"--set {self.end_setting}={2.0 * span[1]!r}"

    @classmethod
    def check_ranks(cls) -> None:
        """UserError where there are several ranks, on which it does not run; all must ask."""
        if cls.not_on_ranks:
            ml.world.check_alone(f"case '{cls.name}', {cls.not_on_ranks},", "cases on meshes do, such as airfoil, and"
                                 " all that 'meshloom cases' does not mark")  # fmt: skip

    # --- when it ends

    def steps_left(self, recorded: np.ndarray) -> int | None:
        return None if self.run_clock is None else self.run_clock.steps.steps_left(self._time(self.run_clock, recorded))

    def time_span(self, recorded: np.ndarray) -> tuple[float, float] | None:
        return None if self.run_clock is None else (self._time(self.run_clock, recorded), self.run_clock.steps.end)

    def _time(self, clock: Clock, recorded: np.ndarray) -> float:
        """The clock's among the values of ``recorded``."""
        found = [values for one, values in by_global(self.recorded, recorded) if one is clock.time]
        if not found or all(one is not clock.time for one in self.state):
            raise ConfigError(f"case {shown(self.name)}: clock.time belongs to state and to recorded: runs end by it")
        return float(found[0][0])

    def ends_a_whole_step(self, time: float) -> bool:
        """Whether a run that ended at a time did so without shortening its last step."""
        return self.run_clock is not None and self.run_clock.steps.is_whole(time)

    def is_past(self, before: Any) -> str:
        """What to say where a run with the settings ``before``, which is gone on with here, is at a later time than
        the end is now; '' where it is not, or where that is its own end, which a last step may go beyond."""
        span, end = self.time_span(self.recorded_now()), flatten(before).get(self.end_setting)
        if span is None or end == span[1] or span[0] <= max(span[1], float(np.float32(span[1]))):
            return ""
        return f"already at time {span[0]:g} of {span[1]:g}; give a later one with --set {self.end_setting}"

    def shortened(self, before: Any) -> str:
        """What to say where a run with the settings ``before``, which has come to its end and is gone on with here, has
        shortened its last step to end there; '' where it has not."""
        span, end = self.time_span(self.recorded_now()), flatten(before).get(self.end_setting)
        if span is None or end is None or span[0] not in (end, float(np.float32(end))) or not span[1] > end:
            return ""
        return "" if self.ends_a_whole_step(end) else shortened_text(f"{self.end_setting} = {end:g}", span[1])

    # --- what the settings say of it as a task

    @property
    def iterations(self) -> int:
        return self.config.run.iterations

    @property
    def output(self) -> OutputOptions:
        return self.config.output

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers, as settings have it; for the fields of a case to be made with."""
        return PRECISIONS[self.config.run.precision]

    @property
    def precision(self) -> str:
        return self.config.run.precision

    def settings(self, *, comments: bool = True) -> str:
        remarks = {"schedule": loops_text(self.loop_names)}
        return to_toml(with_measuring(self.config), self.head(), comments=comments, remarks=remarks)

    @classmethod
    def own_file(cls) -> str | None:
        """The Python file of a case that does not come with Meshloom; None of others."""
        return None if is_ready(cls) else getattr(sys.modules.get(cls.__module__), "__file__", None)

    @classmethod
    def head(cls) -> dict[str, str]:
        """What finds this case again, at the top of its settings."""
        if cls.source is None:
            return {"case": cls.name}
        return {"case": cls.source.target, "case_sha256": cls.source.sha256}

    def setting_rows(self) -> tuple[SettingRow, ...]:
        return setting_rows(self.config)

    def going_on(self, folder: Path, finished: bool) -> str:
        return f"{restart_command(folder / CHECKPOINT)}{f' {self.longer()}' if finished else ''}"

    def had_fields(self, at: Point, before: Any) -> bool:
        span, end = self.time_span(at.recorded), flatten(before).get(self.end_setting)
        was_last = at.iteration >= before.run.iterations or (span is not None and end is not None and span[0] >= end)
        return before.output.vtu and (was_last or is_due(at.iteration, before.output.every))

    # --- the program, and how its loops are executed

    @property
    def program(self) -> Any:
        """One iteration: a Program, which may call solvers. When it is first asked for, its loops get the schedules of
        the ``[schedule]`` table."""
        if not self._is_scheduled:
            self._is_scheduled = True
            if self.config.schedule:
                apply_schedules(self.config.schedule, self._program_as_set)
        return self._program_as_set

    @program.setter
    def program(self, program: ml.Program) -> None:
        self._program_as_set, self._is_scheduled = program, False

    @property
    def loop_names(self) -> tuple[str, ...]:
        """What a ``[schedule]`` table may name, in the order of the program."""
        return loop_names(self._program_as_set)

    # --- what is measured as it goes

    @property
    def stops_at(self) -> ResidualStop | None:
        stop = getattr(self.config.run, "stop", None)
        if stop is None or not stop.monitor:
            for name in idle(stop):
                raise ConfigError(f"run.stop.{name}: nothing says which monitor ends the run; give run.stop.monitor,"
                                  f" one of {', '.join(self.monitors)}")  # fmt: skip
            return None
        if stop.monitor not in self.monitors:
            raise ConfigError(f"run.stop.monitor names {shown(stop.monitor)}{nearest(stop.monitor, self.monitors)}")
        if not stop.below > 0.0:
            raise ConfigError(f"run.stop.below: give the number above 0 below which {stop.monitor} ends the run")
        return ResidualStop(stop.monitor, stop.below, stop.relative, stop.every)

    @property
    def residual(self) -> tuple[str, float | None] | None:
        """The monitor that says how far it is to the steady state that the case seeks, and the limit below which it is
        there, None where the settings give none; None: it seeks no steady state."""
        return None

    def doubts(self) -> tuple[str, ...]:
        """What there is to say against the settings before the run starts, a line each, such as a step that is longer
        than what is known to be stable: warnings of the run."""
        return ()

    def verdict(self, history: Mapping[str, np.ndarray]) -> Verdict | None:
        stop, seeks = self.stops_at, self.residual
        if stop is not None:
            values = history[stop.monitor]
            found = judged(stop.monitor, values, stop.limit(float(values[0])) if len(values) else None)
        elif seeks is not None:
            found = judged(seeks[0], history[seeks[0]], seeks[1])
        else:
            return None
        return found if found is None or found.converged else found.with_cure(self.cure(found.state))

    @cached_property
    def wishes(self) -> Wishes:
        return wishes_of(self.config)

    def sampled(self) -> Sampled | None:
        # Places are looked for among all cells of the mesh.
        return Sampled(self.mesh, *self._rows_on_mesh(), positions=on_every_rank(self._node_places()))

    def write_surface(self, stem: Path, groups: tuple[str, ...]) -> Path:
        return write_on_mesh(stem, self.mesh, *self._rows_on_mesh(), self._node_places(), groups=groups)

    def __init_subclass__(cls) -> None:
        if "Config" in cls.__dict__ and is_dataclass(cls.Config):
            cls.Config = measuring(cls.Config)
        if "name" in vars(cls) and not (is_ready(registry.get(cls.name)) and not is_ready(cls)):
            registry[cls.name] = cls


#: Every case that has been imported, by name; no other takes the place of a ready one.
registry: dict[str, type[Case]] = {}


def is_ready(case: type | None) -> bool:
    """Whether a case comes with Meshloom."""
    return case is not None and case.__module__.startswith("meshloom.")


@contextmanager
def keeping_registry() -> Iterator[None]:
    """Cases that are defined inside are known to whoever asked for them, and to nobody else by name."""
    before = dict(registry)
    try:
        yield
    finally:
        registry.clear()
        registry.update(before)
