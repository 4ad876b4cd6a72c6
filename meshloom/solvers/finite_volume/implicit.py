"""Implicit steps: towards a steady flow, and within each step of an unsteady one.

    (volume / step - dR/du) change = R(u),    u = u + change

with the residual R, by Newton's method with a matrix of first order (``jacobians.py``) and GMRES, preconditioned by
colored Gauss-Seidel sweeps. Every cell has a step of its own, ``cfl`` times what waves need to cross it. They
become longer as the residual becomes smaller (switched evolution relaxation, Mulder and van Leer 1985); a step after
which it is much larger is taken back, and tried again with shorter ones. Where density or pressure would change by
much, a cell takes a part of its change, and shorter steps for a while: a few bad cells, such as those behind a sharp
tail, then do not decide about the steps of all.

- ``ImplicitSteps``: one such step in each iteration.
- ``DualSteps``: in time by the backward formula of second order (BDF2), each step by as many as it needs of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import by_root_from_all
from meshloom.case.even_steps import EvenSteps
from meshloom.errors import SolveError
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.jacobians import add_inertia, add_jacobian
from meshloom.solvers.finite_volume.kernels import keep, primitives
from meshloom.solvers.finite_volume.steps import FlowSteps, StepsInTime, Watch, count, tell
from meshloom.solvers.finite_volume.turbulence import ImplicitTurbulence, ModelInTime, SpalartAllmaras, solved

MOST_CHANGE = 0.2  # of density and pressure in one step, as a share of what they are
WORSE = 5.0  # a residual so many times that of the step before: it is taken back
NOISE = 10.0  # roundings of what goes through the faces of a cell: a residual below that says nothing
CUT = 0.2  # by which steps become shorter then
_TRY = "a smaller time.cfl_max, a start with scheme.order = 1, another scheme.limiter or better cells there may help"
LEAST_CFL = 1e-3  # shorter ones would not help: the flow has no solution, or the mesh is at fault
FASTER = 1.1  # it becomes so many times longer than the residual becomes smaller, or it would come to rest with that
SLOWEST = 0.3  # a ``cfl`` becomes at least so many times itself where the residual grows
HASTE, LEAST_PACE = 1.2, 1e-3  # of a cell that takes its whole change again, and at least
FORGIVEN = 10.0  # a residual that has fallen so many times as far as ``cfl_max`` asks for may grow so much again


@dataclass(frozen=True)
class NewtonOptions:
    """``cfl``: at first, at most ``cfl_max``; in each step it grows at most by ``growth``. ``directions``: of GMRES in
    each of at most ``cycles`` cycles, which end at ``accuracy`` of the right-hand side. ``in_turn``: cells that the
    preconditioner's sweeps take one after the other."""

    cfl: float = 5.0
    cfl_max: float = 1e5
    growth: float = 1.5
    directions: int = 20
    cycles: int = 1
    accuracy: float = 0.05
    in_turn: int = 4
    flux: str = "roe"  # of the matrix: what is less dissipative makes one that sweeps do not come to terms with


@dataclass(frozen=True)
class BackwardTerms:
    """What a step in time adds: volume (now u + last + before) per time; ``weights`` (3) of u and the two fields."""

    last: ml.Field
    before: ml.Field
    weights: ml.Global


@cache
def updater(gas: IdealGas) -> ml.Kernel:
    @ml.kernel
    def update(
        change: ml.Read, volume: ml.Read, u: ml.ReadWrite, pace: ml.ReadWrite, pressure: ml.Write,
        temperature: ml.Write, share: ml.Min,
        lowest_pressure: ml.Min, lowest_temperature: ml.Min, mass: ml.Sum, energy: ml.Sum,
    ):  # fmt: skip
        """As much of the change as leaves density and pressure close to what they are: pressure is a concave function
        of u, so that it falls by no more than that share of its fall over the whole way."""
        old, full = gas.primitives(u)[0], gas.primitives(u + change)[0]
        falls = np.abs(full - old) / old, np.abs(change[0]) / u[0]
        most = np.maximum(np.maximum(*falls), np.where(u[0] + change[0] > 0.0, 0.0, 1.0))
        part = np.where(np.isfinite(most), np.minimum(1.0, MOST_CHANGE / np.maximum(most, MOST_CHANGE)), 0.0)
        taken = np.where(part > 0.0, part * change, 0.0)
        u += taken
        share[...] = part
        pace[...] = np.clip(pace * np.where(part < 1.0, np.maximum(part, SLOWEST), HASTE), LEAST_PACE, 1.0)
        tell(gas, u, volume, (pressure, temperature), (lowest_pressure, lowest_temperature), (mass, energy))

    return update


