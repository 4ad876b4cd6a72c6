"""Settings of compressible flow on a mesh."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.case import FamilyConfig, OutputOptions, RunOptions, order_option, schedule_table
from meshloom.config import checked_section, option, section, table
from meshloom.errors import nearest, shown
from meshloom.solvers.clock import Timing
from meshloom.solvers.finite_volume.conditions import CONDITIONS, BoundaryCondition
from meshloom.solvers.finite_volume.fluxes import FLUXES, MATRIX_FLUXES
from meshloom.solvers.finite_volume.gas import VISCOSITIES, IdealGas
from meshloom.solvers.finite_volume.geometry import GRADIENTS
from meshloom.solvers.finite_volume.implicit import DualOptions, NewtonOptions
from meshloom.solvers.finite_volume.kernels import FALLBACKS, LIMITERS, FlowScheme
from meshloom.solvers.finite_volume.spalart_allmaras import FREE_STREAM

MODES = ("steady", "unsteady")
METHODS = ("explicit", "implicit")
TURBULENCE_MODELS = ("none", "spalart_allmaras")
MOST_STEPS = 10_000_000


@dataclass(frozen=True)
class IdealGasOptions:
    """An ideal gas."""

    gamma: float = option(1.4, "ratio of specific heats", above=1.0, high=3.0)
    gas_constant: float = option(1.0, "specific gas constant: 287.05 in SI units", above=0.0)
    prandtl: float = option(0.72, "Prandtl number: 0.72 is that of air", above=0.0)
    viscosity: str = option("none", "none solves Euler's equations", allowed=VISCOSITIES)
    reference_viscosity: float = option(
        0.0, "viscosity at the reference temperature; 0 takes what stream.reynolds says", low=0.0
    )
    reference_temperature: float = option(
        0.0, "temperature of the reference viscosity; 0 takes that of the free stream, as stream.reynolds does", low=0.0
    )
    sutherland_temperature: float = option(
        110.4, "the constant of Sutherland's law, as a temperature: 110.4 is that of air in kelvin", low=0.0
    )


@dataclass(frozen=True)
class FreeStreamOptions:
    """What comes from far away. Units are yours: with pressure, temperature and gas constant 1 the density is 1."""

    mach: float = option(0.5, "Mach number", low=0.0, high=100.0)
    incidence: float = option(0.0, "angle to the x axis, towards the axis of lift, in degrees", low=-90.0, high=90.0)
    sideslip: float = option(0.0, "angle to the plane of x and lift in degrees, in space", low=-90.0, high=90.0)
    lift_axis: str = option("y", "the axis of lift at no incidence", allowed=("y", "z"))
    pressure: float = option(1.0, "static pressure", above=0.0)
    temperature: float = option(1.0, "static temperature", above=0.0)
    reynolds: float = option(
        0.0, "Reynolds number by reference.length, which sets the viscosity; 0: gas.reference_viscosity does", low=0.0
    )


@dataclass(frozen=True)
class VolumesSchemeOptions:
    """Second order by linear functions in cells, or first order."""

    order: int = option(
        2, "1 takes the values of cells at their faces, 2 reconstructs them with gradients", low=1, high=2
    )
    flux: str = option("roe", "the numerical flux; slau2 is for all speeds, down to hardly any", allowed=tuple(FLUXES))
    entropy_fix: float = option(
        0.05, "Roe's wave speeds below this share of the fastest one are rounded off (Harten)", above=0.0, high=1.0
    )
    gradient: str = option("least_squares", "how gradients are made", allowed=GRADIENTS)
    limiter: str = option("venkatakrishnan", "what keeps gradients from overshooting", allowed=LIMITERS)
    limiter_constant: float = option(
        5.0, "Venkatakrishnan's K: changes over so many cells of the size of reference.length are let through", low=0.0
    )

    fallback: str = option(
        "none",
        "explicit: which cells do a stage again at first order: those whose density or pressure would not be positive;"
        " bounded, for strong shocks: in unsteady flow also those whose density would be above their neighbours'",
        allowed=FALLBACKS,
    )

    def scheme(self) -> FlowScheme:
        return FlowScheme(self.order, self.flux, self.entropy_fix, self.gradient, self.limiter, self.limiter_constant,
                          self.fallback)  # fmt: skip


@dataclass(frozen=True)
class VolumesTimeOptions:
    """Explicit: steady by five stages, each cell by its own clock; unsteady by three stages of one step. Implicit:
    Newton's method, for a steady flow, or in each step in time."""

    mode: str = option("steady", "towards a steady flow, or in time", allowed=MODES)
    method: str = option("explicit", "stages, or a linear system in each step", allowed=METHODS)
    cfl: float = option(
        0.8, "length of the step as a share of what a sound wave needs to cross a cell", above=0.0, high=100.0
    )
    smoothing: float = option(
        0.0,
        "steady and explicit: how strongly rates are averaged with those of neighbours; 0 not at all",
        low=0.0,
        high=10.0,
    )
    tolerance: float = option(
        0.0, "steady: end when the residual of density is below this; 0 goes on to run.iterations", low=0.0, high=1.0
    )
    end: float = option(1.0, "unsteady: time to compute", above=0.0, high=1e12)
    growth: float = option(
        1.1, "unsteady: a step may be at most so many times as long as the last", above=1.0, high=100.0
    )

    cfl_max: float = option(
        50.0, "implicit: the longest step of Newton's method in the same measure; cfl is that of the first", above=0.0
    )
    matrix_flux: str = option("roe", "implicit: the numerical flux that the matrix is made of", allowed=MATRIX_FLUXES)
    directions: int = option(20, "implicit: directions of GMRES in a cycle", low=1, high=100)
    cycles: int = option(1, "implicit: cycles of GMRES in a step at most", low=1, high=1000)
    accuracy: float = option(0.05, "implicit: to what share of it a linear system is solved", above=0.0, high=0.9)
    dt: float = option(0.1, "unsteady and implicit: length of a step", above=0.0, high=1e12)
    inner_steps: int = option(20, "unsteady and implicit: steps of Newton's method at most", low=1, high=10_000)
    inner_tolerance: float = option(
        1e-3, "unsteady and implicit: to what share Newton's method brings the residual down", above=0.0, high=0.9
    )

    def timing(self) -> Timing:
        return Timing(self.end, True, self.growth, self.cfl)

    def newton(self) -> NewtonOptions:
        return NewtonOptions(self.cfl, max(self.cfl, self.cfl_max), NewtonOptions.growth, self.directions, self.cycles,
                             self.accuracy, flux=self.matrix_flux)  # fmt: skip

    def dual(self) -> DualOptions:
        return DualOptions(self.dt, self.end, self.inner_steps, self.inner_tolerance)


