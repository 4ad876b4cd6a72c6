"""What was traced with which captured values: a kernel's function traces to something else when these change."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from meshloom.errors import KernelError
from meshloom.kernel.captured import Captured, captured
from meshloom.kernel.model import Output, Param, Trace
from meshloom.kernel.outside import Unrepeatable
from meshloom.kernel.recent import Recent
from meshloom.kernel.sameness import Distinct
from meshloom.kernel.survey_values import MOST_BYTES

MOST_STATES = 16  # sets of captured values whose traces a kernel keeps
MOST_SIGNATURES = 64  # shapes and types of parameters, for each of them


_block: ContextVar[object | None] = ContextVar("_block", default=None)  # in which values are compared once


@contextmanager
def compared_once() -> Iterator[None]:
    """A block in which nothing runs that could change what kernels read, but for their own functions: the values that a
    kernel captured are compared at the first look at it, not at every one of thousands."""
    token = _block.set(_block.get() or object())
    try:
        yield
    finally:
        _block.reset(token)


class Traces(Recent[tuple[Param, ...], Trace]):
    """What a kernel traces to, by its parameters. ``suspect``: (file:line, what) of what gives something else each
    time, such as random numbers, if the kernel's function comes there, which is seen by calling it twice."""

    def __init__(self, kernel: str, suspect: tuple[str, str]):
        super().__init__(MOST_SIGNATURES)
        self._kernel, self._suspect = kernel, suspect

    def keep(self, key: tuple[Param, ...], value: Trace) -> Trace:
        if self._suspect[1] and value.again is not None and value.again() != value.outputs:
            raise _refused(self._kernel, *self._suspect)
        return super().keep(key, replace(value, again=None))


class State(Distinct):
    """What a kernel traces to while the values that it captured are the same, by its parameters."""

    def __init__(self, kernel: str = "", suspect: tuple[str, str] = ("", "")) -> None:
        self.traces = Traces(kernel, suspect)
        self.outputs: Recent[tuple[tuple[Param, ...], bool], tuple[Output, ...]] = Recent(MOST_SIGNATURES)


class States:
    """The states of a kernel. ``now()`` is the same object as long as nothing that the function reads has changed."""

    def __init__(self, function: Callable[..., Any], name: str):
        self._function, self._name = function, name
        self._captured: Captured | None = None
        self._now = State()
        self._known: Recent[Hashable, State] = Recent(MOST_STATES)
        self._warned = False
        self._compared_in: object | None = None  # the block

    def now(self) -> State:
        """The state that belongs to the values of now."""
        if self._compared_in is not None and self._compared_in is _block.get():
            return self._now
        if self._captured is None or not self._captured.unchanged():
            self._captured = self._read()
            key = self._captured.key
            if not self._captured.comparable:
                self._warn(
                    f"kernel {self._name} reads {self._captured.culprit}, which cannot be compared at every call, so it"
                    " is traced every time; name what it needs (settings.alpha), or pass it as an ml.Global"
                )
                self._now = State(self._name, self._captured.suspect)
            else:
                if self._captured.array_bytes > MOST_BYTES:
                    self._warn(
                        f"kernel {self._name} reads arrays of {self._captured.array_bytes / 1e6:,.0f} MB besides its"
                        " parameters, which are compared at every call; take what it needs out of them before"
                        " (first = table[0]), or pass it as an ml.Global or a field"
                    )
                self._now = self._known.find(key) or self._known.keep(key, State(self._name, self._captured.suspect))
        self._compared_in = _block.get() if self._captured.comparable else None
        return self._now

    def traced(self, state: State) -> None:
        """The function has run, and may have changed what it reads: that alone makes no new state."""
        if self._captured is not None and self._captured.comparable and not self._captured.unchanged():
            self._captured = self._read()
            self._now = self._known.keep(self._captured.key, state)

    def _read(self) -> Captured:
        try:
            return captured(self._function)
        except Unrepeatable as found:
            raise _refused(self._name, found.place, found.what) from None

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(why, stacklevel=2)


def _refused(kernel: str, place: str, what: str) -> KernelError:
    once = f"{place}: kernel {kernel} {what}, which would"
    if not what.startswith("draws"):
        return KernelError(f"{once} happen once, when it is compiled; read it before, and pass it as an argument")
    return KernelError(
        f"{once} be drawn once, when it is compiled, the same for all elements; give it a parameter r: ml.Random, call"
        " r.uniform() or r.normal(), and pass ml.Random(seed=...)"
    )
