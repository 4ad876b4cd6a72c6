"""What ``meshloom partition`` tells: how the sets of a case would be cut over ranks, and what that costs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import meshloom as ml
from meshloom.case import Case
from meshloom.cli.cache import size
from meshloom.config import Setting
from meshloom.dist.distribute import distribute, qualities
from meshloom.dist.partition import MOST_RANKS, PARTITIONERS
from meshloom.dist.quality import SetQuality
from meshloom.dist.slabs import refusal
from meshloom.dist.usage import Usage, usage
from meshloom.dist.verify import verify
from meshloom.errors import CompilerError, UserError, one_line, shown
from meshloom.launch import Request, check, recorded_loops
from meshloom.process.activity import busy
from meshloom.run.partition import read_partition

_HEADINGS = ("by", "set", "elements", "balance", "rim", "halo", "neighbours", "exchange")
_MEANING = (
    "balance: the largest share of a rank over the mean; rim: elements that wait for messages; halo: copies of other"
    " ranks' elements; neighbours: the most of a rank, and the mean; exchange: what a rank receives at most, when all"
    " fields that are due are exchanged once"
)


@dataclass(frozen=True)
class _Result:
    """What a partitioner gives, or why it cannot be had."""

    by: str
    sets: tuple[SetQuality, ...] = ()
    missing: str = ""


def text_lines(
    target: str, ranks: str, settings: tuple[Setting, ...], array: Path | None, as_json: bool
) -> Iterator[str]:
    """One line of JSON, or a table and what its columns mean."""
    n = int(ranks) if ranks.isdecimal() and len(ranks) <= len(str(MOST_RANKS)) else 0
    if not 1 <= n <= MOST_RANKS:
        raise UserError(f"-n must be a whole number from 1 to {MOST_RANKS}, got {shown(ranks)}")
    own = None if array is None else read_partition(array, "--array ")
    case, loops = recorded_loops(check(Request(target, settings)))
    used, why = usage(loops), _refused(case, loops)
    if array is not None and not used.tasks:
        raise UserError(f"--array {array}: case '{case.name}' has no mesh whose cells could be given to ranks")
    results = list(_results(used, n, own, str(array)))
    if as_json:
        yield _as_json(case.name, n, results, used, why)
        return
    yield f"{case.name}: {case.size_text()}, cut over {n} rank{'s' if n != 1 else ''}"
    if why:
        yield f"  {why}: this is how it would be cut"
    yield from _table(results)
    yield f"  {_MEANING}"
    for one in results:
        if one.missing:
            yield f"  {one.by}: {one.missing}"
    if used.across:
        names = ", ".join(map(one_line, used.across))
        yield f"  not counted: what solves along lines of the first axis, which are cut: {names}"


def _results(used: Usage, ranks: int, own: np.ndarray | None, name: str) -> Iterator[_Result]:
    """By every partitioner where there is a mesh; whatever the partitioner, grids are cut into slabs, and sets made by
    hand into runs of numbers."""
    if not used.tasks:
        yield _cut(used, "slabs" if used.radius else "runs", "rcb", ranks)
        return
    used.check(ranks)  # what is wrong for all of them
    for by in PARTITIONERS:
        try:
            yield _cut(used, by, by, ranks)
        except (UserError, CompilerError) as error:
            yield _Result(by, missing=str(error))
    if own is not None:
        try:
            yield _cut(used, "given", own, ranks)
        except UserError as error:
            raise UserError(f"--array {name}: {error}") from None


def _cut(used: Usage, by: str, how: str | np.ndarray, ranks: int) -> _Result:
    with busy(f"cutting by {by}"):
        sets = distribute(used, how, ranks)
        verify(sets, used.links, ranks)
    return _Result(by, tuple(qualities(used, sets, ranks)))


def _refused(case: Case, loops: Iterable[ml.Operation]) -> str:
    """Why the case does not run on several ranks; '' where it does."""
    if case.not_on_ranks:
        return one_line(f"case '{case.name}', {case.not_on_ranks}, does not run on several ranks yet")
    said = next((f"loop {one.name}: {problem}" for one in loops if (problem := refusal(one))), "")
    return one_line(f"case '{case.name}' does not run on several ranks yet: {said}") if said else ""


def _as_json(case: str, ranks: int, results: list[_Result], used: Usage, why: str) -> str:
    return json.dumps({
        "case": case,
        "ranks": ranks,
        "refused": why,
        "partitions": [{"by": one.by, "sets": [asdict(each) for each in one.sets]} for one in results if one.sets],
        "missing": {one.by: one.missing for one in results if one.missing},
        "not_counted": list(used.across),
    })  # fmt: skip


def _table(results: list[_Result]) -> Iterator[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=True, padding=(0, 2, 0, 0))
    for name in _HEADINGS:
        table.add_column(name, justify="left" if name in ("by", "set") else "right", no_wrap=True)
    for one in results:
        for k, row in enumerate(one.sets):
            table.add_row(*map(Text, (one.by if k == 0 else "", *_cells(row))))
    console = Console(file=sys.stdout, width=1000, highlight=False)  # as long as its lines are: readers fold them
    with console.capture() as captured:
        console.print(table)
    yield from (line.rstrip() for line in captured.get().splitlines())


def _cells(row: SetQuality) -> tuple[str, ...]:
    return (
        one_line(row.name), f"{row.elements:,}", f"{row.balance:.3f}", f"{100 * row.rim:.1f} %",
        f"{100 * row.halo:.1f} %", f"{row.most_neighbours} ({row.mean_neighbours:.1f})", size(row.bytes),
    )  # fmt: skip
