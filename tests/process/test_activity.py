"""One line of a terminal tells what a person waits for, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import NamedTuple

import pytest

from meshloom.process import activity
from meshloom.process.activity import StatusLine, busy, compiling, part
from tests.catalogue.test_own_file import POT
from tests.cpu_times import used_by

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        """What stands in the last line now."""
        return self.getvalue().rsplit("\x1b[2K", 1)[-1]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("MESHLOOM_QUIET", raising=False)
    monkeypatch.setattr(activity, "line", StatusLine())
    stream = Terminal()
    monkeypatch.setattr(activity, "sys", SimpleNamespace(stderr=stream))  # pytest has one of its own in sys
    return stream


def test_the_innermost_block_is_shown_and_the_line_goes(terminal: Terminal) -> None:
    with busy("setting up"):
        assert terminal.shown() == "setting up"
        with part(3, 38), compiling("rhs_x"):
            assert terminal.shown() == "compiling 3 of 38: rhs_x"
        assert terminal.shown() == "setting up"
        with compiling("runtime"):
            assert terminal.shown() == "compiling runtime"
    assert terminal.shown() == "" and "\n" not in terminal.getvalue()


def ended(before: set[threading.Thread]) -> bool:
    """Whether threads that were not there before come to their end."""
    give_up = time.monotonic() + 10.0
    while {*threading.enumerate()} - before and time.monotonic() < give_up:
        time.sleep(0.01)
    return not {*threading.enumerate()} - before


def test_an_interrupt_at_any_moment_leaves_nothing_shown(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind every call of C's, where Python looks whether somebody has pressed Ctrl-C."""
    monkeypatch.setattr(activity, "_SECONDS_BETWEEN", 0.02)
    before = {*threading.enumerate()}

    def blocks() -> None:
        with busy("setting up"), part(1, 2), compiling("rhs_x"):
            pass

    def interrupted_after(calls: int) -> bool:
        left = calls

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal left
            left -= event == "c_return" and frame.f_code.co_filename == activity.__file__
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(count)
        try:
            blocks()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False

    moments = 0
    while interrupted_after(moments):
        moments += 1
        assert activity.line.shown == [] and activity._place.get() == "", moments
        blocks()
        assert terminal.shown() == "" and activity._place.get() == "", moments
    assert moments > 20 and ended(before), "and no thread that draws"


def test_seconds_are_counted_by_a_thread_that_ends(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "_SECONDS_BETWEEN", 0.02)
    monkeypatch.setattr(activity, "_SILENT_FOR", 0.05)
    before = {*threading.enumerate()}  # of other tests, too, which may end meanwhile
    with busy("a long word " * 20):
        give_up = time.monotonic() + 10.0
        while "(0 s)" not in terminal.getvalue() and len(terminal.getvalue()) < 300 and time.monotonic() < give_up:
            time.sleep(0.02)
    assert terminal.getvalue().count("\x1b[2K") > 2
    assert max(map(len, terminal.getvalue().split("\r\x1b[2K"))) < 80, "never more than one line"
    assert ended(before)


def test_errors_end_it_and_whoever_prints_makes_room(terminal: Terminal) -> None:
    with pytest.raises(ValueError, match="wrong"), busy("setting up"):
        with activity.line.room():
            drawing = threading.Thread(target=activity.line.draw)
            drawing.start()
            drawing.join(0.1)
            assert terminal.shown() == "" and drawing.is_alive(), "it waits until that is printed"
        drawing.join(10.0)
        assert terminal.shown() == "setting up"
        raise ValueError("wrong")
    activity.announce("starting")
    assert terminal.shown() == "starting"
    activity.line.close()
    assert terminal.shown() == ""


