"""What a case is: physics on a mesh that a person can run by name.

A case is one subclass of ``Case`` in one module of this folder; naming it there is all it takes for the
command line to find, list, show and run it. The runner asks it for the answers below and does the rest:
the time loop, progress, monitors, fields, checkpoints, pictures.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.config import option, table
from meshloom.errors import ConfigError, ScheduleError, UserError, nearest, shown
from meshloom.toml import toml_key

MOST_ITERATIONS = 10**9
DEFAULT = "default"  # the entry of a [schedule] table for all loops that it does not name
_WHOLE_NUMBERS = ("block", "registers", "vector", "shared")  # the keys of a schedule that are no words
PRECISIONS: dict[str, np.dtype[Any]] = {"double": np.dtype(np.float64), "single": np.dtype(np.float32)}


# --- the sections that all cases share --------------------------------------------------------------------


@dataclass(frozen=True)
class RunOptions:
    """How long and on what to run."""

    iterations: int = option(1000, "iterations in all, those before a restart included", low=1, high=MOST_ITERATIONS)
    backend: str = option(
        "auto",
        "what executes the loops; auto takes cuda with a GPU, else cpu with a C++ compiler, else numpy",
        allowed=lambda: ("auto", *ml.backends()),
    )
    precision: str = option("double", "type of the numbers in all fields", allowed=tuple(PRECISIONS))
    threads: int = option(0, "threads of the cpu back end; 0 takes all cores", low=0, high=4096)


@dataclass(frozen=True)
class OutputOptions:
    """What to write, and how often."""

    vtu: bool = option(True, "write the fields as VTK files (.vtu; of a grid .vti or .vtr) with a .pvd series")
    every: int = option(0, "iterations between VTK files; 0 writes one at the end", low=0, high=10**9)
    plot: bool = option(True, "draw a PNG at the end (needs matplotlib)")
    checkpoint_every: int = option(0, "iterations between checkpoints; 0 goes by the clock alone", low=0, high=10**9)
    checkpoint_seconds: float = option(60.0, "seconds between checkpoints; 0 goes by iterations alone", low=0.0)


def order_option() -> Any:
    """How the mesh of a case lies in memory, an option of its [mesh]: see ``Mesh.arranged``."""
    return option(
        "auto",
        "how the mesh lies in memory, which only matters for speed; auto renumbers it if it comes in a bad order;"
        " all output keeps your numbering",
        allowed=lambda: ("auto", *ml.orderings()),
    )


def schedule_table(example: str) -> Any:
    """The ``[schedule]`` table of a case; ``example`` is a loop where a strategy matters.

    Which loops there are, the program of the case knows: names are checked when it has been recorded.
    """
    return table(
        f'How loops are executed, where the automatic choice shall not do: a line such as {example} = "color" or'
        f' {example} = {{strategy = "color", block = 512}}, and default for all loops that are not named.',
        check_schedule,
    )


def loops_text(names: Sequence[str]) -> str:
    """What to add to the documentation of a ``[schedule]`` table where the loops are known."""
    return f"Loops: {', '.join(names)}."


def check_schedule(loop: str, value: Any) -> None:
    """The check of an entry: ``loop = "strategy"`` or ``loop = {strategy = ..., block = ...}``, whatever the loop."""
    if not isinstance(value, str | dict):
        raise ValueError(f'must be a strategy or a table {{strategy = "color", block = 512}}, got {shown(value)}')
    schedule = _schedule(value)
    _check_name("strategy", schedule.strategy, ("auto", "fastest", *ml.strategies()))
    _check_name("order", schedule.order, ml.orderings())
    _check_name("variant", schedule.variant, ml.variants(schedule.strategy))


def _schedule(value: str | dict[str, Any]) -> ml.Schedule:
    """An entry of the table as a Schedule; ValueError when a key or the type of its value is wrong."""
    parts = {"strategy": value} if isinstance(value, str) else value
    known = [f.name for f in fields(ml.Schedule)]
    for key, part in parts.items():
        if key not in known:
            raise ValueError(f"has the unknown key {shown(key)}{nearest(key, known)}")
        kind, words = (int, "a whole number") if key in _WHOLE_NUMBERS else (str, "a string")
        if type(part) is not kind:
            raise ValueError(f"has {key} {shown(part)}; it must be {words}")
    try:
        return ml.Schedule(**parts)
    except ScheduleError as error:
        raise ValueError(f"does not fit: {str(error).removeprefix('schedule: ')}") from None


def _check_name(key: str, name: str, allowed: tuple[str, ...]) -> None:
    if name not in allowed:
        raise ValueError(f"has {key} {shown(name)}{nearest(name, allowed)}")


class UnknownLoop(ConfigError):
    """A ``[schedule]`` table names what is no loop of the program."""

    def __init__(self, name: str, program: ml.Program):
        lines = {loop.name for loop in program.loops if isinstance(loop, ml.linalg.LineLoop)}
        loops = dict.fromkeys(loop.name for loop in program.loops if isinstance(loop, ml.Loop))
        what = "is solved along lines, where strategies do not apply" if name in lines else "is no loop of this case"
        self.key = ("schedule", name)
        super().__init__(f"{toml_key(self.key)} {what}{nearest(name, (DEFAULT, *loops))}")


# --- the case ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A field to draw over the mesh: ``values`` (cells,).

    ``points`` (m, 2) and ``polygons`` (cells, corners) where it is not the mesh itself that is drawn, but a cut.
    """

    values: np.ndarray
    label: str
    window: tuple[float, float, float, float]  # xmin, xmax, ymin, ymax
    axes: tuple[str, str] = ("x", "y")
    points: np.ndarray | None = None
    polygons: np.ndarray | None = None
    curves: tuple[str, ...] | None = None  # the monitors to draw beside it; None: all


