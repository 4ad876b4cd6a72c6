"""What a case is: physics on a mesh that a person can run by name.

A case is one subclass of ``Case`` in one module of ``solvers``; naming it there is all it takes for the command line to
find, list, show and run it. The runner asks it for the answers below, and for those of every task, and does the rest:
the time loop, progress, monitors, fields, checkpoints, pictures.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case.schedules import apply_schedules, loop_names, loops_text
from meshloom.case.settings import MOST_ITERATIONS, OutputOptions
from meshloom.config import flatten, to_toml
from meshloom.run.limit import Limit
from meshloom.run.output import write_on_mesh
from meshloom.run.task import Point, RunTask, is_due
from meshloom.run.views import Corners


class Case(RunTask):
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
    _program_as_set: ml.Program | ml.Sequence
    _is_scheduled: bool

    @abstractmethod
    def __init__(self, config: Any): ...

    @abstractmethod
    def cell_fields(self) -> dict[str, np.ndarray]:
        """What goes into VTU files: name -> (cells,) or (cells, dim)."""

    # What there is of a mesh; a case on a grid answers otherwise (``GridCase``).

    @property
    def elements(self) -> int:
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
        return self.mesh.digest

    def whereabouts(self, on: ml.Set, element: int) -> str:
        if on is not self.mesh.cells:
            return f"{on.name} element {element}"
        centre = self.node_positions()[self.mesh.lists.cells.nodes[element]].mean(axis=0)
        return f"cell {element} at ({', '.join(f'{part:.4g}' for part in centre)})"

    fields_method: ClassVar[str] = "cell_fields"

    def write_fields(self, stem: Path) -> Path:
        return write_on_mesh(stem, self.mesh, self.cell_fields(), self.node_fields(), self.node_positions())

    def drawn_over(self) -> tuple[np.ndarray, Corners] | None:
        return self.node_positions(), self.mesh.lists.cells.nodes

    def node_fields(self) -> dict[str, np.ndarray]:
        """The same for values on nodes."""
        return {}

    def node_positions(self) -> np.ndarray:
        """Where the nodes are now, (nodes, dim); other than the mesh's coordinates where it moves."""
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
        span = self.time_span(now)
        if self.steps_left(now) != 0 or span is None:
            return f"--iterations {min(2 * self.config.run.iterations, MOST_ITERATIONS)}"
        return f"--set {self.end_setting}={2.0 * span[1]!r}"

    # --- what the settings say of it as a task

    @property
    def iterations(self) -> int:
        return self.config.run.iterations

    @property
    def output(self) -> OutputOptions:
        return self.config.output

    @property
    def precision(self) -> str:
        return self.config.run.precision

    def settings(self, *, comments: bool = True) -> str:
        remarks = {"schedule": loops_text(self.loop_names)}
        return to_toml(self.config, {"case": self.name}, comments=comments, remarks=remarks)

    def had_fields(self, at: Point, before: Any) -> bool:
        span, end = self.time_span(at.recorded), flatten(before).get(self.end_setting)
        was_last = at.iteration >= before.run.iterations or (span is not None and end is not None and span[0] >= end)
        return before.output.vtu and (was_last or is_due(at.iteration, before.output.every))

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
