"""How a benchmark on one device begins: options that all have, a device that works, a result that says where it was."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.measure import surroundings
from bench.race_loop import Cuda, Device
from bench.record import Record
from bench.report import Goal


@dataclass
class Started:
    """A benchmark under way: ``copy`` is in bytes per second, ``result`` is what its file will hold."""

    device: Device
    copy: float
    result: dict[str, Any]
    record: Record

    def save(self) -> Path:
        return self.record.save()

    def finished(self, goals: Sequence[Goal]) -> int:
        """Write the file with its goals, and say where; the exit status: 1 where a row was wrong."""
        self.result["goals"] = [goal.as_json() for goal in goals]
        self.save()
        print(f"copy: {self.copy / 1e9:.0f} GB/s; written to {self.record.file}")
        return int(any("wrong" in row for row in self.result["rows"]))


def options_of(name: str, text: str | None, devices: Sequence[str] = ("cuda", "cpu")) -> argparse.ArgumentParser:
    """A parser that knows the device and the file; ``text``: the docstring of the benchmark."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=(text or "").splitlines()[0])
    parser.add_argument("--device", choices=devices, default="cuda")
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    return parser


def started(name: str, options: argparse.Namespace, device: Device | None, cpu: Callable[[], Device]) -> Started | None:
    """The benchmark on ``device``, or on the one that was asked for; None, and a line why, if it cannot run."""
    chosen = device or (Cuda() if options.device == "cuda" else cpu())
    if reason := ml.backends()[chosen.backend]:
        print(f"bench.{name} cannot use {chosen.backend}: {reason}", file=sys.stderr)
        return None
    ml.use(chosen.backend)
    copy = chosen.copy_bandwidth()
    result = surroundings() | {"benchmark": name, "backend": chosen.backend, "copy_GBps": copy / 1e9, "rows": []}
    return Started(chosen, copy, result, Record(result, options.json, chosen.backend))
