"""How ranks end. Where all of them come to an error it is told once, and they end with one exit code. Where one of them
waits in vain for the others, which are somewhere in the midst of a run, it tells its own, and all are ended. What
``sys.exit`` is given is such an error, unless it is 0."""

from __future__ import annotations

import atexit
import builtins
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any

import numpy as np

from meshloom.errors import MeshloomError, RankError, UserError, one_line
from meshloom.process.ranks import Ended, OneProcess, launched, speak_up
from meshloom.process.signals import exit_code
from meshloom.process.streams import write_to_stderr
from meshloom.process.tracebacks import failing_line, knows_where, wanted_short

SECONDS = 3.0  # that a rank with an error waits for the others
_WARNING = 0.5  # seconds before their end in which ranks that are about to tell theirs hear of each other
_CODES: dict[type[BaseException], int] = {KeyboardInterrupt: exit_code(signal.SIGINT)}
_BETWEEN = 0.002  # seconds from one look to the next
_CODE_BITS = 0xFF  # of what a process ends with: the system keeps no more
_LONGEST = 1 << 63  # Python gives the system all bits, -1, for whole numbers that no long of C holds
_MOST = 4000  # bytes of what is said
_kept: list[object] = []  # requests of what is sent: nobody may come to take it
_EXITS = (sys, "exit"), (builtins, "exit"), (builtins, "quit")


def arrive(ranks: Any, said: str, code: int, tell: Callable[[], object] | None) -> Ended:
    """See ``OneProcess.arrive``; ``ranks``: a communicator for nothing else."""
    own = np.zeros(_MOST + 8, np.uint8)
    text = said.encode(errors="backslashreplace")[:_MOST]
    own[:8], own[8 : 8 + len(text)] = np.frombuffer(np.int64(code).tobytes(), np.uint8), np.frombuffer(text, np.uint8)
    found = np.empty((ranks.size, len(own)), np.uint8)
    waiting, due = ranks.Iallgather(own, found), when_to_tell(ranks)
    while not waiting.Test():
        if code and next(due, True):
            end_all(ranks, said, code, tell)
        time.sleep(_BETWEEN)
    codes = [int(row[:8].view(np.int64)[0]) for row in found]
    words = [row[8:][row[8:] > 0].tobytes().decode(errors="replace") for row in found]
    first = next((rank for rank, one in enumerate(codes) if one), 0)
    alike = words[first] == words[0] and len(set(codes)) == 1
    return Ended(words[first] if alike or not words[first] else _of_rank(first, words[first]), codes[first], first)


def when_to_tell(ranks: Any) -> Iterator[bool]:
    """Is this rank to tell its error now, with which it waits in vain? To be asked until it is.

    Several may fail alone. Who has waited for nearly ``SECONDS`` warns all others, unless one has done so before; of
    those that do at the same time the lowest tells its error. The others wait as long again, and tell theirs if they
    are still there. Where all come to their end soon, nothing is sent."""
    begun, heard = time.monotonic(), list[int]()

    def waits(until: float) -> Iterator[bool]:
        while time.monotonic() - begun < until:
            yield False
        while ranks.iprobe():
            heard.append(ranks.recv())

    yield from waits(SECONDS - _WARNING)
    if not heard:
        _kept.extend(ranks.isend(ranks.rank, other) for other in range(ranks.size) if other != ranks.rank)
        yield from waits(SECONDS)
        if ranks.rank < min(heard, default=ranks.size):
            return
    yield from waits(2 * SECONDS)


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
    """Ranks that disagree are named already."""
    return said if said[:5] == "rank " else f"rank {rank}: {said}"


def watch(world: Callable[[], OneProcess]) -> None:
    """From now on an error that nobody catches ends all ranks, and is shown once: ours in one line, others as ever."""
    before, unwatch = sys.excepthook, watch_exit(world)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        unwatch()  # what ends this rank is told here
        code = error.exit_code if isinstance(error, MeshloomError) else _CODES.get(kind, 1)
        if (isinstance(error, MeshloomError) or knows_where(error)) and wanted_short():
            raise SystemExit(_ended(world, _line(error), code, None))

        def tell() -> None:
            speak_up()
            before(kind, error, trace)

        said = one_line(traceback.format_exception_only(kind, error)[-1])
        raise SystemExit(_ended(world, said, code, tell))

    sys.excepthook = hook


