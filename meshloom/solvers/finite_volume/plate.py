"""The turbulent boundary layer of a flat plate, as NASA's turbulence modelling resource has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, defaults, order_option, values_at
from meshloom.config import option, section
from meshloom.solvers.finite_volume.case import FiniteVolumeCase
from meshloom.solvers.finite_volume.geometry import GroupFaces
from meshloom.solvers.finite_volume.options import FiniteVolumeConfig, boundary_table
from meshloom.solvers.finite_volume.spalart_allmaras import law_of_the_wall
from meshloom.solvers.finite_volume.turbulence import sticks

#: NASA's turbulence modelling resource, "2D Zero Pressure Gradient Flat Plate": friction by the model at x = 0.97.
STATION, PUBLISHED_FRICTION = 0.97, 0.00271
TOTAL_PRESSURE, TOTAL_TEMPERATURE = 1.02828, 1.008  # of Mach 0.2, over static ones; the same page


@dataclass(frozen=True)
class PlateMeshOptions:
    """A plate from x = 0 to 2, with a plane of symmetry from x = -1/3 on ahead of it, in a domain of height 1."""

    along: int = option(136, "cells along the plate", low=2, high=100_000)
    up: int = option(96, "cells across its boundary layer and the stream above", low=2, high=100_000)
    first_height: float = option(2e-6, "height of the cells at the wall; 6e-6 is a wall unit", above=0.0, high=0.1)
    kind: str = option("quad", "kind of cells", allowed=("quad", "triangle"))
    order: str = order_option()


@dataclass(frozen=True)
class TurbulentPlateConfig(FiniteVolumeConfig):
    run = defaults(iterations=400)
    mesh: PlateMeshOptions = section(PlateMeshOptions, "The mesh.")  # type: ignore[assignment]
    boundary: dict[str, Any] = boundary_table(
        {
            "inlet": {
                "kind": "inlet",
                "total_pressure": TOTAL_PRESSURE,
                "total_temperature": 300.0 * TOTAL_TEMPERATURE,
            },
            "outlet": {"kind": "outlet"},
            "top": {"kind": "farfield"},
            "symmetry": {"kind": "symmetry"},
            "wall": {"kind": "no_slip"},
        }
    )
    gas = defaults(viscosity="sutherland", gas_constant=1.0 / 300.0, sutherland_temperature=110.3)
    stream = defaults(mach=0.2, reynolds=5e6, temperature=300.0)
    # Roe's entropy fix rounds off the speed of shear waves, too, which are all that a boundary layer is made of.
    scheme = defaults(flux="hllc", limiter="none")
    time = defaults(method="implicit", cfl=5.0, cfl_max=1e5)
    turbulence = defaults(model="spalart_allmaras")
    output = defaults(window=(-0.1, 2.0, 0.0, 0.05))


class TurbulentPlate(FiniteVolumeCase):
    """Air along a plate, turbulent from its leading edge on, at a Reynolds number of five million for a length of 1."""

    name: ClassVar[str] = "flat_plate"
    title: ClassVar[str] = "turbulent boundary layer of a flat plate at Mach 0.2 (finite volumes, Spalart-Allmaras)"
    Config: ClassVar[type] = TurbulentPlateConfig
    small: ClassVar[Mapping[str, Any]] = {
        "mesh.along": 10, "mesh.up": 8, "mesh.first_height": 1e-4, "time.method": "explicit", "time.cfl": 1.0
    }  # fmt: skip

    def make_mesh(self) -> ml.Mesh:
        mesh = self.config.mesh
        return ml.generate.flat_plate(mesh.along, mesh.up, first_height=mesh.first_height, cells=mesh.kind)

    def friction(self) -> tuple[np.ndarray, np.ndarray]:
        """x (n,) of the faces of the plate, ascending, and the coefficient of friction (n,) there."""
        side = self._plate
        _, shear = self.surface(side)
        x = side.middle.numpy()[:, 0].astype(np.float64)
        order = np.argsort(x)
        return x[order], shear[order, 0] / self.dynamic_pressure

    def profile(self, station: float = STATION) -> tuple[np.ndarray, np.ndarray]:
        """y+ (n,) and u+ (n,) of the cells above the wall at x = ``station``, upwards."""
        x, cf = self.friction()
        side, centres = self._plate, self.mesh.cell_centroids
        middle = side.middle.numpy()[:, 0].astype(np.float64)
        face = int(np.argmin(np.abs(middle - station)))
        half = 0.5 * float(np.linalg.norm(side.area.numpy()[face]))
        above = np.flatnonzero(np.abs(centres[:, 0] - middle[face]) < 0.999 * half)
        above = above[np.argsort(centres[above, 1])]
        V = self.gas.primitives(values_at(self.mesh.cells, self.flow.u, above).astype(np.float64).T)
        stress = float(np.interp(middle[face], x, cf)) * self.dynamic_pressure
        density = float(self.gas.density(V[:, 0]))  # the wall is adiabatic, and has the state of the cell on it
        u_tau, laminar = np.sqrt(abs(stress) / density), float(self.gas.viscosity(V[-1, 0])) / density
        return centres[above, 1] * u_tau / laminar, V[1] / u_tau

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Friction, next to what is published where the flow is that one, and the law of the wall; where the gas slides
        along there is neither."""
        if not sticks(self._plate.condition):
            return super().charts(history)
        faces, friction = self.friction()
        x = np.union1d(faces, [STATION])
        curves = {"cf": np.interp(x, faces, friction)}
        if self.is_the_published_flow:
            curves["published"] = np.where(x == STATION, PUBLISHED_FRICTION, np.nan)
        y, u = self.profile()
        inner = y < 1e4
        return (
            Chart("friction", x, curves, "x", "friction coefficient", tuple(curves)[1:]),
            Chart("law_of_the_wall", y[inner], {"u+": u[inner], "law of the wall": law_of_the_wall(y[inner])},
                  f"y+ at x = {STATION}", "u+", ("u+",), decades=True),
        )  # fmt: skip

    @property
    def is_the_published_flow(self) -> bool:
        """Whether gas, stream, conditions, unit of length and model are those of NASA's case, which are the defaults;
        mesh, scheme and steps may differ."""
        own, nasa = self.config, type(self.config)()
        model = replace(own.turbulence, order=nasa.turbulence.order)  # of the scheme, not of the flow
        flow = (own.gas, own.stream, own.boundary, model, own.reference.length)
        return flow == (nasa.gas, nasa.stream, nasa.boundary, nasa.turbulence, nasa.reference.length)

    @property
    def _plate(self) -> GroupFaces:
        return next(side for side in self.flow.at.sides if side.name == "wall")
