"""The case: a blast wave (Sedov's problem) on a mesh of hexahedra that moves with the gas, as LULESH solves it.

Energy set free in the element at the origin drives a spherical shock; one eighth of the sphere is computed, with
mirrors at the three planes through the origin. Density and the mass of an element are those of its initial volume.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import BROKEN, Case, Limit, Picture, rows_at, values_at
from meshloom.solvers.lulesh.kernels import ENDS, NO_LIMIT, free_bit, kernels, masses, mirror_bit
from meshloom.solvers.lulesh.options import LuleshConfig, LuleshMeshOptions
from meshloom.solvers.stable import doubts_longer

_ENERGY_SIZE = 45  # elements along an edge for which the energy of the origin is given
_MIRRORS = ("xmin", "ymin", "zmin")


class Lulesh(Case):
    """Monitors: energy of the element at the origin, number and length of the step, and how symmetric the result is."""

    name: ClassVar[str] = "lulesh"
    title: ClassVar[str] = "blast wave on a moving mesh of hexahedra (Lagrangian hydrodynamics; the LULESH benchmark)"
    Config: ClassVar[type] = LuleshConfig
    shown: ClassVar[tuple[str, ...]] = ("origin_energy", "dt")
    small: ClassVar[Mapping[str, Any]] = {"mesh.size": 2}
    monitors: ClassVar[tuple[str, ...]] = (
        "origin_energy", "cycles", "t", "dt", "max_abs_difference", "total_abs_difference", "max_rel_difference"
    )  # fmt: skip

    def __init__(self, config: LuleshConfig):
        self.config = config
        self.limits = {
            "v_new": Limit(above=0.0, why="the element is tangled"),
            "least_volume": Limit(above=0.0, why="an element is tangled"),
            "q": Limit(below=config.material.largest_q, why="material.largest_q"),
            "largest_q": Limit(below=config.material.largest_q, why="material.largest_q"),
            "dt": Limit(above=0.0, why="the time step has collapsed"),
        }
        n = config.mesh.size
        self.mesh = ml.generate.box((n, n, n), extent=(config.mesh.side,) * 3).arranged(config.mesh.order)
        self._make_fields()
        self._make_globals()
        self.state = (self.x, self.velocity, self.e, self.p, self.q, self.v, self.sound,
                      self.dt, self.time, self.cycle, self.courant, self.hydro)  # fmt: skip
        self.recorded = (self.origin, self.cycle, self.time, self.dt, *self.symmetry, self.least_volume, self.largest_q)
        self.program = self._program()

    # --- setting up

    def _make_fields(self) -> None:
        nodes, cells, dtype = self.mesh.nodes, self.mesh.cells, self.dtype
        self.x = nodes.field("x", 3, dtype=dtype, data=_ticked(self.mesh.coordinates.numpy(), self.config.mesh))
        self.velocity = nodes.field("velocity", 3, dtype=dtype)
        self.mass = nodes.field("mass", dtype=dtype)
        self.e, self.p, self.q, self.sound = (cells.field(name, dtype=dtype) for name in ("e", "p", "q", "sound"))
        self.v = cells.field("v", dtype=dtype, data=np.ones(len(cells)))
        self.volume0 = cells.field("volume0", dtype=dtype)
        masses(cells, self.x[self.mesh.cell_nodes], self.volume0, self.mass[self.mesh.cell_nodes])
        energy = np.zeros(len(cells))
        energy[0] = self.origin_energy
        self.e.assign(energy)

    def _make_globals(self) -> None:
        def number(name: str, value: float = 0.0) -> ml.Global:
            return ml.Global(value, name, dtype=self.dtype)

        volume = values_at(self.mesh.cells, self.volume0, np.zeros(1, int))[0]
        first = 0.5 * np.cbrt(volume) / math.sqrt(2.0 * self.origin_energy)
        self.dt, self.time = number("dt", first), ml.Global(0.0, "time")
        self.cycle = ml.Global(0, "cycle", dtype=np.int64)
        self.courant, self.hydro = number("courant", NO_LIMIT), number("hydro", NO_LIMIT)
        self.origin, self.least_volume, self.largest_q = number("origin"), number("least_volume"), number("largest_q")
        self.symmetry = (number("max_abs"), ml.Global(0.0, "total_abs"), number("max_rel"))

    @property
    def origin_energy(self) -> float:
        """Energy per volume of the first element: the same energy in all, whatever the number of elements."""
        return self.config.blast.energy * (self.config.mesh.size / _ENERGY_SIZE) ** 3

    def _program(self) -> ml.Program:
        """One step."""
        mesh, nodes, cells = self.mesh, self.mesh.nodes, self.mesh.cells
        corners, dt = mesh.cell_nodes, self.dt
        mirrors, sides, neighbours = _held_nodes(mesh), _sides(mesh), _neighbours(mesh)
        clock, pairs, at_origin, partners = self._watched()
        increment, forces, move, kinematics, material, watch_origin, watch_symmetry = kernels(self.config)

        @ml.program
        def step() -> None:
            v_new, spread, length = (cells.field(name, dtype=self.dtype) for name in ("v_new", "spread", "length"))
            gradients, lengths = (cells.field(name, 3, dtype=self.dtype) for name in ("gradients", "lengths"))
            force = nodes.field("force", 3, dtype=self.dtype)
            increment(clock, self.courant, self.hydro, dt, self.time, self.cycle, self.least_volume, self.largest_q,
                      *self.symmetry)  # fmt: skip
            force.fill(0.0)
            forces(cells, self.x[corners], self.velocity[corners], self.p, self.q, self.v, self.sound, self.volume0,
                   force[corners])  # fmt: skip
            move(nodes, dt, self.mass, mirrors, force, self.velocity, self.x)
            kinematics(cells, dt, self.x[corners], self.velocity[corners], self.volume0, v_new, spread,
                       length, gradients, lengths, self.least_volume)  # fmt: skip
            material(cells, sides, gradients, *(gradients[one] for one in neighbours), lengths, spread, length, v_new,
                     self.v, self.e, self.p, self.q, self.sound, self.courant, self.hydro, self.largest_q)  # fmt: skip
            watch_origin(clock, self.e[at_origin], self.origin)
            watch_symmetry(pairs, self.e[partners], *self.symmetry)

        return step

    def _watched(self) -> tuple[ml.Set, ml.Set, ml.Map, ml.Map]:
        """The clock and its way to the first element; pairs of elements of the lowest layer that mirror each other."""
        n, cells = self.config.mesh.size, self.mesh.cells
        row, column = np.triu_indices(n, 1)
        both = np.stack((row * n + column, column * n + row), axis=1)
        clock, pairs = ml.Set(1, "clock"), ml.Set(len(both), "pairs")
        return clock, pairs, ml.Map(clock, cells, [[0]], "at_origin"), ml.Map(pairs, cells, both, "partners")

    # --- what the runner asks

    def doubts(self) -> tuple[str, ...]:
        return doubts_longer("time.courant", self.config.time.courant, 1.0)

    def cure(self, state: str) -> str:
        return "shorter steps (time.courant, time.expansion, time.growth) may help" if state == BROKEN else ""

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded[:, : len(self.monitors)]

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[2]), self.config.time.end

    def steps_left(self, recorded: np.ndarray) -> int:
        """With every step longer than the one before by as much as it may be, and none above the largest."""
        time, dt = recorded[2:4]
        left, growth = self.config.time.end - time, self.config.time.growth
        if left <= 0.0:
            return 0
        growing = math.log1p(left * (growth - 1.0) / (growth * dt)) / math.log(growth)
        return max(1, math.floor(max(growing, left / self.config.time.largest) * (1.0 - 1e-9)))

    def cell_fields(self) -> dict[str, np.ndarray]:
        e, p, q, v = (field.local() for field in (self.e, self.p, self.q, self.v))
        return {"energy": e, "pressure": p, "viscosity": q, "relative_volume": v, "density": 1.0 / v}

    def node_fields(self) -> dict[str, np.ndarray]:
        return {"velocity": self.velocity.local()}

    def node_positions(self) -> np.ndarray:
        return self.x.local().astype(np.float64)

    def picture(self) -> Picture:
        """The lowest layer of elements, seen along z."""
        n, side = self.config.mesh.size, self.config.mesh.side
        layer = np.arange(n * n)
        density = rows_at(self.mesh.cells, self.cell_fields()["density"], layer)
        used, polygons = np.unique(self.mesh.cell_nodes.indices[layer, :4], return_inverse=True)
        points = rows_at(self.mesh.nodes, self.node_positions()[:, :2], used)
        window = (0.0, 1.05 * side, 0.0, 1.05 * side)
        return Picture(density, "density", window, points=points, polygons=polygons.reshape(n * n, 4),
                       curves=("origin_energy",))  # fmt: skip


def _ticked(x: np.ndarray, options: LuleshMeshOptions) -> np.ndarray:
    """Coordinates rounded as the original computes them: side * i / n, in this order."""
    return options.side * np.rint(x * (options.size / options.side)) / options.size


def _held_nodes(mesh: ml.Mesh) -> ml.Field:
    """For every node the planes of symmetry that it lies on."""
    bits = np.zeros(len(mesh.nodes), np.int32)
    for axis, name in enumerate(_MIRRORS):
        bits[mesh.boundary_nodes.indices[mesh.group(name)]] |= mirror_bit(axis)
    return mesh.nodes.field("mirrors", dtype=np.int32, data=bits)


def _neighbours(mesh: ml.Mesh) -> list[ml.Map]:
    """From every element to the two next to it along xi, eta and zeta."""
    across = mesh.cell_cells.indices
    return [ml.Map(mesh.cells, mesh.cells, across[:, ends], name)
            for ends, name in zip(ENDS, ("along_xi", "along_eta", "along_zeta"), strict=True)]  # fmt: skip


def _sides(mesh: ml.Mesh) -> ml.Field:
    """For every element what lies behind its faces where there is no other element: mirrors at the lower ends."""
    number = np.arange(len(mesh.cells))
    bits = np.zeros(len(mesh.cells), np.int32)
    for low, high in ENDS:
        for face, bit in ((low, mirror_bit(low)), (high, free_bit(high))):
            bits[mesh.cell_cells.indices[:, face] == number] |= bit
    return mesh.cells.field("sides", dtype=np.int32, data=bits)