@ml.kernel
def measure_rates(inflow: ml.Read, volume: ml.Read, rates: ml.Sum):
    rates += (inflow / volume) ** 2


@ml.kernel
def take_off_change(
    volume: ml.Read, u: ml.Read, last: ml.Read, before: ml.Read, weights: ml.Read, inflow: ml.ReadWrite
):
    """What is left of the inflow when the cell has changed in time."""
    inflow -= volume * (weights[0] * u + weights[1] * last + weights[2] * before)


class Newton:
    """Steps of Newton's method for a flow: ``look``, then ``advance``; ``time`` adds terms of a step in time.
    ``clock``: what one step hands to the next besides ``u`` and ``kept``; ``iterations`` are those of GMRES. A
    residual below ``noise`` is rounding. ``model``: the turbulence that goes along, and back with the flow."""

    model: ImplicitTurbulence | None = None

    def __init__(self, flow: CompressibleFlow, options: NewtonOptions, steps: FlowSteps, time: BackwardTerms | None):
        self.flow, self.options, self.totals, self.time, self._steps = flow, options, steps.totals, time, steps
        cells, n = flow.mesh.cells, flow.dim + 2
        self.matrix = ml.Matrix(cells, through=flow.at.inside.cells, block=n, dtype=flow.dtype, name="jacobian")
        self._diagonal = self.matrix[ml.Map(cells, cells, np.arange(len(cells)), "itself")]
        self.inflow, self.change, self.kept = (flow.u.like(name) for name in ("inflow", "change", "kept"))
        self.cfl = ml.Global(options.cfl, "cfl", dtype=flow.dtype)
        self.norm = ml.Global(np.inf, "norm")  # of the residual at ``kept``
        self.wanted = ml.Global(options.cfl, "wanted_cfl")  # by the residual alone
        self.least = ml.Global(np.inf, "least_norm")  # of all residuals so far
        self.ceiling = ml.Global(options.cfl_max, "cfl_ceiling")  # of ``cfl``
        self.relief = ml.Global(np.inf, "relief_norm")  # a residual below that lets the ceiling rise
        self.share = ml.Global(1.0, "smallest_share", dtype=flow.dtype)
        self.iterations = ml.Global(0, "linear_iterations", dtype=np.int64)
        self.pace = flow.on_cells("pace")  # the share of its step that a cell takes
        self.pace.fill(1.0)
        self.controller = (self.least, self.ceiling, self.relief)
        self.clock = (self.cfl, self.wanted, self.norm, self.share, *self.controller)
        self._rate = ml.Global(0.0, "rate", dtype=flow.dtype)  # of u in the terms of a step in time
        self.looked, self.advanced = ml.Program(self.look), ml.Program(self.advance)
        self._update, self._back = ml.Program(self.update), ml.Program(self._once_more)
        sound = float(flow.gas.sound_speed(flow.stream))
        self.noise = NOISE * float(np.finfo(flow.dtype).eps) * _faces_by_volume(flow)
        self._unit = float(flow.gas.density(flow.stream)) * sound ** np.array([1.0, *[2.0] * flow.dim, 3.0])

    def begin(self, cfl: float, rate: float) -> None:
        """With a system of its own: no step before counts. ``rate``: of u in the terms of a step in time."""
        self.cfl.value = self.wanted.value = cfl
        self.norm.value, self._rate.value = np.inf, rate
        self.least.value, self.ceiling.value, self.relief.value = np.inf, self.options.cfl_max, np.inf
        self.pace.fill(1.0)

    @cached_property
    def solver(self) -> ml.linalg.GMRES:
        """Made when there are entries to be inverted."""
        sweeps = ml.linalg.ColoredSGS(self.matrix, in_turn=self.options.in_turn)
        return ml.linalg.GMRES(self.matrix, preconditioner=sweeps, restart=self.options.directions)

    # --- a step

    def look(self) -> None:
        """The operations that say how long it may be."""
        self.measure()
        ml.call(self.judge)

    def advance(self) -> None:
        """Those that make it."""
        self.assemble()
        ml.call(self.solve)
        self.update()
        if self.model is not None:
            self.model.advance()

    def measure(self) -> None:
        flow, volume = self.flow, self.flow.at.volume
        terms = flow.terms(flow.u)
        self._steps.watch(terms)
        flow.inflow(terms, self.inflow)
        if self.time is not None:
            one = self.time
            take_off_change(flow.mesh.cells, volume, flow.u, one.last, one.before, one.weights, self.inflow)
        self.totals.rates.value = 0.0
        measure_rates(flow.mesh.cells, self.inflow, volume, self.totals.rates)

    def judge(self) -> None:
        """Was the last step good? How long may this one be?"""
        while not self._is_good(now := self.residual()):
            self._go_back(now)
        last, cfl = float(self.norm.value), float(self.cfl.value)
        if np.isfinite(last):
            wanted = self.wanted.value = self._wanted(last, now)
            most = 1.0 if float(self.share.value) < MOST_CHANGE else self.options.growth
            self.cfl.value = self._bounded(min(max(wanted, SLOWEST * cfl), most * cfl), now)
        self.norm.value, self.least.value = now, min(now, float(self.least.value))

    def _bounded(self, wanted: float, now: float) -> float:
        """The ``cfl`` that the last two residuals ask for, within a ceiling that the least one so far sets.

        Steps that have let the residual grow far above that, each by little, are too long, whatever it does from one to
        the next: the ceiling sinks below them until it falls. Where that was needed, it rises again when the residual
        is as far below that least: then the flow is another one."""
        least, ceiling = float(self.least.value), float(self.ceiling.value)
        if now > FORGIVEN * max(least, self.noise):
            ceiling = max(min(ceiling, float(self.cfl.value)) / FASTER, LEAST_CFL)
            if ceiling < wanted:
                self.relief.value = least / FORGIVEN
        elif now < min(least, float(self.relief.value)):
            ceiling = min(self.options.growth * ceiling, self.options.cfl_max)
        self.ceiling.value = ceiling
        return min(wanted, ceiling)

    def _wanted(self, last: float, now: float) -> float:
        """Longer as the residual becomes smaller, and a little more; shorter as it becomes larger again. What is beyond
        ``cfl_max`` is not taken but kept in mind: a flow that develops may have a larger residual for a while."""
        ratio = np.inf if now == 0.0 else last / now
        wanted = float(self.wanted.value) * ratio * (FASTER if ratio > 1.0 else 1.0)
        return float(np.clip(wanted, LEAST_CFL, FORGIVEN * self.options.cfl_max))

    def residual(self) -> float:
        """The root of the mean square of the rates, in units of the free stream."""
        return float(np.sqrt(np.mean(self.totals.rates.numpy() / self._unit**2) / len(self.flow.mesh.cells)))

    def _is_good(self, now: float) -> bool:
        return bool(np.isfinite(now)) and now <= WORSE * max(float(self.norm.value), self.noise)

    def _go_back(self, now: float) -> None:
        last = float(self.norm.value)
        self.shorten(f"the residual is {now:.3g} after {last:.3g}", hopeless=not np.isfinite(last))
        self._back()

    def shorten(self, why: str, hopeless: bool = False) -> None:
        """Shorter steps from now on; SolveError where they would not help."""
        cfl = CUT * float(self.cfl.value)
        if cfl < LEAST_CFL or hopeless:
            worst = f"most in {worst_cell(self.flow.mesh, self.inflow)}"
            raise SolveError(f"implicit step: {why}, {worst}, and steps of cfl {cfl:.2g} would not help; {_TRY}")
        self.cfl.value = self.wanted.value = cfl

    def assemble(self) -> None:
        flow = self.flow
        self.matrix.fill(0.0)
        add_jacobian(flow, self.matrix, self.options.flux)
        v, cells = flow.u.like("v"), flow.mesh.cells
        primitives(flow.gas)(cells, flow.u, v, flow.on_cells("pressure"), flow.on_cells("temperature"))
        add_inertia(cells, flow.waves(v), flow.at.volume, self.pace, self.cfl, self._rate, self._diagonal)

    def solve(self) -> None:
        options = self.options
        most = options.directions * options.cycles
        reason = solved(self.solver, self.change, self.inflow, self.iterations, options.accuracy, most)
        if reason:
            self.shorten(f"GMRES: {reason}")

    def update(self) -> None:
        flow, totals = self.flow, self.totals
        keep(flow.mesh.cells, flow.u, self.kept)
        self.share.value = np.inf
        totals.lowest_pressure.value = totals.lowest_temperature.value = np.inf
        totals.mass.value = totals.energy.value = 0.0
        updater(flow.gas)(flow.mesh.cells, self.change, flow.at.volume, flow.u, self.pace, flow.on_cells("pressure"),
                          flow.on_cells("temperature"), self.share, totals.lowest_pressure, totals.lowest_temperature,
                          totals.mass, totals.energy)  # fmt: skip

    def stay(self) -> None:
        """No step: totals are those of the flow as it is."""
        self.change.fill(0.0)
        self._update()

    def take_back(self) -> None:
        """The flow, and its turbulence, before the last step."""
        keep(self.flow.mesh.cells, self.kept, self.flow.u)
        if self.model is not None:
            self.model.take_back()

    def _once_more(self) -> None:
        """The last step again, with the ``cfl`` of now, and what is measured behind it."""
        self.take_back()
        # the inflow is that of the step after: measured again
        self.measure()
        self.advance()
        self.measure()


