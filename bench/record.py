"""The only way into ``bench/results``: one file for each run, which says what it was made from, and stays.

A benchmark begins with ``surroundings()`` (``bench.measure``), which has date, machine, versions, command and the stamp
of the code, adds what it measures, and saves through ``Record``. A name that is taken gets a number: no run replaces
what another has left. A run may go on with a file (``--resume``, counters) only where the code is the same.

Times of a GPU that others use meanwhile say nothing about the code: copying, which every benchmark measures next to its
own loops, is slower then, and what was measured is refused.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

from meshloom.errors import MeshloomError

RESULTS = Path(__file__).with_name("results")
SCHEMA = 2  # 1: files before this field, which do not name their code
REQUIRED = ("schema", "benchmark", "date", "machine", "versions", "code", "command")


COPY, ALONE = "copy_GBps", 0.9  # of the fastest copy that was seen on such a device; alone they differ by 0.02


class RecordError(MeshloomError):
    """A result that does not say where it comes from, that was measured next to others, or a file that another code has
    made."""


def load(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


class Record:
    """The result of one run and its file. ``wanted``: a path, or None for a dated one in ``bench/results``;
    ``backend`` tells what it was measured on."""

    def __init__(self, result: dict[str, Any], wanted: Path | None, backend: str = "cpu"):
        if missing := [key for key in REQUIRED if key not in result]:
            raise RecordError(f"a result without {', '.join(missing)} is not saved: begin with surroundings()")
        self.result, self._gpu = result, backend == "cuda"
        self.file = wanted or default_path(result, backend)
        self.is_mine = False
        self._spent, self._since = 0.0, datetime.fromisoformat(result["date"])

    @classmethod
    def resumed(cls, file: Path) -> Record:
        """Go on with a file that the same code has made."""
        from bench.stamp import stamp

        result, code = load(file), stamp()["sha256"]
        made_by = result.get("code", {}).get("sha256", "unknown")
        if made_by != code:
            raise RecordError(f"{file}: made by other code (hash {made_by[:12]}, here {code[:12]}); name another file")
        mine = cls(result, file)
        mine.is_mine = True
        mine._spent, mine._since = float(result.get("seconds_in_all", 0.0)), datetime.now(UTC)
        return mine

    def save(self) -> Path:
        """Write all that is there: to another name first, so that a reader, or a kill, never meets half a file.
        RecordError where it was measured on a GPU that others used."""
        if self._gpu:
            check_alone(self.result)
        self.result["seconds_in_all"] = round(self._spent + (datetime.now(UTC) - self._since).total_seconds(), 1)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        temporary.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        if self.is_mine:
            os.replace(temporary, self.file)
        else:
            self.file, self.is_mine = _linked(temporary, self.file), True
        return self.file


def placed(result: dict[str, Any], wanted: Path) -> Path:
    """Put a finished result that came from elsewhere under the first free name, as it is."""
    if missing := [key for key in REQUIRED if key not in result]:
        raise RecordError(f"{wanted.name}: a result without {', '.join(missing)} is not taken")
    if result.get("backend") == "cuda":
        check_alone(result)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    temporary = wanted.with_name(f".{wanted.name}.{os.getpid()}")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return _linked(temporary, wanted)


def copies(result: Any) -> Iterator[float]:
    """GB/s of copying, wherever a result has it."""
    if isinstance(result, dict):
        for key, value in result.items():
            if key == COPY:
                yield from value if isinstance(value, list) else [value]
            else:
                yield from copies(value)
    elif isinstance(result, list):
        yield from chain.from_iterable(map(copies, result))


@cache
def fastest_copy(gpu: str) -> float:
    """GB/s, of all results that are kept of such a device; 0 where there is none."""
    kept = (one for one in map(load, sorted(RESULTS.glob("*.json"))) if one.get("machine", {}).get("gpu") == gpu)
    return max(chain.from_iterable(map(copies, kept)), default=0.0)


def check_alone(result: dict[str, Any]) -> None:
    """RecordError where copying was slower than a GPU does it that nobody else uses."""
    gpu, own = str(result["machine"]["gpu"]), [*copies(result)]
    best = max(fastest_copy(gpu), *own, 0.0)
    if own and min(own) < ALONE * best:
        raise RecordError(f"copying ran at {min(own):,.0f} GB/s, and at {best:,.0f} on a {gpu} that nobody else uses:"
                          " such times are not kept; measure again when it is free")  # fmt: skip


def hand_over(part: Any, path: Path) -> None:
    """What one process of a run tells another: no result, so it may be replaced."""
    path.write_text(json.dumps(part), encoding="utf-8")


def _linked(temporary: Path, wanted: Path) -> Path:
    """Give a file the first free name: ``wanted``, or ``wanted`` with a number."""
    for name in names(wanted):
        try:
            os.link(temporary, name)
        except FileExistsError:
            continue
        temporary.unlink()
        return name
    raise AssertionError("names do not end")


def names(wanted: Path) -> Iterator[Path]:
    """``2026-11-15_race_h200.json``, ``2026-11-15_race_h200-2.json``, ..."""
    yield wanted
    for number in count(2):
        yield wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")


def default_path(result: dict[str, Any], backend: str) -> Path:
    """``DATE_BENCHMARK_PLACE.json`` in ``bench/results``."""
    return RESULTS / f"{datetime.now(UTC):%Y-%m-%d}_{result['benchmark']}_{place(result['machine'], backend)}.json"


def place(machine: dict[str, Any], backend: str) -> str:
    """What a result was measured on, short: ``h200``, ``x86_64``, ``emulated``."""
    if backend == "cuda":
        words = re.findall(r"[\w.]+", str(machine["gpu"]).lower())
        return "-".join(w for w in words if w not in ("nvidia", "geforce", "tesla")) or "gpu"
    return str(machine["architecture"]) if backend in ("cpu", "numpy") else backend


def command(arguments: Sequence[str] | None = None) -> str:
    """What was asked for, without the places of files, which mean nothing on another machine."""
    words, kept, skip = list(sys.argv if arguments is None else arguments), [], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("--json", "--out", "--plot", "--plots", "--truth"):
            skip = True
        else:
            kept.append(Path(word).name if "/" in word else word)
    return " ".join([Path(words[0]).stem if words else "", *kept]).strip()
