"""Tables of several ranks put together: the slowest and the mean of rows, elements, waits and messages."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from meshloom.process.ranks import MessageCount
from meshloom.run.facts import Monitors
from meshloom.run.page.render import page
from meshloom.run.rank_table import (
    RankTable,
    between,
    message_rows,
    owned_elements,
    rank_headings,
    rank_rows,
    side_by_side,
)
from meshloom.run.times import REST, LoopTime, TimeTable, as_text, slowest
from tests.run.test_page import EVIL, facts
from tests.run.test_times import conduction

FLUX, CELLS = ("flux", "loop over faces"), ("update", "loop over cells")


def rank_table() -> RankTable:
    """Two ranks: the first sends twice as much, and waits for the second."""
    exchange, total = "exchange of q", "rms of all ranks"
    sent = [{exchange: MessageCount(20, 40, 4000, 0.5), total: MessageCount(10, 10, 80, 0.25)},
            {exchange: MessageCount(20, 20, 2000, 0.1)}]  # fmt: skip
    owned = [[("clock", 1, 1), ("cells", 100, 60), ("faces", 210, 110)],
             [("clock", 1, 1), ("cells", 100, 40), ("faces", 210, 100)]]  # fmt: skip
    return side_by_side(10, [2.0, 2.0], sent, owned)


def test_a_row_is_that_of_the_slowest_rank() -> None:
    first = TimeTable(2.0, (LoopTime(*FLUX, 1.0, 10, 100.0, 5.0), LoopTime(*FLUX, 0.2, 30, 20.0, 1.0),
                            LoopTime(*CELLS, 0.1, 10), LoopTime(REST, "Python", 0.7, 0)), "Unit.", 4e9)  # fmt: skip
    other = TimeTable(2.1, (LoopTime(*FLUX, 0.4, 10, 90.0, 4.0), LoopTime(REST, "Python", 1.7, 0)), "Unit.", 3e9)
    found = slowest([first, other])
    flux, update, rest = found.rows
    assert flux == LoopTime(*FLUX, pytest.approx(1.2), 40, 40.0, 2.0, mean=pytest.approx(0.8))
    assert update == LoopTime("update", "loop over cells, on 1 of 2 ranks", 0.1, 10, mean=0.05)
    assert rest == LoopTime(REST, "Python", 1.7, 0, mean=pytest.approx(1.2)), "the last, however long it took"
    assert (found.seconds, found.copy) == (2.1, 3e9) and "slowest rank" in found.unit


def test_ranks_side_by_side() -> None:
    table = rank_table()
    assert [(one.name, one.of_ranks) for one in table.elements] == [("faces", (110, 100)), ("cells", (60, 40))]
    assert table.waited == (0.75, 0.1) and table.busy == (1.25, 1.9)
    assert table.messages == (50, 20) and table.bytes == (4080, 2000)
    assert rank_headings(table) == ("rank", "faces", "cells", "busy s", "waited s", "messages", "MB sent")
    balance, mean, *ranks = rank_rows(table)
    assert balance == ("largest/mean", "1.048", "1.200", "1.206", "1.765", "1.429", "1.342")
    assert mean == ("mean", "105", "50", "1.575", "0.425", "35", "0.00304")
    assert [row[:4] for row in ranks] == [("0", "110", "60", "1.250"), ("1", "100", "40", "1.900")]
    assert message_rows(table) == [
        ("exchange of q", "2", "6", "0.6", "0.006", "0.500", "0.300"),
        ("rms of all ranks", "1", "1", "0.008", "8e-05", "0.250", "0.125"),
        ("in all", "3", "7", "0.608", "0.00608", "0.750", "0.425"),
    ]


def test_what_was_sent_between_two_moments() -> None:
    before = {"a": MessageCount(1, 2, 3, 0.5), "b": MessageCount(1, 1, 8, 0.1)}
    now = {"a": MessageCount(4, 8, 12, 2.0), "b": before["b"], "c": MessageCount(1, 1, 1, 0.25)}
    assert between(before, now) == {"a": MessageCount(3, 6, 9, 1.5), "c": now["c"]}


def test_elements_are_those_of_sets_that_loops_visit() -> None:
    program, _ = conduction()
    assert sorted(owned_elements(program)) == [("cells", 108, 108), ("faces", 195, 195)]


def with_ranks() -> TimeTable:
    row = LoopTime(EVIL, EVIL, 1.0, 10, 100.0, 5.0, mean=0.75)
    return TimeTable(2.0, (row,), "Unit.", ranks=rank_table())


def test_in_words_and_on_the_page(tmp_path: Path) -> None:
    text = as_text(with_ranks())
    lines = [line.split() for line in text.splitlines()]
    assert lines[1][:4] == ["loop", "seconds", "mean", "share"] and "1.000 0.750 50.0 % 10" in " ".join(lines[2])
    assert ["2", "ranks,", "10", "iterations"] in lines and ["0", "110", "60"] in [line[:3] for line in lines]
    html = page(facts(times=with_ranks()), Monitors(("rms",), np.ones((3, 1))), [], tmp_path)
    assert "Balance and waits of 2 ranks in 10 iterations" in html and "exchange of q" in html
    assert "<img src=x" not in html
    assert html.count('<svg class="bar"') == 1
    on_one = TimeTable(2.0, (LoopTime("a", "loop", 1.0, 1),), "")
    alone = page(facts(times=on_one), Monitors(("rms",), np.ones((3, 1))), [], tmp_path)
    assert "<h2>Ranks" not in alone and "mean</th>" not in alone


def test_an_account_has_ranks_or_is_refused() -> None:
    table = with_ranks()
    found = json.loads(json.dumps(asdict(table)))
    assert TimeTable.from_json(found) == table
    assert TimeTable.from_json({name: value for name, value in found.items() if name != "ranks"}).ranks is None
    found["ranks"]["waited"].pop()
    with pytest.raises(ValueError, match="lengths"):
        TimeTable.from_json(found)