def worst_cell(mesh: ml.Mesh, inflow: ml.Field) -> str:
    """Where most flows into a volume, or something that is no number does: which cell, and its place."""
    cells = mesh.cells
    rates = np.abs(inflow.local()).max(axis=1) / mesh.cell_volumes[cells.mine]
    cell = by_root_from_all(cells, np.where(np.isfinite(rates), rates, np.inf), lambda every: int(np.argmax(every)))
    return f"cell {cell} at ({', '.join(f'{part:.4g}' for part in mesh.cell_centroids[cell])})"


def _faces_by_volume(flow: CompressibleFlow) -> float:
    """The area of a cell's faces over its volume, times the unit of length: root of the mean square."""
    mesh = flow.mesh
    inner, outer = (np.linalg.norm(one, axis=1) for one in (mesh.face_normals, mesh.boundary_normals))
    area = np.bincount(mesh.face_cells.indices.ravel(), np.repeat(inner, 2), len(mesh.cells))
    area += np.bincount(mesh.boundary_cells.indices[:, 0], outer, len(mesh.cells))
    return float(np.sqrt(np.mean((area / mesh.cell_volumes) ** 2)))


class ImplicitSteps(FlowSteps):
    """Towards a steady flow: a step of Newton's method in each iteration."""

    looked_at: ClassVar[int] = 10

    def __init__(self, flow: CompressibleFlow, options: NewtonOptions, watch: Watch = lambda terms: None,
                 turbulence: SpalartAllmaras | None = None):  # fmt: skip
        super().__init__(flow, watch, turbulence)
        self.newton = Newton(flow, options, self, None)
        self.done = ml.Global(0, "done", dtype=np.int64)
        self.clock = (self.done, self.totals.rates, *self.newton.clock)
        self.added = frozenset(one.name for one in self.newton.controller)
        self.fields, self.told = (self.newton.kept, self.newton.pace), (self.newton.cfl, self.newton.iterations)
        if turbulence is not None:
            self.newton.model = ImplicitTurbulence(turbulence, self.newton.cfl, shorten=self.newton.shorten)
            self.fields = (*self.fields, self.newton.model.kept)

    def program(self) -> ml.Program:
        return ml.Program(self.implicit_step)

    def implicit_step(self) -> None:
        """The operations of one step."""
        self.newton.look()
        self.newton.advance()
        count(self._clock_set, self.done)


