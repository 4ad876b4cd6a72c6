"""A program as a CUDA graph: one launch replays all loops of a step, without Python in between."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from meshloom.backend.base import Recording, Replayed, Waits
from meshloom.backend.branches import StreamAssignment, in_streams, reduced
from meshloom.backend.cuda import history
from meshloom.backend.cuda.driver import DeviceKernel
from meshloom.backend.cuda.engine import Device
from meshloom.backend.cuda.repeat import WhileGraph, repeated, while_graph
from meshloom.backend.lowering import fill_memory
from meshloom.kernel.recent import Recent
from meshloom.kernel.sameness import Same
from meshloom.mesh.core import Global
from meshloom.mesh.globals import Comparison
from meshloom.native.runtime import PATIENCE
from meshloom.native.threads import check_device
from meshloom.process.signals import held_back
from meshloom.target import Target

Operations = Sequence[Any]  # launches, which may be called, and so may what stands for them
MOST_LOOPS = 8  # on the device, for other conditions each


class LimitedLead:
    """Keeps the host from running far ahead of the device, which would not see Ctrl-C for as long as there is work.

    Replays are launched ``count`` at a time, and while the device is at one such portion, the next one is launched: it
    never waits. ``count`` is chosen so that a portion takes about ``PATIENCE`` seconds, and kept for the next run.
    """

    FIRST = 4  # launches before anything is known

    def __init__(self, cupy: Any, stream: Any):
        self._cupy, self._stream = cupy, stream
        self.count = self.FIRST
        self._portions: list[tuple[Any, float, int]] = []  # event at its end, when it was launched, launches

    def begin(self) -> None:
        """A run begins: of the one before nothing is left to wait for."""
        self._portions.clear()

    def wait(self) -> None:
        """A portion has been launched: wait for the one before it."""
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(self._stream)
        self._portions.append((event, time.perf_counter(), self.count))
        if len(self._portions) < 2:
            return
        event, launched, count = self._portions.pop(0)
        event.synchronize()
        took = time.perf_counter() - launched
        self.count = max(1, min(2 * count, round(count * PATIENCE / max(took, 1e-9))))


class GraphRecording(Recording):
    """The operations captured into a graph. The time of a single one is not known: asking would break the graph up."""

    def __init__(self, operations: Sequence[Any], assigned: Sequence[StreamAssignment], device: Device):
        super().__init__(operations)
        self._device, self._cupy = device, device.cupy
        # Waits for work on CuPy's default stream and makes it wait: no other synchronisation is needed.
        self._stream = self._cupy.cuda.Stream()
        for one in (launch for operation in operations for launch in operation.launches):
            if one.function is fill_memory:  # its kernel must be loaded before the capture
                storage, value = one.arguments
                self._cupy.empty(1, storage.dtype).fill(value)
        self._graph: Any = captured(operations, assigned, self._cupy, self._stream)
        self._graph.upload(self._stream)
        self._lead = LimitedLead(self._cupy, self._stream)
        self._recorders: dict[str, DeviceKernel] = {}  # kernels that keep a row of history, by their source
        self._assigned, self._loops = tuple(assigned), Recent[Any, WhileGraph](MOST_LOOPS)
        self._host_asks = False  # are there no loops on this device?

    def run(self, times: int, record: Sequence[Global]) -> Replayed:
        check_device()
        rows = self._cupy.empty((times, history.width(record)))
        # a global that no loop has used is still on the host
        values = [self._cupy.asarray(one.storage) for one in record]
        blocks = history.blocks(record) if record else 0
        note_row = self._recorder(record).bound(blocks, history.THREADS, 0, [rows, 0, *values]) if record else None
        done, stopped, lead = 0, False, self._lead
        lead.begin()
        # A few launches are over before anybody could wait for them: holding signals back would cost more.
        few = times <= lead.count
        with nullcontext(lambda: False) if few else held_back() as interrupted, self._stream:
            while done < times and not stopped:
                for _ in range(min(lead.count, times - done)):
                    self._graph.launch(self._stream)
                    if note_row is not None:
                        note_row.values[history.ROW] = done
                        note_row()
                    done += 1
                if done < times:
                    lead.wait()
                stopped = interrupted()
            self._stream.synchronize()
            stopped = interrupted() or stopped
        return Replayed((rows if done == times else rows[:done]).get(), np.full(len(self.operations), np.nan), stopped)

    def repeat(self, at_most: int, until: Comparison) -> Replayed:
        check_device()
        loop = self._loop(until)
        if loop is None:
            return super().repeat(at_most, until)
        with held_back() as interrupted, self._stream:
            done, met, stopped = repeated(loop, at_most, self._stream, interrupted)
        return Replayed(np.zeros((done, 0)), np.full(len(self.operations), np.nan), stopped, met)

    def _loop(self, until: Comparison) -> WhileGraph | None:
        """The operations as a loop on the device; None where that cannot be had."""
        if self._host_asks:
            return None
        number = until.right.item() if isinstance(until.right, np.ndarray) else Same(until.right)
        key = (Same(until.left), until.sign, number, until.right.dtype)
        found = self._loops.find(key)
        if found is None:
            found = while_graph(self._device, until, partial(branched, self.operations, self._assigned, self._cupy))
            self._host_asks = found is None
        return None if found is None else self._loops.keep(key, found)

    def _recorder(self, record: Sequence[Global]) -> DeviceKernel:
        """The kernel that keeps these globals."""
        source = history.source(record)
        if source not in self._recorders:
            self._recorders[source] = self._device.kernel(source, history.NAME)
        return self._recorders[source]


# ----- branches ---------------------------------------------------------------------------------------------------
def assign_streams(operations: Operations, waits: Waits | None, target: Target) -> list[StreamAssignment]:
    """The branch of each operation on a device; all in one where nobody says what each has to wait for. Large ones keep
    their order: edges between branches would cost more than they gain. Few branches: one that is used again adds an
    edge, mostly one that others imply; a fresh one adds none."""
    if waits is None:
        return [StreamAssignment(0)] * len(operations)
    numbers, needed = target.gpu.graph, [set(one) for one in waits()]
    large = [k for k, one in enumerate(operations) if one.needed >= numbers.large * target.threads]
    for earlier, later in pairwise(large):
        needed[later].add(earlier)
    return in_streams(reduced(needed), numbers.most_branches)


def captured(operations: Operations, assigned: Sequence[StreamAssignment], cupy: Any, origin: Any) -> Any:
    """The graph of the operations: each branch is a stream, which ``origin`` draws into the capture and waits for."""
    origin.begin_capture()
    branched(operations, assigned, cupy, origin)
    return origin.end_capture()


def branched(operations: Operations, assigned: Sequence[StreamAssignment], cupy: Any, origin: Any) -> None:
    """Put the operations on ``origin``, which captures, and on streams that it draws in and waits for."""
    count = 1 + max((assignment.branch for assignment in assigned), default=0)
    streams = [origin, *(cupy.cuda.Stream() for _ in range(1, count))]
    awaited = {j for assignment in assigned for j in assignment.waits}
    done: dict[int, Any] = {}

    def event_on(stream: Any) -> Any:
        event = cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    start = event_on(origin)
    for stream in streams[1:]:
        stream.wait_event(start)
    for k, (operation, assignment) in enumerate(zip(operations, assigned, strict=True)):
        stream = streams[assignment.branch]
        for j in assignment.waits:
            stream.wait_event(done[j])
        with stream:
            getattr(operation, "launch", operation)()
        if k in awaited:
            done[k] = event_on(stream)
    ends = [event_on(stream) for stream in streams[1:]]
    for end in ends:
        origin.wait_event(end)
