"""How a step in time is made: stages, and how long a step may be."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class TimeStage:
    """The next velocity is ``start`` times that at the start of the step, and ``now`` times that which a step of
    Euler's makes of the latest; then it is projected."""

    start: float
    now: float


@dataclass(frozen=True)
class TimeScheme:
    """``real`` and ``imaginary``: how far its region of stability goes along the two axes. ``coupled``: is what the
    face velocities have beyond interpolated ones forgotten in every stage, as in the plain projection method? Else it
    relaxes over a time scale, which leaves differential equations in time, and the scheme its order."""

    name: str
    stages: tuple[TimeStage, ...]
    real: float
    imaginary: float
    coupled: bool = False
    implicit: bool = False  # is friction taken at both ends of a step, and convection from two steps?

    def longest_step(self, convection: float, diffusion: float, speed2_over_viscosity: float) -> float:
        """The longest stable step. ``convection``: sum of speed over width; ``diffusion``: 4 nu times the sum of 1 over
        width squared; ``speed2_over_viscosity``: speed squared over nu, which counts where waves need viscosity."""
        if self.imaginary > 0.0:
            return 1.0 / (convection / self.imaginary + diffusion / self.real)
        longest = self.real / diffusion if diffusion > 0.0 else math.inf
        return min(longest, 2.0 / speed2_over_viscosity) if speed2_over_viscosity > 0.0 else longest


#: One step of Euler's: the fractional step method as it was first written down, of first order.
EULER = TimeScheme("euler", (TimeStage(0.0, 1.0),), 2.0, 0.0, coupled=True)
#: Shu and Osher's scheme of third order, each stage a step of Euler's mixed with the start.
RK3 = TimeScheme(
    "rk3",
    (TimeStage(0.0, 1.0), TimeStage(3.0 / 4.0, 1.0 / 4.0), TimeStage(1.0 / 3.0, 2.0 / 3.0)),
    2.5127,
    math.sqrt(3.0),
)
#: Adams and Bashforth's steps for convection, with Crank and Nicolson's for viscosity, which sets no limit. Waves
#: in inviscid flow grow, by (speed dt / width)^4 / 4 in a step: too little to be seen where there is any.
ABCN = TimeScheme("abcn", (TimeStage(0.0, 1.0),), math.inf, 0.4, implicit=True)
SCHEMES = {one.name: one for one in (RK3, EULER, ABCN)}
