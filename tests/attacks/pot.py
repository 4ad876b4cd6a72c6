"""The smallest case that leaves every kind of file a run can leave: for attacks that need thousands of runs.

A pot of twelve cells cools; the step grows by a tenth each time and is cut to meet the end exactly.
"""
# ruff: noqa: RUF009  section() and table() are dataclasses.field(): a new value for every instance

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.config import option, section
from meshloom.solvers import case as cases
from meshloom.solvers.case import Case, Chart, OutputOptions, Picture, RunOptions, schedule_table

GROWTH = 1.1


@dataclass(frozen=True)
class PotTime:
    end: float = option(0.2, "time at the end", above=0.0)


@dataclass(frozen=True)
class PotConfig:
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=1000, backend="numpy")
    time: PotTime = section(PotTime, "When it ends.")
    output: OutputOptions = section(
        OutputOptions, "What to write.", every=3, checkpoint_every=4, checkpoint_seconds=0.0
    )
    schedule: dict[str, Any] = schedule_table("cool")


class Pot(Case):
    name: ClassVar[str] = "pot"
    title: ClassVar[str] = "a pot cools"
    Config: ClassVar[type] = PotConfig
    monitors: ClassVar[tuple[str, ...]] = ("heat", "time")

    def __init__(self, config: PotConfig):
        self.config = config
        self.mesh = ml.generate.box((4, 3))
        cells, clock = self.mesh.cells, ml.Set(1, "clock")
        self.t = cells.field("t", data=1.0 + np.arange(12.0))
        self.dt, self.time, self.heat = ml.Global(0.01, "dt"), ml.Global(0.0, "time"), ml.Global(0.0, "heat")
        self.state, self.recorded = (self.t, self.dt, self.time), (self.heat, self.time, self.dt)
        end = config.time.end

        @ml.kernel
        def tick(dt: ml.ReadWrite, time: ml.ReadWrite):
            left = end - time
            new = np.minimum(GROWTH * dt, left)
            dt[...] = new
            time[...] = np.where(new >= left, end, time + new)

        @ml.kernel
        def cool(dt: ml.Read, t: ml.ReadWrite, heat: ml.Sum):
            after = t * (1.0 - 0.5 * dt)
            t[...] = after
            heat += after

        @ml.program
        def iteration() -> None:
            tick(clock, self.dt, self.time)
            self.heat.value = 0.0
            cool(cells, self.dt, self.t, self.heat)

        self.program = iteration

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded[:, :2]

    def cell_fields(self) -> dict[str, np.ndarray]:
        return {"t": self.t.numpy()}

    def steps_left(self, recorded: np.ndarray) -> int:
        _, time, dt = recorded
        left = self.config.time.end - time
        if left <= 0.0:
            return 0
        return max(1, math.floor(math.log1p(left * (GROWTH - 1.0) / (GROWTH * dt)) / math.log(GROWTH) - 1e-9))

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[1]), self.config.time.end

    def picture(self) -> Picture:
        return Picture(self.t.numpy().reshape(-1), "t", (0.0, 1.0, 0.0, 1.0))

    def maps(self) -> Mapping[str, Picture]:
        return {"again": self.picture()}

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        return (Chart("heat", history["time"], {"heat": history["heat"]}, "time", "heat"),)


cases._registry.pop("pot")  # no case for other tests


@contextmanager
def pot_is_known() -> Iterator[None]:
    """``meshloom run pot`` works."""
    cases._registry["pot"] = Pot
    try:
        yield
    finally:
        del cases._registry["pot"]
