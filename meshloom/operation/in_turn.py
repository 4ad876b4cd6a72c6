"""Programs with calls: the operations between two calls replay as one, calls are made from Python, and both take turns.

A function of the user's may set Python values that the program reads: then it records again, in the middle of a replay
too, and goes on behind the same call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from meshloom.backend.base import Recording, Replayed
from meshloom.errors import ProgramError, SolveError
from meshloom.exclusion import holding
from meshloom.kernel.outside import is_followed
from meshloom.kernel.sameness import IdentityDict
from meshloom.mesh.core import Field, Global
from meshloom.native.together import together
from meshloom.operation.call import functions_of
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.passes import is_dead_fill
from meshloom.operation.replay import RunMode
from meshloom.operation.tape import Tape, segment_of

_PACKAGE = __name__.partition(".")[0]
#: What calls nothing.
_SILENT = (bool, int, float, str, type(None), np.dtype)
_COLLECTIONS = (tuple, list, set, frozenset)
#: Classes of CuPy's whose objects run on a GPU, and call nothing of Python's; others of its do, as ``cupy.fuse``.
_ON_DEVICE = ("ElementwiseKernel", "ReductionKernel", "RawKernel", "ufunc")
#: Rooms whose objects programs are made of, and what these run on.
_RECORDED = tuple(f"{_PACKAGE}.{room}" for room in ("mesh", "kernel", "operation", "schedule", "backend", "native"))


def executed_in_turn(
    now: Callable[[], Tape], tape: Tape, times: int, mode: RunMode, watched: Sequence[Global],
    *, followed: bool | None = None,
) -> Replayed:  # fmt: skip
    """Run a tape with calls. ``now``: gives the tape of the Python values of now; ``watched``: globals that somebody
    looks at after replays. ``followed``: may its functions set values that kernels read? None: look at all that they
    could call."""
    replays = _InTurn(now, tape, followed)
    tape.bring(watched)
    if not times:
        with together():
            with suppress(MemoryError):  # which is told where they are made ready
                for one in tape.segments:  # each is fused while others are compiled
                    holding(one.shared, one.begin_to_prepare)
            for one in tape.segments:
                one.execute(0, mode, ())
    try:
        return mode(Recording([replays]), times)
    finally:
        for field in replays.carried:
            field.undefined_after = tape.name


class _InTurn:
    """One replay after the other."""

    def __init__(self, now: Callable[[], Tape], tape: Tape, followed: bool | None):
        self._now, self._tape, self._replays = now, tape, 0
        # looked at anew in every run: solvers may have got a callback since
        self._followed = not calls_only_ours(*functions_of(tape.calls)) if followed is None else followed
        tape.begin(followed=self._followed)
        self.carried = _carried(tape)  # by any tape that has run

    def __call__(self) -> None:
        tape, place = self._tape, 0
        try:
            while place < len(tape.pieces):
                piece, place = tape.pieces[place], place + 1
                if (segment := segment_of(piece)) is not None:  # its loops keep their times, and set no Python value
                    segment()
                    continue
                before = time.perf_counter()
                piece.ready()()
                piece.execution.add(time.perf_counter() - before)
                if self._followed and (new := self._now()) is not tape:
                    place = _place_behind(tape, place, new)
                    tape = new
                    self.carried |= _carried(new)
                    tape.begin(followed=True)
        except SolveError as error:
            error.replays = self._replays
            raise
        self._tape, self._replays = tape, self._replays + 1


def _place_behind(tape: Tape, place: int, new: Tape) -> int:
    """Where another tape goes on behind the calls that have been made of one; ProgramError where it has none there."""
    both = (tape.pieces[:place], new.pieces)
    made, others = ([one for one in pieces if segment_of(one) is None] for pieces in both)
    changed = f"program {tape.name}: {made[-1].name} has changed a Python value by which"
    instead = "; change it at the end of a replay, or between two runs"
    if [one.body.known_by for one in others[: len(made)]] != [one.body.known_by for one in made]:
        if place == len(tape.pieces):
            return len(new.pieces)
        raise ProgramError(f"{changed} other functions are called before it{instead}")
    lost = _not_there(tape, new, len(made))
    if lost:
        raise ProgramError(f"{changed} {lost[0]} is read behind it, which has no values: what was recorded before did"
                           f" not store it{instead}")  # fmt: skip
    return [k for k, one in enumerate(new.pieces, 1) if segment_of(one) is None][len(made) - 1]


def _not_there(tape: Tape, new: Tape, calls: int) -> list[str]:
    """Fields and globals of which a new tape reads, behind so many calls, values that the old one has not stored until
    there, by name: those that the function itself makes are others now, temporary ones may have been fused away, fills
    left out."""
    old, now = Dataflow(tape.operations), Dataflow(new.loops)
    old_place, place = (_behind(graph, calls) for graph in (old, now))
    fused_away = _carried(new) - _carried(tape)

    def is_lost(one: Field | Global) -> bool:
        if one not in old.storages:
            return bool(now.definitions(one, 0, place))
        return one in fused_away or any(is_dead_fill(old, k) for k in old.definitions(one, 0, old_place)[-1:])

    return sorted({one.name for one in now.storages if now.consumers(one, place) and is_lost(one)})


def _behind(graph: Dataflow, calls: int) -> int:
    """The position behind so many calls."""
    return [k for k, one in enumerate(graph.operations, 1) if one.domain.is_call][calls - 1]


def _carried(tape: Tape) -> set[Field]:
    """Temporary fields that have to have values across calls."""
    return {field for one in tape.segments for field in one.carries}


def calls_only_ours(*functions: Callable[..., Any]) -> bool:
    """Are they Meshloom's own, such as the ``solve`` of a solver, and so is whatever they could call? Then they set no
    value that a program reads. A callback of the user's may be held anywhere: by a program that calls it, by an object
    that a function is a method of, by a closure."""
    waiting: list[Any] = list(functions)
    met: IdentityDict[int] = IdentityDict()
    while waiting:
        one = waiting.pop()
        if type(one) in _SILENT or met.setdefault((one,), new := len(met)) != new:
            continue
        held = _held_by(one)
        if held is None:
            return False
        waiting += held
    return True


def _held_by(one: Any) -> Iterable[Any] | None:
    """What may be called by whoever has this; None where it is not Meshloom's. Programs, kernels and fields hold what
    is recorded, which is looked at by itself, and programs what they call."""
    module = type(one).__module__
    if not _is_ours(module) and is_followed(module):
        return None
    if isinstance(one, _COLLECTIONS):
        return one
    if isinstance(one, dict):
        return one.values()
    if isinstance(one, np.ndarray):
        return one.ravel().tolist() if one.dtype.hasobject else ()
    if isinstance(one, MethodType):
        return one.__func__, one.__self__
    if isinstance(one, FunctionType):
        given = one.__defaults__ or ()
        return (*[cell.cell_contents for cell in one.__closure__ or ()], *given) if _is_ours(one.__module__) else None
    if not _is_ours(module):
        return _held_by_libraries(one)
    if module.startswith(_RECORDED):
        return getattr(one, "called_functions", ())
    slots = [name for kind in type(one).__mro__ for name in vars(kind).get("__slots__", ())]
    return (*getattr(one, "__dict__", {}).values(), *[getattr(one, name, None) for name in slots])


def _held_by_libraries(one: Any) -> Iterable[Any] | None:
    """The same of what Python, NumPy and CuPy bring: partial functions and cached ones are what they call."""
    kind = type(one)
    if isinstance(one, partial):
        return one.func, *one.args, *one.keywords.values()
    if isinstance(one, type):
        return None if is_followed(one.__module__) and not _is_ours(one.__module__) else ()
    if kind.__module__.startswith("cupy._core.") and kind.__name__ in _ON_DEVICE:
        return ()
    if (wrapped := getattr(one, "__wrapped__", None)) is not None:
        return (wrapped,)
    return None if callable(one) else ()  # a ufunc may write to an array that it was given


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _PACKAGE