@dataclass(frozen=True)
class DualOptions:
    """Steps of ``dt`` to ``end``, each with at most ``most`` steps of Newton's method, until its residual is
    ``tolerance`` times that at its start."""

    dt: float
    end: float
    most: int = 20
    tolerance: float = 1e-3


def backward_weights(dt: float, before: float) -> tuple[float, float, float]:
    """Of u, u last and u before in du/dt after a step of ``dt`` that follows one of ``before``; 0: the first."""
    if before == 0.0:
        return 1.0 / dt, -1.0 / dt, 0.0
    w = dt / before
    return (1.0 + 2.0 * w) / (1.0 + w) / dt, -(1.0 + w) / dt, w * w / (1.0 + w) / dt


class DualSteps(StepsInTime):
    """In time by BDF2, (3 u - 4 u last + u before) / (2 dt) where two steps are of one length, the first step by BDF1,
    (u - u last) / dt."""

    def __init__(self, flow: CompressibleFlow, options: NewtonOptions, dual: DualOptions,
                 watch: Watch = lambda terms: None, turbulence: SpalartAllmaras | None = None):  # fmt: skip
        super().__init__(flow, watch, turbulence)
        self.options, self.dual = options, dual
        self.even = EvenSteps(dual.dt, dual.end)
        self.time, self.dt = ml.Global(0.0, "time"), ml.Global(0.0, "dt", dtype=flow.dtype)
        self._last, self._before = flow.u.like("last"), flow.u.like("before_last")
        self._weights = ml.Global(np.zeros(3, flow.dtype), "weights")
        self.newton = Newton(flow, options, self, BackwardTerms(self._last, self._before, self._weights))
        self.inner = ml.Global(0, "newton_steps", dtype=np.int64)
        self.clock, self.fields = (self.time, self.dt), (self._last,)
        self.told = (self.inner, self.newton.iterations)
        if turbulence is not None:
            in_time = ModelInTime.of(turbulence, self._weights)
            self.newton.model = ImplicitTurbulence(turbulence, self.newton.cfl, in_time, shorten=self.newton.shorten)
            self.fields = (self._last, in_time.last)
        self._shift = ml.Program(self._shift_fields)

    def steps_left(self, time: float, pace: float = 0.0) -> int:
        return self.even.steps_left(time)

    def is_whole(self, time: float) -> bool:
        return self.even.is_whole(time)

    def program(self) -> ml.Program:
        return ml.Program(self.dual_time_step)

    def dual_time_step(self) -> None:
        """One step, by a number of Newton's that only it knows."""
        ml.call(self)

    @property
    def loops(self) -> tuple[ml.Operation, ...]:
        """Those of all its programs."""
        return tuple(loop for one in (self._shift, self.newton.looked, self.newton.advanced) for loop in one.loops)

    def __call__(self) -> None:
        """One step in time."""
        time, before = float(self.time.value), float(self.dt.value)
        dt, after = self.even.after(time)
        self._shift()
        weights = backward_weights(dt, before)
        self._weights.value = np.array(weights)
        self.newton.begin(self.options.cfl, weights[0])
        self.inner.value, self.newton.iterations.value = self._solved()
        self.dt.value, self.time.value = dt, after

    def _solved(self) -> tuple[int, int]:
        """Newton's method for one step in time; how many of its steps, and of GMRES. The last is judged, too."""
        enough, total = np.inf, 0
        for done in range(self.dual.most + 1):
            self.newton.looked()
            now = float(self.newton.norm.value)
            if done == 0:
                enough = max(self.dual.tolerance * now, self.newton.noise)
            if now <= enough or done == self.dual.most:
                break
            self.newton.advanced()
            total += int(self.newton.iterations.value)
        if done == 0:
            self.newton.stay()
        return done, total

    def _shift_fields(self) -> None:
        cells = self.flow.mesh.cells
        keep(cells, self._last, self._before)
        keep(cells, self.flow.u, self._last)
        model = self.newton.model
        if model is not None and model.time is not None:
            model.time.shift(model.model.nu)
