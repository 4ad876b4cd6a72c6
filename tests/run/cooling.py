"""A tiny case that ends at a time: a pot of twelve cells cools. Tests and attacks run and break it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case import Case, Limit, OutputOptions, RunOptions, registry, schedule_table
from meshloom.config import option, section

GROWTH = 1.1


@dataclass(frozen=True)
class PotOptions:
    end: float = option(1.0, "time at the end", above=0.0)
    rate: float = option(0.5, "decay")


@dataclass(frozen=True)
class CoolingConfig:
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=100_000)
    pot: PotOptions = section(PotOptions, "The pot.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.", plot=False)
    schedule: dict[str, Any] = schedule_table("cool")


class Cooling(Case):
    """Cells cool; the step grows by a tenth each time and is cut to meet the end exactly."""

    name: ClassVar[str] = "cooling"
    title: ClassVar[str] = "a pot cools"
    Config: ClassVar[type] = CoolingConfig
    monitors: ClassVar[tuple[str, ...]] = ("heat", "time")
    end_setting: ClassVar[str] = "pot.end"
    limits: Mapping[str, Limit] = {"t": Limit(above=0.0, why="colder than cold"), "coldest": Limit(above=0.0)}

    def __init__(self, config: CoolingConfig):
        self.config = config
        self.mesh = ml.generate.box((4, 3))
        cells, clock = self.mesh.cells, ml.Set(1, "clock")
        self.t = cells.field("t", data=1.0 + np.arange(12.0))
        self.dt, self.time = ml.Global(0.01, "dt"), ml.Global(0.0, "time")
        self.heat, self.coldest = ml.Global(0.0, "heat"), ml.Global(0.0, "coldest")
        self.state, self.recorded = (self.t, self.dt, self.time), (self.heat, self.time, self.dt, self.coldest)
        end, rate = config.pot.end, config.pot.rate

        @ml.kernel
        def tick(dt: ml.ReadWrite, time: ml.ReadWrite):
            left = end - time
            new = np.minimum(GROWTH * dt, left)
            dt[...] = new
            time[...] = np.where(new >= left, end, time + new)

        @ml.kernel
        def cool(dt: ml.Read, t: ml.ReadWrite, heat: ml.Sum, coldest: ml.Min):
            after = t * (1.0 - rate * dt)
            t[...] = after
            heat += after
            coldest[...] = after

        @ml.program
        def iteration() -> None:
            tick(clock, self.dt, self.time)
            self.heat.value = 0.0
            self.coldest.value = np.inf
            cool(cells, self.dt, self.t, self.heat, self.coldest)

        self.program = iteration

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded[:, :2]

    def cell_fields(self) -> dict[str, np.ndarray]:
        return {"t": self.t.numpy()}

    def steps_left(self, recorded: np.ndarray) -> int:
        _, time, dt, _ = recorded
        left = self.config.pot.end - time
        if left <= 0.0:
            return 0
        return max(1, math.floor(math.log1p(left * (GROWTH - 1.0) / (GROWTH * dt)) / math.log(GROWTH) - 1e-9))

    def time_span(self, recorded: np.ndarray) -> tuple[float, float]:
        return float(recorded[1]), self.config.pot.end


registry.pop("cooling")  # no case for other tests
