"""A program that repeats itself on the device: its operations as the body of a conditional node of a CUDA graph.

A WHILE node runs its body again as long as a condition, which the body sets, is not 0. So the last kernel of the body
asks the question: it counts the run, compares the two numbers and sets the condition. The host launches the graph for a
limited number of runs and looks at the count only then, so that Ctrl-C is seen. CuPy has no conditional nodes, so they
are made by the driver; where it is older, or refuses anything, ``while_graph`` gives None and the host asks after every
run.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from meshloom.backend.cuda.driver import DeviceLaunch, Driver
from meshloom.errors import ScheduleError
from meshloom.mesh.globals import Comparison
from meshloom.native.runtime import PATIENCE

NAME = "ask"
FIRST = 4  # runs before anything is known about how long they take
MOST_GROWTH = 8  # of a portion of runs, from one to the next
OLDEST_DRIVER = 12040
ASSIGN_DEFAULT = 1  # CU_GRAPH_COND_ASSIGN_DEFAULT: every launch begins with the default value of the condition
_TYPES = {"float64": "double", "float32": "float", "int64": "long long", "int32": "int"}
_BUILT_IN = """extern "C" __device__ __cudart_builtin__ void CUDARTAPI
cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value);
"""


def source(until: Comparison) -> str:
    """CUDA C++ of ``ask(handle, left, right, counts)``; counts: runs so far, runs at most, whether it holds."""
    types = [one.dtype.name for one in (until.left, until.right)]
    if not all(name in _TYPES for name in types):
        raise ScheduleError(f"numbers of {' and '.join(types)} cannot be compared; use {', '.join(_TYPES)}")
    common = "long long" if all(one.dtype.kind == "i" for one in (until.left, until.right)) else "double"
    left, right = (_TYPES[name] for name in types)
    return f"""{_BUILT_IN}
extern "C" __global__ void {NAME}(const cudaGraphConditionalHandle handle, const {left}* left, const {right}* right,
                                  long long* counts) {{
  const bool holds = ({common})*left {until.sign} ({common})*right;
  const long long runs = counts[0] + 1;
  counts[0] = runs;
  counts[2] = holds;
  cudaGraphSetConditional(handle, !holds && runs < counts[1] ? 1u : 0u);
}}
"""


class WhileGraph:
    """A graph whose only node is a loop around a body. ``capture(stream)`` puts the body on a stream that captures."""

    def __init__(self, driver: Driver, cupy: Any, until: Comparison, ask: DeviceLaunch, capture: Callable[[Any], None]):
        # numbers that stand in the condition are still on the host
        self._left, self._right = (cupy.asarray(one) for one in (until.left, until.right))
        self._until, self._driver, self._counts = until, driver, cupy.zeros(3, np.int64)
        self._runs = ask, capture  # a graph does not hold the code of its kernels, and must not outlive it
        functions = driver.functions
        graph = driver.call("cuGraphCreate", 0)
        self._free = [weakref.finalize(self, functions.cuGraphDestroy, graph)]
        context = driver.call("cuCtxGetCurrent")
        handle = driver.call("cuGraphConditionalHandleCreate", graph, context, 1, ASSIGN_DEFAULT)
        node = functions.CUgraphNodeParams()
        node.type = functions.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        node.conditional.handle, node.conditional.size, node.conditional.ctx = handle, 1, context
        node.conditional.type = functions.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        _add(driver, graph, node)
        stream = cupy.cuda.Stream()  # one of its own: where the capture fails, it goes with it
        mode = functions.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        driver.call("cuStreamBeginCaptureToGraph", stream.ptr, node.conditional.phGraph_out[0], None, None, 0, mode)
        try:
            capture(stream)
            with stream:
                ask(1, 1, 0, [int(handle), self._left, self._right, self._counts])
        except BaseException:
            functions.cuStreamEndCapture(stream.ptr)  # which complains as well, and of less
            raise
        driver.call("cuStreamEndCapture", stream.ptr)  # what could not be captured is told here
        self._ready = driver.call("cuGraphInstantiate", graph, 0)
        self._free.append(weakref.finalize(self, functions.cuGraphExecDestroy, self._ready))

    def run(self, done: int, limit: int, stream: Any) -> tuple[int, bool]:
        """Run on after ``done`` runs until it holds, or until there were ``limit``: how many there were; does it?"""
        self._counts.set(np.array([done, limit, 0]), stream=stream)
        self._driver.call("cuGraphLaunch", self._ready, stream.ptr)
        runs, _, holds = self._counts.get(stream=stream).tolist()
        return runs, bool(holds)


def _add(driver: Driver, graph: Any, node: Any) -> None:
    """Add a node without dependencies; data of edges came with CUDA 13."""
    try:
        driver.call("cuGraphAddNode", graph, None, None, 0, node)
    except TypeError:
        driver.call("cuGraphAddNode", graph, None, 0, node)


def while_graph(device: Any, until: Comparison, capture: Callable[[Any], None]) -> WhileGraph | None:
    """The loop, or None where it cannot be had: then somebody else has to ask."""
    try:
        driver = device.driver
        if driver.call("cuDriverGetVersion") < OLDEST_DRIVER:
            return None
        return WhileGraph(driver, device.cupy, until, device.kernel(source(until), NAME), capture)
    except Exception:  # of bindings of another version, of the compiler, of the driver: the host can always ask
        return None


def repeated(loop: WhileGraph, at_most: int, stream: Any, interrupted: Callable[[], bool]) -> tuple[int, bool, bool]:
    """Run in portions that take about ``PATIENCE`` seconds: (runs, whether it holds, whether Ctrl-C came)."""
    done, portion, holds, stopped = 0, FIRST, False, False
    while done < at_most and not (holds or stopped):
        before, start = done, time.perf_counter()
        done, holds = loop.run(done, min(at_most, done + portion), stream)
        took = max(time.perf_counter() - start, 1e-9)
        portion = max(1, min(MOST_GROWTH * portion, round((done - before) * PATIENCE / took)))
        stopped = interrupted()
    return done, holds, stopped
