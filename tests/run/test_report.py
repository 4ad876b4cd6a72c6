"""What a person sees: lines, a bar, or nothing."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from meshloom.run.report import Advance, BarReport, PlainReport, QuietReport, duration, make_report
from meshloom.solvers import cases


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def advance(iteration: int, rate: float = 50.0, iterations: int = 100) -> Advance:
    return Advance(iteration, iterations, {"rms": 1.5e-4}, rate=rate, cells=40_000)


def bar_lines(monkeypatch: pytest.MonkeyPatch, width: int, *steps: Advance) -> list[str]:
    """What the bar showed after each step, without colours and control codes."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("meshloom.run.report._SECONDS_BETWEEN_BARS", 0.0)
    stream = Terminal()
    report = BarReport(stream)
    for step in steps:
        report.advance(step)
    report.close()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    return [line for line in re.split(r"[\r\n]+", plain) if line]


def test_a_bar_is_drawn_a_few_times_a_second_and_at_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("meshloom.run.report._SECONDS_BETWEEN_BARS", 1000.0)
    stream = Terminal()
    report = BarReport(stream)
    for step in (1, 2, 3, 100):
        report.advance(advance(step))
    report.close()
    assert "1/100" in stream.getvalue() and "2/100" not in stream.getvalue() and "100/100" in stream.getvalue()


def test_rates_and_time_left():
    now = advance(25)
    assert now.rate_text() == "50 iterations/s, 2 M cells/s" and now.left_text() == "1.5 s left"


def test_nothing_is_told_while_unknown_or_over():
    unknown = advance(1, rate=0.0)
    assert unknown.rate_text() == unknown.cell_rate_text() == unknown.left_text() == ""
    assert advance(100).left_text() == ""


def test_a_plain_line_without_a_rate():
    stream = io.StringIO()
    PlainReport(stream).advance(advance(1, rate=0.0, iterations=1))
    assert stream.getvalue() == "iteration 1/1  rms 1.5000e-04\n"


def test_names_are_one_line():
    now = replace(advance(50), monitors={"a\nb": 1.0, "\x1b[31m": 2.0})
    assert now.monitor_text() == r"a\nb 1.0000e+00  \x1b[31m 2.0000e+00"
    assert now.monitors_within(40) == now.monitor_text() and now.monitors_within(20) == r"a\nb 1.0000e+00"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_the_counter_is_never_cut(monkeypatch: pytest.MonkeyPatch, width: int):
    steps = [advance(n, rate, 1_000_000) for n, rate in ((1, 0.0), (25_000, 123.4), (1_000_000, 123.4))]
    lines = bar_lines(monkeypatch, width, *steps)
    assert all(len(line) <= width and "…" not in line for line in lines), lines
    assert [line.split()[0] for line in lines[-4:-1]] == ["1/1000000", "25000/1000000", "1000000/1000000"]


def test_the_bar_at_80_columns(monkeypatch: pytest.MonkeyPatch):
    steps = [advance(n, rate, 2000) for n, rate in ((1, 0.0), (500, 523.25), (2000, 523.25))]
    first, middle, last, _ = bar_lines(monkeypatch, 80, *steps)[-4:]
    assert "rms 1.5000e-04" in first and "cells/s" not in first and "left" not in first, "it has only compiled so far"
    assert "20.9 M cells/s 2.9 s left" in middle and "rms 1.5000e-04" in middle
    assert "20.9 M cells/s" in last and "left" not in last


MOST = max((one for one in cases().values()), key=lambda one: len(one.shown or one.monitors))


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("span", [None, (3.4567, 20.0)])
def test_rate_and_time_left_stay_beside_many_monitors(
    monkeypatch: pytest.MonkeyPatch, width: int, span: tuple[float, float] | None
):
    names = MOST.shown or MOST.monitors
    assert len(names) >= 6
    monitors = {name: (-1.5e-4 if k % 2 else 2.5e3) for k, name in enumerate(names)}
    now = Advance(12_345, 100_000, monitors, rate=17.25, cells=262_144, span=span, element_name="points")
    (line,) = bar_lines(monkeypatch, width, now)[-2:-1]
    assert len(line) <= width and "…" not in line, line
    assert line.split()[0].startswith("12345") and "/s" in line and "left" in line, line
    told = sum(f" {name} " in line for name in names)
    assert told >= {60: 0, 80: 0, 100: 1, 120: 2, 200: 5}[width], line


def test_plain_lines_are_few_and_end_with_the_last_iteration(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    report = PlainReport(stream)
    for iteration in (10, 20, 30):
        clock[0] += 2.0
        report.advance(advance(iteration))
    report.advance(advance(100))
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["iteration 30/100", "iteration 100/100"]
    assert "rms 1.5000e-04" in lines[0] and "50 iterations/s, 2 M cells/s, 1.4 s left" in lines[0]
    assert "left" not in lines[1] and "\x1b" not in stream.getvalue()


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    report = make_report(stream)
    assert isinstance(report, BarReport)
    report.message("runs/[airfoil]-001")
    for iteration in (25, 100):
        report.advance(advance(iteration))
    report.close()
    text = stream.getvalue()
    assert "runs/[airfoil]-001" in text, "brackets are text, not markup"
    assert "100/100" in text and "rms 1.5000e-04" in text and "50 iterations/s" in text


def test_the_choice_of_report():
    assert type(make_report(Terminal(), quiet=True)) is QuietReport
    assert type(make_report(io.StringIO())) is PlainReport


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4242, "0.42 s"), (9.96, "10 s"), (59.4, "59 s"), (185.0, "3 min 05 s"), (3599.7, "1 h 00 min")],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_a_run_that_may_end_early_says_at_most(monkeypatch: pytest.MonkeyPatch):
    now = Advance(100, 10**8, {"time": 2.0, "change": 0.5}, rate=10.0, cells=64, span=(2.0, 20.0), at_most=True)
    assert now.left_text() == "up to 1 min 30 s left" and replace(now, over=True).left_text() == ""
    assert now.monitor_text() == "change 5.0000e-01", "the counter has the time"
    assert replace(now, span=None).monitor_text() == "time 2.0000e+00  change 5.0000e-01"
    (line,) = bar_lines(monkeypatch, 80, now)[-2:-1]
    assert len(line) <= 80 and "up to 1 min 30 s left" in line, line
