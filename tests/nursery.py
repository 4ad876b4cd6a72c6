"""Python processes that have imported everything already: ``run`` is ``subprocess.run([sys.executable, *words])``.

Importing Meshloom, NumPy and matplotlib takes a process longer than most of what tests want it to do. So one process
does that, once for all tests of a worker, and then forks: a child is what a fresh process would be after its imports.
It has loaded no compiled code, so nothing of OpenMP is left behind. What tests of starting and of stopping need are
processes from scratch: this is not for them.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
#: What the commands, the docs and the soaks import, some of it late.
IMPORTED = (
    "meshloom.cli.main", "meshloom.launch", "meshloom.io.plots", "matplotlib.figure", "matplotlib.collections",
    "matplotlib.backends.backend_agg", "scipy.sparse.linalg", "scipy.interpolate", "scipy.optimize", "h5py",
)  # fmt: skip


def run(
    words: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None, seconds: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """``python WORDS`` (a script, ``-m module`` or ``-c code``, each with arguments) in a folder, to its end."""
    server = _server(os.getpid())
    assert server.stdin is not None and server.stdout is not None
    with TemporaryDirectory() as place:
        surroundings = {**(os.environ if environment is None else environment)}
        wish = {"words": [*words], "folder": str(folder), "streams": place, "environment": surroundings}
        server.stdin.write(json.dumps(wish).encode() + b"\n")
        child = int(server.stdout.readline())
        in_time = bool(select.select([server.stdout], [], [], seconds)[0])
        if not in_time:
            os.kill(child, signal.SIGKILL)
        code = int(server.stdout.readline())
        said = [Path(place, name).read_text(encoding="utf-8") for name in ("out", "err")]
    if not in_time:
        raise subprocess.TimeoutExpired([*words], seconds, *said)
    return subprocess.CompletedProcess([*words], code, *said)


@cache
def _server(of: int) -> subprocess.Popen[bytes]:
    """The process that forks, for one process of tests; it ends when that does. Its streams keep nothing back: what
    has been read ahead is not there to be waited for."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.nursery"], cwd=ROOT, bufsize=0, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    atexit.register(_end, server, of)
    return server


def _end(server: subprocess.Popen[bytes], of: int) -> None:
    """Not by a fork of the process that has started it."""
    if os.getpid() == of and server.stdin is not None:
        server.stdin.close()
        server.wait()


def _serve() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, and they close the pipe
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            _become(json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(wish: dict[str, Any]) -> NoReturn:
    """The child: what Python would do, and its end."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(wish["environment"])
        os.chdir(wish["folder"])
        _streams(Path(wish["streams"]))
        code = _did(wish["words"])
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _streams(folder: Path) -> None:
    """Nothing to read, and files to write to."""
    places = (os.devnull, folder / "out", folder / "err")
    for number, place in enumerate(places):
        opened = os.open(place, os.O_CREAT | os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - these three end with the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115


def _did(words: list[str]) -> int:
    """The exit status of what the words say."""
    first, *rest = words
    try:
        if first in ("-m", "-c"):
            sys.path.insert(0, os.getcwd() if first == "-m" else "")
            sys.argv = [first, *rest[1:]]
            if first == "-m":
                runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
            else:
                exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.path.insert(0, str(Path(first).parent))
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    _serve()
