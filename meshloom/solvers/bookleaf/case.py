"""The BookLeaf cases: fields, one time step as a program, and what the runner asks for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import BROKEN, Case, Limit, Picture, own_values_at
from meshloom.solvers.bookleaf import problems
from meshloom.solvers.bookleaf.connect import surroundings
from meshloom.solvers.bookleaf.kernels import kernels
from meshloom.solvers.bookleaf.options import BlastConfig, NohConfig, SaltzmannConfig, SedovConfig, SodConfig
from meshloom.solvers.bookleaf.physics import ideal_gas
from meshloom.solvers.bookleaf.problems import BookLeafStart
from meshloom.solvers.bookleaf.quad import corner_cells, corner_volumes, volume
from meshloom.solvers.stable import doubts_longer

_LOOK_AHEAD = 10_000  # steps: further the end of a run is not estimated


class BookLeaf(Case):
    """A gas on a mesh that moves with it; one iteration is one time step."""

    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": (4, 3)}
    monitors: ClassVar[tuple[str, ...]] = (
        "steps", "time", "mass", "internal_energy", "kinetic_energy",
        "density_min", "density_max", "pressure_min", "pressure_max",
    )  # fmt: skip
    shown: ClassVar[tuple[str, ...]] = ("internal_energy", "kinetic_energy", "density_max", "pressure_max")

    def __init__(self, config: Any):
        self.config = config
        begin = self.start(config.mesh.cells)
        self.mesh = begin.mesh.arranged(config.mesh.order)
        self.gas, self.clock = config.gas.constants(config.time, self.dtype), config.time.clock
        tangled = Limit(above=0.0, why="the mesh is tangled")
        stuck = Limit(
            above=config.time.shortest,
            why="time.shortest; the time step has collapsed",
            cure="a smaller time.shortest lets it go on; gas.hourglass or gas.subzonal may help",
        )
        self.limits = {"volume": tangled, "least_volume": tangled, "cell_dt": stuck, "least_dt": stuck}
        self._fields(begin)
        self.program = self._program()

    @staticmethod
    @abstractmethod
    def start(cells: tuple[int, int]) -> BookLeafStart:
        """The problem at time 0 on a mesh of so many cells."""

    def _fields(self, begin: BookLeafStart) -> None:
        """Everything that lives on cells and nodes, at time 0."""
        cells, nodes, dtype = self.mesh.cells, self.mesh.nodes, self.dtype

        def field(on: ml.Set, name: str, values: np.ndarray | int, kind: Any = dtype) -> ml.Field:
            """From values, or zero with so many components."""
            if isinstance(values, int):
                return on.field(name, values, dtype=kind)
            return on.field(name, 1 if values.ndim == 1 else values.shape[1], dtype=kind, data=values)

        x = begin.mesh.coordinates.numpy()
        corners = np.moveaxis(x[begin.mesh.cell_nodes.indices], 0, -1)  # (4, 2, cells): the functions of one cell fit
        now = ideal_gas(self.gas, begin.density, begin.energy)
        node_mass = np.zeros(len(nodes))
        np.add.at(node_mass, begin.mesh.cell_nodes.indices, (begin.density * corner_volumes(corners)).T)
        corner_mass = np.stack([begin.density * volume(part) for part in corner_cells(corners)], axis=1)
        self.x, self.u = field(nodes, "x", x), field(nodes, "u", begin.velocity)
        self.node_mass, self.kind = field(nodes, "node_mass", node_mass), field(nodes, "kind", begin.kind, np.int32)
        self.mass = field(cells, "mass", begin.density * volume(corners))
        self.corner_mass = field(cells, "corner_mass", corner_mass)
        self.density, self.energy = field(cells, "density", begin.density), field(cells, "energy", begin.energy)
        self.pressure, self.sound2 = field(cells, "pressure", now.pressure), field(cells, "sound2", now.sound2)
        self.volume = field(cells, "volume", volume(corners))

        self.dt, self.time = ml.Global(self.clock.initial, "dt"), ml.Global(0.0, "time")
        self.steps = ml.Global(0, "steps", dtype=np.int64)
        self.least = ml.Global(np.inf, "least_dt", dtype=dtype), ml.Global(np.inf, "least_volume", dtype=dtype)
        self.totals = tuple(ml.Global(0.0, name) for name in ("mass", "internal_energy", "kinetic_energy"))
        self.extremes = tuple(
            ml.Global(0.0, f"{of.name}_{end}", dtype=dtype)
            for of in (self.density, self.pressure)
            for end in ("min", "max")
        )
        self.state = (self.x, self.u, self.density, self.energy, self.pressure, self.sound2,
                      self.dt, self.time, self.steps)  # fmt: skip
        self.recorded = (self.steps, self.time, self.dt, *self.totals, *self.extremes, *self.least)

    def _program(self) -> ml.Program:
        """One step: viscosity and time step at its start, then to its middle, then with the forces there to its end."""
        mesh, around, clock = self.mesh, surroundings(self.mesh), ml.Set(1, "clock")
        cells, at, far, near = mesh.cells, mesh.cell_nodes, around.beyond, around.neighbours
        x, u, dt, mass, dtype = self.x, self.u, self.dt, self.mass, self.x.dtype
        density, pressure, sound2, energy = self.density, self.pressure, self.sound2, self.energy
        least_dt, least_volume = self.least
        artificial_viscosity, time_step, advance_clock, predict, corner_forces, accelerate, correct = kernels(
            self.gas, self.clock
        )

        @ml.program
        def step() -> None:
            q, force = (cells.field(name, 8, dtype=dtype) for name in ("q", "force"))
            q_sound2, cell_dt = (cells.field(name, dtype=dtype) for name in ("q_sound2", "cell_dt"))
            mean_u, pull = u.like("mean_u"), mesh.nodes.field("pull", 3, dtype=dtype)
            artificial_viscosity(cells, x[at], u[at], x[far], u[far], around.inner, density, density[near],
                                 sound2, sound2[near], q, q_sound2)  # fmt: skip
            least_dt.value = np.inf
            time_step(cells, x[at], u[at], sound2, q_sound2, cell_dt, least_dt)
            advance_clock(clock, least_dt, dt, self.time, self.steps)
            least_volume.value = np.inf
            predict(cells, x[at], u[at], q, q_sound2, mass, self.corner_mass, energy, dt,
                    density, pressure, sound2, self.volume, least_volume)  # fmt: skip
            pull.fill(0.0)
            corner_forces(cells, x[at], u[at], q, mass, self.corner_mass, density, pressure, sound2, dt,
                          force, pull[at])  # fmt: skip
            accelerate(mesh.nodes, self.node_mass, self.kind, dt, pull, u, mean_u, x)
            for total in self.totals:
                total.value = 0.0
            for lowest, highest in zip(self.extremes[::2], self.extremes[1::2], strict=True):
                lowest.value, highest.value = np.inf, -np.inf
            correct(cells, x[at], u[at], mean_u[at], force, mass, dt, energy, density, pressure, sound2,
                    self.volume, least_volume, *self.totals, *self.extremes)  # fmt: skip

        return step

    # --- what the runner asks for

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        steps, time, _dt, *others = recorded.T[: len(self.monitors) + 1]
        return np.stack([steps, time, *others], axis=1)

    def doubts(self) -> tuple[str, ...]:
        return doubts_longer("time.cfl", self.config.time.cfl, 1.0)

    def cure(self, state: str) -> str:
        tangled = "shorter steps (time.cfl, time.divergence), gas.hourglass or gas.subzonal may help"
        return tangled if state == BROKEN else ""

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[1]), self.config.time.end

    def steps_left(self, recorded: np.ndarray) -> int:
        """As if every step were as long as it may be."""
        steps, time, dt = recorded[:3]
        left = (self.config.time.end - time) * (1.0 - 1e-9)  # sums are not exact; better one look too many
        count = 0
        while left > 0.0 and count < _LOOK_AHEAD:
            dt = self.clock.initial if steps + count == 0 else min(self.clock.longest, self.clock.growth * dt)
            left, count = left - dt, count + 1
        return count if time < self.config.time.end else 0

    def cell_fields(self) -> dict[str, np.ndarray]:
        fields = (self.density, self.pressure, self.energy)
        # Volumes from where the nodes are, since a restart knows that before it makes a step.
        nodes, own = self.mesh.nodes, self.mesh.cell_nodes.indices[self.mesh.cells.mine]
        corners = np.moveaxis(own_values_at(nodes, self.node_positions(), own), 0, -1)
        return {one.name: one.local().astype(np.float64) for one in fields} | {"volume": volume(corners)}

    def node_fields(self) -> dict[str, np.ndarray]:
        return {"velocity": self.u.local().astype(np.float64)}

    def node_positions(self) -> np.ndarray:
        return self.x.local().astype(np.float64)

    def picture(self) -> Picture:
        return Picture(self.cell_fields()["density"], "density", curves=("internal_energy", "kinetic_energy"))


class SodCase(BookLeaf):
    name = "bookleaf_sod"
    title = "Sod's shock tube on a mesh that moves with the gas (Lagrangian hydrodynamics; BookLeaf)"
    Config = SodConfig
    start = staticmethod(problems.sod)


class Blast(BookLeaf):
    name = "bookleaf_blast"
    title = "two blast waves that meet in a tube (Lagrangian hydrodynamics; BookLeaf)"
    Config = BlastConfig
    start = staticmethod(problems.blast)


class SedovCase(BookLeaf):
    name = "bookleaf_sedov"
    title = "Sedov's blast, a quarter of the plane (Lagrangian hydrodynamics; BookLeaf)"
    Config = SedovConfig
    start = staticmethod(problems.sedov)


class NohCase(BookLeaf):
    name = "bookleaf_noh"
    title = "Noh's implosion of a cold gas, a quarter of a disk (Lagrangian hydrodynamics; BookLeaf)"
    Config = NohConfig
    start = staticmethod(problems.noh)


class Saltzmann(BookLeaf):
    name = "bookleaf_saltzmann"
    title = "Saltzmann's piston on a skewed mesh (Lagrangian hydrodynamics; BookLeaf)"
    Config = SaltzmannConfig
    start = staticmethod(problems.saltzmann)
