"""The smallest case that leaves every kind of file a run can leave: for attacks that need thousands of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meshloom.case import Chart, OutputOptions, Picture, RunOptions, registry
from meshloom.config import section
from tests.run.cooling import Cooling, CoolingConfig, PotOptions


@dataclass(frozen=True)
class PotConfig(CoolingConfig):
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=1000, backend="numpy")
    pot: PotOptions = section(PotOptions, "The pot.", end=0.2)
    output: OutputOptions = section(
        OutputOptions, "What to write.", every=3, checkpoint_every=4, checkpoint_seconds=0.0
    )


class Pot(Cooling):
    """The same, with all that can be drawn."""

    name: ClassVar[str] = "pot"
    Config: ClassVar[type] = PotConfig

    def picture(self) -> Picture:
        return Picture(self.t.numpy().reshape(-1), "t", (0.0, 1.0, 0.0, 1.0))

    def maps(self) -> Mapping[str, Picture]:
        return {"again": self.picture()}

    def charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        return (Chart("heat", history["time"], {"heat": history["heat"]}, "time", "heat"),)


registry.pop("pot")  # no case for other tests


@contextmanager
def pot_is_known() -> Iterator[None]:
    """``meshloom run pot`` works."""
    registry["pot"] = Pot
    try:
        yield
    finally:
        del registry["pot"]
