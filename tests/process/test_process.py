"""Signals, streams that go away, programs that are started: what holds whatever the moment."""

from __future__ import annotations

import errno
import io
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from meshloom.cli.main import _tell_that_stdout_is_lost
from meshloom.process import signals, start
from meshloom.process.children import NobodyWaits, run_apart, still_wanted, stopping
from meshloom.process.signals import CHECKPOINT, STOPPING
from meshloom.process.start import is_command
from meshloom.process.streams import loss_of, outlet, tell_when_lost
from meshloom.run.names import as_typed
from meshloom.run.stop import StopRequest


@pytest.fixture(autouse=True)
def plain_handlers() -> Iterator[None]:
    """Whoever has started the tests may ignore some signals."""
    numbers = (*STOPPING, *CHECKPOINT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# --- signals


@pytest.mark.parametrize("number", STOPPING)
def test_every_signal_that_stops_is_known_by_its_number(number: int):
    with StopRequest() as stop:
        assert not stop
        signal.raise_signal(number)
        assert stop and stop.number == number
    assert signals.exit_code(number) == {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}[signal.Signals(number).name]


def test_a_second_signal_ends_at_once_with_a_line():
    code = """
import signal, time
from meshloom.run.stop import StopRequest
with StopRequest():
    signal.raise_signal(signal.SIGINT)
    time.sleep(0.6)
    signal.raise_signal(signal.SIGINT)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert done.stderr.startswith("meshloom: ended at once by a second signal") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_that_is_ignored_stays_ignored(number: int):
    signal.signal(number, signal.SIG_IGN)
    with StopRequest() as stop:
        signal.raise_signal(number)
        assert not stop
    assert signal.getsignal(number) == signal.SIG_IGN


def test_hanging_up_twice_is_one_request(monkeypatch: pytest.MonkeyPatch):
    """The system and the shell both tell that a terminal is closed; the checkpoint is not given up for that."""
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail(f"ended at once, {code}"))
    with StopRequest() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        assert stop.number == signal.SIGHUP


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_process_and_its_group_is_one_request(number: int, monkeypatch: pytest.MonkeyPatch):
    """As ``timeout`` sends it. Somebody who is in a hurry comes back later."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with StopRequest() as stop:
        for _ in range(3):
            signal.raise_signal(number)
        assert stop.number == number and not ended
        moment = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: moment + 1.0)
        signal.raise_signal(number)
        assert ended == [128 + number]


def test_a_checkpoint_is_wanted_once_for_each_time_it_is_asked_for():
    with StopRequest() as stop:
        assert not stop.checkpoint_wanted()
        signal.raise_signal(signal.SIGUSR1)
        assert stop.checkpoint_wanted() and not stop.checkpoint_wanted() and not stop
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


@pytest.mark.parametrize("number", STOPPING)
def test_all_of_them_are_held_back(number: int):
    seen: list[int] = []
    signal.signal(number, lambda number, frame: seen.append(number))
    with signals.held_back():
        signal.raise_signal(number)
        assert seen == []
    assert seen == [number]


