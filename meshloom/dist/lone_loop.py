"""A loop that runs by itself over ranks, and what it takes here: its own work, and apart from that what it has to do
with other ranks, who may come late."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from meshloom.backend.lowering import Launch, Launches
from meshloom.dist.grid_rows import on_rows
from meshloom.dist.lower import Here, LocalProgram, lowered
from meshloom.dist.world import World
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation
from meshloom.records import dataclass


class LoneLoop:
    """It is lowered when it is first called: halos may have grown meanwhile. ``local``: what of it runs here, since
    then; each of its operations keeps its own times."""

    local: LocalProgram | None = None

    def __init__(self, operation: Operation, here: Callable[[Sequence[Operation]], Here], world: World):
        self._of: tuple[Operation, Callable[[Sequence[Operation]], Here], World] | None = (operation, here, world)
        self._seconds, self._calls = 0.0, 0

    def __call__(self) -> None:
        if self._of is not None or self.local is None:
            self._lower()
        assert self.local is not None
        begun = time.perf_counter()
        began = self.local.begin()
        for one, step in self._steps:
            before = time.perf_counter()
            step()
            one.execution.add(time.perf_counter() - before)
        self.local.end(began, 1)
        self._seconds, self._calls = self._seconds + time.perf_counter() - begun, self._calls + 1

    def _lower(self) -> None:
        assert self._of is not None
        operation, here, world = self._of
        on = on_rows([operation], world)
        self.local, self._of = lowered(Dataflow(on), here(on)), None
        self._steps = [(one, one.ready()) for one in self.local.operations]

    @property
    def loops(self) -> tuple[Operation, ...]:
        """What of the loop runs here: all of it, the core and the rim of a box, or nothing."""
        found = () if self.local is None else self.local.operations
        return tuple(one for one in found if not one.domain.all_memory and not one.domain.is_call)

    @property
    def seconds(self) -> float | None:
        """Of its own work in a call; None before the first."""
        return sum(one.seconds or 0.0 for one in self.loops) if self._calls else None

    @property
    def apart(self) -> tuple[float, int]:
        """Seconds of a call that are none of its own, and how many calls there were: for exchanges, reductions and
        comparisons of what ranks were given, waiting for other ranks included."""
        own = sum(one.execution.seconds for one in self.loops)
        return (max(self._seconds - own, 0.0) / self._calls, self._calls) if self._calls else (0.0, 0)


@dataclass(frozen=True, eq=False)
class LoneLaunches(Launches):
    """What executes a ``loop`` by itself."""

    loop: LoneLoop | None = None

    @classmethod
    def of(cls, loop: LoneLoop, here: Here) -> LoneLaunches:
        return cls((Launch.here(loop.__call__),), (here,), loop=loop)

    @property
    def seconds(self) -> float | None:
        return None if self.loop is None else self.loop.seconds
