"""A whole program and the paper's: which share of a step each loop takes (Table 1), and the GPU against all cores of
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


def loop_shares(program: ml.Program, device: Device) -> list[dict[str, Any]]:
    """Each loop of a program by itself, in order of time: its name, how its elements meet, milliseconds, and its share
    of all of them, the bytes that it must move and its operations. Loops of one name count as one. What they change is
    put back."""
    took: dict[tuple[str, str], float] = {}
    moved: dict[tuple[str, str], float] = {}
    done: dict[tuple[str, str], float] = {}
    for loop in program.loops:
        executable: Any = loop.prepare()
        kept = [(one, one.storage.copy()) for one in loop.writes]
        seconds = device.replayed(getattr(executable, "launch", executable))
        for one, values in kept:
            one.storage[...] = values
        place = loop.name, races(loop)
        took[place] = took.get(place, 0.0) + seconds
        moved[place] = moved.get(place, 0.0) + float(loop.compulsory)
        done[place] = done.get(place, 0.0) + float(loop.flops)
    in_all = sum(took.values())
    found = [
        {"loop": name, "races": kind, "ms": 1e3 * one, "share": one / in_all, "bytes": moved[name, kind],
         "flops": done[name, kind]}
        for (name, kind), one in took.items()
    ]
    return sorted(found, key=lambda row: -row["ms"])


def step_seconds(program: ml.Program, device: Device) -> float:
    """Seconds of a step, everything made ready before; steps that take long are timed once."""
    program.run(2)
    device.wait()
    begin = time.perf_counter()
    program.run(1)
    device.wait()
    taken = time.perf_counter() - begin
    return taken if taken > LONG else device.seconds(lambda: program.run(REPLAYS)) / REPLAYS


def apart(program: ml.Program) -> ml.Program:
    """The same, its loops by themselves."""
    return ml.Program(program.function, fuse=False)


def whole_row(case: str, settings: Sequence[str], device: Device, cores: Device | None) -> dict[str, Any]:
    """A step here, all of it as it runs, then its loops by themselves; and a step on the cores, where they are
    others. What each part took is told as it comes: meshes of millions of cells take their time."""
    ml.use(device.backend)
    begin = time.perf_counter()

    def told(what: str) -> None:
        print(f"{case}: {what} after {time.perf_counter() - begin:.0f} s", flush=True)

    made = make(case, *settings)
    told("made")
    row: dict[str, Any] = {"case": case, "settings": list(settings), "cells": made.mesh.cells.size,
                           "ms": 1e3 * step_seconds(made.program, device)}  # fmt: skip
    told(f"a step of {row['ms']:.4g} ms")
    as_run = getattr(made.program, "steps", ())
    row |= {"step_bytes": float(sum(one.compulsory for one in as_run)),
            "step_flops": float(sum(one.flops for one in as_run))}  # fmt: skip
    by_itself = apart(made.program)
    by_itself.run(2)
    row["loops"] = loop_shares(by_itself, device)
    told("loops by themselves")
    del made, by_itself, as_run
    device.clear()
    if cores is not None:
        ml.use(cores.backend)
        row["cores_ms"] = 1e3 * step_seconds(make(case, *settings).program, cores)
        told(f"a step of {row['cores_ms']:.4g} ms on the cores")
        ml.use(device.backend)
    return row
