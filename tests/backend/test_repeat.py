"""Programs that repeat on a device: the kernel that asks, the loop as a graph, and the host where there is none."""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cuda import graph, nvrtc, repeat
from meshloom.backend.cuda.driver import Driver
from meshloom.backend.cuda.repeat import WhileGraph, repeated, while_graph
from meshloom.mesh.globals import SIGNS, Comparison
from meshloom.native import compiler
from tests.backend.test_cuda import needs_nvrtc

TYPES = ("float64", "float32", "int64", "int32")
#: What the kernel needs to be a C++ function; the condition is a number that somebody may look at.
ON_THE_CPU = """
#define __global__
#define __device__
#define __cudart_builtin__
#define CUDARTAPI
typedef unsigned long long cudaGraphConditionalHandle;
extern "C" void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value) {
  *(unsigned int*)handle = value;
}
"""


def compiled(until: Comparison) -> Callable[[np.ndarray, np.ndarray], None]:
    """The text of the kernel as a function of the condition (1,) and the counts (3,)."""
    text = repeat.source(until).split(";\n", 1)[1]  # behind the declaration
    function = compiler.load(ON_THE_CPU + text, "ask_on_the_cpu").ask
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (until.left, until.right)]
    return lambda condition, counts: function(
        ctypes.c_uint64(condition.ctypes.data), *pointers, ctypes.c_void_p(counts.ctypes.data)
    )


@pytest.mark.parametrize("sign", SIGNS)
def test_the_kernel_asks_as_the_host_does(sign: str) -> None:
    values = (0, 1, -3, 2**31 - 1, 2**60, 2**60 + 1, 0.5, np.nan, np.inf)
    for left, right in (("float64", "float64"), ("float32", "int64"), ("int64", "int64"), ("int32", "float64")):
        until = Comparison(np.zeros(1, left), sign, np.zeros(1, right))
        ask, condition, counts = compiled(until), np.zeros(1, np.uint32), np.zeros(3, np.int64)
        for a, b in itertools.product(values, repeat=2):
            if not (_fits(a, left) and _fits(b, right)):
                continue
            until.left[0], until.right[0] = a, b
            for limit in (1, 5):
                counts[:] = 3, 3 + limit, 0
                ask(condition, counts)
                assert counts.tolist() == [4, 3 + limit, until.holds()]
                assert condition[0] == (not until.holds() and limit > 1)


def _fits(value: float, dtype: str) -> bool:
    return dtype.startswith("f") or (isinstance(value, int) and abs(value) <= np.iinfo(dtype).max)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_it_compiles_for_a_gpu(architecture: str) -> None:
    for (left, right), sign in zip(itertools.product(TYPES, repeat=2), itertools.cycle(SIGNS)):
        until = Comparison(np.zeros(1, left), sign, np.zeros(1, right))
        cubin, log = nvrtc.build(repeat.source(until), repeat.NAME, architecture)
        assert cubin and nvrtc.resources(log)[repeat.NAME]["spills"] == 0


# ----- the driver, acted out ----------------------------------------------------------------------------------------
class Array(np.ndarray):
    """An array that is copied as CuPy's are."""

    def set(self, values: np.ndarray, stream: Any) -> None:
        self[...] = values

    def get(self, stream: Any) -> np.ndarray:
        return np.array(self)