def test_no_handler_is_lost_when_one_raises_while_they_are_put_back(monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C at the very moment at which its own handler is back."""
    mine = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGTERM, mine)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    put = signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        found = put(number, handler)
        if number == signal.SIGINT and handler is signal.default_int_handler:
            raise KeyboardInterrupt
        return found

    with pytest.raises(KeyboardInterrupt), signals.held_back():
        monkeypatch.setattr(signal, "signal", interrupted)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is mine and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_forked_child_undoes_nothing_of_its_parent(tmp_path: Path):
    claimed = tmp_path / "claimed"
    claimed.touch()
    put_back = signals.replaced(STOPPING, start._end)
    signals.undo_if_stopped("claim", claimed.unlink)
    try:
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    finally:
        signals.forget("claim")
        signals.put_back(put_back)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
    assert claimed.exists()


def test_what_is_to_be_undone_is_the_latest_first_and_not_what_is_over():
    done: list[str] = []
    signals.undo_if_stopped("first", lambda: done.append("first"))
    with signals.undone_if_stopped(lambda: done.append("over")):
        pass
    signals.undo_if_stopped("failing", lambda: os.unlink("/nowhere/at all"))
    signals.undo_if_stopped("last", lambda: done.append("last"))
    signals.undo_if_stopped("forgotten", lambda: done.append("forgotten"))
    signals.forget("forgotten")
    signals.undo_all()
    assert done == ["last", "first"]


@pytest.mark.parametrize(
    ("arguments", "original", "answer"),
    [
        (["/usr/bin/meshloom", "cases"], ["python", "/usr/bin/meshloom", "cases"], True),
        (["-m", "run"], ["python", "-m", "meshloom", "run"], True),
        (["-m"], ["python", "-X", "dev", "-mmeshloom"], True),
        (["-m"], ["python", "-m", "pytest"], False),
        (["-m", "meshloom"], ["python", "-m", "tests.attacks.run", "meshloom"], False),
        (["mine.py", "meshloom"], ["python", "mine.py", "meshloom"], False),
        (["-c"], ["python", "-c", "import meshloom"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_the_command_knows_itself(arguments: list[str], original: list[str], answer: bool):
    assert is_command(arguments, original) == answer


def test_a_library_changes_no_handler_and_no_stream():
    script = (
        "import signal, sys\n"
        "numbers = [n for n in signal.valid_signals() if n not in (signal.SIGKILL, signal.SIGSTOP)]\n"
        "before = [signal.getsignal(n) for n in numbers], sys.stdout, sys.stderr\n"
        "import meshloom, meshloom.cli.main\n"
        "assert before == ([signal.getsignal(n) for n in numbers], sys.stdout, sys.stderr)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


# --- streams


def written(stream: io.TextIOWrapper, text: str = "line\n") -> OSError | None:
    print(text, end="", file=stream, flush=True)
    return loss_of(stream)


def test_a_reader_that_goes_away_is_told_once_and_nothing_is_raised():
    reader, writer = os.pipe()
    stream, told = outlet(writer, None, closed=False), []
    tell_when_lost(stream, told.append)
    assert written(stream) is None and os.read(reader, 9) == b"line\n"
    os.close(reader)
    for _ in range(3):
        lost = written(stream, "x" * 100_000)
        assert lost is not None and lost.errno == errno.EPIPE
    assert told == [lost]
    os.close(writer)


@pytest.mark.parametrize("standing", ["a line", "nothing"])
def test_a_terminal_that_is_closed_under_a_progress_bar(standing: str, capfd: pytest.CaptureFixture[str]):
    """While it is drawn, stderr leads into the stream that is lost, in the midst of a write of it."""
    ours, theirs = pty.openpty()
    stream = outlet(theirs, None, closed=False)
    tell_when_lost(stream, _tell_that_stdout_is_lost)
    with Progress(console=Console(file=stream, force_terminal=True), auto_refresh=False) as progress:
        task = progress.add_task("iterations", total=9)
        os.close(ours)
        if standing == "a line":
            print("meshloom: something else", file=sys.stderr)
        for _ in range(3):
            progress.update(task, advance=1, refresh=True)
    lost = loss_of(stream)
    os.close(theirs)
    assert lost is not None and lost.errno == errno.EIO
    assert capfd.readouterr().err.count("the run goes on without it") == 1


def test_a_full_disk_and_a_closed_stream():
    with open("/dev/full", "wb") as full:
        lost = written(outlet(full.fileno(), None, closed=False))
        assert lost is not None and lost.errno == errno.ENOSPC
        lost = written(outlet(full.fileno(), None, closed=True), "")
        assert lost is not None and lost.errno == errno.EBADF, "before anything was written"


def test_a_pipe_that_does_not_wait_gets_everything():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    got = bytearray()

    def read() -> None:
        while piece := os.read(reader, 5000):
            got.extend(piece)
            time.sleep(0.001)

    thread = threading.Thread(target=read)
    thread.start()
    stream = outlet(writer, None, closed=False)
    lost = written(stream, "x" * 300_000)
    os.close(writer)
    thread.join(timeout=30)
    os.close(reader)
    assert lost is None and got == b"x" * 300_000


def test_characters_that_a_stream_has_not_are_escaped():
    reader, writer = os.pipe()
    like = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert written(outlet(writer, like, closed=False), "é ━ \udcff") is None
    assert os.read(reader, 99) == b"\\xe9 \\u2501 \\udcff"
    os.close(reader)
    os.close(writer)


def meshloom(command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """``meshloom`` in a shell, where {m} stands for it."""
    line = command.format(m=f"{sys.executable} -m meshloom")
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, **more)


@pytest.mark.slow
def test_a_closed_stdout_is_not_given_to_the_next_file(tmp_path: Path):
    """Whatever was printed would go into the first file that is opened; and JSON that is lost is not a success."""
    small = "--backend numpy --set mesh.i=6 --set mesh.j=4 --iterations 2 --set output.plot=false"
    done = meshloom(f"{{m}} run airfoil {small} --quiet --json --out a >&-", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "the JSON could not be written to stdout: it is closed; the run is complete, a" in done.stderr
    assert "airfoil" in (tmp_path / "a" / "run.toml").read_text() and (tmp_path / "a" / "checkpoint.h5").stat().st_size


# --- programs that are started


def test_a_program_ends_with_all_it_has_started_when_we_are_stopped(tmp_path: Path):
    """As a compiler: one process that waits for another. The second ignores what asks it to end."""
    script = "trap '' TERM; (trap '' TERM; echo $BASHPID > inner; exec sleep 60) & echo $$ > outer; wait"
    names = [tmp_path / name for name in ("inner", "outer")]

    def stop() -> None:
        while not all(name.exists() and name.read_text().strip() for name in names):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_apart(["bash", "-c", f"cd {tmp_path}; {script}"])
    assert time.monotonic() - start < 30.0
    for name in names:
        deadline = time.monotonic() + 10.0  # what is killed takes a moment to go where the machine is busy
        while _alive(int(name.read_text())):
            assert time.monotonic() < deadline, name.name
            time.sleep(0.01)


def _alive(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_a_program_has_a_session_of_its_own_and_its_answer_comes_back():
    done = run_apart([sys.executable, "-c", "import os, sys; print(os.getsid(0)); sys.exit(f'{os.getpid()}')"])
    assert done.returncode == 1 and done.stdout == done.stderr and int(done.stdout) != os.getsid(0)


@pytest.mark.parametrize("stop", [None, threading.Event()])
def test_a_program_reads_what_it_is_given(stop: threading.Event | None):
    """Once, also where it takes longer than between two looks whether it is to be ended."""
    words = "a word\n" * 100_000  # more than a pipe holds
    with nullcontext() if stop is None else stopping(stop):
        assert run_apart(["bash", "-c", "sleep 0.2; cat"], given=words).stdout == words
        assert run_apart(["true"], given=words).returncode == 0, "it need not read all of it"
        assert run_apart(["cat"]).stdout == ""


def test_work_is_given_up_where_programs_are_ended():
    stop = threading.Event()
    still_wanted()
    with stopping(stop):
        still_wanted()
        stop.set()
        with pytest.raises(NobodyWaits):
            still_wanted()
    still_wanted()


# --- what is printed to be typed


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", None])
@pytest.mark.parametrize("path", ["a/b", "my run/x", "it's", "é ━", "a\nb", "back\\slash '", "\udcff\x1b[2J", "$HOME"])
def test_paths_are_printed_as_they_can_be_typed(path: str, encoding: str | None):
    typed = as_typed(path, encoding)
    assert typed.isprintable() and typed.encode(encoding or "ascii")
    done = subprocess.run(["bash", "-c", f"printf %s {typed}"], capture_output=True, check=True)
    assert os.fsdecode(done.stdout) == path


def test_a_program_ends_when_we_are_killed(tmp_path: Path) -> None:
    """kill -9 leaves us no time to end it: it sees by itself that nobody is there any more."""
    number, ended = tmp_path / "number", tmp_path / "ended"
    program = f"trap 'touch {ended}; exit' TERM; echo $$ > {number}.new; mv {number}.new {number}; sleep 60 & wait"
    script = f"from meshloom.process.children import run_apart; run_apart(['sh', '-c', {program!r}])"
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as ours:
        _wait_for(number.exists)
        ours.kill()
    _wait_for(ended.exists)
    _wait_for(lambda: not _runs(int(number.read_text())))


def test_a_watched_program_answers_as_by_itself() -> None:
    assert run_apart(["sh", "-c", "exit 3"]).returncode == 3
    assert run_apart(["sh", "-c", "kill -KILL $$"]).returncode == -signal.SIGKILL
    with pytest.raises(FileNotFoundError):
        run_apart(["/no/such/program"])


def _runs(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    """A limit for a machine that hangs, not a measurement."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)
