"""Run by a test in a process of its own: loops, records, repetition by NVIDIA's bindings on a driver that is a fake."""

from __future__ import annotations

import ctypes
import itertools
import re
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cuda import dialect, history, nvrtc, repeat
from meshloom.backend.cuda.backend import CudaBackend
from meshloom.backend.cuda.driver import Driver
from meshloom.backend.cuda.graph import GraphRecording
from meshloom.backend.translation_unit import KernelText, Parameter
from meshloom.errors import RunError
from meshloom.mesh.globals import Comparison
from meshloom.native import compiler
from meshloom.target import H200

FAKE, DRIVER = ctypes.CDLL("libcuda.so.1"), Driver()
FAKE.fake_graph.restype = ctypes.c_void_p
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+, \d+\) )?(\w+)\(([^)]*)\) \{')
CONDITION = """#define __cudart_builtin__
#define CUDARTAPI
typedef unsigned long long cudaGraphConditionalHandle;
static void set(cudaGraphConditionalHandle handle, unsigned int value) { *(unsigned int*)handle = value; }
#define cudaGraphSetConditional set
"""


class Placed(np.ndarray):
    """An array as CuPy has them: it knows its address, and is copied by ``set`` and ``get``."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values: np.ndarray, stream: Any) -> None:
        self[...] = values

    def get(self, stream: Any = None) -> np.ndarray:
        return np.array(self)


class Stream:
    """One that is the current one inside ``with``; what it captures is the driver's."""

    current: ClassVar[list[Any]] = []
    numbers = itertools.count(8)

    def __init__(self) -> None:
        self.ptr = next(Stream.numbers)

    def __enter__(self) -> None:
        Stream.current.append(self)

    def __exit__(self, *_: object) -> None:
        Stream.current.pop()

    def begin_capture(self) -> None:
        mode = DRIVER.functions.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        graph = DRIVER.call("cuGraphCreate", 0)
        DRIVER.call("cuStreamBeginCaptureToGraph", self.ptr, graph, None, None, 0, mode)

    def wait_event(self, event: Event) -> None:
        if event.graph:
            FAKE.fake_join(ctypes.c_void_p(self.ptr), ctypes.c_void_p(event.graph))  # drawn into the capture

    def end_capture(self) -> Graph:
        return Graph(DRIVER.call("cuGraphInstantiate", DRIVER.call("cuStreamEndCapture", self.ptr), 0))

    def synchronize(self) -> None: ...


class Graph:
    def __init__(self, ready: Any):
        self._ready = ready

    def upload(self, stream: Stream) -> None: ...

    def launch(self, stream: Stream) -> None:
        DRIVER.call("cuGraphLaunch", self._ready, stream.ptr)


class Event:
    """It knows what was captured where it was recorded."""

    def __init__(self, disable_timing: bool = False):
        self.graph: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.graph = FAKE.fake_graph(ctypes.c_void_p(stream.ptr)) if stream is not None else None

    def synchronize(self) -> None: ...


def stand_in() -> Any:
    """CuPy on the host: memory and streams."""
    cupy: Any = ModuleType("cupy")
    cupy.__spec__ = ModuleSpec("cupy", None)
    cupy.asarray = lambda a: a if isinstance(a, Placed) else np.array(a).view(Placed)
    cupy.zeros = cupy.empty = lambda *shape: np.zeros(*shape).view(Placed)
    attributes = {"MultiProcessorCount": H200.multiprocessors, "WarpSize": 32, "MaxThreadsPerBlock": 1024,
                  "MaxThreadsPerMultiProcessor": 2048, "MaxRegistersPerMultiprocessor": 65536,
                  "MaxSharedMemoryPerBlockOptin": H200.shared, "MaxSharedMemoryPerBlock": 49152}  # fmt: skip
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, memGetInfo=FAKE.fake_enter, CUDARuntimeError=OSError)
    default = SimpleNamespace(ptr=0)
    cupy.cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(attributes=attributes, compute_capability="90"), Event=Event, runtime=runtime,
        Stream=Stream, get_current_stream=lambda: [default, *Stream.current][-1], get_elapsed_time=lambda a, b: 1.0,
    )  # fmt: skip
    return cupy


def for_the_host(
    source: str, name: str, architecture: str, *, flags: tuple[str, ...] = (), apart: bool = False
) -> nvrtc.MachineCode:
    """In place of machine code, where a library lies that holds the same kernels; in place of the log, nothing."""
    assert architecture == "sm_90"
    found = KERNEL.findall(source)
    kernels = [KernelText(one, tuple(map(_parameter, declared.split(","))), ()) for one, declared in found]
    text = source.replace(repeat._BUILT_IN, CONDITION)
    lines = [line for one in kernels for line in dialect._entry(one)]
    lines += [f'extern "C" int parameters_of_{one.name} = {len(one.parameters)};' for one in kernels]
    whole = "\n".join([dialect.for_a_cpu(H200) + dialect.FIBRES + text, *lines, ""])
    library = compiler.build(whole, name, extra_flags=("-O0", "-fno-strict-aliasing"))
    return nvrtc.MachineCode(bytes(library) + b"\0", "")


