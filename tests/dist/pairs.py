"""A design of the matrix of ``matrix.py`` for every run of the tests: every two of case, back end, number of ranks, and
fused or not meet.

Each case runs on each number of ranks, once; two of its runs are by NumPy, which sets up fastest, on most ranks. One
launch runs all of it, in worlds of some of its ranks (``on_ranks_pairs.py``), since most of a run is what a process
does once. Nothing is run only to be compared with: runs of a case whose bits must be the same are held against each
other, the others against the first to round-off. Halos are poisoned, and calls checked, but for the most ranks, who run
as ranks do unless asked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.dist.launch import launched
from tests.dist.matrix import ROUND_OFF, Found, arrays_of, differing
from tests.dist.on_ranks_cases import ANY_BITS, CASES, UNFUSED

ITERATIONS = 2  # of each, with files at the end
SECONDS = 1200  # for a launch: a deadlock fails
RANKS = (1, 2, 3, 4)
#: Back ends of a case on 1, 2, 3 and 4 ranks, of a small one and of one that takes longer.
WAYS = (("cpu", "emulated", "numpy", "numpy"), ("emulated", "cpu", "numpy", "numpy"))
#: Cases in which a CPU's loops and a GPU's round otherwise, and who runs them on 1, 2, 3 and 4 ranks, and again.
OWN_BITS = {
    "airfoil": (("cpu", "cpu", "emulated", "emulated"), ("numpy", "numpy")),
    "lulesh": (("emulated", "emulated", "cpu", "cpu"), ("numpy", "numpy")),
    "picture": (("emulated", "emulated", "cpu", "cpu"), ("numpy", "numpy")),
}
#: Cases that take longer, by how their names begin. A compiler is done with them sooner when loops are not fused, of
#: which several cases have the same ones: by NumPy they are.
LONGER = ("airfoil", "cylinder", "flat_plate", "fv", "lulesh", "miniaero", "naca0012", "onera_m6", "sod3d")
#: Cases that compute in single precision, by how their names begin, and what rounding makes of their values.
SINGLE, IN_SINGLE = ("tsunami", "volna"), 1e-5
#: What tells which back end a run had.
SETTINGS_WITHIN = ("run.toml", "checkpoint.h5")


class Run(NamedTuple):
    name: str
    backend: str
    ranks: int
    fused: bool
    same_bits: bool

    @property
    def word(self) -> str:
        """For ``on_ranks_cases``."""
        words = [self.backend, *[UNFUSED] * (not self.fused), *[ANY_BITS] * (not self.same_bits)]
        return f"{'-'.join(words)}/{self.name}"

    def same_bits_as(self, other: Run) -> bool:
        """Must both come out the same to the last bit?"""
        if not self.same_bits:
            return False
        compiled = {self.backend, other.backend} == {"cpu", "emulated"} and self.name not in OWN_BITS
        return self.name == other.name and (self.backend == other.backend or compiled)


def design(names: Sequence[str] = CASES, *, same_bits: bool = True) -> Iterator[Run]:
    """All runs of some cases or scripts."""
    for number, name in enumerate(names):
        longer = name.startswith(LONGER)
        for ways in OWN_BITS.get(name) or (WAYS[longer],):
            for ranks, backend in zip(RANKS, ways, strict=False):
                fused = backend == "numpy" if longer else (number + ranks) % 2 == 0
                yield Run(name, backend, ranks, fused, same_bits)


def found_by(names: Sequence[str] = CASES, *, same_bits: bool = True) -> tuple[dict[Run, Found], dict[Run, float]]:
    """What all runs of some cases or scripts find, those on most ranks first; how long each took, in seconds."""
    found, seconds = {}, {}
    with TemporaryDirectory() as folder:
        for ranks in RANKS:
            Path(folder, str(ranks)).mkdir()
        words = [*[ANY_BITS] * (not same_bits), *names]
        done = launched(RANKS[-1], ["-m", "tests.dist.on_ranks_pairs", folder, *words], SECONDS)
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-3000:]}"
        told = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))]
        for run in design(names, same_bits=same_bits):
            digests, took = next(each for each in told if run.word in each[0] and each[2] == run.ranks)[:2]
            values = arrays_of(Path(folder, str(run.ranks), f"{run.word}.npz"))
            found[run], seconds[run] = Found(digests[run.word], values), took[run.word]
    return found, seconds


def wrong(found: Mapping[Run, Found]) -> dict[tuple[Run, Run], list[str]]:
    """Of two runs of a case what must be the same and is not: files and values, or, where others round, values."""
    firsts: dict[str, list[Run]] = {}  # of each case, one of each kind of bits
    outcome = {}
    for run in found:
        others = firsts.setdefault(run.name, [])
        other = next((one for one in others if run.same_bits_as(one)), None)
        if other is not None:
            apart = () if run.backend == other.backend else SETTINGS_WITHIN
            pair = (found[one].compared(True).without(apart) for one in (run, other))
        elif others:
            other, pair = others[0], (found[one].compared(False) for one in (run, others[0]))
        round_off = IN_SINGLE if run.name.startswith(SINGLE) else ROUND_OFF
        if other is not None and (differ := differing(*pair, round_off)):
            outcome[run, other] = differ
        if not any(run.same_bits_as(one) for one in others):
            others.append(run)
    return outcome


def main() -> int:
    began = time.monotonic()
    found, seconds = found_by()
    for run, took in sorted(seconds.items(), key=lambda one: one[1]):
        print(f"{took:6.2f} s  {run.word} on {run.ranks}")
    differ = wrong(found)
    for (one, another), names in differ.items():
        print(f"{one} and {another}: {', '.join(names)}")
    print(f"{len(differ)} of {len(found)} that differ ({time.monotonic() - began:.0f} s)")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
