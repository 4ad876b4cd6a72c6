"""Inviscid flow around an airfoil: the OP2 airfoil benchmark, and the first case to run.

Steady two-dimensional compressible Euler equations, cell-centred finite volumes: the central flux plus a
scalar dissipation, a local time step in every cell, two stages per iteration. The state of a cell is
q = (density, momentum x, momentum y, total energy), all per volume, in units of the free stream: its density
and pressure are 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.case import (
    BROKEN,
    GROWING,
    STALLED,
    Case,
    Chart,
    OutputOptions,
    Picture,
    RunOptions,
    order_option,
    schedule_table,
    values_at,
)
from meshloom.config import option, section
from meshloom.errors import MeshError, nearest, shown
from meshloom.solvers.stable import doubts_longer

WALL, FAR_FIELD = 1, 2  # kinds of boundary faces


# --- configuration ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AirfoilMeshOptions:
    """Which mesh: a generated one around a NACA 0012, or a file."""

    i: int = option(100, "cells along the surface; the mesh has 3 i j cells", low=3, high=20_000)
    j: int = option(150, "cells from the surface outwards", low=2, high=20_000)
    decimals: int = option(
        6, "coordinates are rounded to so many decimals, as the reference mesh file was; -1 keeps all", low=-1, high=15
    )
    file: str = option("", "a mesh file of quadrilaterals or triangles to use instead, such as wing.su2", path=True)
    walls: tuple[str, ...] = option(("wall",), "names of the mesh's boundary groups that are solid")
    farfield: tuple[str, ...] = option(("farfield",), "names of the boundary groups where the free stream comes in")
    order: str = order_option()


@dataclass(frozen=True)
class AirfoilFlowOptions:
    """The gas, the free stream and the scheme."""

    mach: float = option(0.4, "Mach number of the free stream", low=1e-3, high=10.0)
    incidence: float = option(0.0, "angle of the free stream to the chord in degrees", low=-45.0, high=45.0)
    gamma: float = option(1.4, "ratio of specific heats", above=1.0, high=3.0)
    cfl: float = option(0.9, "length of the local time step as a share of the stable one", above=0.0, high=1e6)
    dissipation: float = option(0.05, "factor of the scalar dissipation", low=0.0, high=1.0)
    float_constants: bool = option(
        True,
        "round the constants above to single precision first: the original program writes them as float literals,"
        " and the published residuals belong to those values",
    )


@dataclass(frozen=True)
class AirfoilOutput(OutputOptions):
    """What to write, and how often."""

    window: tuple[float, float, float, float] = option(
        (-0.4, 1.4, -0.75, 0.75),
        "part of the plane in the picture: xmin, xmax, ymin, ymax in chords",
        accepts=("with xmin < xmax and ymin < ymax", lambda window: window[0] < window[1] and window[2] < window[3]),
    )


@dataclass(frozen=True)
class AirfoilConfig:
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=2000)
    mesh: AirfoilMeshOptions = section(AirfoilMeshOptions, "The mesh: NACA 0012 in a C-shaped grid, or a file.")
    flow: AirfoilFlowOptions = section(AirfoilFlowOptions, "The gas, the free stream and the scheme.")
    output: AirfoilOutput = section(AirfoilOutput, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("res_calc")


# --- physics ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AirfoilGas:
    """The constants of the equations and of the scheme."""

    gamma: float
    mach: float
    incidence: float  # radians
    cfl: float
    dissipation: float

    @classmethod
    def of(cls, flow: AirfoilFlowOptions) -> AirfoilGas:
        keep = (lambda value: float(np.float32(value))) if flow.float_constants else float
        angle = math.radians(flow.incidence)
        return cls(keep(flow.gamma), keep(flow.mach), angle, keep(flow.cfl), keep(flow.dissipation))

    @property
    def free_stream(self) -> np.ndarray:
        """State q (4,) far away: pressure and density 1."""
        speed = self.mach * math.sqrt(self.gamma)
        energy = 1.0 / (self.gamma - 1.0) + 0.5 * speed**2
        return np.array([1.0, speed * math.cos(self.incidence), speed * math.sin(self.incidence), energy])

    def pressure(self, q: np.ndarray) -> np.ndarray:
        """Of states (..., 4)."""
        kinetic = 0.5 * (q[..., 1] ** 2 + q[..., 2] ** 2) / q[..., 0]
        return (self.gamma - 1.0) * (q[..., 3] - kinetic)

    def pressure_coefficient(self, pressure: np.ndarray) -> np.ndarray:
        """What pressures are above that of the free stream, in units of its dynamic pressure."""
        return (pressure - 1.0) / (0.5 * self.gamma * self.mach**2)


class AirfoilKernels(NamedTuple):
    """One iteration's kernels, in the order of first use."""

    save_soln: ml.Kernel
    adt_calc: ml.Kernel
    res_calc: ml.Kernel
    bres_calc: ml.Kernel
    update: ml.Kernel


