"""The miniAero cases (Mantevo): a shock tube, supersonic flow up a ramp, and a boundary layer on a plate.

Three-dimensional compressible Navier-Stokes equations, cell-centred finite volumes on hexahedra: Roe's flux, gradients
by Gauss' theorem with Venkatakrishnan's limiter for second order, four Runge-Kutta stages per step.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import BROKEN, Case, Limit, Picture, rows_at
from meshloom.solvers.exact import GasState, Riemann
from meshloom.solvers.finite_volume.stability import longest_cfl
from meshloom.solvers.miniaero.gas import MiniAeroGas
from meshloom.solvers.miniaero.kernels import EXTRAPOLATE, INFLOW, NO_SLIP, TANGENT, MiniAeroScheme, kernels
from meshloom.solvers.miniaero.options import MiniAeroMeshOptions, PlateConfig, RampConfig, ShockTubeConfig
from meshloom.solvers.miniaero.step import FiniteVolumes, TimeStep
from meshloom.solvers.runge_kutta import amplification, largest_step
from meshloom.solvers.stable import doubts_longer

_NEAR = 1e-6  # so close to the contact are states on either side, as a share of its speed


class MiniAero(Case):
    """What the cases share.

    Monitors: root mean square of the relative change of density in a step; mass, energy and lowest temperature of all.
    """

    monitors: ClassVar[tuple[str, ...]] = ("rms", "mass", "energy", "lowest_temperature")
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": (4, 3, 2)}
    # A negative density makes the temperature negative too, as long as there is energy.
    limits: Mapping[str, Limit] = dict.fromkeys(("temperature", "lowest_temperature"), Limit(above=0.0))
    boundary: ClassVar[Mapping[str, int]]  # kind of each side of the channel
    drawn: ClassVar[tuple[str, str]] = ("mach", "Mach number")  # the field in the picture

    def __init__(self, config: Any):
        self.config, self.gas = config, config.gas.gas()
        scheme = MiniAeroScheme(config.order, config.viscous, config.scheme.entropy_fix, config.scheme.limiter_exponent)
        self.mesh = _channel(config.mesh).arranged(config.mesh.order)
        start = self.initial_state(np.asarray(self.mesh.cells.points))
        self.u = self.mesh.cells.field("u", 5, dtype=self.dtype, data=start)
        self.recorded = tuple(ml.Global(0.0, name) for name in self.monitors)
        self.state = (self.u,)
        inflow = self.gas.primitives(self.inflow_state)
        run = kernels(self.gas, scheme, tuple(inflow.tolist()))
        geometry = FiniteVolumes.of(self.mesh, self.boundary, self.dtype)
        step = TimeStep(self.u, geometry, run, scheme, config.time.dt, self.recorded)
        self.program = ml.program(step.time_step)

    @abstractmethod
    def initial_state(self, centres: np.ndarray) -> np.ndarray:
        """U (cells, 5) at the start in cells with these centres (cells, 3)."""

    @property
    @abstractmethod
    def inflow_state(self) -> np.ndarray:
        """U (5,) outside the faces where gas comes in."""

    @cached_property
    def longest_step(self) -> float:
        """The longest that is known to be stable, in seconds."""
        order, viscous = self.config.order, self.config.viscous
        return min(longest_step(self.mesh, self.gas, V, order, viscous=viscous) for V in self.expected_states())

    def expected_states(self) -> list[np.ndarray]:
        """V (5, cells) each: what steps must be short enough for. The start; later the flow may be faster."""
        return [self.gas.primitives(self.initial_state(np.asarray(self.mesh.cells.points)).T)]

    def doubts(self) -> tuple[str, ...]:
        return doubts_longer("time.dt", self.config.time.dt, self.longest_step)

    def cure(self, state: str) -> str:
        return "shorter steps (time.dt) may help" if state == BROKEN else ""

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        rows = recorded.copy()
        rows[:, 0] = np.sqrt(rows[:, 0] / len(self.mesh.cells))
        return rows

    def cell_fields(self) -> dict[str, np.ndarray]:
        U = self.u.local().astype(np.float64).T
        V = self.gas.primitives(U)
        names = ("rho", "rho_u", "rho_v", "rho_w", "rho_E")
        speed = np.sqrt((V[1:4] ** 2).sum(axis=0))
        return dict(zip(names, U, strict=True)) | {
            "velocity": V[1:4].T,
            "temperature": V[4],
            "pressure": self.gas.pressure(V),
            "mach": speed / self.gas.sound_speed(V),
        }

    def picture(self) -> Picture:
        """The channel from the side: the faces where z is smallest, each in the colour of its cell."""
        mesh, (field, label) = self.mesh, self.drawn
        side = mesh.group("zmin")
        length, height, _ = self.config.mesh.extent
        return Picture(
            rows_at(mesh.cells, self.cell_fields()[field], mesh.boundary_cells.indices[side, 0]),
            label,
            (0.0, length, 0.0, height),
            ("x / m", "y / m"),
            points=mesh.coordinates.numpy()[:, :2],
            polygons=mesh.boundary_nodes.indices[side],
            curves=("rms",),
        )


class ShockTube(MiniAero):
    """A membrane bursts between gas at high and at low pressure."""

    name: ClassVar[str] = "miniaero_sod"
    title: ClassVar[str] = "shock tube, 3-D compressible flow on hexahedra (Roe's flux; the miniAero benchmark)"
    Config: ClassVar[type] = ShockTubeConfig
    drawn: ClassVar[tuple[str, str]] = ("rho", "density in kg/m³")
    boundary: ClassVar[Mapping[str, int]] = dict.fromkeys(("xmin", "xmax"), EXTRAPOLATE) | dict.fromkeys(
        ("ymin", "ymax", "zmin", "zmax"), TANGENT
    )

    def initial_state(self, centres: np.ndarray) -> np.ndarray:
        tube, middle = self.config.tube, self.config.mesh.extent[0] / 2.0
        left, right = (self.gas.conserved(self.gas.at_rest(*side)) for side in (tube.left, tube.right))
        return np.where(centres[:, :1] < middle, left, right)

    def expected_states(self) -> list[np.ndarray]:
        """Those on both sides of the contact between the two gases, too: gas at rest is the slowest."""
        gas, tube = self.gas, self.config.tube
        resting = [gas.at_rest(*side) for side in (tube.left, tube.right)]
        left, right = (GasState(gas.density(V), 0.0, gas.pressure(V)) for V in resting)
        riemann = Riemann(left, right, gas.gamma)
        found = riemann.at(riemann.star[1] * np.array([1.0 - _NEAR, 1.0 + _NEAR]), 1.0)
        still, heat = np.zeros(2), found.pressure / (found.density * gas.gas_constant)
        moving = np.stack([found.density, found.velocity, still, still, heat]).T
        return [*super().expected_states(), *(np.tile(V[:, None], (1, len(self.mesh.cells))) for V in moving)]

    @property
    def inflow_state(self) -> np.ndarray:
        return self.gas.conserved(self.gas.at_rest(*self.config.tube.left))  # nothing comes in


class Ramp(MiniAero):
    """Supersonic flow up a ramp, with the shock that it makes."""

    name: ClassVar[str] = "miniaero_ramp"
    title: ClassVar[str] = "supersonic flow up a ramp, 3-D, second order (miniAero)"
    Config: ClassVar[type] = RampConfig
    boundary: ClassVar[Mapping[str, int]] = {"xmin": INFLOW, "xmax": EXTRAPOLATE} | dict.fromkeys(
        ("ymin", "ymax", "zmin", "zmax"), TANGENT
    )

    def initial_state(self, centres: np.ndarray) -> np.ndarray:
        return np.tile(self.inflow_state, (len(centres), 1))

    @property
    def inflow_state(self) -> np.ndarray:
        return np.array(self.config.stream.state)


class FlatPlate(Ramp):
    """A supersonic stream along a no-slip plate: the boundary layer grows."""

    name: ClassVar[str] = "miniaero_plate"
    title: ClassVar[str] = "boundary layer of a supersonic stream on a plate, 3-D, viscous, second order (miniAero)"
    Config: ClassVar[type] = PlateConfig
    boundary: ClassVar[Mapping[str, int]] = {**Ramp.boundary, "ymin": NO_SLIP, "ymax": EXTRAPOLATE}


def _channel(options: MiniAeroMeshOptions) -> ml.Mesh:
    """The mesh that the configuration asks for, numbered as the original does: along z first, then y, then x."""
    pi = math.pi if options.pi_decimals < 0 else round(math.pi, options.pi_decimals)
    return ml.generate.ramp(options.cells, extent=options.extent, slope=math.tan(options.angle * pi / 180.0))


def longest_step(mesh: ml.Mesh, gas: MiniAeroGas, V: np.ndarray, order: int, *, viscous: bool) -> float:
    """In seconds, for a state V (5, cells): where the flow becomes faster or hotter, less is stable.

    Half of what goes through the faces of a cell, by its volume, is the sum of the Courant numbers along its axes; the
    symbol of the viscous term is -4 nu / h^2 along each of them.
    """
    volume, sound = mesh.cell_volumes, gas.sound_speed(V)
    factor = max(4.0 / 3.0, gas.gamma / gas.prandtl) if viscous else 0.0  # of momentum, and of heat
    diffusivity = factor * gas.viscosity(V[4]) / V[0]
    waves, damping = np.zeros(len(volume)), np.zeros(len(volume))
    for cells, area in ((mesh.face_cells, mesh.face_normals), (mesh.boundary_cells, mesh.boundary_normals)):
        size = np.linalg.norm(area, axis=1)
        for own in cells.indices.T:
            through = np.abs((area * V[1:4, own].T).sum(axis=1)) + sound[own] * size
            waves += np.bincount(own, 0.5 * through / volume[own], len(volume))
            damping += np.bincount(own, 2.0 * diffusivity[own] * (size / volume[own]) ** 2, len(volume))
    longest = longest_cfl(order, 0.0, amplification), largest_step(np.array([-1.0]))
    return 1.0 / float((waves / longest[0] + damping / longest[1]).max())
