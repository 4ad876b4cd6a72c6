"""Every case on every back end and number of ranks, fused or not, halos poisoned or not, with the same bits or not: the
files, monitors, fields and checkpoints of a run without a launcher, to the last bit, or to round-off.

    python -m tests.dist.matrix [--only CASE ...] [--backend cpu] [--jobs 4] [--again] [--json FILE]

runs all of it, a launch of a few cases at a time (``make test-ranks``). What a launch has found is kept in ``build/``,
so that a run that was stopped goes on where it was, as long as the code is the same; what has failed is tried again.
``pairs.py`` is a design of it, in which every two of case, back end, number of ranks, and fused or not meet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from bench.measure import surroundings
from bench.record import Record
from bench.stamp import stamp
from tests.dist.launch import ROOT, launched
from tests.dist.on_ranks_cases import ANY_BITS, CASES, SCRIPTS, UNFUSED, VARIANTS

NAMES = (*CASES, *VARIANTS, *SCRIPTS)
AT_ONCE = 8  # cases of a launch, which takes a second to start
ITERATIONS = 6  # of each, with files after every third
SECONDS = 1200  # for a launch: a deadlock fails
ROUND_OFF = 1e-9  # of the largest value of an array, after a few iterations
CANCELLED = 1e-12  # of the largest of all: what is left of sums that are zero but for that, as a cylinder's lift
KEPT = ROOT / "build" / "ranks"
SAME = "same"


class Launch(NamedTuple):
    """How some cases are run. ``ranks`` None: without a launcher."""

    backend: str
    ranks: int | None
    fused: bool = True
    poisoned: bool = False
    same_bits: bool = True

    def __str__(self) -> str:
        ranks, free = "alone" if self.ranks is None else f"{self.ranks}_ranks", not self.same_bits
        words = [self.backend, ranks, "fused" if self.fused else UNFUSED, "poisoned" * self.poisoned, ANY_BITS * free]
        return "-".join(filter(None, words))

    @property
    def environment(self) -> dict[str, str]:
        """Who poisons halos also compares calls before each message; the others run as ranks do unless asked, where
        nothing but the messages themselves keeps ranks in step."""
        unchecked = {} if self.poisoned else {"MESHLOOM_CHECK_RANKS": "0"}
        return {"MESHLOOM_POISON_HALOS": str(int(self.poisoned))} | unchecked

    @property
    def alone(self) -> Launch:
        """What it is compared with: its bits, or its values. Fused and unfused loops have the same bits where these are
        asked for."""
        return Launch(self.backend, None)


AXES = (("numpy", "cpu", "emulated"), (1, 2, 3, 4), (True, False), (True, False), (True, False))
LAUNCHES = tuple(Launch(*values) for values in product(*AXES))


# ----- what a launch finds ------------------------------------------------------------------------------------------
class Found(NamedTuple):
    """Of one case: digests of its files and values, none where bits are free; and its values, where these count."""

    digests: dict[str, str]
    values: tuple[np.ndarray, ...] = ()

    def compared(self, same_bits: bool) -> Found:
        """What of it counts."""
        return self._replace(values=()) if same_bits else self._replace(digests={})

    def without(self, names: Collection[str]) -> Found:
        """But for some files."""
        return self._replace(digests={name: one for name, one in self.digests.items() if name not in names})


def differing(found: Found, expected: Found, round_off: float = ROUND_OFF) -> list[str]:
    """The files that differ, or that only one side has; and values that do by more than round-off."""
    files = [name for name in sorted(found.digests | expected.digests)
             if found.digests.get(name) != expected.digests.get(name)]  # fmt: skip
    if len(found.values) != len(expected.values):
        return [*files, "the number of arrays"]
    floor = CANCELLED * max(map(largest, expected.values), default=0.0)
    return files + [f"array {k}" for k, (one, other) in enumerate(zip(found.values, expected.values, strict=True))
                    if not near(one, other, floor, round_off)]  # fmt: skip


def largest(values: np.ndarray) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def near(found: np.ndarray, expected: np.ndarray, floor: float, round_off: float) -> bool:
    """But for round-off, in units of the largest value, where that is not round-off itself: below the ``floor``."""
    if found.shape != expected.shape or not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return False
    finite = np.isfinite(expected)
    return bool((np.abs(found[finite] - expected[finite]) <= round_off * largest(expected) + floor).all())


def run(launch: Launch, names: Sequence[str], iterations: int) -> dict[str, Found]:
    """Cases, in one launch."""
    words = [*[UNFUSED] * (not launch.fused), *[ANY_BITS] * (not launch.same_bits)]
    words += [f"{name}:{iterations}" for name in names]
    with TemporaryDirectory() as folder:
        done = launched(launch.ranks, ["-m", "tests.dist.on_ranks_cases", launch.backend, folder, *words], SECONDS,
                        **launch.environment)  # fmt: skip
        assert done.returncode == 0, f"{launch}: exit code {done.returncode}: {done.stderr[-3000:]}"
        digests = json.loads(done.stdout.splitlines()[-1])
        assert digests.pop("ranks") == (launch.ranks or 1)
        return {name: Found(digests[name], arrays_of(Path(folder) / f"{name}.npz")) for name in names}


def arrays_of(file: Path) -> tuple[np.ndarray, ...]:
    with np.load(file) as saved:
        return tuple(saved[name] for name in saved.files)


# ----- all of it ----------------------------------------------------------------------------------------------------
def code() -> str:
    """Which code it is about: that of the package, and of the runs."""
    text = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(text + str(stamp()["sha256"]).encode()).hexdigest()[:16]


@dataclass
class Kept:
    """What launches of before have found, in a file: a line for each case of each. Several may add to it at once."""

    file: Path
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)  # of (launch, case)
    _turn: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, file: Path) -> Kept:
        kept = cls(file)
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                with_case, outcome = json.loads(line)
                kept.outcomes[tuple(with_case)] = outcome  # type: ignore[index]
        return kept

    def add(self, launch: Launch, outcomes: Mapping[str, str]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self._turn, open(self.file, "a", encoding="utf-8") as file:
            for case, outcome in outcomes.items():
                self.outcomes[str(launch), case] = outcome
                file.write(json.dumps([[str(launch), case], outcome]) + "\n")

    def left(self, launch: Launch, names: Iterable[str]) -> list[str]:
        """The cases that are still to be run in a launch, or again."""
        return [name for name in names if self.outcomes.get((str(launch), name)) != SAME]


class Alone:
    """Runs without a launcher, made once: who needs the same ones meanwhile waits."""

    def __init__(self, iterations: int = ITERATIONS) -> None:
        self.iterations = iterations
        self._found: dict[tuple[Launch, str], Found] = {}
        self._turns: dict[tuple[Launch, str], Lock] = {}

    def of(self, launch: Launch, names: Sequence[str]) -> dict[str, Found]:
        with self._turns.setdefault((launch, names[0]), Lock()):
            if missing := [name for name in names if (launch, name) not in self._found]:
                found = run(launch, missing, self.iterations)
                self._found.update({(launch, name): one for name, one in found.items()})
        return {name: self._found[launch, name] for name in names}


def outcomes(launch: Launch, names: Sequence[str], alone: Alone) -> dict[str, str]:
    """Of each case: the same as without a launcher, or what is not. Where a launch fails, each is tried by itself."""
    try:
        found, expected = run(launch, names, alone.iterations), alone.of(launch.alone, names)
    except Exception as error:
        if len(names) == 1:
            return {names[0]: " ".join(str(error).split())[-1500:]}
        return {name: one for each in names for name, one in outcomes(launch, [each], alone).items()}
    pairs = {name: [one[name].compared(launch.same_bits) for one in (found, expected)] for name in names}
    return {name: ", ".join(differing(*pair)) or SAME for name, pair in pairs.items()}


def parts(chosen: argparse.Namespace, kept: Kept) -> Iterator[tuple[Launch, list[str]]]:
    """What is left to do, a launch at a time; those of one back end, which share what was run alone, together."""
    for launch in LAUNCHES:
        left = kept.left(launch, chosen.only or NAMES)
        if chosen.backend in (None, launch.backend):
            yield from ((launch, left[k : k + AT_ONCE]) for k in range(0, len(left), AT_ONCE))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.dist.matrix", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=NAMES, help="these cases, or scripts")
    parser.add_argument("--backend", choices=AXES[0], help="this one alone")
    parser.add_argument("--jobs", type=int, default=1, help="launches at a time, of 1 to 4 ranks each")
    parser.add_argument("--json", type=Path, help="a result file, for the docs")
    parser.add_argument("--again", action="store_true", help="from the beginning, whatever was found before")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen, file = parse(arguments), KEPT / f"{code()}.jsonl"
    if chosen.again:
        file.unlink(missing_ok=True)
    kept, alone = Kept.of(file), Alone()
    record = Record(surroundings() | {"benchmark": "ranks_matrix", "backend": "cpu"}, chosen.json)

    def one(part: tuple[Launch, list[str]]) -> None:
        launch, names = part
        began = time.monotonic()
        found = outcomes(launch, names, alone)
        kept.add(launch, found)
        lines = [f"{launch}: {sum(one == SAME for one in found.values())} of {len(found)} the same"
                 f" ({time.monotonic() - began:.0f} s)"]  # fmt: skip
        print("\n".join(lines + [f"  {name}: {one}" for name, one in found.items() if one != SAME]), flush=True)

    with ThreadPoolExecutor(chosen.jobs) as pool:
        for _ in pool.map(one, [*parts(chosen, kept)]):
            if chosen.json:
                record.result["rows"] = rows_of(kept)
                record.save()
    wrong = sum(one != SAME for one in kept.outcomes.values())
    print(f"{len(kept.outcomes) - wrong} the same, {wrong} not; {file}")
    return int(wrong > 0)


# ----- on paper -----------------------------------------------------------------------------------------------------
def rows_of(kept: Kept) -> list[dict[str, Any]]:
    """A row for each launch of which something was found."""
    rows = []
    for launch in LAUNCHES:
        found = {case: one for (name, case), one in [*kept.outcomes.items()] if name == str(launch)}
        other = {case: one for case, one in found.items() if one != SAME}
        rows += [{**launch._asdict(), "cases": len(found), "other": other}] if found else []
    return rows


if __name__ == "__main__":
    sys.exit(main())