def kernels(gas: AirfoilGas) -> AirfoilKernels:
    """The five kernels for a gas; its constants become literals in the compiled code."""
    gamma, cfl, dissipation = gas.gamma, gas.cfl, gas.dissipation
    q_far, p_far = gas.free_stream.tolist(), float(gas.pressure(gas.free_stream))  # as Python's: in any precision

    def normal(x: np.ndarray) -> tuple[Any, Any]:
        """Normal of a face, as long as the face; it points from its first cell to its second, or outwards."""
        dx, dy = x[0] - x[1]
        return dy, -dx

    def flux(q: Any, p: Any, nx: Any, ny: Any) -> np.ndarray:
        """What flows through a face in the state q with its pressure p: mass, momentum, energy per time."""
        volume = (q[1] * nx + q[2] * ny) / q[0]
        return np.stack([volume * q[0], volume * q[1] + p * nx, volume * q[2] + p * ny, volume * (q[3] + p)])

    @ml.kernel
    def save_soln(q: ml.Read, qold: ml.Write):
        qold[...] = q

    @ml.kernel
    def adt_calc(x: ml.Read, q: ml.Read, adt: ml.Write):
        """Area over time step: the fastest wave through each side of the cell, summed."""
        u, v = q[1] / q[0], q[2] / q[0]
        sound = np.sqrt(gamma * (gamma - 1.0) * (q[3] / q[0] - 0.5 * (u**2 + v**2)))
        waves = 0.0
        for side in range(len(x)):
            dx, dy = x[(side + 1) % len(x)] - x[side]
            waves = waves + np.abs(u * dy - v * dx) + sound * np.sqrt(dx**2 + dy**2)
        adt[...] = waves / cfl

    @ml.kernel
    def res_calc(x: ml.Read, q: ml.Read, adt: ml.Read, res: ml.Inc):
        """Central flux between two cells, with dissipation by the difference of their states."""
        nx, ny = normal(x)
        p, smoothing = gas.pressure(q), 0.5 * dissipation * (adt[0] + adt[1])
        f = 0.5 * (flux(q[0], p[0], nx, ny) + flux(q[1], p[1], nx, ny)) + smoothing * (q[0] - q[1])
        res[0] += f
        res[1] -= f

    @ml.kernel
    def bres_calc(x: ml.Read, q: ml.Read, adt: ml.Read, res: ml.Inc, kind: ml.Read):
        """A wall takes the pressure alone; elsewhere the other side is the free stream."""
        nx, ny = normal(x)
        p = gas.pressure(q[0])
        at_far = np.array(q_far, dtype=q.dtype)
        wall = np.stack([0.0 * p, p * nx, p * ny, 0.0 * p])
        far = 0.5 * (flux(q[0], p, nx, ny) + flux(q_far, p_far, nx, ny)) + dissipation * adt[0] * (q[0] - at_far)
        res[0] += np.where(kind == WALL, wall, far)

    @ml.kernel
    def update(qold: ml.Read, q: ml.Write, res: ml.Read, adt: ml.Read, rms: ml.Sum):
        """A step from the old state."""
        change = res / adt
        q[...] = qold - change
        rms += change @ change

    return AirfoilKernels(save_soln, adt_calc, res_calc, bres_calc, update)


