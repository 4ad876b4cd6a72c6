"""This process among the ranks of a run, all of which run the same: the root, rank 0, prints and writes files for all,
and tells the others the result.

A process that no launcher has started is a root by itself; where there are several, ``dist`` says so (``join``).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
P = ParamSpec("P")

#: By which variables launchers tell a process its rank, and how many there are: those of MPICH, Intel and Cray; Open
#: MPI; MVAPICH.
LAUNCHERS = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)
#: Slurm's srun tells every step its size, also those of processes that have nothing to do with each other, or that only
#: start the ranks of another launcher: it counts where PMIx is there to join them, and nobody else has said anything.
SLURM = ("PMIX_RANK", "SLURM_STEP_NUM_TASKS")
#: Where a launcher listens: a program of no rank that asked there would end.
CONNECTIONS = ("PMI_FD", "PMI_PORT")
#: Whether launched processes are ranks of one run: ``world``, as usual, or ``self``, each a run of its own; as MPI's
#: communicators are called.
COMM = "MESHLOOM_COMM"


class Launched(NamedTuple):
    """This process among those that a launcher has started to be ranks of one run; alone where there is none."""

    rank: int = 0
    size: int = 1


def told_by_launchers(environment: Mapping[str, str]) -> Launched:
    """What launchers say in an environment, unless the person says that each process is a run of its own."""
    if environment.get(COMM, "").strip() == "self":
        return Launched()
    said = _said(environment, LAUNCHERS) or _said(environment, [SLURM])
    return max(said, key=lambda one: one.size, default=Launched())


def _said(environment: Mapping[str, str], launchers: Sequence[tuple[str, str]]) -> list[Launched]:
    both = ([environment.get(name, "") for name in names] for names in launchers)
    said = [Launched(int(rank), int(size)) for rank, size in both if rank.isdecimal() and size.isdecimal()]
    return [one for one in said if one.rank < one.size]  # what is left of two launchers is said by none


@cache
def launched() -> Launched:
    """The same of this process, as it was told when this was asked first. No other rank is asked."""
    return told_by_launchers(os.environ)


class Ended(NamedTuple):
    """What ranks end with: an error, in words, or '', the exit code of all, and the rank whose they are."""

    said: str
    code: int
    rank: int = 0


class MessageCount(NamedTuple):
    """What a rank has sent so far: ``calls`` of exchanges or reductions, ``messages`` and ``bytes`` that it sent in
    them, and how many seconds it ``waited`` for those of others."""

    calls: int = 0
    messages: int = 0
    bytes: int = 0
    waited: float = 0.0

    def plus(self, other: MessageCount) -> MessageCount:
        return MessageCount(self.calls + other.calls, self.messages + other.messages, self.bytes + other.bytes,
                            self.waited + other.waited)  # fmt: skip

    def minus(self, other: MessageCount) -> MessageCount:
        return MessageCount(self.calls - other.calls, self.messages - other.messages, self.bytes - other.bytes,
                            self.waited - other.waited)  # fmt: skip


#: By what was sent: halos of some fields, parts of some Globals.
MessageCounts = Mapping[str, MessageCount]


class OneProcess:
    """What is asked of all ranks, answered by a process that is alone."""

    rank: int = 0
    size: int = 1

    def broadcast(self, value: T, what: str = "a value") -> T:
        """The root's value, on every rank; all must ask. ``what`` it is: for messages."""
        return value

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers; all must ask."""
        return number

    def allgathered(self, value: T, what: str = "values") -> list[T]:
        """A small value of every rank, the same on all ranks; all must call it. ``what`` it is: for messages."""
        return [value]

    def all_to_all(self, parts: Sequence[np.ndarray], what: str = "rows") -> list[np.ndarray]:
        """Rows (n, ...) for each rank; what each has for this one, by rank. All must call it. ``what`` they are: for
        messages."""
        return [*parts]

    def sent(self) -> MessageCounts:
        """What loops have made this rank send so far."""
        return {}

    def check_given(self, given: Mapping[str, object]) -> None:
        """RankError where ranks were given other settings by name; all must ask."""

    def check_values(self, given: Iterable[Any]) -> None:
        """RankError where ranks were given other values of fields and Globals, and no loop has compared them; all must
        ask."""

    def arrive(self, said: str, code: int, tell: Callable[[], object] | None = None) -> Ended:
        """This rank has come to an end with an exit code, and with an error that is ``said``, or ''. What all of them
        end with, once they are here. Where some are not for a while after an error, nobody knows where they wait: the
        error is told, by ``tell`` or in a line, and all are ended."""
        return Ended(said, code)


_found: Callable[[], OneProcess] = OneProcess
_alone = False  # on a rank, while it does what no other has to come to, such as what the root does for all


def join(found: Callable[[], OneProcess]) -> None:
    """This process is one of several, which ``found`` knows. What Python warns of is told by the root."""
    global _found
    _found = found
    if launched().rank > 0:
        warnings.showwarning = _unheard


def hide_from_programs() -> None:
    """Programs that this process starts from now on are no ranks."""
    launched()  # is known from now on
    for name in chain(*LAUNCHERS, SLURM, CONNECTIONS):
        os.environ.pop(name, None)


def _unheard(*warned: object, **more: object) -> None:
    """A warning that the root tells, too."""


def ranks() -> OneProcess:
    """Those of this run. In what one does for others it is by itself: they wait for it."""
    return OneProcess() if _alone else _found()


def on_root(work: Callable[[], T], *, told: bool = True, what: str = "a value") -> T:
    """What the root alone does. Every rank gets its result, or its error; all must call it. Not ``told``: after an
    error, to which the others may not have come, no rank waits for another, and they get None. ``what`` the result is:
    for messages."""
    here = ranks()
    if here.size == 1:
        return work()
    done: Any = None
    failed: Exception | None = None
    if here.rank == 0:
        done, failed = done_for_others(work)
    if told:
        found = here.broadcast((done, failed), what)
        if here.rank != 0:  # the root keeps its own: what comes back is a copy, of a folder without its lock
            done, failed = found
    if failed is not None:
        raise failed
    return done


@contextmanager
def alone() -> Iterator[None]:
    """What this rank does meanwhile no other has to come to."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def is_alone() -> bool:
    """Does this rank do something by itself now, for which others wait?"""
    return _alone