def _parameter(declaration: str) -> Parameter:
    ctype, name = " ".join(declaration.replace("__restrict__", "").split()).rsplit(" ", 1)
    return Parameter(ctype, name)


@ml.kernel
def spread(u: ml.Read, du: ml.Inc, total: ml.Sum):
    d = u[1] - u[0]
    du[0] += d
    du[1] -= d
    total += d * d


@ml.kernel
def up(u: ml.ReadWrite, total: ml.Sum):
    u += 1.0
    total += u


def loops() -> None:
    """Launches of a loop, one after the other and with shared memory, from another thread; and what they use."""
    mesh = ml.generate.box((9, 7), cells="triangle")
    through = mesh.face_cells
    values = np.random.default_rng(1).random(mesh.cells.size)
    expected: Any = None
    for name, schedule in (("numpy", "color"), ("cuda", "color"), ("cuda", "tile")):
        ml.use(name)
        u, du, total = mesh.cells.field("u", data=values), mesh.cells.field("du"), ml.Global(0.0, "total")
        loop = spread.loop(mesh.faces, u[through], du[through], total, schedule=ml.Schedule(schedule, block=64))
        for what in (loop.prepare, loop):  # each in a thread that has not used the device before
            work = threading.Thread(target=what)
            work.start()
            work.join()
        found = np.append(du.numpy(), total.value)
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14, err_msg=schedule)
        if name == "cuda":
            used = loop.prepare().resources
            assert used["pass0"]["occupancy"] == 1.0 and bool(used["pass0"]["dynamic_shared"]) == (schedule == "tile")


def kernels(device: Any) -> None:
    """A record with its row changed between launches, shared memory that is asked for, numbers below 0, errors."""
    one, two = ml.Global(np.array([1.5, 2.5]), "one"), ml.Global(7, "two", dtype=np.int64)
    rows = device.cupy.zeros((3, 3))
    storages = [device.cupy.asarray(g.storage) for g in (one, two)]
    keep = device.kernel(history.source([one, two]), history.NAME).bound(1, history.THREADS, 0, [rows, 0, *storages])
    for k in range(3):
        keep.values[history.ROW] = k
        storages[1][0] = 7 + k
        keep()
    assert rows.tolist() == [[1.5, 2.5, 7.0], [1.5, 2.5, 8.0], [1.5, 2.5, 9.0]]
    text = 'extern "C" __global__ void put(int narrow, long long wide, long long* to) {\n  to[0] = narrow + wide;\n}\n'
    put, to = device.kernel(text, "put"), device.cupy.zeros(1, np.int64)
    put(1, 32, 100_000, [-5, np.int64(-(2**40)), to])
    assert to[0] == -5 - 2**40 and put.blocks(32, 100_000) == 1 and put.blocks(32, 0) == 1
    assert device.kernel(text, "put").blocks(32, 49152) == 64
    for wrong in (lambda: put(0, 32, 0, [0, 0, to]), lambda: device.kernel(text, "other")):
        try:
            wrong()
        except RunError as error:
            assert re.fullmatch(r"cu\w+ of CUDA's driver fails: <CUresult\.CUDA_ERROR_\w+: \d+>", str(error)), error
        else:
            raise AssertionError("an error of the driver was not told")


def repetition(device: Any) -> None:
    number = device.cupy.zeros(1)
    until = Comparison(number, ">=", np.array([1000.0]))
    text = 'extern "C" __global__ void up(double* number) {\n  *number += 1.0;\n}\n'
    more = device.kernel(text, "up")

    def capture(stream: Any) -> None:
        with stream:
            more(1, 1, 0, [number])

    loop = repeat.while_graph(device, until, capture)
    assert loop is not None and number[0] == 0.0, "captured, not run"
    assert repeat.repeated(loop, 10**6, Stream(), lambda: False) == (1000, True, False) and number[0] == 1000.0
    assert repeat.repeated(loop, 10**6, Stream(), lambda: False) == (1, True, False)


def programs() -> None:
    """Small loops that do not wait for each other, as branches of a graph; with a history; until something holds."""
    ml.use("cuda")
    sets = [ml.Set(50, name) for name in "ab"]
    fields, totals = [one.field("u") for one in sets], [ml.Global(0.0, name) for name in "ab"]

    @ml.program
    def step() -> None:
        for one, u, total in zip(sets, fields, totals, strict=True):
            up(one, u, total)

    assert step.run(4, record=totals).tolist() == [[50.0 * k] * 2 for k in (1, 3, 6, 10)]
    assert isinstance(step._tape().recording(), GraphRecording) and "up to 2 at the same time" in step.graph
    assert step.repeat(until=totals[0] >= 50.0 * 5050, at_most=10**6) == 96 and fields[1].numpy()[7] == 100.0


def main() -> None:
    sys.modules["cupy"] = stand_in()
    nvrtc.build = for_the_host
    nvrtc.known = lambda *_, **__: None
    backend = _BACKENDS["cuda"] = CudaBackend()
    assert backend.unavailable() is None, backend.unavailable()
    loops()
    kernels(backend.engine)
    before = FAKE.fake_left()
    repetition(backend.engine)
    assert FAKE.fake_left() == before, "everything is freed with those who held it"
    programs()
    print("everything is right")


if __name__ == "__main__":
    main()
