"""Rows of parametrised tests that a quick run leaves to ``make test-all``, chosen by what they cost.

    CPU_TIMES=/tmp/times python -m pytest -p tests.cpu_times -n 2 -m "not slow"
    python -m tests.later /tmp/times.*

A row that takes more than SECONDS of a processor is left for later where a cheaper one of the same test stays, and one
that runs compiled code if there is any. The list is ``later.txt``, an address in each line; it grows, and what is to
come back is taken out by hand. Whole tests that are long are marked as slow where they stand.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from tests.thinned import THINNED

LIST = Path(__file__).with_name("later.txt")
SECONDS = 0.2
COMPILED = {"cpu", "emulated"}
#: Whose rows are all there is to a promise: products that are thinned out already, races of every strategy, and random
#: programs. Pages are not rows of one test: those of which few are read are put on the list by hand.
NEVER = (*(f"{one}[" for one in THINNED), "tests/backend/test_races.py::", "tests/docs/test_docs.py::",
         "tests/attacks/test_attacks.py::test_few[programs]")  # fmt: skip


@cache
def listed() -> frozenset[str]:
    return frozenset(LIST.read_text(encoding="utf-8").splitlines()) if LIST.is_file() else frozenset()


def leave_for_later(made: Sequence[pytest.Item]) -> None:
    """Mark as slow the rows of the list."""
    for one in made:
        if one.nodeid in listed():
            one.add_marker(pytest.mark.slow)


def too_long(times: Mapping[str, float], needed: frozenset[str] = frozenset()) -> set[str]:
    """The addresses that are left for later, of tests that took so many seconds; never what is needed, nor the cheapest
    row of a test, nor the cheapest of those on back ends that compile."""
    stay, rows = set(needed), defaultdict(list)
    for address in sorted(times, key=lambda one: times[one]):
        rows[address.partition("[")[0]].append(address)
    for of_test in rows.values():
        compiled = (one for one in of_test if COMPILED & {*one.partition("[")[2].rstrip("]").split("-")})
        stay |= {of_test[0], *islice(compiled, 1)}
    return {one for one, seconds in times.items() if seconds > SECONDS} - stay


def main(files: Sequence[str]) -> int:
    from tests.faults.run import known

    read = [json.loads(line) for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
    found_faults = frozenset(one["found_by"] for one in known().values() if one["found_by"])
    found = too_long({one: seconds for one, seconds in read if not one.startswith(NEVER)}, found_faults)
    LIST.write_text("".join(f"{one}\n" for one in sorted(listed() | found)), encoding="utf-8")
    print(f"{len(found)} rows more are left for later, {len(listed() | found)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