@dataclass(frozen=True)
class Image:
    """Values (nx, ny) at the points x (nx,), y (ny,) of a plane grid, or of a plane of a grid in space."""

    x: np.ndarray
    y: np.ndarray
    values: np.ndarray
    label: str
    axes: tuple[str, str] = ("x", "y")
    curves: tuple[str, ...] | None = None  # the monitors to draw beside it; None: all


@dataclass(frozen=True)
class Chart:
    """Curves over one axis, such as what gauges saw: a CSV file and a drawing, both ``chart_<name>``."""

    name: str
    x: np.ndarray  # (n,)
    curves: Mapping[str, np.ndarray]  # (n,) each
    x_label: str
    y_label: str


@dataclass(frozen=True)
class Limit:
    """What a healthy value keeps to; ``why`` says in some words what is wrong with one that does not."""

    above: float = -np.inf
    below: float = np.inf
    why: str = ""
    component: int | None = None  # of a vector, where the limit is not for all of them

    def broken(self, values: np.ndarray) -> np.ndarray:
        """True where a value (n,) or (n, dim) is outside or NaN."""
        inside = (values > self.above) & (values < self.below)
        if self.component is not None:
            others = np.arange(values.shape[-1]) != self.component
            inside = np.where(others, np.isfinite(values), inside)
        return ~inside

    def text(self, value: float) -> str:
        """``-1.2e-05 (must be above 0: the mesh is tangled)``."""
        bounds = [f"above {self.above:.6g}"] if self.above > -np.inf else []
        bounds += [f"below {self.below:.6g}"] if self.below < np.inf else []
        return f"{value:.6g} (must be {' and '.join(bounds)}{': ' if self.why else ''}{self.why})"


