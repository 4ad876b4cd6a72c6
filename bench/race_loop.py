"""The loop of the race: the airfoil's residual loop, its data on one mesh, and one variant of it checked and timed.

What a machine must offer is a ``Device``: the back end that runs the loop, a stopwatch and a copy to compare with.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

import meshloom as ml
from bench.exclusive import alone
from meshloom.errors import MeshloomError
from meshloom.schedule.choice.explain import colors_of
from meshloom.schedule.strategies import strategy

GROUPS, LAUNCHES = 7, 10
SHORT, REPLAYED = 2e-4, 10  # seconds of a run that is timed in a graph of so many
TOLERANCE = {"float64": 1e-12, "float32": 1e-4}  # largest difference from NumPy in double, as a share of the largest
LINE = 64  # bytes, as in ``counts``


@ml.kernel
def res_calc(x: ml.Read, q: ml.Read, adt: ml.Read, res: ml.Inc):
    """Central flux with scalar dissipation, the airfoil's residual loop."""
    dx, dy = x[0] - x[1]

    def flux(q: Any) -> Any:
        p = 0.4 * (q[3] - 0.5 * (q[1] ** 2 + q[2] ** 2) / q[0])
        volume = (q[1] * dy - q[2] * dx) / q[0]
        return np.stack([volume * q[0], volume * q[1] + p * dy, volume * q[2] - p * dx, volume * (q[3] + p)])

    f = 0.5 * (flux(q[0]) + flux(q[1])) + 0.025 * (adt[0] + adt[1]) * (q[0] - q[1])
    res[0] += f
    res[1] -= f


class Data:
    """Random values on a mesh, the same for every variant, and the increments that must come out."""

    def __init__(self, mesh: ml.Mesh):
        rng = np.random.default_rng(1)
        n = mesh.cells.size
        self.mesh, self.x = mesh, mesh.coordinates.numpy()
        self.q, self.adt = 1.0 + rng.random((n, 4)), rng.random(n)

    def expect(self) -> None:
        """Compute what must come out, by the NumPy reference in double."""
        before = ml.backend()
        ml.use("numpy")
        arguments = self.fields("float64", "aos")
        res_calc(self.mesh.faces, *arguments)
        self.expected = self.res.numpy()
        ml.use(before)

    def fields(self, precision: str, layout: str) -> tuple[ml.Arg, ...]:
        """Arguments of the loop in a precision and layout; ``res`` is zero."""
        mesh, dtype = self.mesh, np.dtype(precision)
        x = mesh.nodes.field("x", 2, dtype=dtype, data=self.x, layout=layout)
        q = mesh.cells.field("q", 4, dtype=dtype, data=self.q, layout=layout)
        adt = mesh.cells.field("adt", dtype=dtype, data=self.adt)
        self.res = mesh.cells.field("res", 4, dtype=dtype, layout=layout)
        cells = mesh.face_cells
        return x[mesh.face_nodes], q[cells], adt[cells], self.res[cells]

    def useful_bytes(self) -> float:
        """Compulsory bytes of the loop in double, each datum once: what peers are measured against too."""
        return float(res_calc.counts(self.mesh.faces, *self.fields("float64", "aos")).bytes.compulsory)

    def error(self, found: np.ndarray) -> float:
        """Largest difference, as a share of the largest value; ``found`` (cells, 4)."""
        return float(np.abs(found - self.expected).max() / np.abs(self.expected).max())


class Device(ABC):
    """Where the race is run."""

    backend: str
    has_peers = False  # can hand-written CUDA and the array frameworks run beside?

    @abstractmethod
    def seconds(self, run: Callable[[], Any]) -> float:
        """Seconds of one run: the median over groups of runs that follow each other without a gap."""

    def replayed(self, run: Callable[[], Any]) -> float:
        """The same of launches alone, without what calling them from Python takes, where the device can do that."""
        return self.seconds(run)

    @abstractmethod
    def copy_bandwidth(self) -> float:
        """Bytes per second, read and written, of a copy within the device's memory."""

    def checker(self, data: Data) -> Callable[[], float]:
        """How far ``data.res`` is from what must come out, whenever it is called."""
        return lambda: data.error(data.res.numpy())

    def clear(self) -> None:  # noqa: B027 - most have nothing to do
        """Give back memory that nobody uses any more."""

    def wait(self) -> None:  # noqa: B027 - most have nothing to do
        """Until everything is done that was asked for."""


class Cuda(Device):
    """The current CUDA device, timed by events."""

    backend = "cuda"
    has_peers = True

    def seconds(self, run: Callable[[], Any]) -> float:
        import cupy

        run()
        times = []
        with alone():
            for _ in range(GROUPS):
                start, end = cupy.cuda.Event(), cupy.cuda.Event()
                start.record()
                for _ in range(LAUNCHES):
                    run()
                end.record()
                end.synchronize()
                times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / LAUNCHES)
        return float(np.median(times))

    def replayed(self, run: Callable[[], Any]) -> float:
        """As ``seconds``, of launches that a graph replays where they are so short that Python would be timed."""
        import cupy

        taken = self.seconds(run)
        if taken > SHORT:
            return taken
        stream = cupy.cuda.Stream()
        with stream:
            stream.begin_capture()
            for _ in range(REPLAYED):
                run()
            graph = stream.end_capture()
            return self.seconds(lambda: graph.launch(stream)) / REPLAYED

    def copy_bandwidth(self) -> float:
        import cupy

        source = cupy.ones(1 << 28)  # 2 GiB
        target = cupy.zeros_like(source)
        return 2 * source.nbytes / self.seconds(lambda: cupy.copyto(target, source))

    def checker(self, data: Data) -> Callable[[], float]:
        """On the device: copying the result out would take longer than everything else."""
        import cupy

        field, largest = data.res, float(np.abs(data.expected).max())
        expected = cupy.asarray(field.layout.pack(data.expected))
        return lambda: float(cupy.abs(field.storage.astype(np.float64) - expected).max()) / largest

    def wait(self) -> None:
        import cupy

        cupy.cuda.Device().synchronize()

    def clear(self) -> None:
        import cupy

        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()


