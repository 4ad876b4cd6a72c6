"""A whole program beside the paper's: which share of a step each loop takes (Table 1), and the GPU against all cores of
the same machine (Figure 8)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import meshloom as ml
from bench.cases import make
from bench.race_loop import Device

REPLAYS = 5  # steps in one timing
LONG = 0.5  # seconds of a step that is not repeated
WORDS = {"add": "sum", "minimum": "minimum", "maximum": "maximum"}


def races(loop: ml.Loop) -> str:
    """How elements of a loop meet at what they change: "sum", "minimum", "maximum", several of these, or ""."""
    if not loop.domain.visits_elements:
        return ""
    spec = loop.spec
    kinds = {str(spec.params[one.param].mode.combine) for one in spec.racy_outputs}
    return " and ".join(sorted(WORDS.get(kind, kind) for kind in kinds))


def loop_shares(program: ml.Program | ml.Sequence, device: Device) -> list[dict[str, Any]]:
    """Each loop of a program by itself, in order of time: its name, how its elements meet, milliseconds, and its share
    of all of them, and the bytes that it must move. Loops of one name count as one. What they change is put back."""
    took: dict[tuple[str, str], float] = {}
    moved: dict[tuple[str, str], float] = {}
    for loop in program.loops:
        executable: Any = loop.prepare()
        kept = [(one, one.storage.copy()) for one in loop.writes]
        seconds = device.replayed(getattr(executable, "launch", executable))
        for one, values in kept:
            one.storage[...] = values
        place = loop.name, races(loop)
        took[place] = took.get(place, 0.0) + seconds
        moved[place] = moved.get(place, 0.0) + float(loop.compulsory)
    in_all = sum(took.values())
    found = [
        {"loop": name, "races": kind, "ms": 1e3 * one, "share": one / in_all, "bytes": moved[name, kind]}
        for (name, kind), one in took.items()
    ]
    return sorted(found, key=lambda row: -row["ms"])


def step_seconds(program: ml.Program | ml.Sequence, device: Device) -> float:
    """Seconds of a step, everything made ready before; steps that take long are timed once."""
    program.run(2)
    device.wait()
    begin = time.perf_counter()
    program.run(1)
    device.wait()
    taken = time.perf_counter() - begin
    return taken if taken > LONG else device.seconds(lambda: program.run(REPLAYS)) / REPLAYS


def apart(program: ml.Program | ml.Sequence) -> ml.Program | ml.Sequence:
    """The same, its loops by themselves: those of a sequence are."""
    return ml.Program(program.function, fuse=False) if isinstance(program, ml.Program) else program


def whole_row(case: str, settings: Sequence[str], device: Device, cores: Device | None) -> dict[str, Any]:
    """Shares by loop, and a step here and, where they are others, on the cores."""
    ml.use(device.backend)
    made = make(case, *settings)
    by_itself = apart(made.program)
    by_itself.run(2)
    row: dict[str, Any] = {"case": case, "settings": list(settings), "cells": made.mesh.cells.size,
                           "loops": loop_shares(by_itself, device)}  # fmt: skip
    del made, by_itself
    device.clear()
    row["ms"] = 1e3 * step_seconds(make(case, *settings).program, device)
    if cores is not None:
        ml.use(cores.backend)
        row["cores_ms"] = 1e3 * step_seconds(make(case, *settings).program, cores)
        ml.use(device.backend)
    return row
