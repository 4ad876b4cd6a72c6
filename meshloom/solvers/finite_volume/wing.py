"""The ONERA M6 wing at Mach 0.8395 and 3.06 degrees: inviscid, or turbulent at a Reynolds number of 11.72 million."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Chart, Picture, SpacePicture, defaults, order_option
from meshloom.config import option, section
from meshloom.solvers.finite_volume.case import FiniteVolumeCase
from meshloom.solvers.finite_volume.conditions import BoundaryCondition
from meshloom.solvers.finite_volume.options import FiniteVolumeConfig, condition_of

EQUATIONS = ("euler", "rans")
#: Metres, and square metres: half the wing, without the rounded tip (Schmitt and Charpin, AGARD AR-138, 1979).
SEMI_SPAN, MEAN_CHORD, HALF_AREA = 1.1963, 0.64607, 0.7530
TEMPERATURE = 255.6  # of the free stream in K, for Sutherland's law: 460 R, as NASA Glenn's validation archive has it


@dataclass(frozen=True)
class WingMeshOptions:
    """Half the wing, up to a plane of symmetry: prisms on it, tetrahedra outside."""

    equations: str = option(
        "euler",
        "what is solved: euler, or rans, the Navier-Stokes equations with a turbulence model",
        allowed=EQUATIONS,
    )
    level: int = option(1, "size: 0.46, 0.89, 1.96, 3.92 or 9.76 million cells", low=1, high=5)
    cells: int = option(0, "about so many cells instead; 0 goes by level", low=0, high=100_000_000)
    order: str = order_option()


@dataclass(frozen=True)
class WingConfig(FiniteVolumeConfig):
    run = defaults(iterations=300)
    mesh: WingMeshOptions = section(WingMeshOptions, "The mesh, and what is solved on it.")  # type: ignore[assignment]
    gas = defaults(gas_constant=1.0 / TEMPERATURE)
    stream = defaults(mach=0.8395, incidence=3.06, lift_axis="z", temperature=TEMPERATURE, reynolds=11.72e6)
    # The prisms at the sharp tail lean: least squares follows distant neighbours across them, and lift and drag swing
    # by one percent for ever; with Gauss' theorem they come to rest (60,000 cells).
    scheme = defaults(gradient="green_gauss")
    time = defaults(method="implicit", cfl=5.0, cfl_max=100.0)
    reference = defaults(length=MEAN_CHORD, area=HALF_AREA)


def _completed(config: WingConfig) -> WingConfig:
    """With the gas and the model that the equations ask for, where a person has not chosen others."""
    if config.mesh.equations == "euler":
        return config
    gas, model = config.gas, config.turbulence
    if gas.viscosity == "none":
        gas = replace(gas, viscosity="sutherland")
    if model.model == "none":
        model = replace(model, model="spalart_allmaras")
    return replace(config, gas=gas, turbulence=model)


class OneraM6(FiniteVolumeCase):
    """Air past a swept wing: two shocks on its upper side that meet towards the tip."""

    name: ClassVar[str] = "onera_m6"
    title: ClassVar[str] = "ONERA M6 wing at Mach 0.8395 and 3.06 degrees, inviscid or turbulent (finite volumes)"
    Config: ClassVar[type] = WingConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.cells": 9000, "time.method": "explicit", "time.cfl": 0.1}

    def __init__(self, config: Any):
        super().__init__(_completed(config))

    def make_mesh(self) -> ml.Mesh:
        mesh = self.config.mesh
        return ml.generate.onera_m6(mesh.level, cells=mesh.cells or None, viscous=mesh.equations == "rans")

    def conditions(self) -> dict[str, BoundaryCondition]:
        wall = "slip" if self.config.mesh.equations == "euler" else "no_slip"
        usual = {"wing": wall, "symmetry": "symmetry", "far": "farfield"}
        return {name: condition_of({"kind": kind}) for name, kind in usual.items()} | super().conditions()

    def section(self, eta: float) -> tuple[np.ndarray, np.ndarray]:
        """x/c (n,) and pressure coefficient (n,) of the faces that the plane y = ``eta`` semi-spans cuts."""
        ((x, cp),) = self.sections([eta])
        return x, cp

    def sections(self, etas: Iterable[float]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same of several planes."""
        corners, pressure = self.mesh.coordinates.numpy()[self._triangles], self.wing_pressure()
        return [cut(corners, eta * SEMI_SPAN, pressure) for eta in etas]

    @property
    def _triangles(self) -> np.ndarray:
        """The nodes (n, 3) of all faces of the wing: the boundary has quadrilaterals, too, but not there."""
        rows = self.mesh.lists.boundary_faces.taken(self.mesh.group("wing")).rows
        return np.asarray(rows)

    def wing_pressure(self) -> np.ndarray:
        """The pressure coefficient of all faces of the wing."""
        side = next(side for side in self.flow.at.sides if side.name == "wing")
        return (self.surface(side)[0] - self.stream[0]) / self.dynamic_pressure

    def picture(self) -> Picture:
        """The pressure on the upper side, seen from above."""
        wing = self.mesh.boundary("wing")
        upper = wing.normal.numpy()[:, 2] < 0.0  # out of the air, and so into the wing
        places, polygons = self.mesh.coordinates.numpy()[:, :2], self._triangles[upper]
        used, numbers = np.unique(polygons, return_inverse=True)
        return Picture(self.wing_pressure()[upper], "pressure coefficient", points=places[used],
                       polygons=numbers.reshape(polygons.shape), curves=self.drawn_monitors)  # fmt: skip

    def maps(self) -> dict[str, SpacePicture]:
        """The same in space, from above and upstream."""
        points, view = self.mesh.coordinates.numpy(), (-0.6, -0.9, 1.1)
        return {"wing": SpacePicture(self.wing_pressure(), "pressure coefficient", points, self._triangles, view, ())}

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """The pressure on the seven sections where it was measured, suction on top as is the custom."""
        measured, found = measured_pressure(), []
        etas = sorted(set(measured[:, 0].tolist()))
        for eta, (x, cp) in zip(etas, self.sections(etas), strict=True):
            own = measured[measured[:, 0] == eta]
            places = np.concatenate([x, own[:, 1]])
            computed = np.concatenate([cp, np.full(len(own), np.nan)])
            test = np.concatenate([np.full(len(x), np.nan), own[:, 2]])
            order = np.argsort(places, kind="stable")
            curves = {"computed": computed[order], "test 2308": test[order]}
            label = f"x/c at {100 * eta:g} % of the span"
            found.append(Chart(f"section_{round(100 * eta)}", places[order], curves, label, "pressure coefficient",
                               tuple(curves), downwards=True))  # fmt: skip
        return tuple(found)


