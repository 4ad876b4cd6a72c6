"""What flows through a face between two states: numerical fluxes by name.

Each is a function of the gas, the states V (d + 2,) at the left and at the right (``gas.py``), and the area vector (d,)
from left to right, and gives mass, momentum and energy (d + 2,) per time. All of them give back the flux of one state
where both are the same, and the negative one when sides and area are turned around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshloom.solvers.compressible import convected, roe_average, roe_flux, square, total_enthalpy
from meshloom.solvers.finite_volume.gas import IdealGas

NumericalFlux = Callable[[IdealGas, Any, Any, Any], Any]


def rusanov_flux(gas: IdealGas, left: Any, right: Any, area: Any) -> Any:
    """The mean, and the fastest wave of both sides times half the jump: robust, and smears contacts."""
    size = np.sqrt(area @ area)
    fastest = np.maximum(_fastest(gas, left, area, size), _fastest(gas, right, area, size))
    jump = gas.conserved(right) - gas.conserved(left)
    return 0.5 * (convected(gas, left, area) + convected(gas, right, area)) - 0.5 * fastest * jump


def _fastest(gas: IdealGas, V: Any, area: Any, size: Any) -> Any:
    return np.abs(area @ V[1:-1]) + gas.sound_speed(V) * size


def hllc_flux(gas: IdealGas, left: Any, right: Any, area: Any) -> Any:
    """Two sound waves and a contact between them (Toro 1994), with the outer speeds of Einfeldt and Batten, which keep
    density and pressure positive."""
    size = np.sqrt(area @ area)
    normal = area / size
    un_left, un_right = left[1:-1] @ normal, right[1:-1] @ normal
    density_left, density_right = gas.density(left), gas.density(right)
    velocity, _, sound = roe_average(gas, left, right)
    backward = np.minimum(un_left - gas.sound_speed(left), velocity @ normal - sound)
    forward = np.maximum(un_right + gas.sound_speed(right), velocity @ normal + sound)
    push_left, push_right = density_left * (backward - un_left), density_right * (forward - un_right)
    contact = (right[0] - left[0] + push_left * un_left - push_right * un_right) / (push_left - push_right)

    def beside_contact(V: Any, outer: Any) -> Any:
        """The flux of a side, and what its sound wave adds between itself and the contact."""
        un, density = V[1:-1] @ normal, gas.density(V)
        squeezed = density * (outer - un) / (outer - contact)
        speed_up = contact - un
        energy = gas.conserved(V)[-1] / density + speed_up * (contact + V[0] / (density * (outer - un)))
        middle = squeezed * np.stack([np.ones_like(un), *(V[1:-1] + speed_up * normal), energy])
        return convected(gas, V, area) + size * outer * (middle - gas.conserved(V))

    from_left = np.where(backward >= 0.0, convected(gas, left, area), beside_contact(left, backward))
    from_right = np.where(forward <= 0.0, convected(gas, right, area), beside_contact(right, forward))
    return np.where(contact >= 0.0, from_left, from_right)


def hll_flux(gas: IdealGas, left: Any, right: Any, area: Any) -> Any:
    """Two sound waves and their mean between them (Harten, Lax and van Leer 1983), with the speeds of ``hllc_flux``:
    nothing goes through where the area vanishes."""
    size = np.sqrt(area @ area)
    velocity, _, sound = roe_average(gas, left, right)
    un, un_left, un_right = (area @ u for u in (velocity, left[1:-1], right[1:-1]))
    backward = np.minimum(np.minimum(un_left - gas.sound_speed(left) * size, un - sound * size), 0.0)
    forward = np.maximum(np.maximum(un_right + gas.sound_speed(right) * size, un + sound * size), 0.0)
    jump = gas.conserved(right) - gas.conserved(left)
    mean = forward * convected(gas, left, area) - backward * convected(gas, right, area) + forward * backward * jump
    between = forward - backward
    return mean / np.where(between > 0.0, between, 1.0)


def rotated_flux(gas: IdealGas, left: Any, right: Any, area: Any) -> Any:
    """Along the jump of the velocity, which is the normal of a shock whatever way the face looks, the flux of two
    waves, and that with a contact across it (Nishikawa and Kitamura 2008): shocks stay straight on cells of any shape,
    and boundary layers, whose velocity jumps along the face, keep their contacts."""
    jump = right[1:-1] - left[1:-1]
    noise = _NO_JUMP * (gas.sound_speed(left) + gas.sound_speed(right))
    along = (area @ jump) / (jump @ jump + noise**2) * jump
    across = area - along
    vanishes = across @ across == 0.0
    contact = hllc_flux(gas, left, right, np.where(vanishes, area, across))
    return hll_flux(gas, left, right, along) + np.where(vanishes, 0.0, contact)


#: Of the speed of sound: velocities that jump by less have no direction but that of rounding.
_NO_JUMP = 1e-6


def slau2_flux(gas: IdealGas, left: Any, right: Any, area: Any) -> Any:
    """For all speeds (Kitamura and Shima 2013): what the mass carries comes from upstream, and the dissipation of the
    pressure goes with the speed of the gas, not with that of sound, so that slow flow is not drowned in it."""
    size = np.sqrt(area @ area)
    normal = area / size
    un_left, un_right = left[1:-1] @ normal, right[1:-1] @ normal
    density_left, density_right = gas.density(left), gas.density(right)
    sound = 0.5 * (gas.sound_speed(left) + gas.sound_speed(right))
    speed = np.sqrt(0.5 * (square(left[1:-1]) + square(right[1:-1])))
    mach_left, mach_right = un_left / sound, un_right / sound

    slowness = (1.0 - np.minimum(speed / sound, 1.0)) ** 2
    parting = -np.maximum(np.minimum(mach_left, 0.0), -1.0) * np.minimum(np.maximum(mach_right, 0.0), 1.0)
    mean = (density_left * np.abs(un_left) + density_right * np.abs(un_right)) / (density_left + density_right)
    mean_left = (1.0 - parting) * mean + parting * np.abs(un_left)
    mean_right = (1.0 - parting) * mean + parting * np.abs(un_right)
    mass = 0.5 * (
        density_left * (un_left + mean_left)
        + density_right * (un_right - mean_right)
        - slowness / sound * (right[0] - left[0])
    )

    share_left, share_right = _pressure_share(mach_left), _pressure_share(-mach_right)
    pressure = (
        0.5 * (left[0] + right[0])
        + 0.5 * (share_left - share_right) * (left[0] - right[0])
        + speed * (share_left + share_right - 1.0) * 0.5 * (density_left + density_right) * sound
    )
    one = np.ones_like(mass)
    carried_left = np.stack([one, *left[1:-1], total_enthalpy(gas, left)])
    carried_right = np.stack([one, *right[1:-1], total_enthalpy(gas, right)])
    push = np.stack([np.zeros_like(mass), *(pressure * area), np.zeros_like(mass)])
    return size * (np.maximum(mass, 0.0) * carried_left + np.minimum(mass, 0.0) * carried_right) + push


def _pressure_share(mach: Any) -> Any:
    """How much of a side's pressure counts: 1 from sound speed towards the face on, 0 from sound speed away from it."""
    smooth = 0.25 * (mach + 1.0) ** 2 * (2.0 - mach)
    return np.where(mach >= 1.0, 1.0, np.where(mach <= -1.0, 0.0, smooth))


