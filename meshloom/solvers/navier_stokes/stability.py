"""How long a time step may be: the waves of the compact scheme against the stability of the Runge-Kutta method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshloom import compact
from meshloom.solvers.navier_stokes.gas import Gas
from meshloom.solvers.runge_kutta import largest_step
from meshloom.solvers.stable import refuse_longer

_WAVES = 129


@dataclass(frozen=True)
class Stream:
    """The fastest flow that is expected: speed along each axis, speed of sound, least density."""

    speeds: tuple[float, ...]
    sound: float
    density: float


def courant(stream: Stream, spacing: Sequence[float]) -> float:
    """Courant number per unit of time: the fastest wave in points per time, all axes together."""
    convection = sum(abs(u) / h for u, h in zip(stream.speeds, spacing, strict=True))
    return convection + stream.sound * math.sqrt(sum(1.0 / h**2 for h in spacing))


def longest_step(gas: Gas, stream: Stream, spacing: Sequence[float], scheme: compact.Scheme = compact.LELE6) -> float:
    """The longest stable step: sound and flow in the direction where they are fastest, viscosity and conduction damp.

    The symbol of a wave is i k (u + c) - nu k^2, with the wavenumber k that the scheme answers with; second derivatives
    are first derivatives twice, so theirs is k^2, too. Waves along one axis may be long and along another short, so the
    two parts are combined as if they had nothing to do with each other.
    """
    theta = np.linspace(0.0, np.pi, _WAVES)
    wave = np.abs(compact.modified_wavenumber(scheme, theta))
    diffusivity = gas.viscosity / stream.density * max(4.0 / 3.0, gas.gamma / gas.prandtl)
    damping = diffusivity * sum(1.0 / h**2 for h in spacing)
    rate = courant(stream, spacing)
    symbols = 1j * rate * wave[:, None] - damping * np.square(wave)[None, :]
    return largest_step(symbols)


def chosen_step(dt: float, cfl: float, gas: Gas, stream: Stream, spacing: Sequence[float]) -> float:
    """The step that the settings ask for; ConfigError where it is longer than the scheme allows.

    ``cfl`` is the Courant number ``dt * courant(...)``; ``dt``, where it is not 0, is the step itself.
    """
    rate, longest = courant(stream, spacing), longest_step(gas, stream, spacing)
    step = dt or cfl / rate
    asked = ("time.dt", dt, longest) if dt else ("time.cfl", cfl, longest * rate)
    refuse_longer(*asked, where=" on this grid")
    return step
