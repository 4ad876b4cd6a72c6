"""The sections of settings that all cases share."""
# ruff: noqa: RUF009  section() and table() are dataclasses.field(): a new value for every instance

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.case.schedules import schedule_table
from meshloom.config import described, option, section
from meshloom.run.task import SettingRow
from meshloom.toml import toml_shown

MOST_ITERATIONS = 10**9
_LONGEST_VALUE = 400  # letters of a setting on a page
PRECISIONS: dict[str, np.dtype[Any]] = {"double": np.dtype(np.float64), "single": np.dtype(np.float32)}


@dataclass(frozen=True)
class RunOptions:
    """How long and on what to run."""

    iterations: int = option(1000, "iterations in all, those before a restart included", low=1, high=MOST_ITERATIONS)
    backend: str = option(
        "auto",
        "what executes the loops; auto takes cuda with a GPU, else cpu with a C++ compiler, else numpy",
        allowed=lambda: ("auto", *ml.backends()),
    )
    precision: str = option("double", "type of the numbers in all fields", allowed=tuple(PRECISIONS))
    threads: int = option(0, "threads of the cpu back end; 0 takes all cores", low=0, high=4096)


@dataclass(frozen=True)
class OutputOptions:
    """What to write, and how often."""

    vtu: bool = option(True, "write the fields as VTK files (.vtu; of a grid .vti or .vtr) with a .pvd series")
    every: int = option(0, "iterations between VTK files; 0 writes one at the end", low=0, high=10**9)
    plot: bool = option(True, "draw a PNG at the end (needs matplotlib)")
    checkpoint_every: int = option(0, "iterations between checkpoints; 0 goes by the clock alone", low=0, high=10**9)
    checkpoint_seconds: float = option(60.0, "seconds between checkpoints; 0 goes by iterations alone", low=0.0)


@dataclass(frozen=True)
class CaseConfig:
    """The settings that every case has: derive yours from it, with sections of your own."""

    run: RunOptions = section(RunOptions, "How long, and on what.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("name_of_a_loop")


def order_option() -> Any:
    """How the mesh of a case lies in memory, an option of its [mesh]: see ``Mesh.arranged``."""
    return option(
        "auto",
        "how the mesh lies in memory, which only matters for speed; auto renumbers it if it comes in a bad order;"
        " all output keeps your numbering",
        allowed=lambda: ("auto", *ml.orderings()),
    )


def setting_rows(config: Any) -> tuple[SettingRow, ...]:
    """Every setting of a configuration as a person sees it, with its default and its meaning."""
    return tuple(
        SettingRow(key, toml_shown(value, _LONGEST_VALUE), toml_shown(usual, _LONGEST_VALUE), doc)
        for key, value, usual, doc in described(config)
    )