def watch_exit(world: Callable[[], OneProcess]) -> Callable[[], None]:
    """From now on what ``sys.exit`` is given, and nobody catches, ends all ranks, unless it is 0; until what comes back
    is called. So do ``exit`` and ``quit``. In a thread it ends that alone, and says nothing; whoever waits for what the
    thread does may get it from there. A SystemExit that a script raises itself is seen by nobody: Python asks no hook
    then."""
    given = SystemExit.__dict__["code"]

    def read(error: SystemExit) -> object:
        """Python reads it from no frame where it ends this process, somebody who has caught it from one."""
        status = given.__get__(error)
        return status if sys._getframe().f_back is not None else _exited(world, status)

    class ExitOfRank(SystemExit):
        code: Any = property(read, given.__set__)

    def leaving(function: Callable[..., object]) -> Callable[..., object]:
        @wraps(function)
        def leave(*status: Any, **named: Any) -> object:
            try:
                return function(*status, **named)
            except SystemExit as error:
                if type(error) is not SystemExit:  # somebody's own, which they may want to catch
                    raise
                raise ExitOfRank(*error.args) from None

        return leave

    def of_thread(args: threading.ExceptHookArgs, /) -> None:
        """Python's own hook is silent of a SystemExit, and of no other kind of one."""
        if not isinstance(args.exc_value, ExitOfRank):
            hook(args)

    hook = threading.excepthook
    before = {(of, name): getattr(of, name) for of, name in _EXITS if hasattr(of, name)}
    ours = {key: leaving(function) for key, function in before.items()}
    before[threading, "excepthook"], ours[threading, "excepthook"] = hook, of_thread

    def unwatch() -> None:
        for (of, name), function in before.items():
            if getattr(of, name) is ours[of, name]:  # and not somebody's own by now
                setattr(of, name, function)

    for (of, name), function in ours.items():
        setattr(of, name, function)
    os.register_at_fork(after_in_child=unwatch)  # which is no rank
    return unwatch


def _exited(world: Callable[[], OneProcess], found: object) -> object:
    """The exit code of all ranks where this one ends with ``found``. Where all end with the same there is no more to
    be read than without ranks."""
    number = exit_status(found)
    if number == 0:
        return found
    text = "" if isinstance(found, int) else _words(found)
    said = one_line(text) or f"ends with exit code {number}"
    shows, ended = _together(world, said, number, None)
    if shows and (text or ended.said != said):
        speak_up()
        write_to_stderr(text if ended.said == said else f"meshloom: {ended.said}")
    return ended.code


def exit_status(found: object) -> int:
    """With what Python ends a process where ``sys.exit`` was given this; it prints all but whole numbers."""
    if isinstance(found, int):
        return found & _CODE_BITS if -_LONGEST <= found < _LONGEST else _CODE_BITS
    return 0 if found is None else 1


def _words(found: object) -> str:
    try:
        return str(found)
    except Exception:  # a person may give anything, and Python prints nothing of it then
        return ""


def shown(work: Callable[[], None], world: Callable[[], OneProcess]) -> None:
    """Work that nobody sees the errors of."""
    try:
        work()
    except RankError as error:
        _ended(world, _line(error), error.exit_code, None)


def _ended(world: Callable[[], OneProcess], said: str, code: int, tell: Callable[[], object] | None) -> int:
    """The exit code of all ranks, once one of them has told the error."""
    shows, ended = _together(world, said, code, tell)
    if shows and tell is not None:
        tell()
    elif shows:
        speak_up()
        write_to_stderr(f"meshloom: {ended.said}")
    return ended.code


def _together(
    world: Callable[[], OneProcess], said: str, code: int, tell: Callable[[], object] | None
) -> tuple[bool, Ended]:
    """Is it this rank that tells, and what do all end with?"""
    atexit.unregister(shown)  # which would wait for ranks that have come here
    try:
        ended = world().arrive(said, code, tell)
        return world().rank == ended.rank, ended
    except UserError:  # there is no world, which is the error
        return launched().rank == 0, Ended(said, code)


def _line(error: BaseException) -> str:
    """An error of ours with the user's line, unless it has one."""
    place = "" if isinstance(error, RankError) else failing_line(error)
    return f"{error} ({place})" if place and place not in str(error) else str(error)
