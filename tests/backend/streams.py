"""Streams, events and captures as CUDA has them, on the host: what a graph would be made of, and replays of it in any
order that its edges allow."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from meshloom.backend import register
from meshloom.backend.base import Recording, Replayed
from meshloom.backend.branches import StreamAssignment
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.backend.cuda.emulator import Emulator
from meshloom.backend.cuda.graph import captured
from meshloom.backend.cuda.kernels import GpuText
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.mesh.core import Global


class Graph:
    """Captured calls, each with those that must be done before."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.needs: list[set[int]] = []

    def before(self, ends: set[int]) -> set[int]:
        """The nodes that some nodes wait for, themselves included."""
        found: set[int] = set()
        waiting = list(ends)
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += self.needs[node]
        return found

    def replay(self, order: random.Random) -> None:
        left = set(range(len(self.calls)))
        while left:
            node = order.choice(sorted(k for k in left if not self.needs[k] & left))
            self.calls[node]()
            left.remove(node)


class HostStreams:
    """Stands where CuPy does. Streams outside of a capture refuse work: nothing may slip out of it."""

    def __init__(self) -> None:
        current: list[Any] = []
        made: list[Any] = []

        class Stream:
            def __init__(self) -> None:
                self.graph: Graph | None = None
                self.end: set[int] = set()
                made.append(self)

            def __enter__(self) -> None:
                current.append(self)

            def __exit__(self, *_: object) -> None:
                current.pop()

            def begin_capture(self) -> None:
                self.graph = Graph()

            def wait_event(self, event: Any) -> None:
                assert event.graph is not None and self.graph in (None, event.graph)
                self.graph = event.graph
                self.end |= event.end

            def end_capture(self) -> Graph:
                assert self.graph is not None
                assert self.graph.before(self.end) == set(range(len(self.graph.calls))), "a stream was not joined"
                return self.graph

        class Event:
            def __init__(self, *, disable_timing: bool):
                assert disable_timing
                self.graph: Graph | None = None

            def record(self, stream: Any) -> None:
                self.graph, self.end = stream.graph, set(stream.end)

        self.cuda, self._current, self.streams = SimpleNamespace(Stream=Stream, Event=Event), current, made

    def launch(self, call: Callable[[], None]) -> None:
        """Put something on the current stream."""
        stream = self._current[-1]
        assert stream.graph is not None, "work on a stream that is not captured"
        stream.graph.calls.append(call)
        stream.graph.needs.append(set(stream.end))
        stream.end = {len(stream.graph.calls) - 1}


class ShuffledRecording(Recording):
    """Operations captured as for CUDA; every replay is in another order."""

    def __init__(self, operations: Sequence[Callable[[], None]], assigned: Sequence[StreamAssignment]):
        super().__init__(operations)
        streams, self.assigned = HostStreams(), assigned
        calls = [partial(streams.launch, operation) for operation in operations]
        self.graph = captured(calls, assigned, streams, streams.cuda.Stream())
        self.order = random.Random(1)

    def run(self, times: int, record: Sequence[Global]) -> Replayed:
        rows = np.zeros((times, sum(one.dim for one in record)))
        for row in rows:
            self.graph.replay(self.order)
            row[:] = np.concatenate([one.storage for one in record]) if record else ()
        return Replayed(rows, np.full(len(self.operations), np.nan))


class ShuffledCuda(EmulatedCuda):
    """The emulated back end, whose programs are graphs with branches."""

    name = "shuffled"

    def _recording(self, operations: Sequence[Callable[[], None]], assigned: Sequence[StreamAssignment]) -> Recording:
        return ShuffledRecording(operations, assigned)


class Silent(Emulator):
    """Kernels that do nothing, and so need no compiler."""

    def compiled(self, text: GpuText, *, apart: bool = False) -> Compiled:
        return Compiled(None)

    known = compiled

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> Any:
        return {one.name: lambda *_: None for one in made}


class SilentCuda(ShuffledCuda):
    """To look at the graphs of large programs."""

    name = "silent"

    def __init__(self) -> None:
        super().__init__()
        self.engine = Silent()


register(ShuffledCuda())
register(SilentCuda())