class Stage:
    """CuPy and the driver on the host: what is captured runs again and again while the condition is not 0."""

    def __init__(self, version: int = 13000, missing: str = "", failing: str = "", edges: bool = True):
        self.body: list[Callable[[], None]] = []
        self.condition, self.launches, self.freed = np.zeros(1, np.uint32), 0, []
        self.cupy: Any = SimpleNamespace(
            asarray=lambda one: one, zeros=lambda n, dtype: np.zeros(n, dtype).view(Array),
            cuda=SimpleNamespace(Stream=lambda: _Stream()),
        )  # fmt: skip
        kinds = SimpleNamespace(CU_GRAPH_NODE_TYPE_CONDITIONAL="conditional")
        answers: dict[str, Any] = {
            "cuDriverGetVersion": version, "cuGraphCreate": "graph", "cuCtxGetCurrent": "context",
            "cuGraphConditionalHandleCreate": self.condition.ctypes.data, "cuGraphAddNode": "node",
            "cuStreamBeginCaptureToGraph": None, "cuStreamEndCapture": "body", "cuGraphInstantiate": "ready",
        }  # fmt: skip
        self.functions: Any = ModuleType("driver")
        vars(self.functions).update(
            {name: self._answering(name == failing, answer) for name, answer in answers.items()},
            cuGraphAddNode=self._add if edges else self._add_without_edges, cuGraphLaunch=self._launch,
            cuGraphDestroy=self.freed.append, cuGraphExecDestroy=self.freed.append,
            CUgraphNodeParams=lambda: SimpleNamespace(conditional=SimpleNamespace(phGraph_out=["body"])),
            CUgraphNodeType=kinds, CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2),
            CUgraphConditionalNodeType=SimpleNamespace(CU_GRAPH_COND_TYPE_WHILE="while"),
        )  # fmt: skip
        if failing == "cuGraphAddNode":
            self.functions.cuGraphAddNode = self._answering(True, None)
        if missing:
            delattr(self.functions, missing)

    @staticmethod
    def _answering(fails: bool, answer: Any) -> Callable[..., Any]:
        return lambda *_: (801,) if fails else (0,) if answer is None else (0, answer)

    def _add(self, graph: Any, dependencies: Any, data: Any, count: int, node: Any) -> Any:
        assert (node.type, node.conditional.type, node.conditional.size) == ("conditional", "while", 1)
        assert dependencies is data is None and count == 0
        return 0, "node"

    def _add_without_edges(self, graph: Any, dependencies: Any, count: int, node: Any) -> Any:
        return self._add(graph, dependencies, None, count, node)

    def _launch(self, ready: Any, stream: Any) -> Any:
        self.launches, self.condition[0] = self.launches + 1, 1
        while self.condition[0]:
            for one in self.body:
                one()
        return (0,)

    def ask(self, until: Comparison) -> Any:
        """The kernel: while a stream captures, it becomes a part of the body."""
        function = compiled(until)

        def launch(grid: int, threads: int, shared: int, arguments: list[Any]) -> None:
            handle, left, right, counts = arguments
            assert (grid, threads, shared) == (1, 1, 0) and type(handle) is int
            assert handle == self.condition.ctypes.data and left is until.left and right is until.right
            self.body.append(lambda: function(self.condition, counts))

        return launch


class _Stream:
    ptr = 7

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def counting(stage: Stage, limit: float) -> tuple[np.ndarray, Comparison, Callable[[Any], None]]:
    number = np.zeros(1)
    until = Comparison(number, ">=", np.array([limit]))

    def capture(stream: Any) -> None:
        stage.body.append(lambda: number.__iadd__(1.0))

    return number, until, capture


@pytest.mark.parametrize("edges", [True, False])
def test_the_graph_runs_until_it_holds_with_few_launches(edges: bool) -> None:
    stage = Stage(edges=edges)
    number, until, capture = counting(stage, 1000.0)
    loop = WhileGraph(Driver(stage.functions), stage.cupy, until, stage.ask(until), capture)
    assert repeated(loop, 10**6, _Stream(), lambda: False) == (1000, True, False)
    assert number[0] == 1000.0 and stage.launches < 10
    assert repeated(loop, 10**6, _Stream(), lambda: False) == (1, True, False), "true before, too"
    until.right[0] = np.nan
    assert repeated(loop, 77, _Stream(), lambda: False) == (77, False, False) and number[0] == 1078.0
    assert repeated(loop, 10**6, _Stream(), lambda: True) == (repeat.FIRST, False, True), "Ctrl-C"
    del loop
    assert sorted(stage.freed) == ["graph", "ready"]


