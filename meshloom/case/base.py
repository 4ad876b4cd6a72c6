"""What a case is: physics on a mesh that a person can run by name.

A case is one subclass of ``Case`` in one module of ``solvers``; naming it there is all it takes for the command line to
find, list, show and run it. The runner asks it for the answers below and does the rest: the time loop, progress,
monitors, fields, checkpoints, pictures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case.limit import Limit
from meshloom.case.schedules import apply_schedules, loop_names
from meshloom.case.settings import MOST_ITERATIONS
from meshloom.case.views import Chart, Image, Picture


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
    _program_as_set: ml.Program | ml.Sequence
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
        """CellGrid, or points of a grid: rates count them."""
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
        centre = self.node_positions()[self.mesh.lists.cells.nodes[element]].mean(axis=0)
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

    def early_end(self) -> str:
        """What ends a case with a ``time_span`` before its time, such as "steady"; '' where nothing does."""
        return ""

    def restored(self) -> None:  # noqa: B027  nothing, unless a case says so
        """Make again what follows from ``state`` and is kept with it, such as ghosts: a checkpoint has been put in, and
        its run may have had other settings, which need less of that."""

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
    def program(self) -> Any:
        """One iteration: a Program, or a Sequence of several with solvers between them. When it is first asked for, its
        loops get the schedules of the ``[schedule]`` table."""
        if not self._is_scheduled:
            self._is_scheduled = True
            if self.config.schedule:
                apply_schedules(self.config.schedule, self._program_as_set)
        return self._program_as_set

    @program.setter
    def program(self, program: ml.Program | ml.Sequence) -> None:
        self._program_as_set, self._is_scheduled = program, False

    @property
    def loop_names(self) -> tuple[str, ...]:
        """What a ``[schedule]`` table may name, in the order of the program."""
        return loop_names(self._program_as_set)

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "name"):
            registry[cls.name] = cls


#: Every case that has been imported, by name.
registry: dict[str, type[Case]] = {}