class Case(ABC):
    """One problem, set up and ready to step. Subclasses build everything in ``__init__(config)``."""

    name: ClassVar[str]
    title: ClassVar[str]  # one line for ``meshloom cases``
    Config: ClassVar[type]  # a dataclass with at least the sections run, output and schedule
    monitors: ClassVar[tuple[str, ...]]  # columns of the CSV
    shown: ClassVar[tuple[str, ...] | None] = None  # the monitors to show while it runs; None: all
    end_setting: ClassVar[str] = "time.end"  # what says when a case that ends at a time does so
    limits: Mapping[str, Limit] = MappingProxyType({})  # of fields and globals by name; recorded ones are watched
    small: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # settings that leave hardly any elements: to look at it

    config: Any  # an instance of Config
    mesh: ml.Mesh
    state: tuple[ml.Field | ml.Global, ...]  # what one iteration hands to the next: checkpoints hold this
    recorded: tuple[ml.Global, ...]  # read after every iteration
    _program_as_set: ml.Program
    _is_scheduled: bool

    @abstractmethod
    def __init__(self, config: Any): ...

    @abstractmethod
    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        """Monitors (n, monitors) from the values (n, recorded) of ``recorded`` after n iterations."""

    @abstractmethod
    def cell_fields(self) -> dict[str, np.ndarray]:
        """What goes into VTU files: name -> (cells,) or (cells, dim)."""

    # What there is of a mesh; a case on a grid answers otherwise (``GridCase``).

    @property
    def elements(self) -> int:
        """Cells, or points of a grid: rates count them."""
        return len(self.mesh.cells)

    element_name: ClassVar[str] = "cells"
    domain: ClassVar[str] = "mesh"  # the section of the configuration that says what the case runs on

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
        """The identity of the mesh in checkpoints."""
        return self.mesh.digest

    def whereabouts(self, on: ml.Set, element: int) -> str:
        """Which element of a set that is, and where, in words."""
        if on is not self.mesh.cells:
            return f"{on.name} element {element}"
        centre = self.node_positions()[self.mesh.cell_nodes.indices[element]].mean(axis=0)
        return f"cell {element} at ({', '.join(f'{part:.4g}' for part in centre)})"

    def node_fields(self) -> dict[str, np.ndarray]:
        """The same for values on nodes."""
        return {}

    def node_positions(self) -> np.ndarray:
        """Where the nodes are now, (nodes, dim); other than the mesh's coordinates where it moves."""
        return self.mesh.coordinates.numpy()

    def steps_left(self, recorded: np.ndarray) -> int | None:
        """For a case that ends at a time: iterations that are still to go AT LEAST, 0 when it is finished.

        ``recorded`` holds the values of the globals ``recorded`` now. The runner replays no more than that before it
        asks again, so no step too many is taken. None: the case ends after ``run.iterations``, which is the upper limit
        in any case. What the answer is made of must be part of ``state``, for restarts.
        """
        return None

    def time_span(self, recorded: np.ndarray) -> tuple[float, float] | None:
        """(time now, time at the end) of a case that ends at a time: progress and VTU series go by it."""
        return None

    def why_not_after(self, before: Any) -> str:
        """Why a run with the settings ``before`` cannot go on with those of this case; '' where it can.

        For what neither mesh, state nor monitors tell: the meaning of a monitor.
        """
        return ""

    def longer(self) -> str:
        """The option of ``meshloom run`` that lets this run go on for as long again when it has come to its end."""
        now = self.recorded_now()
        span = self.time_span(now)
        if self.steps_left(now) != 0 or span is None:
            return f"--iterations {min(2 * self.config.run.iterations, MOST_ITERATIONS)}"
        return f"--set {self.end_setting}={2.0 * span[1]!r}"

    def recorded_now(self) -> np.ndarray:
        """The values of the globals ``recorded`` as they are."""
        return np.concatenate([g.numpy().reshape(-1).astype(np.float64) for g in self.recorded])

    def picture(self) -> Picture | Image | Chart | None:
        """What to draw at the end."""
        return None

    def maps(self) -> Mapping[str, Picture | Image]:
        """More to draw at the end: name -> what goes into ``map_<name>.png``."""
        return {}

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Curves to write and draw at the end, from the monitors (n,) after every iteration."""
        return ()

    # --- the program, and how its loops are executed

    @property
    def program(self) -> ml.Program:
        """One iteration. When it is first asked for, its loops get the schedules of the ``[schedule]`` table."""
        if not self._is_scheduled:
            self._is_scheduled = True
            if self.config.schedule:
                self._apply_schedules(self.config.schedule)
        return self._program_as_set

    @program.setter
    def program(self, program: ml.Program) -> None:
        self._program_as_set, self._is_scheduled = program, False

    @property
    def loop_names(self) -> tuple[str, ...]:
        """What a ``[schedule]`` table may name, in the order of the program."""
        loops = self._program_as_set.loops
        return tuple(dict.fromkeys(loop.name for loop in loops if isinstance(loop, ml.Loop)))

    def _apply_schedules(self, wishes: Mapping[str, Any]) -> None:
        """Each loop by its own entry, else by ``default`` where that strategy applies, else by the automatic choice."""
        for name in wishes:
            if name not in (DEFAULT, *self.loop_names):
                raise UnknownLoop(name, self._program_as_set)
        default = _schedule(wishes[DEFAULT]) if DEFAULT in wishes else None
        for loop in dict.fromkeys(self._program_as_set.loops):
            if not isinstance(loop, ml.Loop):
                continue
            if loop.name in wishes:
                loop.reschedule(_schedule(wishes[loop.name]))
            elif default is not None and loop.can_run(default):
                loop.reschedule(default)

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "name"):
            _registry[cls.name] = cls


_registry: dict[str, type[Case]] = {}


def cases() -> dict[str, type[Case]]:
    """All cases by name: every module of this folder is asked."""
    import meshloom.solvers as folder

    for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_registry.items()))


def find_case(name: str, where: str = "") -> type[Case]:
    """The case of that name, or UserError that names the nearest."""
    known = cases()
    if name not in known:
        raise UserError(f"{where}unknown case '{name}'{nearest(name, known)}")
    return known[name]
