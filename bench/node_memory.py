"""What some processes of this machine have in memory together, at most: `python bench/node_memory.py PID...` looks at
them until its input ends, or one of them, and prints megabytes. It imports nothing of theirs, and is none of them.

Pages of files count where one of them has looked at them, once for all; others are the system's to drop."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

SECONDS = 0.02  # from one look to the next, at least


def memory_mb(process: int | str = "self") -> float:
    """What a process has in memory now; of what several have together its share, so that all together is the sum."""
    said = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return float(next(line.split()[1] for line in said if line.startswith("Pss:"))) / 1024


def watch(processes: Iterable[int]) -> Callable[[], float]:
    """Look at processes from now on; what it gives ends that, and tells the most that they had together."""
    words = [sys.executable, "-I", __file__, *map(str, processes)]
    looking = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    ends, says = looking.stdin, looking.stdout
    assert ends is not None and says is not None
    says.readline()  # it has begun

    def most() -> float:
        with looking:
            ends.close()
            return float(says.read())

    return most


def main(processes: list[str]) -> None:
    most, ended = 0.0, False
    print("begun", flush=True)
    while not ended:
        begin = time.perf_counter()
        try:
            most = max(most, sum(memory_mb(one) for one in processes))
        except (OSError, StopIteration):  # one has ended
            break
        took = time.perf_counter() - begin
        ended = bool(select.select([sys.stdin], [], [], max(SECONDS, took))[0])  # half of the time at most it looks
    print(f"{most:.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
