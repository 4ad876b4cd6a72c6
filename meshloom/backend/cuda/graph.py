"""A program as a CUDA graph: one launch replays all loops of a step, without Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshloom.backend.base import Recording
from meshloom.mesh.core import Fill, Global


class GraphRecording(Recording):
    """The operations captured into a graph. The time of a single one is not known: asking would break the graph up."""

    def __init__(self, operations: Sequence[Callable[[], None]]):
        import cupy

        super().__init__(operations)
        self._cupy = cupy
        # Waits for work on CuPy's default stream and makes it wait: no other synchronisation is needed.
        self._stream = cupy.cuda.Stream()
        for operation in operations:
            if isinstance(operation, Fill):  # the fill kernel must be loaded before the capture
                cupy.empty(1, operation.target.dtype).fill(operation.value)
        with self._stream:
            self._stream.begin_capture()
            for operation in operations:
                getattr(operation, "launch", operation)()
            self._graph: Any = self._stream.end_capture()
        self._graph.upload(self._stream)

    def run(self, times: int, record: Sequence[Global]) -> tuple[np.ndarray, np.ndarray]:
        copies = [(g, self._cupy.empty((times, g.dim), g.dtype)) for g in record]
        sizes = [g.storage.nbytes for g in record]
        with self._stream:
            for k in range(times):
                self._graph.launch(self._stream)
                for (g, copy), size in zip(copies, sizes, strict=True):
                    (copy.data + k * size).copy_from_device_async(g.storage.data, size, self._stream)
        self._stream.synchronize()
        history = (
            np.concatenate([c.get().astype(np.float64) for _, c in copies], axis=1) if copies else np.zeros((times, 0))
        )
        return history, np.full(len(self.operations), np.nan)
