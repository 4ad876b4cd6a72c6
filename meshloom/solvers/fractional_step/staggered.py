"""An incompressible flow whose velocities live at faces alone: the marker-and-cell form of the fractional step method.

The pressure between two centres acts on the face between them, so that nothing has to be interpolated, no odd-even
pressure can hide, and kinetic energy is kept by convection and pressure alike. ``velocity`` at centres are means of the
two faces, for monitors and files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.errors import ConfigError
from meshloom.solvers.fractional_step.boundary_conditions import LOW
from meshloom.solvers.fractional_step.cells import CellGrid, Velocity
from meshloom.solvers.fractional_step.flow import IncompressibleFlow
from meshloom.solvers.fractional_step.implicit import CrankNicolson
from meshloom.solvers.fractional_step.staggered_boundaries import StaggeredBoundaries
from meshloom.solvers.fractional_step.staggered_operators import seen, staggered_kernels


class StaggeredFlow(IncompressibleFlow):
    """``faces`` are what steps in time; made with what an ``IncompressibleFlow`` takes, of which ``fade`` says
    nothing here."""

    staggered: ClassVar[bool] = True

    def __init__(self, cells: CellGrid, *given: Any, convection: str = "central", **options: Any):
        if cells.solid is not None:
            raise ConfigError("scheme.form: staggered does not know of solid cells; take collocated")
        self._at_faces = staggered_kernels(cells.even, convection)
        super().__init__(cells, *given, convection=convection, **options)
        self.face_boundaries = StaggeredBoundaries(self.boundaries)

    def _latest(self, number: int) -> ml.Field:
        """The velocities that a stage makes; before the first those of the step before. Two fields take turns."""
        return self.faces if number < 0 else (self.u_star, self._stage_faces)[number % 2]

    def _predict(self, number: int) -> None:
        cells, do, stage = self.cells, self._at_faces, self.scheme.stages[number]
        new, widths = self._latest(number), cells.widths_within(self.reach)
        known = (seen(cells, self._latest(number - 1), self.reach), self.dt, self.viscosity, self.force)
        if self.implicit is not None:
            self.implicit.advance()
        elif number == 0:
            do.predict(cells.grid, *known, new, *widths)
        else:
            do.predict_blended(cells.grid, *known, self.faces, stage.start, stage.now, new, *widths)
        self.face_boundaries.close(new)
        self.boundaries.balance(new)
        source = (cells.both_faces(new), self.dt, stage.now)
        self._do.outflow_of_cells(cells.grid, *source, self.solver.b, *cells.widths)

    def explicit_part(self, theirs: CrankNicolson) -> None:
        cells, p = self.cells, self.pressure
        self.boundaries.fill_pressure(p)
        known = (seen(cells, self.faces, self.reach), cells.before(p), self.dt)
        given = (theirs.share, self.viscosity, self.force)
        found = (theirs.convected, theirs.right, theirs.guess)
        self._at_faces.explicit_part(cells.grid, *known, *given, *found, *cells.widths_within(self.reach))

    def unknowns(self) -> ml.Field:
        return self.faces

    def fill_unknowns(self, u: ml.Field) -> None:
        self.face_boundaries.close(u)
        self.face_boundaries.fill(u, 1)

    def without_pressure(self, u: ml.Field) -> None:
        cells = self.cells
        self._at_faces.add_slope(cells.grid, cells.before(self.pressure), self.dt, u, *cells.widths)

    def _project(self, number: int) -> None:
        cells, p, stage, new = self.cells, self.pressure, self.scheme.stages[number], self._latest(number)
        self.boundaries.fill_pressure(p)
        slopes = (cells.before(p), self.dt, stage.now)
        if number < len(self.scheme.stages) - 1:
            self._do.project_faces_in_place(cells.grid, *slopes, new, *cells.widths)
            self.face_boundaries.fill(new, self.reach)
            return
        self.change.value = 0.0
        self._at_faces.project_last(cells.grid, new, *slopes, self.faces, self.change, *cells.widths)
        self.face_boundaries.keep_outflow(new, self.faces)
        self.face_boundaries.fill(self.faces, self.reach)
        self._measure()
        self.budget.close()

    def _begin_with(self, velocity: np.ndarray | float | Velocity, one: ml.Global) -> Callable[[], None]:
        """A function of place is asked at the faces themselves: means of centres have less kinetic energy."""
        if not callable(velocity):
            return super()._begin_with(velocity, one)
        self.faces.assign(self.cells.through_first_faces(velocity))
        return lambda: self.face_boundaries.close(self.faces)

    def _project_start(self, one: ml.Global) -> None:
        self.face_boundaries.fill(self.faces, self.reach)

    def fill_sides(self) -> None:
        self.face_boundaries.fill(self.faces, self.reach)

    def _measure(self) -> None:
        cells, told = self.cells, (self.energy, self.divergence, self.budget.power)
        for one in told:
            one.value = 0.0
        given = (cells.cross(self.faces), self.viscosity, self.force)
        pairs = cells.both_faces(self.faces)
        self._at_faces.measure(cells.grid, pairs, self.velocity, self.energy, self.divergence, *cells.widths)
        self._at_faces.measure_power(cells.grid, *given, self.budget.power, *cells.widths)
        self._at_sides_nothing_works(given)
        self._add_power_of_sides()

    def _at_sides_nothing_works(self, given: tuple[Any, ...]) -> None:
        """What viscosity and force do at first faces where fluid comes or goes: these do not step in time."""
        cells = self.cells
        for side in self.boundaries.sides:
            if side.lets_through and side.end == LOW:
                self._at_faces.without_power[side.axis](side.faces, *given, self.budget.power, *cells.widths)
