"""A whole program beside the paper's: which share of a step each loop takes (Table 1), and the GPU against all cores of
the same machine (Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meshloom as ml
from bench.cases import make
from bench.race_loop import Device

REPLAYS = 5  # steps in one timing
WORDS = {"add": "sum", "minimum": "minimum", "maximum": "maximum"}


def races(loop: ml.Loop) -> str:
    """How elements of a loop meet at what they change: "sum", "minimum", "maximum", several of these, or ""."""
    if not loop.domain.visits_elements:
        return ""
    spec = loop.spec
    kinds = {str(spec.params[one.param].mode.combine) for one in spec.racy_outputs}
    return " and ".join(sorted(WORDS.get(kind, kind) for kind in kinds))


def loop_shares(program: ml.Program, device: Device) -> list[dict[str, Any]]:
    """Each loop of a program by itself, in order of time: its name, how its elements meet, milliseconds, and its share
    of all of them. Loops of one name count as one. What they change is put back."""
    took: dict[tuple[str, str], float] = {}
    for loop in program.loops:
        executable: Any = loop.prepare()
        kept = [(one, one.storage.copy()) for one in loop.writes]
        seconds = device.replayed(getattr(executable, "launch", executable))
        for one, values in kept:
            one.storage[...] = values
        place = loop.name, races(loop)
        took[place] = took.get(place, 0.0) + seconds
    in_all = sum(took.values())
    found = [
        {"loop": name, "races": kind, "ms": 1e3 * one, "share": one / in_all} for (name, kind), one in took.items()
    ]
    return sorted(found, key=lambda row: -row["ms"])


def step_seconds(case: str, settings: Sequence[str], device: Device) -> float:
    """Seconds of a step on a back end, everything made ready before."""
    ml.use(device.backend)
    program = make(case, *settings).program
    program.run(2)
    return device.seconds(lambda: program.run(REPLAYS)) / REPLAYS


def whole_row(case: str, settings: Sequence[str], device: Device, cores: Device | None) -> dict[str, Any]:
    """Shares by loop, and a step here and, where they are others, on the cores."""
    ml.use(device.backend)
    made = make(case, *settings)
    apart = ml.Program(made.program.function, fuse=False)
    apart.run(2)
    row: dict[str, Any] = {"case": case, "settings": list(settings), "cells": made.mesh.cells.size,
                           "loops": loop_shares(apart, device)}  # fmt: skip
    del made, apart
    device.clear()
    row["ms"] = 1e3 * step_seconds(case, settings, device)
    if cores is not None:
        row["cores_ms"] = 1e3 * step_seconds(case, settings, cores)
        ml.use(device.backend)
    return row
