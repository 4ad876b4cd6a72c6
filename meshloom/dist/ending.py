"""How ranks end. Where all of them come to an error it is told once, and they end with one exit code. Where one of them
waits in vain for the others, which are somewhere in the midst of a run, it tells its own, and all are ended."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from meshloom.errors import UserError, one_line
from meshloom.process.ranks import Ended, OneProcess, launched_rank, speak_up
from meshloom.process.streams import write_to_stderr

SECONDS = 3.0  # that a rank with an error waits for the others
_BETWEEN = 0.002  # seconds from one look to the next
_MOST = 4000  # bytes of what is said


def arrive(ranks: Any, said: str, code: int, tell: Callable[[], object] | None) -> Ended:
    """See ``OneProcess.arrive``; ``ranks``: a communicator for nothing else."""
    own = np.zeros(_MOST + 8, np.uint8)
    text = said.encode(errors="backslashreplace")[:_MOST]
    own[:8], own[8 : 8 + len(text)] = np.frombuffer(np.int64(code).tobytes(), np.uint8), np.frombuffer(text, np.uint8)
    found = np.empty((ranks.size, len(own)), np.uint8)
    waiting, since = ranks.Iallgather(own, found), time.monotonic()
    while not waiting.Test():
        if code and time.monotonic() - since > SECONDS:
            end_all(ranks, said, code, tell)
        time.sleep(_BETWEEN)
    codes = [int(row[:8].view(np.int64)[0]) for row in found]
    words = [row[8:].tobytes().rstrip(b"\0").decode(errors="replace") for row in found]
    first = next((rank for rank, one in enumerate(codes) if one), 0)
    alike = words[first] == words[0] and len(set(codes)) == 1
    return Ended(words[first] if alike or not words[first] else _of_rank(first, words[first]), codes[first], first)


def end_all(ranks: Any, said: str, code: int, tell: Callable[[], object] | None) -> None:
    """The error of this rank is told, and no rank goes on."""
    speak_up()
    if tell is None:
        write_to_stderr(f"meshloom: {_of_rank(ranks.rank, said)}")
    else:
        write_to_stderr(f"meshloom: rank {ranks.rank}:")
        tell()
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # MPI's own words on it say nothing that is not said
    ranks.Abort(code)


def _of_rank(rank: int, said: str) -> str:
    return f"rank {rank}: {said}"


def watch(world: Callable[[], OneProcess]) -> None:
    """From now on an error that nobody catches ends all ranks, and is shown once."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        def tell() -> None:
            speak_up()
            before(kind, error, trace)

        said = one_line(traceback.format_exception_only(kind, error)[-1])
        try:
            shows = world().rank == world().arrive(said, 1, tell).rank
        except UserError:  # there is no world, which is the error
            shows = launched_rank() == 0
        if shows:
            tell()

    sys.excepthook = hook
