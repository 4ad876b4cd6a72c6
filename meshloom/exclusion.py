"""Mutual exclusion: what several threads share is used by one of them at a time.

An object that keeps memory between calls (a solver, a program, room between two passes) has a ``Mutex``. Whatever is
made while it is being made or used belongs to it (``exclusive``): its fields know its mutex, so a program that has
recorded some of its loops holds it, too, while it runs. What a set or a mesh keeps for all belongs to nobody
(``unowned``), whoever asks first. Threads that share nothing never wait for each other.

Mutexes are reentrant. One thread waits for another, unless that one waits for it in turn, which is an error in one
line and no standstill. A process that was forked has only the thread that forked: what others held is free there.

Ctrl-C raises KeyboardInterrupt, and threads take turns, between two instructions of Python: behind a call, where a
function begins, where a loop goes back. None of these lies between a mutex being taken and the block that it is taken
for, nor between the end of that and its release: both are C's, and reached without a call. So the only way to hold
mutexes is a ``with`` of each; a context manager written in Python around them could be interrupted as it ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import count
from operator import methodcaller
from threading import RLock, get_ident, local
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from meshloom.errors import ProgramError

P = ParamSpec("P")
T = TypeVar("T")
_OWNER = re.compile(r"owner=(\d+)")
_numbers = count()


class _Now(local):
    """Of each thread: the object that is being made or used, by its mutex."""

    owner: Mutex | None = None


class Mutex(type(RLock())):  # type: ignore[misc]
    """``with mutex:`` one thread at a time; the same one may enter again. ``name``: what it stands for, in messages."""

    __slots__ = ("name", "number")
    name: str
    number: int
    #: Asked for as attributes, because no interrupt comes behind these: may it be had now, and, has it been waited for?
    _taken = property(methodcaller("acquire", False))
    _awaited = property(methodcaller("acquire"))

    def __new__(cls, name: str) -> Mutex:
        made: Mutex = super().__new__(cls)
        made.name, made.number = name, next(_numbers)
        _mutexes.add(made)
        return made

    def __enter__(self) -> None:
        if self._taken:
            return
        me = get_ident()
        try:
            with _graph:
                _waiting[me] = self
                if self._waits_for(me):
                    del _waiting[me]
                    raise ProgramError(f"{self.name}: another thread uses it and waits for what this one uses; give"
                                       " each thread objects of its own")  # fmt: skip
            self._awaited  # noqa: B018
        finally:
            if me in _waiting:
                del _waiting[me]  # noqa: RUF051  # pop would be a call, see above

    # ``__exit__`` is that of RLock: see above

    def _waits_for(self, me: int) -> bool:
        """Does whoever holds it wait, perhaps for others that wait, for this thread? Of threads that wait for each
        other it is the last one that finds out: those in ``_waiting`` hold what they hold, and begin to wait one after
        the other, so what is read here is true all the time."""
        wanted: Mutex | None = self
        for _ in range(len(_waiting) + 1):
            holder = None if wanted is None else wanted._owner
            if not holder or holder == me:
                return holder == me
            wanted = _waiting.get(holder)
        return False

    @property
    def _owner(self) -> int:
        """The thread that holds it, as the lock itself has it; 0 for none. Another thread is told in its text alone; by
        a Python that says it otherwise nobody is found to wait for each other."""
        found = _OWNER.search(repr(self))
        return 0 if found is None else int(found[1])

    def __deepcopy__(self, memo: dict[int, Any]) -> Mutex:
        return Mutex(self.name)

    def __reduce__(self) -> tuple[type[Mutex], tuple[str]]:
        return Mutex, (self.name,)


_mutexes: WeakSet[Mutex] = WeakSet()
_waiting: dict[int, Mutex] = {}  # threads that wait now, and what for
_graph = RLock()  # held while one begins to wait
_now = _Now()

#: Held while loops are traced, planned, laid out and compiled: what is known of them is shared by all threads.
PREPARING = Mutex("making loops ready")


def owner() -> Mutex | None:
    """That of the object which is being made, or used, just now: what is made meanwhile belongs to it."""
    return _now.owner


def unowned(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator of functions that make what is kept for all: it belongs to nobody, whoever asks for it first."""

    @wraps(function)
    def made(*arguments: P.args, **named: P.kwargs) -> T:
        return made_for(None, function, *arguments, **named)

    return made


def made_for(mutex: Mutex | None, action: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What an action gives, by a thread that holds the mutex: what it makes belongs to that."""
    before = _now.owner
    try:
        _now.owner = mutex
        return action(*arguments, **named)
    finally:
        _now.owner = before


def holding(mutexes: Iterable[Mutex], action: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What an action gives, by a thread that holds all of these, taken in one order whoever takes them: what was made
    later first, as objects use what they were made of."""
    return _nested(sorted(set(mutexes), key=lambda one: -one.number), lambda: action(*arguments, **named))


def _nested(mutexes: Sequence[Mutex], action: Callable[[], T]) -> T:
    if not mutexes:
        return action()
    with mutexes[0]:
        return _nested(mutexes[1:], action)


def belong(one: Any) -> None:
    """An object with work space is being made: it belongs to the object that makes it, where there is such an object,
    and has its mutex."""
    if _now.owner is not None:
        vars(one).setdefault("_mutex", _now.owner)


def mutex_of(one: Any) -> Mutex:
    """That of an object with work space: of the object to which it belongs, or its own, made when first asked for."""
    found: Mutex | None = vars(one).get("_mutex")
    if found is None:
        name = getattr(one, "name", None) or type(one).__name__
        found = vars(one).setdefault("_mutex", Mutex(str(name)))
    return found


def mutexes_of(storages: Iterable[Any]) -> tuple[Mutex, ...]:
    """Those of objects whose work space is among some fields and globals, each once."""
    return tuple(dict.fromkeys([one.mutex for one in storages if one.mutex is not None]))


def exclusive(method: Callable[P, T]) -> Callable[P, T]:
    """Decorator of methods that use the work space of their object, ``__init__`` among them: one thread at a time."""
    makes = method.__name__ == "__init__"

    @wraps(method)
    def alone(*arguments: P.args, **named: P.kwargs) -> T:
        if makes:
            belong(arguments[0])
        mutex: Mutex = vars(arguments[0]).get("_mutex") or mutex_of(arguments[0])
        with mutex:
            before = _now.owner
            try:  # as ``made_for``, without a call
                _now.owner = mutex
                return method(*arguments, **named)
            finally:
                _now.owner = before

    vars(alone)["exclusive"] = True  # for those who look for all that has work space
    return alone


def _forked() -> None:
    """In a new process: other threads are not there, and hold nothing."""
    locks: list[Any] = [_graph, *_mutexes]
    for one in locks:
        if not one._is_owned():
            one._at_fork_reinit()
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
