"""Flow around a body in the plane: laminar around a cylinder, transonic around an airfoil."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, defaults, order_option, values_at
from meshloom.config import option, section
from meshloom.solvers.finite_volume.case import FiniteVolumeCase
from meshloom.solvers.finite_volume.options import FiniteVolumeConfig, boundary_table

_KINDS = ("quad", "triangle", "mixed")
_SOUND2 = 100.0 / 1.4  # pressure over density for which sound travels 10: at Mach 0.1 the stream has speed 1


@dataclass(frozen=True)
class CylinderMeshOptions:
    """An O-grid around a circle of diameter 1."""

    around: int = option(128, "cells around the circle", low=8, high=100_000)
    outward: int = option(96, "cells from the wall to the far field", low=2, high=100_000)
    far: float = option(50.0, "radius of the far field in diameters", low=2.0, high=1e6)
    first_height: float = option(0.0, "height of the cells at the wall; 0 is half their width", low=0.0, high=1.0)
    kind: str = option("quad", "kind of cells", allowed=_KINDS)
    order: str = order_option()


@dataclass(frozen=True)
class AirfoilGridOptions:
    """An O-grid around a NACA 0012 of chord 1."""

    around: int = option(192, "cells around the airfoil, an even number", low=8, high=100_000)
    outward: int = option(64, "cells from the wall to the far field", low=2, high=100_000)
    far: float = option(100.0, "radius of the far field in chords", low=2.0, high=1e6)
    kind: str = option("quad", "kind of cells", allowed=_KINDS)
    order: str = order_option()


@dataclass(frozen=True)
class CylinderConfig(FiniteVolumeConfig):
    run = defaults(iterations=20_000)
    mesh: CylinderMeshOptions = section(CylinderMeshOptions, "The mesh.")  # type: ignore[assignment]
    boundary: dict[str, Any] = boundary_table({"wall": {"kind": "no_slip"}, "far": {"kind": "farfield"}})
    gas = defaults(viscosity="constant", gas_constant=_SOUND2)
    stream = defaults(mach=0.1, reynolds=40.0, pressure=_SOUND2)
    scheme = defaults(flux="slau2", limiter="none")
    time = defaults(cfl=2.0, smoothing=0.5, end=200.0)
    output = defaults(window=(-2.0, 6.0, -2.5, 2.5))


class Cylinder(FiniteVolumeCase):
    """A stream at low speed past a circular cylinder: two eddies stay behind it, or leave it in turn."""

    name: ClassVar[str] = "cylinder"
    title: ClassVar[str] = "laminar flow past a cylinder, steady (Re 40) or with a vortex street (finite volumes)"
    Config: ClassVar[type] = CylinderConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.around": 8, "mesh.outward": 4, "mesh.far": 5.0}

    def make_mesh(self) -> ml.Mesh:
        mesh = self.config.mesh
        height = mesh.first_height or None
        return ml.generate.cylinder(mesh.around, mesh.outward, far=mesh.far, first_height=height, cells=mesh.kind)

    def wake(self) -> tuple[np.ndarray, np.ndarray]:
        """Velocity along x on the axis behind the cylinder, in units of the stream, and where: (n,) each, along x.

        The mean of the cells on both sides of the axis, which have a side on it. Across it the velocity is a parabola:
        half of what the gradient says is the way from the centre of a cell to its top.
        """
        x, centre = self.mesh.coordinates.numpy(), self.mesh.cell_centroids
        on_axis = (np.abs(x[:, 1]) < 1e-9 * np.abs(x[:, 0])) & (x[:, 0] > 0.0)
        at_axis = self.mesh.lists.cells.nodes.measured(lambda nodes: on_axis[nodes].sum(axis=1).astype(float)) >= 2.0
        speed, cells = float(np.linalg.norm(self.stream[1:-1])), self.mesh.cells
        rise, height = self.gradients()[:, 1, 1], centre[cells.mine, 1]
        u = (self.cell_fields()["velocity"][:, 0] - 0.5 * rise * height) / speed
        upper, lower = (np.flatnonzero(at_axis & side) for side in (centre[:, 1] > 0.0, centre[:, 1] < 0.0))
        first, second = (side[np.argsort(centre[side, 0])] for side in (upper, lower))
        above, below = (values_at(cells, u, side) for side in (first, second))
        return 0.5 * (centre[first, 0] + centre[second, 0]), 0.5 * (above + below)

    def wake_length(self) -> float:
        """From the back of the cylinder to where the flow on the axis goes downstream again, in diameters; 0:
        nowhere."""
        x, u = self.wake()
        back = np.flatnonzero((u[:-1] < 0.0) & (u[1:] >= 0.0))
        if not len(back):
            return 0.0
        k = back[-1]
        return float(x[k] - u[k] * (x[k + 1] - x[k]) / (u[k + 1] - u[k]) - 0.5)

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        x, u = self.wake()
        near, label = x < 10.0, f"velocity on the axis (recirculation length: {self.wake_length():.3g} diameters)"
        return (*super().charts(history), Chart("wake", x[near], {"u": u[near]}, "x", label))


@dataclass(frozen=True)
class TransonicConfig(FiniteVolumeConfig):
    run = defaults(iterations=4000)
    mesh: AirfoilGridOptions = section(AirfoilGridOptions, "The mesh.")  # type: ignore[assignment]
    boundary: dict[str, Any] = boundary_table({"wall": {"kind": "slip"}, "far": {"kind": "farfield"}})
    stream = defaults(mach=0.8, incidence=1.25)
    scheme = defaults(limiter_constant=20.0)
    time = defaults(cfl=3.0, smoothing=0.5)
    reference = defaults(point=(0.25, 0.0))
    output = defaults(window=(-0.5, 1.5, -0.75, 1.25))


class TransonicAirfoil(FiniteVolumeCase):
    """Inviscid flow faster than sound on both sides of an airfoil, with a strong shock above and a weak one below."""

    name: ClassVar[str] = "naca0012_transonic"
    title: ClassVar[str] = "NACA 0012 at Mach 0.8 and 1.25 degrees, inviscid, with its two shocks (finite volumes)"
    Config: ClassVar[type] = TransonicConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.around": 8, "mesh.outward": 4, "mesh.far": 5.0}

    def make_mesh(self) -> ml.Mesh:
        mesh = self.config.mesh
        return ml.generate.naca0012_ogrid(mesh.around, mesh.outward, far=mesh.far, cells=mesh.kind)
