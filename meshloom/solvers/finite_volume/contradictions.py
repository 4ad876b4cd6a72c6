"""Settings that contradict each other, or the mesh: refused before anything runs, each in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import ConfigError
from meshloom.solvers.finite_volume.conditions import AdiabaticWall, BoundaryCondition
from meshloom.toml import toml_key

_COLDEST = 10.0  # temperatures of Sutherland's law over that of the stream: air at 11 K is no gas


def check_sense(config: Any, mesh: ml.Mesh, conditions: Mapping[str, BoundaryCondition]) -> None:
    """ConfigError where a setting would silently do nothing, or something else than it says. What a flow made by hand
    may have wrong, too, such as a wall whose velocity goes through it, is checked where its faces are made."""
    _check_axes(config.stream, mesh.dim)
    _check_viscosity(config)
    _check_smoothing(config.time, type(config)().time)
    for name, condition in conditions.items():
        if isinstance(condition, AdiabaticWall) and name in mesh.groups:
            key = toml_key(("boundary", name))
            if config.gas.viscosity == "none" and config.turbulence.model == "none":  # a model says so itself
                raise ConfigError(f"{key}: a no-slip wall needs a viscosity, and gas.viscosity is 'none'; say"
                                  " kind = \"slip\", or choose a viscosity")  # fmt: skip
    if config.time.method == "implicit":
        _check_neighbours(mesh)


def _check_axes(stream: Any, dim: int) -> None:
    if dim == 2 and stream.sideslip != 0.0:
        raise ConfigError(f"stream.sideslip is {stream.sideslip:g}, out of the plane of the mesh; in 2-D it must be 0")
    if dim == 2 and stream.lift_axis != "y":
        raise ConfigError(f"stream.lift_axis is {stream.lift_axis!r}; the mesh is in the plane of x and y: say 'y'")


def _check_viscosity(config: Any) -> None:
    """There is one way to say it, or none where there is none; what a case has by itself does not count."""
    gas, stream, usual = config.gas, config.stream, type(config)()
    given = {"stream.reynolds": stream.reynolds, "gas.reference_viscosity": gas.reference_viscosity}
    before = {"stream.reynolds": usual.stream.reynolds, "gas.reference_viscosity": usual.gas.reference_viscosity}
    if gas.viscosity == "none":
        for key, value in (*given.items(), ("gas.reference_temperature", gas.reference_temperature)):
            if value not in (0.0, before.get(key, 0.0)):
                raise ConfigError(f"{key} is {value:g}, and gas.viscosity is 'none': choose constant or sutherland")
        return
    if all(given.values()):
        raise ConfigError("stream.reynolds and gas.reference_viscosity both set the viscosity: let one of them be 0")
    if not any(given.values()):
        raise ConfigError(f"gas.viscosity is {gas.viscosity!r}, but nothing says how much: stream.reynolds does, or"
                          " gas.reference_viscosity")  # fmt: skip
    if stream.reynolds and stream.mach == 0.0:
        raise ConfigError("stream.reynolds sets the viscosity by the speed of the stream, and stream.mach is 0: say"
                          " stream.reynolds = 0 and give gas.reference_viscosity")  # fmt: skip
    if stream.reynolds and gas.reference_temperature not in (0.0, stream.temperature):
        raise ConfigError(f"gas.reference_temperature is {gas.reference_temperature:g}, but stream.reynolds says what"
                          " the viscosity is at stream.temperature: let one of them be 0")  # fmt: skip
    if gas.viscosity == "sutherland" and gas.sutherland_temperature > _COLDEST * stream.temperature:
        raise ConfigError(f"gas.sutherland_temperature = {gas.sutherland_temperature:g} and stream.temperature ="
                          f" {stream.temperature:g} are not in one unit: 110.4 is that of air in kelvin")  # fmt: skip


def _check_smoothing(time: Any, usual: Any) -> None:
    """Rates are averaged in explicit steps towards a steady flow alone; what a case has by itself does not count."""
    for key, value, needed in (("mode", time.mode, "steady"), ("method", time.method, "explicit")):
        if value != needed and time.smoothing not in (0.0, usual.smoothing):
            raise ConfigError(f"time.smoothing is {time.smoothing:g}, and time.{key} is {value!r}, which has none: let"
                              f" it be 0, or say {needed!r}")  # fmt: skip


def _check_neighbours(mesh: ml.Mesh) -> None:
    """A cell that none lies next to has no place in a matrix through faces."""
    alone = np.bincount(mesh.face_cells.indices.ravel(), minlength=len(mesh.cells)) == 0
    if alone.any():
        cell = int(np.argmax(alone))
        at = ", ".join(f"{part:.4g}" for part in mesh.cell_centroids[cell])
        raise ConfigError(f"cell {cell} at ({at}) has no neighbour, which implicit steps need; say time.method ="
                          " 'explicit'")  # fmt: skip