@dataclass(frozen=True)
class TurbulenceOptions:
    """Means of a turbulent flow (RANS), with a model for what the fluctuations do."""

    model: str = option("none", "spalart_allmaras: one equation, turbulent everywhere", allowed=TURBULENCE_MODELS)
    free_stream: float = option(
        FREE_STREAM, "the model's viscosity far away, as a share of that of the gas: 3 to 5", low=0.0, high=1e5
    )
    order: int = option(1, "order of the convection of the model's viscosity", low=1, high=2)


@dataclass(frozen=True)
class ReferenceOptions:
    """Lengths and areas by which forces are made coefficients."""

    length: float = option(1.0, "length of Reynolds number, moment, residuals and limiter", above=0.0)
    area: float = option(1.0, "area of lift, drag and moment; in the plane a length", above=0.0)
    point: tuple[float, ...] = option((), "where moments are taken about, x, y, z; [] is the origin")


@dataclass(frozen=True)
class FlowMeshOptions:
    """Which mesh."""

    file: str = option("", "a mesh file, such as wing.su2; without one a channel with a bump is made", path=True)
    along: int = option(48, "the channel's cells along x, a multiple of 3", low=3, high=100_000)
    up: int = option(16, "the channel's cells along y", low=1, high=100_000)
    order: str = order_option()


