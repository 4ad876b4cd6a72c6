"""Signals at any moment, and readers that go away: real processes, on a small case that is compiled already."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from meshloom.io import checkpoint as checkpoints
from tests.attacks.campaign import Broken, Campaign

ITERATIONS = 60_000  # about a second, of which most is iterations
RUN = ("run", "advection1d", "--backend", "cpu", "--threads", "1", "--iterations", str(ITERATIONS), "--set",
       "mesh.points=64", "--set", "time.end=1e8", "--set", "output.plot=false", "--out", "a run")  # fmt: skip
PATIENCE = 120.0  # seconds; nothing takes longer, or the attempt is broken
_MARK = "MESHLOOM_ATTACK"  # in the environment of whatever an attempt starts
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_STOPPED = "meshloom: stopped at iteration "
_ALL_DONE = "meshloom: stopped when all files had been written"


@dataclass
class Process:
    """One ``meshloom`` in a folder. ``own_cache``: an empty one, and quick compilations into it."""

    folder: Path
    arguments: tuple[str, ...] = RUN
    own_cache: bool = False
    ascii_only: bool = False
    stdout: int | IO[bytes] | None = None  # a file of the folder if None; likewise stderr
    stderr: int | IO[bytes] | None = None
    closed: tuple[int, ...] = ()  # descriptors that it starts without
    terminal: int | None = None  # stdin, stdout and stderr, and what controls it
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        stdin = subprocess.DEVNULL if self.terminal is None else self.terminal
        if self.terminal is not None:
            self.stdout = self.stderr = self.terminal
        with open(self.folder / "out.txt", "wb") as out, open(self.folder / "err.txt", "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "meshloom", *self.arguments],
                cwd=self.folder, env=self._environment(), stdin=stdin, preexec_fn=self._prepare,
                stdout=out if self.stdout is None else self.stdout, stderr=err if self.stderr is None else self.stderr,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        more = {_MARK: str(self.folder), "PYTHONPATH": os.pathsep.join(paths)}
        if self.own_cache:
            more |= {"MESHLOOM_CACHE": str(self.folder / "cache"), "MESHLOOM_CXXFLAGS": "-O0"}
        if self.ascii_only:
            more |= {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"}
        return {**os.environ, **more}

    def _prepare(self) -> None:
        for number in _RESET:  # the tests themselves may have been started by nohup, or in the background
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in self.closed:
            os.close(number)
        if self.terminal is not None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def wait_until_it_listens(self) -> None:
        """Before that, Python is not even there: a signal ends it as it ends any process."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError, IndexError):
                caught = Path(f"/proc/{self.process.pid}/status").read_text().split("SigCgt:")[1].split()[0]
                if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
                    return
            time.sleep(0.002)
        self.process.kill()
        raise Broken("never came to listen to signals")

    def wait_until_it_iterates(self, times: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline and self.iterations() < times:
            time.sleep(0.002)

    def iterations(self) -> int:
        """How many are in the monitors."""
        with suppress(OSError):
            return (self.folder / "a run" / "monitors.csv").read_bytes().count(b"\n") - 1
        return 0

    def send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self) -> int:
        """Its exit code, after the checks that hold for every process: in time, no traceback, nobody left behind."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Broken(f"still there after {PATIENCE:g} s") from None
        if "Traceback" in self.err or "Exception ignored" in self.err:
            raise Broken(f"a traceback: {self.err}")
        if left := survivors(self.folder):
            raise Broken(f"left behind: {', '.join(left)}")
        return code

    @property
    def out(self) -> str:
        return (self.folder / "out.txt").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.folder / "err.txt").read_text(errors="replace")

    def one_line(self) -> str:
        if self.err.count("\n") > 1:
            raise Broken(f"more than a line on stderr: {self.err}")
        return self.err.strip()


def survivors(folder: Path) -> list[str]:
    """Processes that an attempt has started and that are still there, a second later."""
    mark = f"{_MARK}={folder}".encode()
    deadline = time.monotonic() + 1.0
    while True:
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (one / "environ").read_bytes().split(b"\0"):
                    found.append((one / "comm").read_text().strip())
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def results(folder: Path) -> dict[str, Any]:
    """What a finished run is compared by."""
    files = ("monitors.csv", f"fields_{ITERATIONS:07d}.vti", "fields.pvd", "chart_profile.csv", "chart_errors.csv")
    found: dict[str, Any] = {name: (folder / name).read_bytes() for name in files}
    return found | {"checkpoint": checkpoints.load(folder / "checkpoint.h5").digest()}


@cache
def undisturbed() -> dict[str, Any]:
    """The results that every run must come to; it also fills the cache."""
    with tempfile.TemporaryDirectory() as place:
        run = Process(Path(place), (*RUN, "--quiet"))
        if run.end() != 0 or run.err:
            raise Broken(f"the undisturbed run failed: {run.err}")
        return results(Path(place, "a run"))


def check_results(folder: Path) -> None:
    for name, wanted in undisturbed().items():
        if results(folder / "a run")[name] != wanted:
            raise Broken(f"{name} differs from that of an undisturbed run")


def check_and_finish(run: Process, number: signal.Signals) -> str:
    """Judge a run that got a signal, do what its line says (or the same again), and compare what comes out."""
    code, line = run.end(), run.one_line()
    if code == 0:
        ending = "had finished"
    elif code != 128 + number:
        raise Broken(f"exit code {code} after {number.name}: {line}")
    elif line == _ALL_DONE:
        ending = "had finished"  # and had not left yet: its results are compared below
    elif line.startswith(_STOPPED):
        ending = "went on"
        _follow(run.folder, line.partition("go on with: meshloom ")[2])
    elif run.terminal is not None and (run.folder / "a run" / "checkpoint.h5").exists():
        ending = "went on without a word"
        _follow(run.folder, "run --restart 'a run/checkpoint.h5'")
    elif (run.folder / "a run").exists():
        raise Broken(f"something is left of a run that had not begun: {line}")
    elif not line.startswith("meshloom: stopped") and run.terminal is None:
        raise Broken(f"no line that says so: '{line}'")
    else:
        ending = "begun again"
        again = Process(run.folder, (*run.arguments, "--quiet"), own_cache=run.own_cache)
        if again.end() != 0 or again.err:
            raise Broken(f"the same command failed afterwards: {again.err}")
    if not run.own_cache:
        check_results(run.folder)
    return ending


def _follow(folder: Path, hint: str) -> None:
    """The command as printed, by a shell."""
    typed = f"{shlex.quote(sys.executable)} -m meshloom {hint} --quiet"
    done = subprocess.run(["bash", "-c", typed], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode or done.stderr:
        raise Broken(f"the hint '{hint}' failed: {done.stderr}")


# ---- the attempts -----------------------------------------------------------------------------------------------


def hangup(dice: random.Random, folder: Path) -> str:
    """The terminal is closed, which may be said more than once; or there is one, and it really is."""
    undisturbed()
    if dice.random() < 0.4:
        return _terminal_closed(dice, folder)
    run = Process(folder, (*RUN, "--quiet"))
    run.wait_until_it_listens()
    if dice.random() < 0.7:
        run.wait_until_it_iterates(_some_iterations(dice))
    else:
        time.sleep(dice.random() * 0.4)
    for _ in range(dice.choice((1, 1, 2, 3))):
        run.send(signal.SIGHUP)
        time.sleep(dice.random() * 0.02)
    return check_and_finish(run, signal.SIGHUP)


def _some_iterations(dice: random.Random) -> int:
    """As many as a run has made at some moment before its end."""
    return dice.randrange(1, ITERATIONS)


def _terminal_closed(dice: random.Random, folder: Path) -> str:
    ours, theirs = pty.openpty()
    run = Process(folder, terminal=theirs)
    os.close(theirs)
    run.wait_until_it_listens()
    times, left = _some_iterations(dice) if dice.random() < 0.7 else 0, dice.random() * 0.4
    while run.process.poll() is None and (run.iterations() < times if times else left > 0.0):
        if select.select([ours], [], [], 0.01)[0]:  # somebody looks at it
            with suppress(OSError):
                os.read(ours, 10_000)
        left -= 0.01
    os.close(ours)
    return check_and_finish(run, signal.SIGHUP)


def term(dice: random.Random, folder: Path) -> str:
    """While Python imports, the case is set up, or a compiler runs."""
    cold = dice.random() < 0.5
    if not cold:
        undisturbed()
    run = Process(folder, (*RUN, "--quiet"), own_cache=cold)
    run.wait_until_it_listens()
    time.sleep(dice.random() * (4.0 if cold else 1.2))
    number = dice.choice((signal.SIGINT, signal.SIGTERM))
    run.send(number)
    ending = check_and_finish(run, number)
    litter = [p.name for p in folder.rglob("*") if p.name.endswith(".tmp") or p.name.startswith((".probe", "probe-"))]
    if litter:
        raise Broken(f"left behind: {', '.join(litter)}")
    return f"{ending}, nothing compiled" if cold else ending


def pipe(dice: random.Random, folder: Path) -> str:
    """A command that prints loses its reader, or never had one."""
    if dice.random() < 0.6:
        command = dice.choice((("cases",), ("show", "advection1d"), ("--help",), ("run", "--help"), ("--version",)))
        return _answer_lost(dice, folder, command)
    wants_json = dice.random() < 0.4
    lost = dice.choice((1, 2))
    run, broken_for_sure = _without_reader(dice, folder, (*RUN, "--json") if wants_json else RUN, lost)
    code = run.end()
    check_results(folder)
    failed = wants_json and lost == 1
    if code not in ((1,) if failed and broken_for_sure else (0, 1) if failed else (0,)):
        raise Broken(f"exit code {code}: {run.err}")
    if code and "JSON could not be written" not in run.err.splitlines()[-1]:
        raise Broken(f"does not say that the JSON is lost: {run.err}")
    if not wants_json:
        run.one_line()
    if wants_json and lost == 2:
        json.loads(run.out)
    return f"run complete, exit code {code}"


def _answer_lost(dice: random.Random, folder: Path, command: tuple[str, ...]) -> str:
    run, broken_for_sure = _without_reader(dice, folder, command, 1)
    code, line = run.end(), run.one_line()
    if code != (1 if broken_for_sure else 0) or broken_for_sure != line.startswith("meshloom: cannot write to stdout"):
        raise Broken(f"{shlex.join(command)}: exit code {code}, '{line}'")
    return "failed in a line" if code else "ended quietly"


def _without_reader(dice: random.Random, folder: Path, command: tuple[str, ...], lost: int) -> tuple[Process, bool]:
    """A process whose stdout (1) or stderr (2) goes away, and whether it cannot have written anything there."""
    name, ascii_only = "stdout" if lost == 1 else "stderr", dice.random() < 0.3
    match dice.choice(("full", "closed", "closes", "closes")):
        case "full":
            with open("/dev/full", "wb") as full:
                return Process(folder, command, ascii_only=ascii_only, **{name: full}), True  # type: ignore[arg-type]
        case "closed":
            return Process(folder, command, ascii_only=ascii_only, closed=(lost,)), True
    run = Process(folder, command, ascii_only=ascii_only, **{name: subprocess.PIPE})  # type: ignore[arg-type]
    stream: Any = run.process.stdout if lost == 1 else run.process.stderr
    with stream:
        for _ in range(dice.choice((0, 1, 80, 800))):
            if not os.read(stream.fileno(), 1):
                break
    return run, False


def checkpoint_now(dice: random.Random, folder: Path) -> str:
    """Checkpoints are asked for, from the first moment to the last."""
    undisturbed()
    run = Process(folder)
    run.wait_until_it_listens()
    if dice.random() < 0.5:
        time.sleep(dice.random() * 0.5)
        run.send(signal.SIGUSR1)
    run.wait_until_it_iterates()
    run.send(signal.SIGUSR1)
    in_time = run.iterations() < ITERATIONS  # there was at least one more look at what is due
    for _ in range(dice.randint(0, 4)):
        time.sleep(dice.random() * 0.2)
        run.send(signal.SIGUSR1)
    if run.end() != 0 or run.err:
        raise Broken(f"disturbed: {run.err}")
    check_results(folder)
    written = run.out.count("\ncheckpoint of iteration ")
    if in_time and not written:
        raise Broken("no checkpoint was written")
    return "several written" if written > 1 else f"{written} written"


CAMPAIGNS = (
    Campaign("hangups", "SIGHUP, once or more, or a terminal that is closed, at any moment of a run",
             "a checkpoint, exit code 129; going on as printed gives what an undisturbed run gives",
             hangup, few=0, many=20),
    Campaign("pipes", "readers of stdout or stderr that go away, full disks, closed streams, ASCII terminals",
             "runs go on to their end, no traceback; what only prints fails in a line unless its reader has left",
             pipe, few=1, many=20),
    Campaign("terms", "Ctrl-C or SIGTERM while Python imports, the case is set up or a compiler runs",
             "one line, exit code 130 or 143, no process or file left, the same command works",
             term, few=0, many=20),
    Campaign("checkpoints_now", "SIGUSR1 at any moments of a run",
             "checkpoints, and the same results to the last bit", checkpoint_now, few=0, many=20),
)  # fmt: skip
