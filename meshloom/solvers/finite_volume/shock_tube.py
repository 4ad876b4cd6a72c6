"""Sod's shock tube in three dimensions, on tetrahedra or hexahedra, next to the exact solution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, Picture, by_root_from_all, defaults, order_option, rows_at
from meshloom.config import option, section
from meshloom.errors import ConfigError
from meshloom.solvers.exact import GasState, Riemann, sod
from meshloom.solvers.finite_volume.case import FiniteVolumeCase
from meshloom.solvers.finite_volume.options import MOST_STEPS, FiniteVolumeConfig, boundary_table

_BINS = 200  # places along the tube where the chart has the mean of all cells


@dataclass(frozen=True)
class TubeMeshOptions:
    """A tube from x = 0 to 1; the membrane is in the middle."""

    cells: tuple[int, int, int] = option((100, 4, 4), "cuboids along x, y and z", low=1, high=100_000)
    extent: tuple[float, float] = option((0.05, 0.05), "size along y and z", above=0.0)
    kind: str = option(
        "tetrahedron",
        "what each cuboid is made of: six tetrahedra, or itself; mixed: itself at the left, two prisms at the right",
        allowed=("tetrahedron", "hexahedron", "mixed"),
    )
    order: str = order_option()


@dataclass(frozen=True)
class Sod3dConfig(FiniteVolumeConfig):
    run = defaults(iterations=MOST_STEPS)
    mesh: TubeMeshOptions = section(TubeMeshOptions, "The mesh.")  # type: ignore[assignment]
    boundary: dict[str, Any] = boundary_table(
        {side: {"kind": "supersonic_outlet" if side[0] == "x" else "slip"}
         for side in ("xmin", "xmax", "ymin", "ymax", "zmin", "zmax")}
    )  # fmt: skip
    stream = defaults(mach=0.0)
    scheme = defaults(flux="hllc", limiter="barth_jespersen")
    time = defaults(mode="unsteady", end=0.2)


def prisms_at_the_right(box: ml.Mesh) -> ml.Mesh:
    """A box of hexahedra from x = 0 to 1 with those beyond 0.5 cut into two prisms each, along z."""
    cuboids, cut = box.cell_nodes.indices, box.cell_centroids[:, 0] > 0.5
    halves = ([0, 2, 1], [0, 3, 2])  # corners of the floor; the roof has four more
    prisms = [cuboids[cut][:, [*half, *(corner + 4 for corner in half)]] for half in halves]
    boundary = {}
    for name in box.groups:
        faces, cells = box.boundary_nodes.indices[box.group(name)], box.boundary_cells.indices[box.group(name), 0]
        if name in ("zmin", "zmax"):
            level = 0 if name == "zmin" else 4
            ends = [cuboids[cells[cut[cells]]][:, [corner + level for corner in half]] for half in halves]
            boundary[name] = [faces[~cut[cells]], *ends]
        else:
            boundary[name] = [faces]
    cells_by_kind = {"hexahedron": cuboids[~cut], "prism": np.concatenate(prisms)}
    return ml.Mesh.from_cells(
        box.coordinates.numpy(), {k: c for k, c in cells_by_kind.items() if len(c)}, boundary=boundary
    )


class Sod3d(FiniteVolumeCase):
    """A membrane bursts between gas of pressure and density 1 at the left and 0.1 and 0.125 at the right."""

    name: ClassVar[str] = "sod3d"
    title: ClassVar[str] = "Sod's shock tube on tetrahedra or hexahedra, next to the exact solution (finite volumes)"
    Config: ClassVar[type] = Sod3dConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": (4, 1, 1)}
    shown: ClassVar[tuple[str, ...] | None] = ("time", "dt", "mass", "energy")
    drawn: ClassVar[tuple[str, str]] = ("density", "density")

    def __init__(self, config: Any):
        if config.time.mode != "unsteady":
            raise ConfigError(f"sod3d: time.mode is {config.time.mode!r}, but a tube whose membrane bursts is unsteady")
        super().__init__(config)

    def make_mesh(self) -> ml.Mesh:
        mesh, mixed = self.config.mesh, self.config.mesh.kind == "mixed"
        made = ml.generate.box(mesh.cells, cells="hexahedron" if mixed else mesh.kind, extent=(1.0, *mesh.extent))
        return prisms_at_the_right(made) if mixed else made

    @property
    def exact(self) -> Riemann:
        return sod(gamma=self.gas.gamma)

    def start(self, centres: np.ndarray) -> np.ndarray:
        left, right = (self.gas.state(s.density, (s.velocity, 0.0, 0.0), s.pressure)
                       for s in (self.exact.left, self.exact.right))  # fmt: skip
        return np.where(centres[:, 0] < self.exact.middle, left[:, None], right[:, None])

    def solution(self) -> GasState:
        """The exact state in all cells now."""
        return self._exact_at(self.mesh.cell_centroids[:, 0], float(self.recorded_now()[0]))

    def _exact_at(self, x: np.ndarray, time: float) -> GasState:
        if time > 0.0:
            return self.exact.at(x, time)
        at_left = x < self.exact.middle
        return GasState(*(np.where(at_left, a, b) for a, b in zip(self.exact.left, self.exact.right, strict=True)))

    def picture(self) -> Picture:
        """The tube from the side: the faces where z is smallest, each in the colour of its cell."""
        mesh, (name, label), side = self.mesh, self.drawn, self.mesh.group("zmin")
        return Picture(
            rows_at(mesh.cells, self.cell_fields()[name], mesh.boundary_cells.indices[side, 0]),
            label,
            (0.0, 1.0, 0.0, self.config.mesh.extent[0]),
            points=mesh.coordinates.numpy()[:, :2],
            polygons=mesh.lists.boundary_faces.taken(side).padded(),
            curves=("mass", "energy"),
        )

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Means over slices of the tube, and the exact solution."""
        cells, x, weight = self.mesh.cells, self.mesh.cell_centroids[:, 0], self.mesh.cell_volumes
        bins = min(_BINS, self.config.mesh.cells[0])
        at = np.minimum((x * bins).astype(int), bins - 1)
        total = np.bincount(at, weight, minlength=bins)
        fields, exact = self.cell_fields(), self._exact_at(x[cells.mine], float(self.recorded_now()[0]))

        def means(everywhere: np.ndarray) -> np.ndarray:
            return np.bincount(at, weight * everywhere, minlength=bins) / np.where(total > 0.0, total, np.nan)

        def mean(values: np.ndarray) -> np.ndarray:
            return by_root_from_all(cells, values, means)

        found = {"density": fields["density"], "velocity": fields["velocity"][:, 0], "pressure": fields["pressure"]}
        curves: dict[str, np.ndarray] = {}
        for name, values in found.items():
            curves |= {name: mean(values), f"{name}, exact": mean(getattr(exact, name))}
        return (Chart("tube", mean(x), curves, "x", "density, velocity, pressure", tuple(found)),)
