"""Compressible flow on any mesh, as a case: ``fv`` takes the user's mesh and conditions; others bring their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import BROKEN, GROWING, STALLED, Case, Chart, Limit, Picture, SpacePicture, on_surface
from meshloom.errors import ConfigError
from meshloom.solvers.finite_volume.conditions import BoundaryCondition, join_periodic, vector
from meshloom.solvers.finite_volume.contradictions import check_sense
from meshloom.solvers.finite_volume.flow import CompressibleFlow, FlowTerms
from meshloom.solvers.finite_volume.geometry import GroupFaces
from meshloom.solvers.finite_volume.implicit import DualSteps, ImplicitSteps
from meshloom.solvers.finite_volume.kernels import keep
from meshloom.solvers.finite_volume.options import FiniteVolumeConfig, condition_of, directions, gas_and_stream
from meshloom.solvers.finite_volume.stability import in_time, longest_cfl, towards_steady
from meshloom.solvers.finite_volume.steps import FlowSteps, SteadySteps, StepsInTime, UnsteadySteps
from meshloom.solvers.finite_volume.turbulence import SpalartAllmaras
from meshloom.solvers.stable import doubts_longer, refuse_longer

_SMALL_BODY = 5.0  # times as long as its walls: then a picture of the whole domain would show none of them
_CLOCK = ("time", "dt")  # the monitors of unsteady flow, in front of the others
_MONITORS = (
    "residual_density", "residual_momentum", "residual_energy", "lift", "drag", "friction_drag", "moment",
    "lowest_pressure", "lowest_temperature", "mass", "energy",
)  # fmt: skip


class FiniteVolumeCase(Case):
    """Compressible flow on a mesh. Subclasses say which mesh, which conditions, and from what state on.

    Monitors: rates of density, momentum and energy (root mean squares, by the time that sound takes for the reference
    length); coefficients of lift, drag, the part of drag that is friction, and moment (nose up), all of the state at
    the start of an iteration; least pressure and temperature, mass and energy of all at its end.
    """

    monitors: ClassVar[tuple[str, ...]] = _MONITORS
    shown: ClassVar[tuple[str, ...] | None] = ("residual_density", "lift", "drag")
    limits: Mapping[str, Limit] = dict.fromkeys(
        ("pressure", "temperature", "lowest_pressure", "lowest_temperature"), Limit(above=0.0)
    )
    drawn: ClassVar[tuple[str, str]] = ("mach", "Mach number")  # the field in the picture

    def __init__(self, config: Any):
        self.config = config
        self.mesh, conditions = join_periodic(self.make_mesh().arranged(config.mesh.order), self.conditions())
        check_sense(config, self.mesh, conditions)
        self.gas, self.stream = gas_and_stream(config, self.mesh.dim)
        start = self.gas.conserved(self.start(self.mesh.cell_centroids)).T
        model, turbulent = config.turbulence, config.turbulence.model != "none"
        self.flow = CompressibleFlow(
            self.mesh, self.gas, config.scheme.scheme(), conditions, start, self.stream,
            length=config.reference.length, dtype=self.dtype,
            eddy=self.mesh.cells.field("eddy_viscosity", dtype=self.dtype) if turbulent else None,
        )  # fmt: skip
        self.turbulence = (
            SpalartAllmaras(self.flow, self.stream, ratio=model.free_stream, order=model.order) if turbulent else None
        )
        dim, point = self.mesh.dim, config.reference.point
        self._about = ml.Global(_point(point, dim), "about", dtype=self.flow.dtype)
        self.forces = (ml.Global(np.zeros(dim), "force"), ml.Global(np.zeros(dim), "friction_force"),
                       ml.Global(0.0 if dim == 2 else np.zeros(3), "moments"))  # fmt: skip
        self.steps = self._steps()
        totals = self.steps.totals
        if isinstance(self.steps, StepsInTime):
            self.monitors = (*_CLOCK, *_MONITORS)  # type: ignore[misc]
        self.monitors = (*self.monitors, *(one.name for one in self.steps.told))  # type: ignore[misc]
        eddies = (self.turbulence.nu, self.turbulence.eddy) if self.turbulence else ()
        self.state: tuple[ml.Field | ml.Global, ...] = (self.flow.u, *eddies, *self.steps.fields, *self.steps.clock)
        self.recorded: tuple[ml.Global, ...] = tuple(dict.fromkeys((
            *self.steps.clock, totals.rates, *self.forces, totals.lowest_pressure, totals.lowest_temperature,
            totals.mass, totals.energy, *self.steps.told,
        )))  # fmt: skip
        self.added = self.steps.added
        self.program = self.steps.program()

    # --- what subclasses say

    def make_mesh(self) -> ml.Mesh:
        """By ``config.mesh``, in any order: ``config.mesh.order`` says how it is to lie in memory."""
        return ml.read(self.config.mesh.file, order="given")

    def conditions(self) -> dict[str, BoundaryCondition]:
        """By the names of the mesh's boundary groups."""
        return {name: condition_of(entry) for name, entry in self.config.boundary.items()}

    def start(self, centres: np.ndarray) -> np.ndarray:
        """V (d + 2, cells) at first, in cells with these centres (cells, d): the free stream."""
        return np.tile(self.stream[:, None], (1, len(centres)))

    # --- one iteration

    def doubts(self) -> tuple[str, ...]:
        time = self.config.time
        if not isinstance(self.steps, SteadySteps):
            return ()
        limit = longest_cfl(self.config.scheme.order, self.steps.smoothing, towards_steady)
        return doubts_longer("time.cfl", time.cfl, limit)

    def _steps(self) -> FlowSteps:
        time = self.config.time
        if time.method == "implicit":
            options = time.newton()
            if time.mode == "steady":
                return ImplicitSteps(self.flow, options, self._watch, self.turbulence)
            return DualSteps(self.flow, options, time.dual(), self._watch, self.turbulence)
        if time.mode == "steady":
            return SteadySteps(self.flow, time.cfl, time.smoothing, self._watch, self.turbulence)
        refuse_longer("time.cfl", time.cfl, longest_cfl(self.config.scheme.order, 0.0, in_time), " in time")
        return UnsteadySteps(self.flow, time.timing(), self._watch, self.turbulence)

    def _watch(self, terms: FlowTerms) -> None:
        self.flow.forces(terms, self._about, self.forces)

    # --- what the runner asks

    @property
    def dynamic_pressure(self) -> float:
        """What forces are divided by: that of the free stream; its pressure where it is at rest."""
        density = float(self.gas.density(self.stream))
        return 0.5 * density * float(self.stream[1:-1] @ self.stream[1:-1]) or float(self.stream[0])

    def _columns(self, recorded: np.ndarray) -> dict[str, np.ndarray]:
        """What was recorded (n, ...) by the names of the globals, each (n, dim)."""
        found, begin = {}, 0
        for one in self.recorded:
            found[one.name] = recorded[:, begin : begin + one.dim]
            begin += one.dim
        return found

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        found, reference = self._columns(recorded), self.config.reference
        drag, lift = directions(self.config.stream, self.mesh.dim)
        unit = self.dynamic_pressure * reference.area
        force, friction = found["force"] / unit, found["friction_force"] / unit
        rows = [*self._residuals(found["rates"]), _along(force + friction, lift), _along(force + friction, drag),
                _along(friction, drag), self._nose_up(found["moments"]) / (unit * reference.length)]  # fmt: skip
        told = (one.name for one in self.steps.told)
        rows += [found[name][:, 0] for name in ("lowest_pressure", "lowest_temperature", "mass", "energy", *told)]
        if isinstance(self.steps, StepsInTime):
            rows = [found["time"][:, 0], found["dt"][:, 0], *rows]
        return np.stack(rows, axis=1)

    def _residuals(self, rates: np.ndarray) -> list[np.ndarray]:
        """Of density, momentum and energy, (n,) each, in units of the free stream."""
        density, sound = float(self.gas.density(self.stream)), float(self.gas.sound_speed(self.stream))
        unit = density * sound / self.config.reference.length
        mean = np.sqrt(rates / len(self.mesh.cells))
        momentum = np.sqrt((mean[:, 1:-1] ** 2).sum(axis=1))
        return [mean[:, 0] / unit, momentum / (unit * sound), mean[:, -1] / (unit * sound**2)]

    def _nose_up(self, moments: np.ndarray) -> np.ndarray:
        """The part (n,) of moments (n, 1 or 3) that lifts what is upstream."""
        if self.mesh.dim == 2:
            return -moments[:, 0]
        return -moments[:, 2] if self.config.stream.lift_axis == "y" else moments[:, 1]

    def steps_left(self, recorded: np.ndarray) -> int | None:
        found = self._columns(recorded[None, :])
        if isinstance(self.steps, StepsInTime):
            return self.steps.steps_left(float(found["time"][0, 0]), float(found.get("pace", found["dt"])[0, 0]))
        if self.config.time.tolerance == 0.0:
            return None
        done, every = int(found["done"][0, 0]), self.steps.looked_at
        if done and done % every == 0 and self._residuals(found["rates"])[0][0] < self.config.time.tolerance:
            return 0
        return every - done % every

    @property
    def residual(self) -> tuple[str, float | None] | None:
        if isinstance(self.steps, StepsInTime):
            return None
        return "residual_density", self.config.time.tolerance or None

    def cure(self, state: str) -> str:
        scheme, step = self.config.scheme, self._step_setting()
        second, limits = scheme.order == 2, scheme.limiter != "none"
        if state == STALLED and second and limits:
            has_constant = scheme.limiter == "venkatakrishnan"
            softer = "a larger scheme.limiter_constant" if has_constant else "another scheme.limiter"
            return f"a limiter that rings stalls it: {softer} or a smaller {step} may help"
        if state == BROKEN:
            limiter = "a limiter (scheme.limiter), " if second and not limits else ""
            can_fall_back = second and self.config.time.method == "explicit" and scheme.fallback == "none"
            fallback = "scheme.fallback, " if can_fall_back else ""
            return f"a smaller {step}, {limiter}{fallback}or another scheme.flux may help"
        return f"a smaller {step} may help" if state in (STALLED, GROWING) else ""

    def _step_setting(self) -> str:
        """What says how long steps are."""
        time = self.config.time
        if time.method == "explicit":
            return "time.cfl"
        if time.mode == "unsteady":
            return "time.dt"
        return "time.cfl_max" if time.cfl_max > time.cfl else "time.cfl"  # which is that of the first one

    def ends_a_whole_step(self, time: float) -> bool:
        return isinstance(self.steps, DualSteps) and self.steps.is_whole(time)

    def time_span(self, recorded: np.ndarray) -> tuple[float, float] | None:
        if not isinstance(self.steps, StepsInTime):
            return None
        return float(recorded[0]), self.config.time.end

    def longer(self) -> str:
        if self.steps_left(self.recorded_now()) == 0 and not isinstance(self.steps, StepsInTime):
            return f"--set time.tolerance={0.1 * self.config.time.tolerance:g}"
        return super().longer()

    def why_not_after(self, before: Any) -> str:
        for section, name in (("time", "mode"), ("time", "method"), ("turbulence", "model")):
            old, new = (getattr(getattr(one, section), name) for one in (before, self.config))
            if old != new:
                return f"a run with {section}.{name} = {old!r} cannot go on as {new!r}: run anew"
        return ""

    def cell_fields(self) -> dict[str, np.ndarray]:
        U = self.flow.u.local().astype(np.float64).T
        V = self.gas.primitives(U)
        speed = np.sqrt((V[1:-1] ** 2).sum(axis=0))
        return {
            "density": U[0],
            "velocity": V[1:-1].T,
            "pressure": V[0],
            "temperature": V[-1],
            "mach": speed / self.gas.sound_speed(V),
            "pressure_coefficient": (V[0] - self.stream[0]) / self.dynamic_pressure,
            **self._model_fields(V),
        }

    def _model_fields(self, V: np.ndarray) -> dict[str, np.ndarray]:
        if self.turbulence is None:
            return {}
        eddy = self.turbulence.eddy.local().astype(np.float64)
        return {
            "nu_tilde": self.turbulence.nu.local().astype(np.float64),
            "eddy_ratio": eddy / self.gas.viscosity(V[-1]),
        }

    def picture(self) -> Picture | SpacePicture | None:
        """The field ``drawn`` over a plane mesh, in space on its walls, or on all sides where there are none."""
        name, label = self.drawn
        if self.mesh.dim == 3:
            return self._on_walls(name, label, self.drawn_monitors)
        return Picture(self.cell_fields()[name], label, self.window(), curves=self.drawn_monitors)

    @property
    def drawn_monitors(self) -> tuple[str, ...]:
        """Those next to the picture: coefficients over time, or how far it is to the steady flow, over decades."""
        return ("lift", "drag") if isinstance(self.steps, StepsInTime) else ("residual_density",)

    def _on_walls(self, name: str, label: str, curves: tuple[str, ...]) -> SpacePicture | None:
        walls = [one.name for one in self.flow.at.sides if one.condition.is_wall and len(self.mesh.boundary(one.name))]
        if not len(self.mesh.boundary_faces):  # periodic on all sides
            return None
        return on_surface(self.mesh, self.cell_fields()[name], label, walls, curves=curves)

    def window(self) -> tuple[float, float, float, float]:
        if self.config.output.window:
            xmin, xmax, ymin, ymax = self.config.output.window
            return xmin, xmax, ymin, ymax
        nodes = self.mesh.coordinates.numpy()
        walls = [side.middle.numpy() for side in self._walls]
        return shown_window(nodes, np.concatenate(walls) if walls else nodes)

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Of every wall: the coefficient of pressure over x, and that of friction where there is any."""
        charts = []
        for side in self._walls:
            pressure, shear = self.surface(side)
            middle = side.middle.numpy().astype(np.float64)
            order = np.argsort(middle[:, 0], kind="stable")
            x, *others = middle[order].T
            columns = dict(zip("yz", others, strict=False))
            cp = (pressure - self.stream[0]) / self.dynamic_pressure
            charts.append(Chart(f"cp_{side.name}", x, {"cp": cp[order]}, "x", "pressure coefficient", ("cp",),
                                downwards=True, columns=columns))  # fmt: skip
            if self.gas.viscous:
                cf = np.linalg.norm(shear, axis=1) / self.dynamic_pressure * np.sign(shear @ self.stream[1:-1])
                charts.append(Chart(f"cf_{side.name}", x, {"cf": cf[order]}, "x", "friction coefficient", ("cf",),
                                    columns=columns))  # fmt: skip
        return tuple(charts)

    @property
    def _walls(self) -> list[GroupFaces]:
        return [side for side in self.flow.at.sides if side.condition.is_wall]

    def gradients(self) -> np.ndarray:
        """Of pressure, velocity and temperature in this rank's cells, (cells, d + 2, d); 0 where the scheme has
        none."""
        flow, dim = self.flow, self.mesh.dim
        kept = self.mesh.cells.field("gradients", (dim + 2, dim), dtype=flow.dtype)

        def find() -> None:
            slope = flow.terms(flow.u).slope
            if slope is not None:
                keep(self.mesh.cells, slope, kept)

        ml.program(find).run()
        return kept.local().astype(np.float64)

    def surface(self, side: GroupFaces) -> tuple[np.ndarray, np.ndarray]:
        """Pressure (n,) and friction (n, d) per area at the faces of a wall."""
        find, pressure, shear = self._surfaces[side.name]
        find.run()
        return pressure.numpy().astype(np.float64), shear.numpy().astype(np.float64)

    @cached_property
    def _surfaces(self) -> dict[str, tuple[ml.Program, ml.Field, ml.Field]]:
        """Of every side what finds its pressure and friction, and where these are then: pages ask for them often."""

        def of(side: GroupFaces) -> tuple[ml.Program, ml.Field, ml.Field]:
            pressure = side.faces.field("surface_pressure", dtype=self.flow.dtype)
            shear = side.faces.field("surface_shear", self.mesh.dim, dtype=self.flow.dtype)
            found = ml.program(lambda: self.flow.surface(self.flow.terms(self.flow.u), side, pressure, shear))
            return found, pressure, shear

        return {side.name: of(side) for side in self.flow.at.sides}


def _along(vectors: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Components (n,) of vectors (n, d), the same bits however many there are, which BLAS does not promise."""
    return (vectors * direction).sum(axis=1)


