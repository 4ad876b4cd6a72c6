"""A design of the matrix of ``matrix.py`` for every run of the tests: every two of case, back end, number of ranks, and
fused or not meet.

Each case runs on each number of ranks, once; two of its runs are by NumPy, which sets up fastest, on most ranks. One
launch for each number of ranks runs all of its cases, each in its own way, since starting takes as long as a case does.
Nothing is run only to be compared with: runs of a case whose bits must be the same are held against each other, the
others against the first to round-off. Halos are poisoned, and calls checked, but for the most ranks, who run as ranks
do unless asked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.dist.launch import launched
from tests.dist.matrix import ROUND_OFF, Found, arrays_of, differing
from tests.dist.on_ranks_cases import ANY_BITS, CASES, UNFUSED

ITERATIONS = 2  # of each, with files at the end
SECONDS = 1200  # for a launch: a deadlock fails
RANKS = (1, 2, 3, 4)
#: Back ends of a case on 1, 2, 3 and 4 ranks.
WAYS = (("cpu", "emulated", "numpy", "numpy"), ("emulated", "cpu", "numpy", "numpy"))
#: Of those that compile least, so that the others meet 3 and 4 ranks, too.
QUICK = {"volna_lake": ("numpy", "numpy", "cpu", "emulated"), "volna_hump": ("numpy", "numpy", "emulated", "cpu")}
#: Cases in which a CPU's loops and a GPU's round otherwise, and who runs them on 1, 2, 3 and 4 ranks, and again.
OWN_BITS = {
    "airfoil": (("cpu", "cpu", "emulated", "emulated"), ("numpy", "numpy")),
    "lulesh": (("emulated", "emulated", "cpu", "cpu"), ("numpy", "numpy")),
    "picture": (("emulated", "emulated", "cpu", "cpu"), ("numpy", "numpy")),
}
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
        turns = OWN_BITS.get(name) or (QUICK.get(name) or WAYS[number % 2],)
        for ways in turns:
            for ranks, backend in zip(RANKS, ways, strict=False):
                yield Run(name, backend, ranks, (number // 2 + ranks) % 2 == 0, same_bits)


def launch(ranks: int, runs: Sequence[Run]) -> dict[Run, Found]:
    """The runs on so many ranks."""
    looked_into = str(int(ranks < RANKS[-1]))
    checks = {"MESHLOOM_POISON_HALOS": looked_into} | ({} if looked_into == "1" else {"MESHLOOM_CHECK_RANKS": "0"})
    with TemporaryDirectory() as folder:
        words = [f"{run.word}:{ITERATIONS}" for run in runs]
        done = launched(ranks, ["-m", "tests.dist.on_ranks_cases", runs[0].backend, folder, *words], SECONDS, **checks)
        assert done.returncode == 0, f"{ranks} ranks: exit code {done.returncode}: {done.stderr[-3000:]}"
        digests = json.loads(done.stdout.splitlines()[-1])
        assert digests["ranks"] == ranks
        return {run: Found(digests[run.word], arrays_of(Path(folder) / f"{run.word}.npz")) for run in runs}


def found_by(runs: Sequence[Run], told: Callable[[str], object] = lambda line: None) -> dict[Run, Found]:
    """What all of them find, those on most ranks first; two launches of one rank side by side."""
    found: dict[Run, Found] = {}
    for ranks in reversed(RANKS):
        some, began = [run for run in runs if run.ranks == ranks], time.monotonic()
        beside = [part for part in ([some[::2], some[1::2]] if ranks == 1 else [some]) if part]
        with ThreadPoolExecutor(len(beside)) as pool:
            for one in pool.map(partial(launch, ranks), beside):
                found |= one
        told(f"{len(some)} runs on {ranks} ranks: {time.monotonic() - began:.0f} s")
    return found


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
    found = wrong(found_by([*design()], told=print))
    for (one, another), names in found.items():
        print(f"{one} and {another}: {', '.join(names)}")
    print(f"{len(found)} that differ ({time.monotonic() - began:.0f} s)")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