def roe_with(entropy_fix: float) -> NumericalFlux:
    """Roe's flux; wave speeds below that share of the fastest one are rounded off. Where gas parts so fast that its
    linear waves would leave none between them, or less than no energy (Einfeldt, Munz, Roe and Sjogreen 1991),
    Rusanov's."""

    def roe(gas: IdealGas, left: Any, right: Any, area: Any) -> Any:
        linear = roe_flux(gas, left, right, area, entropy_fix)
        return np.where(_roe_is_physical(gas, left, right, area), linear, rusanov_flux(gas, left, right, area))

    return roe


def _roe_is_physical(gas: IdealGas, left: Any, right: Any, area: Any) -> Any:
    """Whether density and pressure are positive behind both sound waves of Roe's linear Riemann problem."""
    normal = area / np.sqrt(area @ area)
    u, h, c = roe_average(gas, left, right)
    density = np.sqrt(gas.density(left) * gas.density(right))
    push, parting = right[0] - left[0], density * c * ((right[1:-1] - left[1:-1]) @ normal)
    good: Any = True
    for side, V in ((-1.0, left), (1.0, right)):
        strength = -side * (push + side * parting) / (2.0 * c**2)
        wave = np.stack([np.ones_like(h), *(u + side * c * normal), h + 0.5 * (u @ u) + side * c * (u @ normal)])
        behind = gas.conserved(V) + strength * wave
        # twice density times internal energy: of the sign of the pressure, and no division by what may be zero
        good = good & (behind[0] > 0.0) & (2.0 * behind[0] * behind[-1] > behind[1:-1] @ behind[1:-1])
    return good


#: By name; each is made with the share of the entropy fix, which Roe's alone needs.
FLUXES: dict[str, Callable[[float], NumericalFlux]] = {
    "roe": roe_with,
    "hllc": lambda _: hllc_flux,
    "rusanov": lambda _: rusanov_flux,
    "rotated": lambda _: rotated_flux,
    "slau2": lambda _: slau2_flux,
}
#: Those that a matrix may be made of: what ``rotated`` is hangs on the direction of jumps that may be next to nothing,
#: and derivatives of that are next to infinite.
MATRIX_FLUXES = tuple(name for name in FLUXES if name != "rotated")