@pytest.mark.parametrize("how", ("no terminal", "quiet", "variable", "closed", "none", "thread"))
def test_elsewhere_nothing_is_written(how: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait() -> None:
        with busy("setting up"), compiling("x"):
            pass

    if how == "no terminal":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    elif how == "quiet":
        activity.line.quiet = True
    elif how == "variable":
        monkeypatch.setenv("MESHLOOM_QUIET", "1")
    elif how == "none":
        monkeypatch.setattr(activity, "sys", SimpleNamespace(stderr=None))
    elif how == "closed":
        closed = io.StringIO()
        closed.close()
        monkeypatch.setattr(activity, "sys", SimpleNamespace(stderr=closed))
    if how == "thread":
        other = threading.Thread(target=wait)
        other.start()
        other.join()
    else:
        wait()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("wanted", (True, False))
def test_a_log_has_a_line_now_and_then(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    """A minute of compiling is told in a few lines that stay; what is quick in none. The clock is the test's."""
    now = [0.0]
    monkeypatch.setattr(activity, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    activity.line.logs, activity.line.quiet = True, not wanted
    with busy("airfoil: making its loops ready"):
        for number in range(1, 18):
            with part(number, 17), compiling(f"loop_{number}"):
                for _ in range(4):
                    now[0] += 1.0
                    activity.line.draw()
    said = terminal.getvalue().splitlines()
    assert len(said) == (6 if wanted else 0), "68 seconds"
    if wanted:
        assert said[0] == "meshloom: compiling 3 of 17: loop_3 (2 s)" and "\x1b" not in terminal.getvalue()
    now[0] += 1000.0
    for _ in range(5):
        with busy("airfoil: drawing"):
            now[0] += 9.0
            activity.line.draw()
    assert len(terminal.getvalue().splitlines()) == len(said)


def test_who_wants_lines_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are not quiet, and scripts that say so."""
    from meshloom.run.report import make_report, script_report

    monkeypatch.setattr(activity, "line", StatusLine())
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    for made, wants in (
        (lambda: make_report(log), True), (lambda: make_report(log, quiet=True), False),
        (lambda: script_report("march", True), True), (lambda: script_report("march", None), False),
    ):  # fmt: skip
        made()
        assert activity.line.logs == wants


class Printed(NamedTuple):
    """When it was, in seconds, how long processors had worked for it until then, and the text."""

    when: float
    worked: float
    text: str


def on_a_terminal(*arguments: str, folder: Path, **environment: str) -> tuple[int, list[Printed]]:
    """Run Python on a terminal of 80 columns: the exit code, and what it prints."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    began, printed = time.monotonic(), []
    variables = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "MESHLOOM_QUIET")} | environment
    process = subprocess.Popen([sys.executable, *arguments], stdin=other, stdout=other, stderr=other, cwd=folder,
                               env=variables, start_new_session=True)  # fmt: skip
    os.close(other)
    try:
        while select.select([main], [], [], 300)[0]:
            try:
                text = os.read(main, 65536)
            except OSError:  # Linux's way to say that nobody holds the other end
                break
            if not text:
                break
            printed.append(Printed(time.monotonic() - began, used_by(process.pid), text.decode()))
    finally:
        os.close(main)
    return process.wait(), printed


SCRIPT = """
import meshloom as ml
ml.use("cpu")
cells = ml.Set(100, "cells")
a, b = cells.field("a"), cells.field("b")

@ml.kernel
def first(a: ml.ReadWrite):
    a[...] = a + 1.0

@ml.kernel
def second(a: ml.Read, b: ml.Sum):
    b[...] += 2.0 * a

total = ml.Global(0.0, "total")

@ml.program(fuse=False)
def step():
    first(cells, a)
    second(cells, a, total)

step.run(2)
"""


@pytest.mark.slow
def test_a_script_tells_what_it_compiles_and_nothing_the_second_time(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    cache = str(tmp_path / "cache")
    code, printed = on_a_terminal("mine.py", folder=tmp_path, MESHLOOM_CACHE=cache)
    text = "".join(one.text for one in printed)
    assert code == 0 and "compiling 1 of 2: first" in text and re.search(r"compiling (2 of 2: second|runtime)", text)
    assert text.endswith("\r\x1b[2K"), "and it is gone"
    assert on_a_terminal("mine.py", folder=tmp_path, MESHLOOM_CACHE=cache) == (0, [])


MARCH = """
import sys, time
import meshloom as ml
ml.use("numpy")
cells = ml.Set(100, "cells")
a = cells.field("a")

@ml.kernel
def first(a: ml.ReadWrite):
    a[...] = a + 1.0

@ml.program
def step():
    first(cells, a)

slow = [2.5, 0.0, 0.0]
slowly = ml.program(lambda: (step(), ml.call(lambda: time.sleep(slow.pop(0)))))
ml.march(slowly, steps=3, **eval(sys.argv[1]))
"""


def longest_silence(printed: list[Printed]) -> float:
    return max(b.when - a.when for a, b in pairwise(printed))


def most_work_in_silence(printed: list[Printed]) -> float:
    """Between two words, in seconds of two processors: no more than a clock's, whatever else the machine does."""
    return max(b.worked - a.worked for a, b in pairwise(printed)) / 2.0


@pytest.mark.slow
def test_a_march_tells_of_a_first_step_that_takes_long(tmp_path: Path) -> None:
    """Solvers compile in it, and the bar comes after it."""
    (tmp_path / "mine.py").write_text(MARCH)
    code, printed = on_a_terminal("mine.py", "{}", folder=tmp_path)
    text = "".join(one.text for one in printed)
    assert code == 0 and "first iteration (2 s)" in text and text.index("first iteration (2 s)") < text.index("1/3")
    assert longest_silence(printed) < 2.0
    assert on_a_terminal("mine.py", "{'progress': False}", folder=tmp_path) == (0, [])


POT_WITH_A_SLOW_PICTURE = """
    def picture(self):
        if self.t.numpy()[0] < 15.0:
            __import__("time").sleep(2.5)
            raise ValueError("no colours")

    def maps(self):
        if self.t.numpy()[0] < 15.0:
            __import__("time").sleep(1.0)
        return {}
"""


@pytest.mark.slow
def test_what_is_drawn_at_the_end_is_told_of_and_messages_have_lines_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "pot.py").write_text(POT + POT_WITH_A_SLOW_PICTURE)
    command = ("-m", "meshloom", "run", "pot.py", "--backend", "numpy", "--iterations", "6", "--out", "run")
    code, printed = on_a_terminal(*command, folder=tmp_path, PYTHONPATH=str(ROOT))
    text = "".join(one.text for one in printed)
    assert code == 3 and "pot: drawing (2 s)" in text and longest_silence(printed) < 2.0
    said = text.index("picture() of case 'pot' failed: ValueError: no colours")
    assert text[:said].endswith("\r\x1b[2K"), "the line has made room"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "bar"),
    [
        (("taylor_green", "--iterations", "20", "--set", "run.backend=cpu"), "/20"),
        (("onera_m6", "--set", "mesh.cells=40000", "--set", "time.method=implicit", "--iterations", "9"), "/9"),
    ],
)
def test_a_run_says_its_first_word_soon_and_more_all_the_time(tmp_path: Path, words: tuple[str, ...], bar: str) -> None:
    """From the command to the first word less than a second, then one every two, with nothing in the cache: seconds of
    processors that work for it, since a machine that others keep busy is slower by the clock."""
    command = ("-m", "meshloom", "run", *words, "--out", "run")
    code, printed = on_a_terminal(*command, folder=tmp_path, MESHLOOM_CACHE=str(tmp_path / "cache"))
    first = next(k for k, one in enumerate(printed) if bar in one.text and "\u2501" in one.text)
    assert code == 0 and printed[0].worked < 1.0 and most_work_in_silence(printed[: first + 1]) < 2.0
    drawn = next(k for k, one in enumerate(printed) if ": drawing" in one.text)
    assert most_work_in_silence(printed[drawn:]) < 2.0
    last = "".join(one.text for one in printed[first:])
    assert re.search(r" M (points|cells)/s", last) and " left" in last
