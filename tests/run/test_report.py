"""What a person sees: lines, a bar, or nothing."""

from __future__ import annotations

import io

import pytest

from meshloom.run.report import Advance, BarReport, PlainReport, Report, duration, make_report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def advance(iteration: int) -> Advance:
    return Advance(iteration, 100, {"rms": 1.5e-4}, rate=50.0, cells=40_000)


def test_rates_and_time_left():
    now = advance(25)
    assert now.cell_rate == pytest.approx(2.0) and now.seconds_left == pytest.approx(1.5)


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
    assert type(make_report(Terminal(), quiet=True)) is Report
    assert type(make_report(io.StringIO())) is PlainReport


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4242, "0.42 s"), (9.96, "10 s"), (59.4, "59 s"), (185.0, "3 min 05 s"), (3599.7, "1 h 00 min")],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text