# --- the case ---------------------------------------------------------------------------------------------


class Airfoil(Case):
    """Flow around a NACA 0012; the monitor ``rms`` is the root mean square change of the last stage."""

    name: ClassVar[str] = "airfoil"
    title: ClassVar[str] = "inviscid flow around a NACA 0012 airfoil (Euler, finite volumes; the OP2 benchmark)"
    Config: ClassVar[type] = AirfoilConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.i": 3, "mesh.j": 3}
    monitors: ClassVar[tuple[str, ...]] = ("rms",)

    @property
    def residual(self) -> tuple[str, float | None] | None:
        return "rms", None

    def doubts(self) -> tuple[str, ...]:
        return doubts_longer("flow.cfl", self.config.flow.cfl, 1.0)

    def cure(self, state: str) -> str:
        return "a smaller flow.cfl or more flow.dissipation may help" if state in (STALLED, GROWING, BROKEN) else ""

    def __init__(self, config: AirfoilConfig, mesh: ml.Mesh | None = None):
        """``mesh`` is one already at hand, to be used as it is; otherwise the configuration says which."""
        self.config, self.gas = config, AirfoilGas.of(config.flow)
        self.mesh = _mesh(config.mesh) if mesh is None else mesh
        free_stream = np.tile(self.gas.free_stream, (len(self.mesh.cells), 1))
        self.q = self.mesh.cells.field("q", 4, dtype=self.dtype, data=free_stream)
        self.rms = ml.Global(0.0, "rms")
        self.state, self.recorded = (self.q,), (self.rms,)
        self.program = self._program()

    def _program(self) -> ml.Program:
        """One iteration: two stages, both from the state at its start."""
        mesh, q, rms, dtype = self.mesh, self.q, self.rms, self.dtype
        cells, faces, boundary = mesh.cells, mesh.faces, mesh.boundary_faces
        x = mesh.nodes.field("x", 2, dtype=dtype, data=mesh.coordinates.numpy())
        self.kind = kind = _boundary_kind(mesh, self.config.mesh)
        self.walls = np.flatnonzero(kind.numpy() == WALL)
        parts: list[tuple[ml.Set, ml.Map]] = [(cells, mesh.cell_nodes)]
        if mesh.kind not in cells.kinds:  # several kinds: a loop for each
            parts = [(part, part.nodes) for part in map(cells.of, cells.kinds)]
        save_soln, adt_calc, res_calc, bres_calc, update = kernels(self.gas)

        @ml.program
        def iteration() -> None:
            qold, res, adt = q.like("qold"), q.like("res"), cells.field("adt", dtype=dtype)
            save_soln(cells, q, qold)
            for _stage in range(2):
                for part, corners in parts:
                    adt_calc(part, x[corners], q, adt)
                res.fill(0.0)
                res_calc(faces, x[mesh.face_nodes], q[mesh.face_cells], adt[mesh.face_cells], res[mesh.face_cells])
                bres_calc(boundary, x[mesh.boundary_nodes], q[mesh.boundary_cells], adt[mesh.boundary_cells],
                          res[mesh.boundary_cells], kind)  # fmt: skip
                rms.value = 0.0
                update(cells, qold, q, res, adt, rms)

        return iteration

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return np.sqrt(recorded / len(self.mesh.cells))

    def cell_fields(self) -> dict[str, np.ndarray]:
        q = self.q.local().astype(np.float64)
        velocity, pressure = q[:, 1:3] / q[:, :1], self.gas.pressure(q)
        mach = np.hypot(velocity[:, 0], velocity[:, 1]) / np.sqrt(self.gas.gamma * pressure / q[:, 0])
        cp = self.gas.pressure_coefficient(pressure)
        return {"mach": mach, "pressure": pressure, "density": q[:, 0], "velocity": velocity, "cp": cp, "q": q}

    def coefficients(self) -> dict[str, float]:
        """Lift and drag of the walls, across and along the free stream, for each chord of them."""
        walls, normals, cp = self._on_walls()
        if not len(walls):
            return {}
        force = cp @ normals / self._chord(walls)[1]  # the pressure of the free stream pushes from all sides alike
        along = np.array([math.cos(self.gas.incidence), math.sin(self.gas.incidence)])
        return {"lift": float(force @ (-along[1], along[0])), "drag": float(force @ along)}

    def _on_walls(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The wall faces (w,), their normals times length (w, 2), into the body, and pressure coefficients (w,)."""
        mesh, walls = self.mesh, self.walls
        q = values_at(mesh.cells, self.q, mesh.boundary_cells.indices[walls, 0]).astype(np.float64)
        return walls, mesh.boundary_normals[walls], self.gas.pressure_coefficient(self.gas.pressure(q))

    def _chord(self, walls: np.ndarray) -> tuple[float, float]:
        """Where the walls begin along x, and how long they are."""
        x = self.mesh.coordinates.numpy()[self.mesh.boundary_nodes.indices[walls], 0]
        return float(x.min()), float(np.ptp(x)) or 1.0

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """The pressure coefficient along the chord, above and below."""
        walls, normals, cp = self._on_walls()
        if not len(walls):
            return ()
        begin, chord = self._chord(walls)
        x = (self.mesh.boundary_centres[walls, 0] - begin) / chord
        order = np.argsort(x, kind="stable")
        sides = {"above": normals[:, 1] < 0.0, "below": normals[:, 1] >= 0.0}
        curves = {name: np.where(side, cp, np.nan)[order] for name, side in sides.items()}
        return (Chart("cp", x[order], curves, "x / chord", "pressure coefficient", dots=tuple(curves),
                      downwards=True),)  # fmt: skip

    def picture(self) -> Picture:
        return Picture(self.cell_fields()["mach"], "Mach number", self.config.output.window, ("x / chord", "y / chord"))


def _mesh(options: AirfoilMeshOptions) -> ml.Mesh:
    """The mesh that the configuration asks for."""
    if not options.file:
        decimals = None if options.decimals < 0 else options.decimals
        return ml.generate.naca0012(options.i, options.j, decimals=decimals).arranged(options.order)
    mesh = ml.read(options.file, order=options.order)
    if mesh.coordinates.dim != 2:
        raise MeshError(f"{options.file}: a mesh in {mesh.coordinates.dim} dimensions; this case needs a plane one")
    return mesh


def _check_names(mesh: ml.Mesh, options: AirfoilMeshOptions) -> None:
    """MeshError where walls or far field are given names that no group has. The defaults need not be there."""
    for key in ("walls", "farfield"):
        names = getattr(options, key)
        for name in names if names != getattr(AirfoilMeshOptions(), key) else ():
            if name not in mesh.groups:
                raise MeshError(f"mesh.{key} names {shown(name)}, which is no boundary group of the mesh"
                                f"{nearest(name, mesh.groups)}")  # fmt: skip


def _boundary_kind(mesh: ml.Mesh, options: AirfoilMeshOptions) -> ml.Field:
    """WALL or FAR_FIELD on every boundary face, from the names of its group."""
    _check_names(mesh, options)
    kinds = dict.fromkeys(options.farfield, FAR_FIELD) | dict.fromkeys(options.walls, WALL)
    groups = mesh.boundary_group.numpy()
    kind = np.zeros(len(groups), np.int32)
    for name, value in mesh.groups.items():
        kind[groups == value] = kinds.get(name, 0)
    if not kind.all():
        found = ", ".join(name for name, value in mesh.groups.items() if (groups == value).any()) or "none"
        left = np.count_nonzero(kind == 0)
        raise MeshError(
            f"{left} boundary {'face is' if left == 1 else 'faces are'} neither wall nor far field;"
            f" the mesh has the groups {found}: name each of them in mesh.walls or mesh.farfield"
        )
    return mesh.boundary_faces.field("kind", dtype=np.int32, data=kind)