def cut(corners: np.ndarray, y: float, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where triangles (n, 3, 3) meet the plane at ``y``: the middle of each line of the cut along x, as a share of the
    whole cut, and the values (n,) of these triangles."""
    above = corners[:, :, 1] > y
    crossed = above.any(axis=1) & ~above.all(axis=1)
    ends, own = corners[crossed], above[crossed]
    places = []
    for k in range(3):
        start, end = ends[:, k], ends[:, (k + 1) % 3]
        differ = own[:, k] != own[:, (k + 1) % 3]
        share = (y - start[:, 1]) / np.where(differ, end[:, 1] - start[:, 1], 1.0)
        places.append(np.where(differ, start[:, 0] + share * (end[:, 0] - start[:, 0]), np.nan))
    x = np.stack(places, axis=1)
    nose, tail = np.nanmin(x), np.nanmax(x)
    return (np.nanmean(x, axis=1) - nose) / (tail - nose), values[crossed]


def measured_pressure() -> np.ndarray:
    """(taps, 3): share of the span, x/c and pressure coefficient of ONERA's test 2308 (Schmitt and Charpin, AGARD
    AR-138, 1979)."""
    text = resources.files(__package__).joinpath("data", "onera_m6_test2308.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return np.array([[float(row["eta"]), float(row["x_over_c"]), float(row["cp"])] for row in rows])
