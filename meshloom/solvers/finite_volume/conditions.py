"""Boundary conditions: one small class each, registered by its ``kind``.

An object of a class holds what a person sets (its fields are options of a configuration); ``given`` turns that into one
row (d + 2,) for every face. What happens at a face is static, so that conditions of one kind share their kernels
whatever their numbers are:

``flux``      mass, momentum and energy (d + 2,) out of the domain, from the state V inside and the row ``given``;
``friction``  the viscous and heat flux, from the gradient (d + 2, d) of the cell too;
``ghost``     the state beyond the face, for gradients, where ``ghost_at`` says where it is.

``normal`` (d,) is the unit normal out of the domain, ``area`` = size * normal, ``reach`` (d,) the way from the centre
of the cell to that of the face.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.config import option
from meshloom.errors import ConfigError, nearest
from meshloom.solvers.compressible import convected, mirrored, viscous_flux
from meshloom.solvers.finite_volume.fluxes import NumericalFlux
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.toml import toml_key

#: Where a ghost state is: at the face, or at the place of the cell mirrored at the face.
AT_FACE, MIRRORED = "at the face", "mirrored"


@dataclass(frozen=True)
class BoundaryCondition:
    """What all share: gas flows through, in the state that the condition finds at the face."""

    kind: ClassVar[str] = ""
    ghost_at: ClassVar[str] = MIRRORED
    is_free: ClassVar[bool] = True  # its ghost is a guess, which gradients take only where they lack other faces
    is_wall: ClassVar[bool] = False  # has forces, and charts of them

    @property
    def counts(self) -> bool:
        """Whether what acts on it is part of lift, drag and moment."""
        return False

    def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """One row (n, d + 2) for each face with these centres (n, d), in the free stream V (d + 2,)."""
        return np.tile(stream, (len(centres), 1))

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        """V at the face."""
        return V

    @classmethod
    def flux(cls, gas: IdealGas, flux: NumericalFlux, V: Any, given: Any, area: Any, normal: Any) -> Any:
        return convected(gas, cls.state(gas, V, given, normal), area)

    @classmethod
    def friction(
        cls, gas: IdealGas, V: Any, given: Any, slope: Any, area: Any, normal: Any, reach: Any, eddy: Any
    ) -> Any:
        """By the gradient of the cell."""
        at_face = cls.state(gas, V, given, normal)
        return viscous_flux(*transport(gas, at_face[-1], eddy), at_face[1:-1], slope, area)

    @classmethod
    def ghost(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return V

    def __init_subclass__(cls) -> None:
        if cls.__dict__.get("kind"):
            CONDITIONS[cls.kind] = cls


#: By kind.
CONDITIONS: dict[str, type[BoundaryCondition]] = {}
TURBULENT_PRANDTL = 0.9  # of air, in what turbulence conducts; Spalart and Allmaras 1994


def transport(gas: IdealGas, temperature: Any, eddy: Any) -> tuple[Any, Any]:
    """Viscosity and conductivity; ``eddy`` is the viscosity that turbulence adds."""
    viscosity = gas.viscosity(temperature)
    return viscosity + eddy, gas.conductivity(viscosity) + gas.cp_enthalpy / TURBULENT_PRANDTL * eddy


def upright(way: Any, area: Any) -> Any:
    """1 where a way (d,) goes through a face at an angle to its normal that is not too large, 0 where it hardly does.

    Gradients of cells that are flat as at walls, and lean, are not to be trusted along the face. The way of cells of
    usual shape is within 70 degrees (the square of the cosine is 0.1) of the normal.
    """
    through = way @ area
    return np.minimum(through * through / (0.1 * (way @ way) * (area @ area)), 1.0)


def along_the_line(slope: Any, change: Any, way: Any, area: Any) -> Any:
    """The gradient (k, d) at a face with area vector ``area`` (d,), with its part along the normal such that values
    change by ``change`` (k,) along ``way`` (d,).

    Means of gradients of cells do not see values that jump up and down from cell to cell; their difference does.
    """
    known = upright(way, area) * slope
    return known + np.outer(change - known @ way, area) / (way @ area)


def _replaced(V: Any, velocity: Any, temperature: Any) -> Any:
    return np.stack([V[0], *velocity, temperature])


# --- walls ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Closed(BoundaryCondition):
    """Nothing goes through, and nothing but the pressure of the gas acts on what is there."""

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return _replaced(V, V[1:-1] - (V[1:-1] @ normal) * normal, V[-1])

    @classmethod
    def flux(cls, gas: IdealGas, flux: NumericalFlux, V: Any, given: Any, area: Any, normal: Any) -> Any:
        """The pressure; nothing goes through."""
        nothing = np.zeros_like(V[0])
        return np.stack([nothing, *(V[0] * area), nothing])

    @classmethod
    def friction(
        cls, gas: IdealGas, V: Any, given: Any, slope: Any, area: Any, normal: Any, reach: Any, eddy: Any
    ) -> Any:
        """The stress along the normal alone."""
        viscosity, _ = transport(gas, V[-1], eddy)
        stress = viscous_flux(viscosity, 0.0, np.zeros_like(normal), slope, area)
        return np.stack([stress[0], *((stress[1:-1] @ normal) * normal), np.zeros_like(stress[0])])

    @classmethod
    def ghost(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return mirrored(V, normal)


@dataclass(frozen=True)
class SymmetryPlane(Closed):
    """A plane behind which everything is the same, mirrored."""

    kind: ClassVar[str] = "symmetry"
    is_free: ClassVar[bool] = False


@dataclass(frozen=True)
class SlipWall(Closed):
    """The gas slides along."""

    kind: ClassVar[str] = "slip"
    is_wall: ClassVar[bool] = True
    forces: bool = option(True, "whether what acts on it is part of lift, drag and moment")

    @property
    def counts(self) -> bool:
        return self.forces


@dataclass(frozen=True)
class AdiabaticWall(SlipWall):
    """No-slip adiabatic wall."""

    kind: ClassVar[str] = "no_slip"
    is_free: ClassVar[bool] = False
    velocity: tuple[float, ...] = option((), "velocity of the wall along its surface, x, y, z; [] is at rest")

    def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """The velocity of the wall, in its place."""
        rows = np.zeros((len(centres), len(stream)))
        rows[:, 1:-1] = vector(self.velocity, centres.shape[1], "velocity") if self.velocity else 0.0
        return rows

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return _replaced(V, given[1:-1], V[-1])

    @classmethod
    def friction(
        cls, gas: IdealGas, V: Any, given: Any, slope: Any, area: Any, normal: Any, reach: Any, eddy: Any
    ) -> Any:
        """By the change from the centre of the cell to the wall; turbulence ends there."""
        at_wall = cls.state(gas, V, given, normal)
        steep = np.outer(at_wall - V, area) / (reach @ area)  # along a wall that holds the gas nothing changes
        viscosity, conductivity = gas.viscosity(at_wall[-1]), cls.conductivity(gas, at_wall[-1])
        return viscous_flux(viscosity, conductivity, given[1:-1], steep, area)

    @classmethod
    def conductivity(cls, gas: IdealGas, temperature: Any) -> Any:
        return np.zeros_like(temperature)

    @classmethod
    def ghost(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return _replaced(V, 2.0 * given[1:-1] - V[1:-1], V[-1])


@dataclass(frozen=True)
class IsothermalWall(AdiabaticWall):
    """No-slip isothermal wall."""

    kind: ClassVar[str] = "isothermal"
    temperature: float = option(0.0, "temperature of the wall; 0 takes that of the free stream", low=0.0)

    def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
        rows = super().given(centres, stream)
        rows[:, -1] = self.temperature or stream[-1]
        return rows

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return _replaced(V, given[1:-1], given[-1])

    @classmethod
    def conductivity(cls, gas: IdealGas, temperature: Any) -> Any:
        return gas.conductivity(gas.viscosity(temperature))

    @classmethod
    def ghost(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return _replaced(V, 2.0 * given[1:-1] - V[1:-1], 2.0 * given[-1] - V[-1])


# --- where gas goes in and out -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CharacteristicFarField(BoundaryCondition):
    """The free stream, far away: along the normal the two sound waves carry their invariants, one from inside and one
    from outside; entropy and velocity along the face come with the gas."""

    kind: ClassVar[str] = "farfield"

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        k = 2.0 / (gas.gamma - 1.0)
        un, un_far = V[1:-1] @ normal, given[1:-1] @ normal
        c, c_far = gas.sound_speed(V), gas.sound_speed(given)
        outgoing = np.where(un_far <= -c_far, un_far + k * c_far, un + k * c)
        incoming = np.where(un >= c, un - k * c, un_far - k * c_far)
        un_face, c_face = 0.5 * (outgoing + incoming), (outgoing - incoming) / (2.0 * k)
        upstream = np.where(un_face > 0.0, V, given)
        velocity = upstream[1:-1] + (un_face - upstream[1:-1] @ normal) * normal
        temperature = c_face**2 / (gas.gamma * gas.gas_constant)
        pressure = upstream[0] * (temperature / upstream[-1]) ** (gas.gamma / (gas.gamma - 1.0))
        return np.stack([pressure, *velocity, temperature])


@dataclass(frozen=True)
class GivenState(BoundaryCondition):
    """Prescribed exterior state; the Riemann flux selects the characteristics."""

    kind: ClassVar[str] = "state"
    ghost_at: ClassVar[str] = AT_FACE
    is_free: ClassVar[bool] = False
    pressure: float = option(0.0, "pressure outside; 0 takes that of the free stream", low=0.0)
    velocity: tuple[float, ...] = option((), "velocity outside, x, y, z; [] takes that of the free stream")
    temperature: float = option(0.0, "temperature outside; 0 takes that of the free stream", low=0.0)

    def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
        own = np.array([self.pressure or stream[0], *stream[1:-1], self.temperature or stream[-1]])
        if self.velocity:
            own[1:-1] = vector(self.velocity, centres.shape[1], "velocity")
        return np.tile(own, (len(centres), 1))

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return given

    @classmethod
    def flux(cls, gas: IdealGas, flux: NumericalFlux, V: Any, given: Any, area: Any, normal: Any) -> Any:
        return flux(gas, V, given, area)

    @classmethod
    def friction(
        cls, gas: IdealGas, V: Any, given: Any, slope: Any, area: Any, normal: Any, reach: Any, eddy: Any
    ) -> Any:
        steep = along_the_line(slope, given - V, reach, area)
        return viscous_flux(*transport(gas, given[-1], eddy), given[1:-1], steep, area)

    @classmethod
    def ghost(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        return given


@dataclass(frozen=True)
class SupersonicInlet(GivenState):
    """All comes from outside."""

    kind: ClassVar[str] = "supersonic_inlet"

    @classmethod
    def flux(cls, gas: IdealGas, flux: NumericalFlux, V: Any, given: Any, area: Any, normal: Any) -> Any:
        return convected(gas, given, area)


@dataclass(frozen=True)
class SupersonicOutlet(BoundaryCondition):
    """All comes from inside."""

    kind: ClassVar[str] = "supersonic_outlet"


@dataclass(frozen=True)
class ReservoirInlet(BoundaryCondition):
    """Gas at rest in a reservoir comes in, slower than sound, without loss; a sound wave from inside says how fast."""

    kind: ClassVar[str] = "inlet"
    total_pressure: float = option(0.0, "pressure of the gas at rest, which has to be given", low=0.0)
    total_temperature: float = option(0.0, "temperature of the gas at rest, which has to be given", low=0.0)
    direction: tuple[float, ...] = option((), "where the gas goes, x, y, z; [] takes that of the free stream")

    def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
        for name in ("total_pressure", "total_temperature"):
            if getattr(self, name) == 0.0:
                raise ValueError(f"has no {name}: an inlet needs that of its reservoir")
        way = vector(self.direction, centres.shape[1], "direction") if self.direction else stream[1:-1]
        size = float(np.linalg.norm(way))
        if size == 0.0:
            raise ValueError("has no direction: give one that is not zero")
        return np.tile([self.total_pressure, *(way / size), self.total_temperature], (len(centres), 1))

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        """The speed q with q (-direction . normal) = outgoing invariant, and c^2 = c0^2 - (gamma - 1) / 2 q^2."""
        k = 0.5 * (gas.gamma - 1.0)
        at_rest, straight = gas.gamma * gas.gas_constant * given[-1], -(given[1:-1] @ normal)
        invariant = V[1:-1] @ normal + gas.sound_speed(V) / k
        a, b, c = k + (k * straight) ** 2, k**2 * invariant * straight, (k * invariant) ** 2 - at_rest
        speed = (np.sqrt(np.maximum(b * b - a * c, 0.0)) - b) / a
        speed = np.clip(speed, 0.0, np.sqrt(at_rest / (1.0 + k)))
        temperature = given[-1] - 0.5 * speed**2 / gas.cp_enthalpy
        pressure = given[0] * (temperature / given[-1]) ** (gas.gamma / (gas.gamma - 1.0))
        return np.stack([pressure, *(speed * given[1:-1]), temperature])


@dataclass(frozen=True)
class PressureOutlet(BoundaryCondition):
    """Gas goes out against a pressure, unless it is faster than sound."""

    kind: ClassVar[str] = "outlet"
    pressure: float = option(0.0, "pressure outside; 0 takes that of the free stream", low=0.0)

    def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
        return np.tile([self.pressure or stream[0], *stream[1:]], (len(centres), 1))

    @classmethod
    def state(cls, gas: IdealGas, V: Any, given: Any, normal: Any) -> Any:
        """Without loss from the pressure inside to that outside; the outgoing sound wave keeps its invariant."""
        un, c = V[1:-1] @ normal, gas.sound_speed(V)
        temperature = V[-1] * (given[0] / V[0]) ** ((gas.gamma - 1.0) / gas.gamma)
        c_face = np.sqrt(gas.gamma * gas.gas_constant * temperature)
        speed_up = 2.0 / (gas.gamma - 1.0) * (c - c_face)
        slower = np.stack([given[0], *(V[1:-1] + speed_up * normal), temperature])
        return np.where(un >= c, V, slower)


@dataclass(frozen=True)
class Periodic(BoundaryCondition):
    """No boundary at all: what leaves here comes in at the partner. The mesh is joined before the flow sees it."""

    kind: ClassVar[str] = "periodic"
    partner: str = option("", "the boundary group on the other side")


def join_periodic(
    mesh: ml.Mesh, conditions: Mapping[str, BoundaryCondition]
) -> tuple[ml.Mesh, dict[str, BoundaryCondition]]:
    """The mesh with its periodic groups joined, and the conditions of the others.

    One of two partners says so, or both do; ConfigError where a partner is none, or has another condition too.
    """
    pairs: dict[str, str] = {}
    for name, condition in conditions.items():
        if not isinstance(condition, Periodic):
            continue
        key, partner = toml_key(("boundary", name)), condition.partner
        for group in (name, partner):
            if group not in mesh.groups:
                raise ConfigError(f"{key} joins {group!r}, which is no boundary group{nearest(group, mesh.groups)}")
        other = conditions.get(partner)
        if partner == name or (other is not None and getattr(other, "partner", None) != name):
            raise ConfigError(f"{key} joins {partner!r}, which has another condition: a group can have one only")
        if pairs.get(partner) != name:
            pairs[name] = partner
    joined = {*pairs, *pairs.values()}
    rest = {name: condition for name, condition in conditions.items() if name not in joined}
    return (mesh.periodic(pairs) if pairs else mesh), rest


def vector(parts: tuple[float, ...], dim: int, what: str) -> np.ndarray:
    """A vector (dim,) that a person gave; ValueError where it has another number of parts."""
    if len(parts) != dim:
        raise ValueError(f"has a {what} of {len(parts)} numbers; the mesh has {dim} axes")
    return np.array(parts)