def done_for_others(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Its result, while the others wait, or its error."""
    try:
        with alone():
            return work(), None
    except Exception as error:
        return None, _portable(error)


def by_root(function: Callable[P, T]) -> Callable[P, T]:
    """A function that the root alone carries out: see ``on_root``."""

    known_as = getattr(function, "__name__", "it")

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        return on_root(lambda: function(*args, **named), what=f"what {known_as} gives")

    return call


def agreed(work: Callable[[], T], of_some: Callable[[int, Exception], Exception] | None = None) -> T:
    """What every rank does for itself: its own result, or on all of them the error of the lowest rank that has one.
    ``of_some``: what that is where others have none, of the rank and its error. All must call it, and ``work`` asks no
    other rank."""
    here = ranks()
    if here.size == 1:
        return work()
    done: Any = None
    failed: Exception | None = None
    try:
        done = work()
    except Exception as error:
        failed = _portable(error)
    everybody = here.allgathered(failed, "whether all is well")
    for rank, one in enumerate(everybody):
        if one is not None:
            raise of_some(rank, one) if of_some is not None and None in everybody else one
    return done


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


def silence() -> None:
    """Whatever this process prints from now on is for nobody: it is one of the ranks whose root speaks for them."""
    global _voice
    _voice = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def as_launched(command: str) -> str:
    """A command as a person types it for as many ranks as this run has."""
    size = _found().size
    return command if size == 1 else f"mpirun -n {size} {command}"


def speak_up() -> None:
    """Printed errors are to be read again."""
    if _voice is not None:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        os.dup2(_voice, 2)


def say(line: str) -> None:
    """A line on what was stderr: of a rank that is silent, too, and stays so."""
    with suppress(OSError):
        os.write(2 if _voice is None else _voice, f"{line}\n".encode(errors="backslashreplace"))
