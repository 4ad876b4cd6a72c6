"""Back ends that compile: they walk from a loop to its launches, stage by stage (``lowering.py``), and differ in the
steps of the walk alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from meshloom.backend.base import Backend
from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.lowering import Compiled, Launches, Loaded, Lowered
from meshloom.kernel.recent import Recent
from meshloom.kernel.sameness import Same
from meshloom.native import ffi, together
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec

MOST_LOWERED = 256  # by one back end: all loops of a program are begun before the first of them is loaded


@contextmanager
def compiled_meanwhile() -> Iterator[None]:
    """A block in which a case is made and made ready: compilers work while Python does, from its beginning, and
    what they are given in it is one batch."""
    with together.together():
        ffi.begin_early()
        yield


class CompilingBackend(Backend):
    """The walk from a loop to its launches. ``source`` stops at the text, ``begin`` where a compiler has started."""

    def __init__(self) -> None:
        self._lowered: Recent[Hashable, Lowered] = Recent(MOST_LOWERED)
        self._loaded: WeakValueDictionary[Lowered, Loaded] = WeakValueDictionary()

    # ----- the walk ---------------------------------------------------------------------------------------------
    def prepare(self, bound: BoundLoop) -> Launches:
        lowered = self.lowered(bound)
        loaded = bound.pinned[self.key] = self.loaded(lowered)
        return self.launches(replace(bound, spec=lowered.unit.spec), lowered, loaded)

    def begin(self, bound: BoundLoop) -> None:
        lowered = self.lowered(bound)
        if lowered not in self._loaded:
            known, job = partial(self.known, lowered), partial(self.compiled, lowered, apart=True)
            together.start((self.key, lowered), lowered.name, known=known, job=job)

    def source(self, bound: BoundLoop) -> str:
        """As it was compiled; before that for as many registers as kernels like."""
        lowered = self.lowered(bound)
        found = self._loaded.get(lowered)
        return lowered.source if found is None else found.compiled.source

    def lowered(self, bound: BoundLoop) -> Lowered:
        """A solver that goes through colors has hundreds of loops which are one loop over other rows: where a plan has
        no arrays, and the same numbers if any, that of the last such loop serves."""
        spec, plan = bound.spec, bound.plan()
        options, has_arrays = self.options(bound, plan), any(isinstance(one, np.ndarray) for _, one in plan.leaves)
        signs = repr(spec.starts_from)  # 0.0 == -0.0
        content = spec, signs, type(plan), plan.strategy, plan.block, plan.leaves, options
        key = (Same(spec), Same(plan), options) if has_arrays else content
        found = self._lowered.find(key)
        if found is None:
            found = self._lowered.keep(key, self.lower(spec, plan, options))
            if has_arrays:  # without the plan nobody asks for it
                finalize(plan, self._lowered.pop, key, None).atexit = False
        return found

    def loaded(self, lowered: Lowered) -> Loaded:
        """That of another loop with the same text, as long as there is one."""
        found = self._loaded.get(lowered)
        if found is None:
            compiled = together.finish((self.key, lowered), partial(self.compiled, lowered))
            found = self._loaded[lowered] = Loaded(compiled, self.load(lowered, compiled))
        return found

    # ----- its steps --------------------------------------------------------------------------------------------
    @abstractmethod
    def options(self, bound: BoundLoop, plan: Plan) -> Any:
        """What code depends on besides the loop without its data and its plan."""

    @abstractmethod
    def lower(self, spec: LoopSpec, plan: Plan, options: Any) -> Lowered:
        """The loop as text."""

    @abstractmethod
    def known(self, lowered: Lowered) -> Compiled | None:
        """What ``compiled`` gives, where nothing has to be compiled for it."""

    @abstractmethod
    def compiled(self, lowered: Lowered, *, apart: bool = False) -> Compiled:
        """What a compiler makes of it; ``apart``: in a thread, by a process of its own."""

    @abstractmethod
    def load(self, lowered: Lowered, compiled: Compiled) -> Mapping[str, Any]:
        """The functions, by their names."""

    @abstractmethod
    def launches(self, bound: BoundLoop, lowered: Lowered, loaded: Loaded) -> Launches:
        """The functions with all that they are launched with."""