@dataclass(frozen=True)
class Choices:
    """What is varied. ``blocks``: None for a strategy's own. ``caps``: most registers per thread, 0 for the compiler's
    choice."""

    precisions: tuple[str, ...]
    layouts: tuple[str, ...]
    strategies: tuple[str, ...]
    blocks: tuple[int | None, ...]
    caps: tuple[int, ...]

    def groups(self) -> Iterator[tuple[str, str]]:
        """(precision, layout): variants of one group share their fields."""
        return product(self.precisions, self.layouts)

    def wishes(self) -> Iterator[ml.Schedule]:
        """The schedules tried in every group; the automatic one once."""
        for name in self.strategies:
            if name == "auto":
                yield ml.Schedule()
                continue
            for variant, block, cap in product(ml.variants(name), self.blocks, self.caps):
                yield ml.Schedule(name, block=block, registers=cap or None, variant=variant)


def variants(order: str, data: Data, group: tuple[str, str], choices: Choices, device: Device,
             copy: float) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Every schedule on one mesh in one precision and layout, checked, then timed; ``copy``: bytes per second."""
    ml.use(device.backend)
    arguments = data.fields(*group)
    error = device.checker(data)
    for wish in choices.wishes():
        row = {"order": order, "precision": group[0], "layout": group[1], **wish_entries(wish)}
        loop = res_calc.loop(data.mesh.faces, *arguments, schedule=wish)
        yield row | measured(loop, error, TOLERANCE[group[0]], device, copy)


def wish_entries(wish: ml.Schedule) -> dict[str, Any]:
    """What a row says about the schedule that was asked for."""
    return {"strategy": wish.strategy, "variant": wish.variant, "block": wish.block, "cap": wish.registers}


def wished(row: dict[str, Any]) -> ml.Schedule:
    """The schedule that a row asked for."""
    return ml.Schedule(row["strategy"], block=row["block"], registers=row["cap"], variant=row["variant"] or "plain")


def measured(loop: ml.Loop, error_of: Callable[[], float], tolerance: float, device: Device,
             copy: float) -> dict[str, Any]:  # fmt: skip
    """The columns of one variant: refused, wrong, or timed. ``copy``: bytes per second.

    ``error_of`` tells how far what the loop writes is from what must come out when it starts from zero.
    """
    try:
        executable: Any = loop.prepare()
    except MeshloomError as refusal:
        return {"declined": str(refusal)}
    with alone():
        for one in loop.writes:
            one.assign(0.0)
        executable()
        error = error_of()
        if not error <= tolerance:
            return {"wrong": error}
        seconds = device.replayed(getattr(executable, "launch", executable))
        limit = loop.limit_by(replace(loop.backend.peaks(), copy=copy))  # measures, where nobody has
    useful, blocks = loop.counts.bytes.compulsory, loop.set.size / loop.counts.block
    return {
        "schedule": str(loop.schedule),
        "deterministic": strategy(loop.schedule.strategy).deterministic,
        "ms": seconds * 1e3,
        "useful_GBps": useful / seconds / 1e9,
        "share_of_copy": useful / seconds / copy,
        "limit_ms": {part: taken * 1e3 for part, taken in limit.parts.items()},
        "limit_by": limit.words,
        "share_of_limit": limit.seconds / seconds,
        "error": error,
        "launches": len(getattr(executable, "steps", ())),
        "reuse": loop.counts.reuse,
        "lines_per_block": loop.counts.bytes.cache_lines / LINE / blocks,
        **kernel_figures(getattr(executable, "resources", {})),
    }


def kernel_figures(used: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Registers, spills, shared memory and occupancy (theoretical, the least) of a loop's kernels."""
    return {
        "registers": {k: v.get("registers") for k, v in used.items()},
        "spills": sum(v.get("spills", 0) for v in used.values()),
        "shared_bytes": max((v.get("dynamic_shared", 0) + v.get("shared", 0) for v in used.values()), default=0),
        "occupancy": min((v["occupancy"] for v in used.values() if "occupancy" in v), default=None),
    }


def block_colors(maps: Sequence[ml.Map], blocks: Iterable[int | None]) -> dict[str, dict[str, int]]:
    """Colors of blocks of elements that meet through a map, and the most colors inside a block, by block size."""
    elements, targets = maps[0].source.size, [m.target.total for m in maps]
    positions = [m.positions[:elements] for m in maps]
    found = {block: colors_of(positions, targets, elements, block) for block in blocks if block}
    return {str(b): {"block_colors": between, "thread_colors": inside} for b, (between, inside) in found.items()}
