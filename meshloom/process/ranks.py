"""This process among the ranks of a run, all of which run the same: the root, rank 0, prints and writes files for all,
and tells the others the result.

A process that no launcher has started is a root by itself; where there are several, ``dist`` says so (``join``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

#: What launchers tell a process of its rank: those of MPICH, Intel and Cray; Open MPI; MVAPICH; Slurm's with PMIx.
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")


class Ended(NamedTuple):
    """What ranks end with: an error, in words, or '', the exit code of all, and the rank whose they are."""

    said: str
    code: int
    rank: int = 0


class OneProcess:
    """What is asked of all ranks, answered by a process that is alone."""

    rank: int = 0
    size: int = 1

    def broadcast(self, value: T) -> T:
        """The root's value, on every rank; all must ask."""
        return value

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers; all must ask."""
        return number

    def check_given(self, given: Mapping[str, object]) -> None:
        """RankError where ranks were given other settings by name; all must ask."""

    def arrive(self, said: str, code: int, tell: Callable[[], object] | None = None) -> Ended:
        """This rank has come to an end with an exit code, and with an error that is ``said``, or ''. What all of them
        end with, once they are here. Where some are not for a while after an error, nobody knows where they wait: the
        error is told, by ``tell`` or in a line, and all are ended."""
        return Ended(said, code)


_found: Callable[[], OneProcess] = OneProcess
_as_root = False  # on the root, while it does something for all


def join(found: Callable[[], OneProcess]) -> None:
    """This process is one of several, which ``found`` knows."""
    global _found
    _found = found


def ranks() -> OneProcess:
    """Those of this run. In what the root does for all it is by itself: the others wait for it."""
    return OneProcess() if _as_root else _found()


def on_root(work: Callable[[], T], *, told: bool = True) -> T:
    """What the root alone does. Every rank gets its result, or its error; all must call it. Not ``told``: after an
    error, to which the others may not have come, no rank waits for another, and they get None."""
    here = ranks()
    if here.size == 1:
        return work()
    done: Any = None
    failed: Exception | None = None
    if here.rank == 0:
        done, failed = _done(work)
    if told:
        done, failed = here.broadcast((done, failed))
    if failed is not None:
        raise failed
    return done


def _done(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Its result, while the others wait, or its error."""
    global _as_root
    _as_root = True
    try:
        return work(), None
    except Exception as error:
        return None, _portable(error)
    finally:
        _as_root = False


def by_root(function: Callable[P, T]) -> Callable[P, T]:
    """A function that the root alone carries out: see ``on_root``."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        return on_root(lambda: function(*args, **named))

    return call


def _portable(error: Exception) -> Exception:
    """An error as other ranks can raise it, too: MPI sends objects pickled, between processes of one run."""
    import pickle  # which takes a moment

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # one of a user's may hold anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# ---- one voice --------------------------------------------------------------------------------------------------
_voice: int | None = None  # the descriptor of what was stderr


def launched_rank(environment: Mapping[str, str] = os.environ) -> int:
    """The rank that a launcher has given to this process; 0 where there is none. No other rank is asked."""
    said = [environment[name] for name in RANKS if name in environment]
    return max((int(one) for one in said if one.isdecimal()), default=0)


def silence() -> None:
    """Whatever this process prints from now on is for nobody: it is one of the ranks whose root speaks for them."""
    global _voice
    _voice = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def speak_up() -> None:
    """Printed errors are to be read again."""
    if _voice is not None:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        os.dup2(_voice, 2)
