"""Calls of loops that nobody holds: what is cached so that the next call with the same arguments is quick.

A loop holds its fields. If something that lives longer kept the loop of every call, temporary fields, which are large,
would stay with it; and a field that kept its own loops would wait for Python's collector, which counts objects and not
bytes. So of a call stays what runs, without what it was made of, and it goes with the first part of it that goes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from meshloom.exclusion import PREPARING, Mutex, holding, mutexes_of, unowned
from meshloom.kernel.recent import Recent
from meshloom.kernel.state import State
from meshloom.mesh.box import Box
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.number import PlainNumber
from meshloom.operation.body import Traced
from meshloom.operation.operation import Operation
from meshloom.operation.weak_cache import WeakCache, loops_over, weak_entry
from meshloom.recording import recorder

#: Of one loop, for different values that its kernels capture: as many as a Runge-Kutta method has
MOST_SPECIALIZATIONS = 3
States = tuple[State, ...]
S = TypeVar("S", bound=Field | Global)
_MOVED: States = (State(),)  # no kernel is ever in this one


def _gone() -> None:
    raise AssertionError("what has moved is made ready again before it runs")


class Specialization(NamedTuple):
    """What runs while kernels capture the same. ``needed`` and ``defined``: temporary fields that it reads, and those
    that have values after it. ``written``: all fields and globals that it changes."""

    execute: Callable[[], None]
    states: States
    needed: tuple[weakref.ref[Field], ...]
    defined: tuple[weakref.ref[Field], ...]
    written: tuple[weakref.ref[Field | Global], ...]


class CachedCall:
    """A loop, ready to run again, that holds the memory it works on but no field, global, map, set or kernel."""

    __slots__ = ("__weakref__", "_specializations", "entry_refs", "mutex", "name", "now", "numbers", "shared")

    def __init__(self, loop: Operation, entry_refs: tuple[weakref.ref[Any], ...]):
        self.name, self.entry_refs = loop.name, entry_refs
        self.mutex, self.shared = Mutex(f"loop {loop.name}"), mutexes_of(loop.storages)
        self.numbers = tuple([one for one in loop.storages if isinstance(one, PlainNumber)])  # its own: no one else's
        self._specializations: Recent[States, Specialization] = Recent(MOST_SPECIALIZATIONS)
        self.now = self._renewed(loop)
        for part in (*loop.storages, *loop.maps):
            part.watch(self)

    def invalidate(self) -> None:
        """A field has moved, or a map has other indices."""
        self._specializations.clear()
        self.now = Specialization(_gone, _MOVED, (), (), ())  # nothing holds the memory of before

    def rebind(self, states: States, make: Callable[..., Operation], arguments: tuple[Any, ...]) -> None:
        """A field has moved, or kernels capture something else: continue with a loop of the same arguments."""
        found = self._specializations.find(states)
        if found is None:
            loop = make(*arguments, numbers=self.numbers) if self.numbers else make(*arguments)
            loop.execution.layout_pending = False  # the fields have been given it
            found = self._renewed(loop)
        self.now = found

    def _renewed(self, loop: Operation) -> Specialization:
        loop.check_temporaries()
        execute, fields, states = loop.prepare(), loop.temporary_fields, loop.execution.states
        needed = tuple([weakref.ref(one) for one in fields if loop.needs(one)])
        defined = tuple([weakref.ref(one) for one in fields if loop.defines(one)])
        written = tuple([weakref.ref(one) for one in loop.written])
        return self._specializations.keep(states, Specialization(execute, states, needed, defined, written))

    def __call__(self) -> None:
        execute, _, needed, defined, written = self.now
        for ref in needed:
            _there(ref).check_readable(f"loop {self.name}: ")
        try:
            execute()
        finally:  # it may have got half-way
            for one in written:
                _there(one).changed()
        for ref in defined:
            _there(ref).undefined_after = ""


def _there(ref: weakref.ref[S]) -> S:
    found = ref()
    assert found is not None  # whoever calls has it among the arguments
    return found


def remembered(
    on: Set | Box, key: tuple[Any, ...], kernels: Sequence[Traced], make: Callable[..., Operation], *arguments: Any,
    numbers: Sequence[Any] = (),
) -> None:  # fmt: skip
    """Run the loop ``make(*arguments)``, which is made when it is needed; inside a program, record it.

    ``key`` names by their serial numbers what the loop is made of. ``numbers``: the plain numbers among the arguments,
    of which the key tells the kinds alone: a call sets them and runs what is there.
    """
    record = recorder.get()
    if record is not None:
        if numbers:
            record.own_loop((on, *key, *map(repr, numbers)), lambda: make(*arguments))()
            return
        recorded = loops_over(on).recorded
        loop = recorded.get(key)  # the same one as long as a program holds it
        if loop is None:
            loop = recorded[key] = make(*arguments)
        loop()
        return
    if Operation.watched is not None:  # who looks at it needs its parts
        make(*arguments)._run_counted()
        return
    calls = loops_over(on).calls
    call = calls.get(key)
    if call is None:
        with PREPARING:
            call = calls.get(key) or _new_call(calls, key, make, arguments)  # another thread may have made it meanwhile
    if call.shared:
        holding((call.mutex, *call.shared), _run, call, kernels, make, arguments, numbers)
        return
    with call.mutex:
        _run(call, kernels, make, arguments, numbers)


@unowned
def _new_call(calls: WeakCache[tuple[Any, ...], CachedCall], key: tuple[Any, ...], make: Callable[..., Operation],
              arguments: tuple[Any, ...]) -> CachedCall:  # fmt: skip
    loop = make(*arguments)
    call = calls[key] = CachedCall(loop, weak_entry(calls, key, loop.parts))
    return call


def _run(call: CachedCall, kernels: Sequence[Traced], make: Callable[..., Operation], arguments: tuple[Any, ...],
         numbers: Sequence[Any]) -> None:  # fmt: skip
    """By the thread that holds it."""
    states = tuple([one.state for one in kernels])
    if call.now.states != states:
        with PREPARING:
            call.rebind(states, make, arguments)
    for one, value in zip(call.numbers, numbers, strict=True):
        one.put(value)
    call()