def _point(point: tuple[float, ...], dim: int) -> np.ndarray:
    if not point:
        return np.zeros(dim)
    try:
        return vector(point, dim, "point")
    except ValueError as problem:
        raise ConfigError(f"reference.point {problem}") from None


def shown_window(nodes: np.ndarray, walls: np.ndarray) -> tuple[float, float, float, float]:
    """xmin, xmax, ymin, ymax of a picture: all nodes (n, 2), or where walls (m, 2) are a small part of it, a body in a
    far field, these with as much again on all sides."""
    low, high = nodes.min(axis=0), nodes.max(axis=0)
    size = float((walls.max(axis=0) - walls.min(axis=0)).max())
    if _SMALL_BODY * size < float((high - low).max()):
        low, high = np.maximum(low, walls.min(axis=0) - size), np.minimum(high, walls.max(axis=0) + size)
    return float(low[0]), float(high[0]), float(low[1]), float(high[1])


class FiniteVolume(FiniteVolumeCase):
    """Any mesh, any conditions; without a mesh file, a channel with a bump on its floor."""

    name: ClassVar[str] = "fv"
    title: ClassVar[str] = "compressible flow on a mesh of yours, with conditions by boundary group (finite volumes)"
    Config: ClassVar[type] = FiniteVolumeConfig
    small: ClassVar[Mapping[str, Any]] = {"mesh.along": 6, "mesh.up": 3}
    channel: ClassVar[Mapping[str, Any]] = {
        "inlet": {"kind": "farfield"}, "outlet": {"kind": "farfield"}, "top": {"kind": "slip"}, "wall": {"kind": "slip"}
    }  # fmt: skip

    def make_mesh(self) -> ml.Mesh:
        options = self.config.mesh
        return super().make_mesh() if options.file else ml.generate.bump(options.along, options.up)

    def conditions(self) -> dict[str, BoundaryCondition]:
        if self.config.mesh.file:
            return super().conditions()
        return {name: condition_of(entry) for name, entry in self.channel.items()} | super().conditions()
