"""The paper's two loops by Meshloom's own strategies, on any numbering of a mesh: checked, timed, as shares of copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import meshloom as ml
from bench.coloring_forms import FLUX_SUM, LOCAL_MAXIMUM, LOOPS, Values
from bench.coloring_mesh import Numbering
from bench.exclusive import alone
from bench.race_loop import TOLERANCE, Device
from meshloom.errors import MeshloomError
from meshloom.schedule.strategies import strategy

OWNER_BLOCKS = (256, 1024)  # cells in a row that share what one multiprocessor has loaded; 64 is the automatic one


@ml.kernel
def flux_sum(flux: ml.Read, res: ml.Inc):
    res[0] += flux
    res[1] -= flux


@ml.kernel
def local_maximum(ps: ml.Read, plmax: ml.Max):
    plmax[0] = ps[1]
    plmax[1] = ps[0]


def wishes(names: Sequence[str], *, every_block: bool) -> Iterator[ml.Schedule | None]:
    """Schedules to try; None is the automatic choice. ``every_block``: ``owner`` in blocks of several sizes."""
    for name in names:
        if name == "auto":
            yield None
        elif name == "owner" and every_block:
            yield from (ml.Schedule(name, block=block) for block in OWNER_BLOCKS)
        else:
            yield from (ml.Schedule(name, variant=variant) for variant in ml.variants(name))


class Loops:
    """Both loops on one numbering, in one precision; data are SoA, as in the paper."""

    def __init__(self, numbering: Numbering, values: Values, precision: str):
        self.numbering, self.values, self.precision = numbering, values, precision
        self.faces, cells = ml.Set(numbering.faces.n, "faces"), ml.Set(numbering.faces.cells, "cells")
        sides = ml.Map(self.faces, cells, numbering.faces.pairs, "sides")
        many = values.components
        options: dict[str, Any] = {"dtype": np.dtype(precision), "layout": "soa"} if many > 1 else {
            "dtype": np.dtype(precision)}  # fmt: skip
        shape = (many,) if many > 1 else ()
        flux, ps = values.flux[numbering.old_faces], values.ps[numbering.old_cells]
        self.flux = self.faces.field("flux", *shape, data=flux if many > 1 else flux[:, 0], **options)
        self.ps = cells.field("ps", *shape, data=ps if many > 1 else ps[:, 0], **options)
        self.outputs = {name: cells.field(name, *shape, **options) for name in LOOPS}
        self.arguments: dict[str, tuple[ml.Kernel, tuple[Any, ...]]] = {
            FLUX_SUM: (flux_sum, (self.flux, self.outputs[FLUX_SUM][sides])),
            LOCAL_MAXIMUM: (local_maximum, (self.ps[sides], self.outputs[LOCAL_MAXIMUM][sides])),
        }

    def loop(self, name: str, wish: ml.Schedule | None) -> ml.Loop:
        kernel, arguments = self.arguments[name]
        return kernel.loop(self.faces, *arguments, schedule=wish)

    def error(self, name: str) -> float:
        found = np.empty((self.numbering.faces.cells, self.values.components))
        found[self.numbering.old_cells] = self.outputs[name].numpy().reshape(len(found), -1)
        return self.values.error(name, found)


def rows_of(loops: Loops, names: Sequence[str], device: Device, copy: float, *,
            every_block: bool = False) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Every schedule of both loops; ``copy``: bytes per second."""
    for name in LOOPS:
        for wish in wishes(names, every_block=every_block):
            row = {"loop": name, "precision": loops.precision, "components": loops.values.components,
                   "wish": "auto" if wish is None else str(wish)}  # fmt: skip
            yield row | _measured(loops, name, wish, device, copy)
            device.clear()


def _measured(loops: Loops, name: str, wish: ml.Schedule | None, device: Device, copy: float) -> dict[str, Any]:
    loop = loops.loop(name, wish)
    try:
        executable: Any = loop.prepare()
    except MeshloomError as refusal:
        return {"declined": str(refusal)}
    with alone():
        loops.outputs[name].fill(0.0)
        executable()
        if not (error := loops.error(name)) <= TOLERANCE[loops.precision]:
            return {"wrong": error}
        seconds = device.replayed(getattr(executable, "launch", executable))
    useful = loop.counts.compulsory
    return {"schedule": str(loop.schedule), "deterministic": strategy(loop.schedule.strategy).deterministic,
            "error": error, "s_per_1000": 1e3 * seconds, "bytes": useful, "share_of_copy": useful / seconds / copy,
            "launches": len(getattr(executable, "steps", ()))}  # fmt: skip
