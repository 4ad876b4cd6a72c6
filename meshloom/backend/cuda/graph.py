"""A program as a CUDA graph: one launch replays all loops of a step, without Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshloom.backend.base import Recording
from meshloom.backend.cuda import history
from meshloom.backend.cuda.engine import Device
from meshloom.mesh.core import Fill, Global


class GraphRecording(Recording):
    """The operations captured into a graph. The time of a single one is not known: asking would break the graph up."""

    def __init__(self, operations: Sequence[Callable[[], None]], device: Device):
        super().__init__(operations)
        self._device, self._cupy = device, device.cupy
        # Waits for work on CuPy's default stream and makes it wait: no other synchronisation is needed.
        self._stream = self._cupy.cuda.Stream()
        for operation in operations:
            if isinstance(operation, Fill):  # the fill kernel must be loaded before the capture
                self._cupy.empty(1, operation.target.dtype).fill(operation.value)
        with self._stream:
            self._stream.begin_capture()
            for operation in operations:
                getattr(operation, "launch", operation)()
            self._graph: Any = self._stream.end_capture()
        self._graph.upload(self._stream)
        self._recorders: dict[str, Any] = {}  # kernels that keep a row of history, by their source

    def run(self, times: int, record: Sequence[Global]) -> tuple[np.ndarray, np.ndarray]:
        rows = self._cupy.empty((times, history.width(record)))
        keep = self._recorder(record) if record else None
        # a global that no loop has used is still on the host
        values = [self._cupy.asarray(one.storage) for one in record]
        with self._stream:
            for k in range(times):
                self._graph.launch(self._stream)
                if keep is not None:
                    keep((history.blocks(record),), (history.THREADS,), (rows, np.int64(k), *values))
        self._stream.synchronize()
        return rows.get(), np.full(len(self.operations), np.nan)

    def _recorder(self, record: Sequence[Global]) -> Any:
        """The kernel that keeps these globals."""
        source = history.source(record)
        if source not in self._recorders:
            self._recorders[source] = self._device.function(source, history.NAME)
        return self._recorders[source]
