"""What runs of a program: launches with the memory that they work on, and none of the fields.

``Replay`` is all of it for one run. ``ReadyProgram`` keeps it for the next: as with loops that are called
(``operation/calls.py``), what is kept must not keep a program's arguments, and goes with the first of them that goes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from meshloom.backend.base import Backend, Recording, Replayed
from meshloom.errors import ProgramError
from meshloom.exclusion import holding, mutexes_of
from meshloom.kernel.state import compared_once
from meshloom.mesh.buffer import Buffered
from meshloom.mesh.core import Field, Global
from meshloom.mesh.globals import Comparison
from meshloom.mesh.random import Random
from meshloom.native.together import together
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.measures import Measures
from meshloom.operation.operation import Operation
from meshloom.operation.recorded import Outline
from meshloom.process.activity import part

#: How often, and what of it is wanted: ``run`` or ``repeat`` of a Recording or Replay, at most so many times
RunMode = Callable[["Recording | Replay", int], Replayed]

#: What is told of a replay that nothing has been made ready for.
NOT_YET = "not yet: run the program, then ask again"


def prepared(operations: Iterable[Operation]) -> dict[Operation, Callable[[], None]]:
    """Their launches; what has to be compiled is compiled at the same time. The operations are made ready in this
    order."""
    listed = tuple(dict.fromkeys(operations))
    made: dict[Operation, Callable[[], None]] = {}
    with together(), compared_once():
        for number, one in enumerate(listed, 1):
            with part(number, len(listed)):
                one.begin_to_prepare()
        for number, one in enumerate(listed, 1):
            with part(number, len(listed)):
                made[one] = one.ready()
    return made


class StartValue:
    """A number that all of a field must be when a replay starts; the last write of every replay makes it so.

    Memory is looked at only where the field's version does not tell: the first time, after somebody else has written,
    and whenever others have its memory, whose writes nobody sees.
    """

    def __init__(self, field: Field, value: float):
        self._field, self._storage, self._value = weakref.ref(field), field.storage, value
        self._version = 0  # of the field, when it last was so

    def holds(self) -> bool:
        field = self._field()
        version = 0 if field is None or field.lent else field.version
        if not version or version != self._version:
            held = _is_all(self._storage, self._value)
            self._version = version if held else 0
            return held
        return True

    def left(self, versions: Mapping[Buffered, int]) -> None:
        """Whole replays have ended, and left these versions."""
        field = self._field()
        self._version = 0 if field is None else versions.get(field, 0)


class Replay:
    """``prologue`` once for every run, then ``body`` for every replay. ``constants``: what fields must hold when it
    starts."""

    def __init__(
        self, body: Recording, prologue: Sequence[Callable[[], None]] = (), constants: Sequence[StartValue] = (),
    ):  # fmt: skip
        self.body, self.prologue, self.constants = body, prologue, constants

    def preconditions_hold(self) -> bool:
        """Do the fields that it takes for constant hold that constant now?"""
        return not self.constants or all(one.holds() for one in self.constants)

    def left(self, versions: Mapping[Buffered, int]) -> None:
        """Whole replays have ended, and left these versions of what they write."""
        for one in self.constants:
            one.left(versions)

    def run(self, times: int, record: Sequence[Global]) -> Replayed:
        """``times`` replays."""
        self._begin()
        return self.body.run(times, record)

    def repeat(self, at_most: int, until: Comparison) -> Replayed:
        """Replays until the comparison holds after one."""
        self._begin()
        return self.body.repeat(at_most, until)

    def _begin(self) -> None:
        for operation in self.prologue:
            operation()


def _is_all(storage: Any, value: float) -> bool:
    """Is all of some memory this number, bit for bit? Zeros have a sign, which a division shows.

    No version answers that: it tells that values may have changed, and not to what. Whoever assigns an array, loads a
    checkpoint or runs other loops would have to scan what they have written, whether somebody asks or not.
    """
    if storage.dtype.kind == "f":
        bits = np.dtype(f"i{storage.dtype.itemsize}")
        storage, value = storage.view(bits), int(storage.dtype.type(value).view(bits))
    return bool((storage == value).all())


class CachedProgram:
    """A program with its arguments, ready to run again. It holds kernels, and memory, but none of the arguments.

    ``outline``: of what was recorded; ``values``: what stands for the Python values whose numbers it has now."""

    outline: Outline
    values: object = None

    def __init__(self, name: str, loops: Sequence[Operation], replay: Replay, entry_refs: tuple[weakref.ref[Any], ...]):
        self.name, self.entry_refs = name, entry_refs
        self.replay: Replay | None = replay
        self.kernels = tuple(dict.fromkeys(kernel for one in loops for kernel in one.kernels))
        self.states = tuple([one.state for one in self.kernels])
        backends = backends_of(loops)
        self._backend = backends.pop() if len(backends) == 1 else None
        graph = Dataflow(loops)
        self._written = tuple([weakref.ref(one) for one in graph.written])
        self._measures = Measures(loops)
        self._shared = mutexes_of(graph.storages)
        self._temporaries = tuple([weakref.ref(one) for one in temporaries_among(graph.written)])
        for one in (*graph.storages, *dict.fromkeys(mode for o in loops for mode in o.maps)):
            one.watch(self)

    def invalidate(self) -> None:
        """A field has moved, or a map is another one: nothing can run, and nothing holds the memory of before."""
        self.replay = None

    def usable(self) -> bool:
        """May it run as it is?"""
        return self.up_to_date() and self.can_start()

    def up_to_date(self, *, followed: bool = True) -> bool:
        """Not where something has moved, or where kernels capture something else than before, which nobody looks at
        unless that is ``followed``."""
        return self.replay is not None and (not followed or self.states == tuple([one.state for one in self.kernels]))

    def can_start(self) -> bool:
        """Does memory hold the constants that loops were fused for?"""
        return self.replay is not None and self.replay.preconditions_hold()

    @property
    def written(self) -> list[Field | Global]:
        """What it changes, as far as somebody still has it."""
        return [one for ref in self._written if (one := ref()) is not None]

    def perform(self, times: int, mode: RunMode, watched: Iterable[Global]) -> Replayed:
        """Run it; ``watched`` are globals that somebody looks at after replays."""
        assert self.replay is not None
        self._measures.follow()
        if self._backend is not None:
            for one in watched:
                self._backend.bring(one)
        done = None
        try:
            done = holding(self._shared, mode, self.replay, times) if self._shared else mode(self.replay, times)
        except MemoryError as error:
            raise too_little_memory(self.name, times, error) from error
        finally:
            versions = mark_written(self.name, self.written, [ref() for ref in self._temporaries])
            if done is not None and len(done.history) and self.replay is not None:
                self.replay.left(versions)
        return done


def too_little_memory(name: str, times: int, error: MemoryError) -> ProgramError:
    """What is raised where a program cannot be run so often."""
    return ProgramError(f"program {name}: not enough memory to run {times:,} times: {error}")


def backends_of(loops: Iterable[Operation]) -> set[Backend]:
    """Those that the operations run on; a fill runs wherever the memory is, and a call wherever it likes."""
    return {one.backend for one in loops if one.domain.compiled}


def lowers(loops: Iterable[Operation]) -> bool:
    """Does something else run in the place of some, which no question makes? Ranks would have to make it together."""
    return any(one.lowers for one in backends_of(loops))


def is_call(operation: Operation) -> bool:
    return operation.domain.is_call


def only_counts(operation: Operation) -> bool:
    """Is it what counts the draws of a random source? Nobody has written that, nor would learn from its figures."""
    return all(type(one) is Random for one in operation.storages)


def temporaries_among(written: Iterable[Field | Global]) -> tuple[Field, ...]:
    return tuple(w for w in written if isinstance(w, Field) and w.temporary)


def mark_written(
    name: str, written: Iterable[Field | Global], temporary_fields: Iterable[Field | None]
) -> dict[Buffered, int]:
    """After replays of a program, also where they failed: what it writes has changed, temporary fields hold nothing.
    Returns the new versions."""
    versions: dict[Buffered, int] = {one: one.changed() for one in written}
    for field in temporary_fields:
        if field is not None:
            field.undefined_after = name
    return versions
