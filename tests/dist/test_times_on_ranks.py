"""The table of a run on several ranks: rows of the slowest, balance, waits and messages, and one page that has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshloom.run.times import REST, TimeTable
from tests.dist.launch import launched
from tests.dist.on_ranks_times import STEPS


def check_times(ranks: int, backend: str, folder: Path) -> None:
    done = launched(ranks, ["-m", "tests.dist.on_ranks_times", backend, str(folder)], MESHLOOM_POISON_HALOS="0")
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    messages, sizes, cells = zip(*told["sent"], strict=True)
    table = TimeTable.from_json(told["times"])
    over = table.ranks
    assert over is not None and over.iterations == STEPS - 1, "the first is not counted"

    loops = {one for row in table.rows if row.calls for one in row.name.split("+")}
    assert loops >= {"spread", "move", "exchange of u", "norm of all ranks"}
    assert all(row.mean is not None and row.mean <= row.seconds * (1 + 1e-12) for row in table.rows)
    assert [row.name for row in table.rows].count(REST) == 1 and "slowest rank" in table.unit

    rows = {row.name: row for row in over.rows}
    exchange, reduction = rows["exchange of u"], rows["norm of all ranks"]
    assert exchange.calls == reduction.calls == over.iterations
    assert exchange.messages == over.iterations * sum(messages) and exchange.bytes == over.iterations * sum(sizes) > 0
    assert over.bytes == tuple(over.iterations * size + reduction.bytes // ranks for size in sizes)
    assert all(0.0 < waited < all_of for waited, all_of in zip(over.waited, over.seconds, strict=True))
    assert {one.name: one.of_ranks for one in over.elements}["cells"] == cells

    page = (folder / "report.html").read_text()
    assert "Balance and waits" in page and "exchange of u" in page
    kept = json.loads((folder / "report.json").read_text())["times"]
    assert TimeTable.from_json(kept) == table


def test_a_run_on_ranks_tells_balance_waits_and_messages(tmp_path: Path) -> None:
    check_times(2, "numpy", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "backend"), [(4, "cpu"), (3, "emulated")])
def test_so_it_does_on_compiled_code(tmp_path: Path, ranks: int, backend: str) -> None:
    check_times(ranks, backend, tmp_path)