@dataclass(frozen=True)
class FlowOutput(OutputOptions):
    """What to write, and how often."""

    window: tuple[float, ...] = option(
        (),
        "part of the plane in the picture: xmin, xmax, ymin, ymax; [] shows the body, or all where there is none",
        accepts=("four, with xmin < xmax and ymin < ymax, or none", lambda w: not w or _is_window(w)),
    )


def _is_window(window: tuple[float, ...]) -> bool:
    return len(window) == 4 and window[0] < window[1] and window[2] < window[3]


def condition_of(entry: Any) -> BoundaryCondition:
    """The condition that an entry of the table ``boundary`` describes; ValueError with the reason."""
    if not isinstance(entry, dict):
        raise ValueError(f'must be a table such as {{kind = "slip"}}, got {shown(entry)}')
    if "kind" not in entry:
        raise ValueError(f"has no kind; allowed: {', '.join(CONDITIONS)}")
    kind = entry["kind"]
    if not isinstance(kind, str) or kind not in CONDITIONS:
        raise ValueError(f"has the unknown kind {shown(kind)}{nearest(str(kind), CONDITIONS)}")
    return checked_section(CONDITIONS[kind], {key: value for key, value in entry.items() if key != "kind"})


def _check_condition(_: str, entry: Any) -> None:
    condition_of(entry)


def boundary_table(default: dict[str, Any] | None = None) -> Any:
    return table(
        'What holds at each boundary group of the mesh, by its name: a table such as [boundary.wall] kind = "slip".'
        f" Kinds: {', '.join(CONDITIONS)}.",
        _check_condition,
        default,
    )


@dataclass(frozen=True)
class FiniteVolumeConfig(FamilyConfig):
    """What all cases of this solver have."""

    run: RunOptions = section(RunOptions, "How long at most, and on what.", iterations=2000)
    mesh: FlowMeshOptions = section(FlowMeshOptions, "The mesh.")
    boundary: dict[str, Any] = boundary_table()
    gas: IdealGasOptions = section(IdealGasOptions, "The gas.")
    stream: FreeStreamOptions = section(
        FreeStreamOptions, "The free stream: what is everywhere at the start, and far away."
    )
    scheme: VolumesSchemeOptions = section(VolumesSchemeOptions, "The scheme.")
    time: VolumesTimeOptions = section(VolumesTimeOptions, "Steps in time.")
    turbulence: TurbulenceOptions = section(TurbulenceOptions, "What models the turbulence, if anything does.")
    reference: ReferenceOptions = section(ReferenceOptions, "What coefficients of forces refer to.")
    output: FlowOutput = section(FlowOutput, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("face_flux")


# --- what follows from them ------------------------------------------------------------------------------------------


def directions(stream: FreeStreamOptions, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors (dim,) of the stream, which drag goes along, and of lift."""
    up = 1 if dim == 2 or stream.lift_axis == "y" else 2
    alpha, beta = math.radians(stream.incidence), math.radians(stream.sideslip) if dim == 3 else 0.0
    drag, lift = np.zeros(dim), np.zeros(dim)
    drag[0], drag[up] = math.cos(alpha) * math.cos(beta), math.sin(alpha) * math.cos(beta)
    lift[0], lift[up] = -math.sin(alpha), math.cos(alpha)
    if dim == 3:
        drag[3 - up] = math.sin(beta)
    return drag, lift


def gas_and_stream(config: Any, dim: int) -> tuple[IdealGas, np.ndarray]:
    """The gas, and V (dim + 2,) of the free stream."""
    options, stream = config.gas, config.stream
    cold = IdealGas(options.gamma, options.gas_constant, options.prandtl)
    V = np.array([stream.pressure, *np.zeros(dim), stream.temperature])
    speed = stream.mach * float(cold.sound_speed(V))
    V[1:-1] = speed * directions(stream, dim)[0]
    viscosity = options.reference_viscosity
    temperature = options.reference_temperature or stream.temperature
    if stream.reynolds > 0.0:
        viscosity = float(cold.density(V)) * speed * config.reference.length / stream.reynolds
        temperature = stream.temperature
    gas = IdealGas(options.gamma, options.gas_constant, options.prandtl, options.viscosity, viscosity, temperature,
                   options.sutherland_temperature)  # fmt: skip
    return gas, V