def test_a_graph_keeps_the_code_of_its_kernels() -> None:
    """A module that nobody holds is unloaded, and a graph that launches its kernels then ends the process."""
    stage = Stage()
    _, until, capture = counting(stage, 3.0)
    ask = stage.ask(until)
    held = [weakref.ref(one) for one in (ask, capture)]
    loop = WhileGraph(Driver(stage.functions), stage.cupy, until, ask, capture)
    del ask, capture
    assert all(one() is not None for one in held)
    del loop
    stage.body.clear()
    assert all(one() is None for one in held)


STEPS = ("cuDriverGetVersion", "cuGraphCreate", "cuCtxGetCurrent", "cuGraphConditionalHandleCreate", "cuGraphAddNode",
         "cuStreamBeginCaptureToGraph", "cuStreamEndCapture", "cuGraphInstantiate")  # fmt: skip


@pytest.mark.parametrize("stage", [
    Stage(version=12030), *(Stage(missing=name) for name in STEPS), *(Stage(failing=name) for name in STEPS), None,
])  # fmt: skip
def test_where_anything_is_missing_or_refused_the_host_asks(stage: Stage | None, monkeypatch: Any) -> None:
    def loop_on(known: Stage, bindings: ModuleType | None) -> WhileGraph | None:
        _, until, capture = counting(known, 3.0)
        device = SimpleNamespace(cupy=known.cupy, driver=Driver(), kernel=lambda source, name: known.ask(until))
        if bindings is not None:
            bindings.driver = known.functions  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
        monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
        return while_graph(device, until, capture)

    assert loop_on(stage or Stage(), ModuleType("cuda.bindings") if stage else None) is None
    assert isinstance(loop_on(Stage(), ModuleType("cuda.bindings")), WhileGraph), "with a driver that has everything"


# ----- on a device --------------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("fuse", [True, False])
def test_a_device_repeats_by_itself(fuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver can: the same number of runs as with the host that asks, in few launches."""
    pytest.importorskip("cuda.bindings.driver")
    ml.use("cuda")
    cells = ml.Set(1000, "cells")
    u, total = cells.field("u"), ml.Global(0.0, "total")

    @ml.kernel
    def up(u: ml.ReadWrite, total: ml.Sum):
        u += 1.0
        total += u

    @ml.program(fuse=fuse)
    def step() -> None:
        total.value = 0.0
        up(cells, u, total)

    launches: list[int] = []
    run = WhileGraph.run
    monkeypatch.setattr(WhileGraph, "run", lambda self, *given: (launches.append(1), run(self, *given))[1])
    assert step.repeat(until=total >= 2000.0 * 1000, at_most=10**6) == 2000 and u.numpy()[0] == 2000.0
    assert 0 < len(launches) < 20, "the device asks"
    monkeypatch.setattr(graph, "while_graph", lambda *_: None)
    other = ml.program(fuse=fuse)(step.function)
    assert other.repeat(until=total >= 2100.0 * 1000, at_most=10**6) == 100 and u.numpy()[0] == 2100.0


@pytest.mark.gpu
def test_a_device_repeats_after_much_was_made_and_freed() -> None:
    """Other conditions, other programs and a full collection between two runs of one loop."""
    cupy = pytest.importorskip("cupy")
    ml.use("cuda")

    @ml.kernel
    def up(u: ml.ReadWrite, total: ml.Sum):
        u += 1.0
        total += u

    def counted(size: int, most: int) -> int:
        u, total = (cells := ml.Set(size, "cells")).field("u"), ml.Global(0.0, "total")

        @ml.program
        def step() -> None:
            total.value = 0.0
            up(cells, u, total)

        found = [step.repeat(until=total >= float(k * size), at_most=10**6) for k in range(2, most, 2)]
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        return sum(found) + step.repeat(until=total >= float(most * size), at_most=10**6)

    assert [counted(size, most) for size in (10, 100_000, 1000) for most in (5, 30)] == [5, 30] * 3
