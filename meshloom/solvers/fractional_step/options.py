"""Settings that the incompressible cases share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from meshloom.case import FamilyConfig, OutputOptions, RunOptions, schedule_table
from meshloom.config import option, section
from meshloom.solvers.fractional_step.convective_flux import CENTRAL, CONVECTIONS
from meshloom.solvers.fractional_step.pressure import AUTO, FAST, SOLVERS
from meshloom.solvers.fractional_step.schemes import RK3, SCHEMES

COLLOCATED, STAGGERED = FORMS = ("collocated", "staggered")
MOST_STEPS = 100_000_000
SCHEME_DOC, PRESSURE_DOC = "How the equations are made discrete.", "How the pressure is solved for."


@dataclass(frozen=True)
class StepOptions:
    """When to end, and how long a step is."""

    end: float = option(10.0, "time at the end, at the latest", above=0.0)
    steady: float = option(
        0.0, "end when no velocity changes faster than this, per unit of time; 0: not before the end", low=0.0
    )
    cfl: float = option(0.9, "length of a step over the longest that is known to be stable", above=0.0, high=10.0)
    dt: float = option(0.0, "length of a step; 0 takes it from cfl", low=0.0)


@dataclass(frozen=True)
class FractionalStepOptions:
    """How the equations are made discrete."""

    #: What runs had that were begun before there was such a setting.
    before_it_was_a_setting: ClassVar[Mapping[str, Any]] = MappingProxyType({"form": COLLOCATED})

    form: str = option(
        STAGGERED,
        "staggered: velocities at faces alone, which loses no kinetic energy with central convection; collocated: at"
        " centres of cells, with those through faces next to them, which loses some (monitor energy_lost)",
        allowed=FORMS,
    )
    time: str = option(
        RK3.name,
        "rk3: three stages, of third order; euler: one, of first; abcn: Adams-Bashforth for convection and"
        " Crank-Nicolson for the viscous term, of second order, where viscosity does not limit the step",
        allowed=tuple(SCHEMES),
    )
    convection: str = option(
        CENTRAL,
        "central: means of two cells, which of themselves neither make nor lose kinetic energy; quick: parabolas"
        " upstream, which damp what is too fine",
        allowed=CONVECTIONS,
    )
    fade: float = option(
        0.0,
        "collocated: time in which face velocities forget what they have beyond interpolated ones, a step at least; 0:"
        " a step. Kinetic energy is lost in proportion to it. Euler's steps forget it at once",
        low=0.0,
    )


@dataclass(frozen=True)
class PressureOptions:
    """How the pressure is solved for."""

    solver: str = option(
        AUTO,
        "fast: directly, by transforms; multigrid: by iterations; auto: fast where that is faster",
        allowed=SOLVERS,
    )
    tolerance: float = option(
        1e-10,
        "residual at which iterations end, as a part of the right-hand side; in single precision 1e-5 at the least",
        above=0.0,
        high=0.1,
    )


@dataclass(frozen=True)
class DirectPressureOptions(PressureOptions):
    """The same around solids, of which iterations know nothing."""

    solver: str = option(AUTO, "fast: directly, by transforms; auto: the same", allowed=(AUTO, FAST))


@dataclass(frozen=True)
class CollocatedOptions(FractionalStepOptions):
    """The same around solids, which velocities at faces alone do not know."""

    form: str = option(COLLOCATED, "collocated: velocities at centres of cells, with those through faces next to them,"
                       " which loses some kinetic energy (monitor energy_lost)", allowed=(COLLOCATED,))  # fmt: skip


@dataclass(frozen=True)
class ProblemConfig(FamilyConfig):
    """What is to be computed, and until when: the first sections of every case."""

    run: RunOptions = section(RunOptions, "How many steps at most, and on what.", iterations=MOST_STEPS)
    mesh: Any = None  # sections of the case's own
    flow: Any = None
    time: StepOptions = section(StepOptions, "Time steps.")


@dataclass(frozen=True)
class MethodConfig(FamilyConfig):
    """How it is computed, and what is written: the last sections of every case."""

    scheme: FractionalStepOptions = section(FractionalStepOptions, SCHEME_DOC)
    pressure: PressureOptions = section(PressureOptions, PRESSURE_DOC)
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("predict")


@dataclass(frozen=True)
class IncompressibleConfig(MethodConfig, ProblemConfig):
    """Both; dataclasses put the sections of the last base first."""
