"""Advection along a line: a smooth pulse with central compact differences, a top hat with dissipative ones.

d phi/dt + d(c phi)/dx = 0 with a constant speed c: the exact solution is phi(x - c t).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.case import Chart
from meshloom.config import option, section
from meshloom.solvers.advection.base import CENTRAL, AdvectionCase, AdvectionConfig, Slopes, scheme_limit


@dataclass(frozen=True)
class LineOptions:
    """The line of points."""

    points: int = option(256, "points of the line", low=5, high=10**8)
    length: float = option(1.0, "length of the line", above=0.0)
    periodic: bool = option(False, "what leaves at one end comes in at the other; otherwise nothing comes in")


@dataclass(frozen=True)
class LineFlowOptions:
    """What carries the scalar."""

    speed: float = option(1.0, "speed of the flow; negative: to the left",
                          accepts=("other than 0", lambda speed: speed != 0.0))  # fmt: skip


@dataclass(frozen=True)
class LineConfig(AdvectionConfig):
    mesh: LineOptions = section(LineOptions, "The line.")
    flow: LineFlowOptions = section(LineFlowOptions, "The flow.")


class LineCase(AdvectionCase):
    """What both have in common: the line, the speed, and curves against the exact ones."""

    small: ClassVar[Mapping[str, Any]] = {"mesh.points": 16}

    def make_grid(self) -> ml.Grid:
        mesh = self.config.mesh
        return ml.Grid(mesh.points, mesh.length, periodic=mesh.periodic)

    def rate(self) -> float:
        return abs(self.config.flow.speed) / self.grid.spacing[0]

    @abstractmethod
    def initial(self, place: Any) -> Any:
        """phi at time 0, at places from 0 to the length."""

    def exact(self, places: tuple[Any, ...], time: Any) -> Any:
        mesh = self.config.mesh
        origin = places[0] - self.config.flow.speed * time
        if mesh.periodic:
            return self.initial(origin - mesh.length * np.floor(origin / mesh.length))
        return np.where((origin >= 0.0) & (origin <= mesh.length), self.initial(origin), 0.0)

    def free(self) -> ml.Field:
        """1 where phi may change, and 0 where the flow comes in: there it stays what it is."""
        values = np.ones(self.grid.shape)
        if not self.config.mesh.periodic:
            values[0 if self.config.flow.speed > 0.0 else -1] = 0.0
        return self.grid.field("free", dtype=self.dtype, data=values)

    def picture(self) -> Chart:
        """The solution against the exact one."""
        fields = self.grid_fields()
        curves = {"exact": fields["exact"], "computed": fields["phi"]}
        return Chart("profile", self.grid.coordinates[0], curves, "x", "phi")

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        errors = {name: history[name] for name in ("error_l1", "error_l2", "error_max")}
        return self.picture(), Chart("errors", history["time"], errors, "time", "error")


# --- a smooth pulse ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CentralOptions:
    """The derivative."""

    name: str = option("lele6", "the first derivative", allowed=tuple(CENTRAL))


@dataclass(frozen=True)
class PulseOptions:
    """The initial pulse [(1 - cos(2 pi x/L))/2]^power in the middle of the line."""

    power: float = option(200.0, "the higher, the narrower", above=0.0, high=1e6)


@dataclass(frozen=True)
class PulseConfig(LineConfig):
    scheme: CentralOptions = section(CentralOptions, "The scheme.")
    pulse: PulseOptions = section(PulseOptions, "The pulse at the start.")


class Pulse(LineCase):
    """A smooth pulse that should keep its form."""

    name: ClassVar[str] = "advection1d"
    title: ClassVar[str] = "a pulse travels along a line (advection, compact differences of sixth order)"
    Config: ClassVar[type] = PulseConfig

    def __init__(self, config: PulseConfig):
        self.scheme = CENTRAL[config.scheme.name]
        super().__init__(config)

    def initial(self, place: Any) -> Any:
        return ((1.0 - np.cos(2.0 * np.pi / self.config.mesh.length * place)) / 2.0) ** self.config.pulse.power

    def limits_by_scheme(self) -> dict[str, float]:
        return {self.scheme.name: scheme_limit(self.scheme)}

    def right_hand_side(self) -> Slopes:
        scheme, speed, free = self.scheme, self.config.flow.speed, self.free()

        @ml.kernel
        def carried(gradient: ml.Read, free: ml.Read, slope: ml.Write):
            slope[...] = -speed * free * gradient

        return lambda phi, slope: compact.d(phi, 0, (free, slope), scheme, after=carried)


# --- a top hat --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DissipativeOptions:
    """The dissipative derivative."""

    delta: float = option(0.25, "how much the weights are shifted upwind; 0 damps nothing", low=0.0, high=1.0)


@dataclass(frozen=True)
class HatOptions:
    """Where phi is 1 at the start; elsewhere it is 0."""

    low: float = option(0.15, "left side, as a share of the length", low=0.0, high=1.0)
    high: float = option(0.25, "right side, as a share of the length", low=0.0, high=1.0)


@dataclass(frozen=True)
class HatConfig(LineConfig):
    scheme: DissipativeOptions = section(DissipativeOptions, "The scheme.")
    hat: HatOptions = section(HatOptions, "The top hat at the start.")


class TopHat(LineCase):
    """Two jumps: the flux is split by Lax and Friedrichs, and each part gets the derivative that damps its waves."""

    name: ClassVar[str] = "tophat1d"
    title: ClassVar[str] = "a top hat travels along a line (advection, dissipative compact differences of fifth order)"
    Config: ClassVar[type] = HatConfig

    def __init__(self, config: HatConfig):
        delta = Fraction(config.scheme.delta).limit_denominator(10**6)
        self.schemes = compact.deng5(-delta), compact.deng5(delta)
        super().__init__(config)

    def initial(self, place: Any) -> Any:
        share = place / self.config.mesh.length
        return np.where((share >= self.config.hat.low) & (share <= self.config.hat.high), 1.0, 0.0)

    def limits_by_scheme(self) -> dict[str, float]:
        return {"deng5": scheme_limit(self.schemes[0])}  # the other is its mirror image

    def right_hand_side(self) -> Slopes:
        schemes, speed, free = self.schemes, self.config.flow.speed, self.free()
        fastest = abs(speed)

        @ml.kernel
        def split(phi: ml.Read, fluxes: ml.Write):
            """What travels to the right, and what travels to the left."""
            fluxes[...] = np.stack([0.5 * (speed * phi + fastest * phi), 0.5 * (speed * phi - fastest * phi)])

        @ml.kernel
        def joined(gradients: ml.Read, free: ml.Read, slope: ml.Write):
            slope[...] = -free * (gradients[0] + gradients[1])

        return lambda phi, slope: compact.d(phi, 0, (free, slope), schemes, before=split, after=joined, values=2)
