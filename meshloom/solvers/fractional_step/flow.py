"""An incompressible flow on a grid of cells: its fields, one step of the fractional step method, and what it tells.

A step has one or more stages, and each of them does this (Algorithm 1 of the method on cells with all values at their
centres):

1. u* = u + dt (-div(U u) + nu lap u + f);
2. U* = u* interpolated to faces;
3. the divergence of U*;
4. the pressure p, by lap p = div U* / dt;
5. u = u* - dt grad p at centres, and U = U* - dt grad p at faces, which leaves U without divergence.

With one stage (``EULER``) that is all. Schemes of higher order need equations in time behind them that do not depend on
the length of a step: U keeps what it has beyond the interpolated u, relaxed over the time ``fade`` (with Euler's
steps it would be just one step). That difference, which ties the velocities at centres to the pressure between them, is
of the order of fade times the width of cells squared. The pressure is that of the last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case.even_steps import EvenSteps, tick
from meshloom.solvers.fractional_step.boundary_conditions import Boundaries, Condition
from meshloom.solvers.fractional_step.cells import CellGrid, Velocity
from meshloom.solvers.fractional_step.convective_flux import CENTRAL, REACH
from meshloom.solvers.fractional_step.energy import EnergyBudget, add_power_of_sides
from meshloom.solvers.fractional_step.implicit import CrankNicolson
from meshloom.solvers.fractional_step.operators import kernels
from meshloom.solvers.fractional_step.pressure import AUTO, PressureSolver
from meshloom.solvers.fractional_step.schemes import RK3, TimeScheme, TimeStage

_NOTHING_BEFORE = (0.0, 1.0, 0.0)  # what start, now and fading are where nothing goes before
LARGEST = float(np.finfo(np.float32).max)  # stands for a change that nobody has measured yet


class IncompressibleFlow:
    """``step`` is what is repeated. ``velocity`` u at centres, ``faces`` U, ``pressure`` p; ``u_star`` u*,
    ``faces_star`` U*."""

    staggered: ClassVar[bool] = False  # do velocities live at faces alone?

    def __init__(
        self,
        cells: CellGrid,
        conditions: Mapping[tuple[int, str], Condition],
        viscosity: float,
        clock: EvenSteps,
        *,
        scheme: TimeScheme = RK3,
        convection: str = CENTRAL,
        fade: float | None = None,
        solver: str = AUTO,
        tolerance: float = 1e-10,
        force: float = 0.0,
        look: Callable[[], None] | None = None,
    ):
        """``conditions``: what holds at every closed end. ``convection``: see ``face_value``. ``fade``: see above, a
        step unless said. ``force``: what drives the fluid along the first axis, per mass. ``look``: more loops at the
        end of a step."""
        self.cells, self.viscosity, self.clock, self.scheme, self.force = cells, viscosity, clock, scheme, force
        self._look, self.reach = look, REACH[convection]
        self.fading = 1.0 / (clock.step if fade is None else fade)
        if scheme.implicit:  # which takes the rate of fading from two steps, and is stable up to this one
            self.fading = min(self.fading, 0.5 / clock.step)
        grid, dtype = cells.grid, cells.dtype
        self.boundaries = Boundaries(cells, conditions)
        self.solver = PressureSolver(cells, solver, tolerance)
        self.velocity, self.u_star = (grid.field(name, cells.rank, dtype=dtype) for name in ("velocity", "u_star"))
        self.faces = grid.field("faces", cells.rank, dtype=dtype)
        several = len(scheme.stages) > 1
        self._stage_velocity = self.velocity.like("stage_velocity") if several else self.velocity
        self._stage_faces = self.faces.like("stage_faces") if several else self.faces
        self.faces_star = self.u_star if self.staggered else self.faces.like("faces_star")
        for one in dict.fromkeys((self.faces, self._stage_faces, self.faces_star)):
            self.boundaries.set_last_faces(one)
        self.time, self.dt = ml.Global(0.0, "time"), ml.Global(clock.step, "dt", dtype=dtype)
        self.energy, self.divergence = ml.Global(0.0, "energy"), ml.Global(0.0, "divergence", dtype=dtype)
        self.change = ml.Global(LARGEST, "change", dtype=dtype)
        self.budget = EnergyBudget(self.energy, self.dt, self.time, self.staggered)
        self._clocks, self._do = ml.Set(1, "clock"), kernels(cells.even, convection)
        self._beyond = (self.faces.like("beyond_interpolated"),) if scheme.implicit and not self.staggered else ()
        self.implicit = CrankNicolson(self, clock.longest) if scheme.implicit else None
        self.step = ml.Program(self.time_step)

    @property
    def pressure(self) -> ml.Field:
        return self.solver.p

    @property
    def state(self) -> tuple[ml.Field | ml.Global, ...]:
        """What one step hands to the next; the pressure is where iterations begin, and what pictures show."""
        further = () if self.implicit is None else (*self.implicit.state, *self._beyond)
        return self.velocity, self.faces, self.pressure, self.time, self.change, *self.budget.state, *further

    @property
    def recorded(self) -> tuple[ml.Global, ...]:
        return self.time, self.energy, self.divergence, self.change, self.budget.lost

    @property
    def watched(self) -> tuple[ml.Global, ...]:
        """What is looked at after every step, and tells nothing of the flow."""
        return () if self.implicit is None else (self.implicit.residual,)

    def start(self, velocity: np.ndarray | float | Velocity = 0.0) -> None:
        """Begin with velocities (*shape, dim) at the centres, or with a function of place (``cells.Velocity``), freed
        of their divergence."""
        cells, do = self.cells, self._do
        one = ml.Global(1.0, "one", dtype=cells.dtype)
        set_faces = self._begin_with(velocity, one)

        def to_faces() -> None:
            set_faces()
            self.boundaries.balance(self.faces)
            do.outflow_of_cells(cells.grid, cells.both_faces(self.faces), one, 1.0, self.solver.b, *cells.widths)

        def without_divergence() -> None:
            p = self.pressure
            self.boundaries.fill_pressure(p)
            do.project_faces_in_place(cells.with_last_faces, cells.before(p), one, 1.0, self.faces, *cells.widths)
            self._project_start(one)
            p.fill(0.0)  # it has taken a divergence away, and drives nothing
            self._measure()
            self._look_on()

        def start() -> None:
            to_faces()
            self.solver.record()
            without_divergence()

        ml.Program(start).run()
        self.budget.begin()

    def _begin_with(self, velocity: np.ndarray | float | Velocity, one: ml.Global) -> Callable[[], None]:
        """Set the velocities at the centres; what sets those through faces, as a part of a program."""
        cells = self.cells
        given = cells.values_of(velocity) if callable(velocity) else velocity
        if cells.solid is not None:
            given = np.where(cells.solid[..., None], 0.0, np.broadcast_to(given, (*cells.shape, cells.rank)))
        self.velocity.assign(given)

        def interpolate() -> None:
            self.boundaries.fill_velocity(self.velocity)
            known = (cells.before(self.velocity), one, *_NOTHING_BEFORE)
            self._do.to_faces[0](cells.with_last_faces, *known, self.faces, *cells.widths)

        return interpolate

    def _project_start(self, one: ml.Global) -> None:
        """The velocities at the centres, as those at the faces have been."""
        cells = self.cells
        self._do.project_in_place(cells.grid, cells.cross(self.pressure), one, self.velocity, *cells.widths)
        self.boundaries.fill_velocity(self.velocity, self.reach)

    def fill_sides(self) -> None:
        """The ghosts that a step begins with, which it leaves behind, too."""
        self.boundaries.fill_velocity(self.velocity, self.reach)

    def restored(self) -> None:
        """Fields have been given values from outside: what follows from them."""
        ml.program(self.fill_sides).run()
        if not self.budget.is_of_now:
            ml.program(self._measure).run()
            self.budget.begin()

    # --- a step

    def time_step(self) -> None:
        """The operations of one step."""
        tick(self._clocks, self.dt, self.time, self.clock.step, self.clock.end)
        for number in range(len(self.scheme.stages)):
            self._predict(number)
            self.solver.record()
            self._project(number)
        self._look_on()

    def _predict(self, number: int) -> None:
        """Steps 1 to 3 of a stage."""
        cells, do, dt, stage, first = self.cells, self._do, self.dt, self.scheme.stages[number], number == 0
        u, faces = (self.velocity, self.faces) if first else (self._stage_velocity, self._stage_faces)
        known = (cells.cross(u, self.reach), cells.both_faces(faces), dt, self.viscosity)
        widths = cells.widths_within(self.reach)
        if self.implicit is not None:
            self.implicit.advance()
        elif first:
            do.predict(cells.grid, *known, self.u_star, *widths, force=self.force)
        else:
            blend = (self.velocity, stage.start, stage.now)
            do.predict_blended(cells.grid, *known, *blend, self.u_star, *widths, force=self.force)
        self.boundaries.fill_velocity(self.u_star)
        if self.implicit is not None:
            self._to_faces_by_two_steps(self.implicit)
        else:
            start, latest = (self.velocity, self.faces), (u, faces)
            self._to_faces(stage, () if self.scheme.coupled else (latest,) if first else (start, latest))
        self.boundaries.balance(self.faces_star)
        for side in self.boundaries.ways_out:  # whose faces are others now
            self._outflow_of(side.cells_inside, stage.now)

    def explicit_part(self, theirs: CrankNicolson) -> None:
        cells, p = self.cells, self.pressure
        self.boundaries.fill_pressure(p)
        known = (cells.cross(self.velocity, self.reach), cells.both_faces(self.faces), cells.cross(p), self.dt)
        given = (theirs.share, self.viscosity, self.force)
        found = (theirs.convected, theirs.right, theirs.guess)
        self._do.explicit_part(cells.grid, *known, *given, *found, *cells.widths_within(self.reach))

    def unknowns(self) -> ml.Field:
        return self.velocity

    def fill_unknowns(self, u: ml.Field) -> None:
        self.boundaries.fill_velocity(u)

    def without_pressure(self, u: ml.Field) -> None:
        cells = self.cells
        self._do.add_slope(cells.grid, cells.cross(self.pressure), self.dt, u, *cells.widths)

    def _to_faces(self, stage: TimeStage, before: Sequence[tuple[ml.Field, ml.Field]]) -> None:
        """U* and what it says of the pressure, from u*; ``before``: u and U beyond which there is something left."""
        cells, do, count = self.cells, self._do, len(before)
        shares = (self.dt, stage.start, stage.now, self.fading)
        inner = [one for u, faces in before for one in (cells.cross(u), cells.both_faces(faces))]
        found = (self.faces_star, self.solver.b)
        do.to_faces_and_source[count](cells.grid, cells.cross(self.u_star), *shares, *found, *inner, *cells.widths)
        known = [cells.before(one) for pair in before for one in pair]
        for layer in self.boundaries.open_last_faces:
            do.to_faces[count](layer, cells.before(self.u_star), *shares, self.faces_star, *known, *cells.widths)

    def _to_faces_by_two_steps(self, implicit: CrankNicolson) -> None:
        cells = self.cells
        known = (cells.before(self.u_star), cells.before(self.velocity), self.faces)
        fading = (self.dt, self.fading, implicit.share, *self._beyond)
        self._do.interpolate_two_steps(cells.with_last_faces, *known, *fading, self.faces_star, *cells.widths)
        self._outflow_of(cells.grid, 1.0)

    def _outflow_of(self, where: Any, now: float) -> None:
        cells = self.cells
        source = (cells.both_faces(self.faces_star), self.dt, now)
        self._do.outflow_of_cells(where, *source, self.solver.b, *cells.widths)

    def _project(self, number: int) -> None:
        """Step 5, after the pressure is known; with the last one goes what is told of a step."""
        cells, do, p, stage = self.cells, self._do, self.pressure, self.scheme.stages[number]
        last = number == len(self.scheme.stages) - 1
        u, faces = (self.velocity, self.faces) if last else (self._stage_velocity, self._stage_faces)
        self.boundaries.fill_pressure(p)
        known = (self.u_star, cells.both_faces(self.faces_star), cells.cross(p), self.dt, stage.now)
        if last:
            told = (self.change, self.energy, self.divergence)
            for one in told:
                one.value = 0.0
            do.project_last(cells.grid, *known, u, faces, *told, *cells.widths)
        else:
            do.project(cells.grid, *known, u, faces, *cells.widths)
        for layer in self.boundaries.open_last_faces:
            at_faces = (cells.before(self.faces_star), cells.before(p), self.dt, stage.now)
            do.project_faces(layer, *at_faces, faces, *cells.widths)
        self.boundaries.fill_velocity(u, self.reach)
        if last:
            self._measure_power()
            self.budget.close()

    def _measure(self) -> None:
        cells = self.cells
        self.energy.value = self.divergence.value = 0.0
        self._do.measure(
            cells.grid, self.velocity, cells.both_faces(self.faces), self.energy, self.divergence, *cells.widths
        )
        self._measure_power()

    def _measure_power(self) -> None:
        """Of viscosity, force and boundaries."""
        cells, power = self.cells, self.budget.power
        power.value = 0.0
        given = (cells.cross(self.velocity), self.viscosity, self.force)
        self._do.measure_power(cells.grid, *given, power, *cells.widths)
        self._add_power_of_sides()

    def _add_power_of_sides(self) -> None:
        flow = (self.faces, self.velocity, self.pressure)
        add_power_of_sides(self.boundaries, *flow, self.staggered, self.budget.power)

    def _look_on(self) -> None:
        if self._look is not None:
            self._look()
