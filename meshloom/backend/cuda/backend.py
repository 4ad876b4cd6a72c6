"""CUDA: the same passes as kernels of a device, launched one after the other on a stream, without waiting."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from meshloom.backend.base import Backend, Recording, Waits
from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.branches import StreamAssignment, summary
from meshloom.backend.compiling import CompilingBackend
from meshloom.backend.cuda import dialect, nvrtc
from meshloom.backend.cuda.dialect import FINISH
from meshloom.backend.cuda.emulator import Emulator
from meshloom.backend.cuda.engine import Device, Engine
from meshloom.backend.cuda.graph import GraphRecording, assign_streams
from meshloom.backend.cuda.kernels import GpuOptions, compiled_kernels, lowered_kernels, narrow
from meshloom.backend.lowering import Compiled, Launch, Launches, Loaded, Lowered
from meshloom.backend.translation_unit import scratch_of, sizes_of, values_of
from meshloom.errors import CompilerError, ScheduleError, install
from meshloom.mesh.core import Map
from meshloom.native.threads import DEVICE_AFTER_FORK, device_begins, invalid_after_fork
from meshloom.schedule.choice.per_thread import chosen_per_thread
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.nest.nodes import PairOf
from meshloom.schedule.nest.walk import number_of
from meshloom.schedule.plan.emitter import temporaries
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.plan.plan import arrays as plan_arrays
from meshloom.schedule.spec import LoopSpec
from meshloom.target import H200, Target

LaunchRange = tuple[int, int, int, int]  # of a launch: first item, end, blocks of extra items, all blocks


class CudaBackend(CompilingBackend):
    """Fields live in device memory while loops use them there; ``field.numpy()`` copies out."""

    name = "cuda"
    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.engine = Device()
        self._maps: WeakKeyDictionary[Map, tuple[int, Any]] = WeakKeyDictionary()
        self._plans: WeakKeyDictionary[Plan, dict[tuple[str, bool], Any]] = WeakKeyDictionary()

    @property
    def key(self) -> tuple[object, ...]:
        """What is loaded belongs to the engine that loaded it."""
        return *super().key, self.engine

    def unavailable(self) -> str | None:
        if invalid_after_fork() and vars(self).get("_reason") is None:  # it had one, or nobody knows
            return DEVICE_AFTER_FORK
        return self._reason

    @cached_property
    def _reason(self) -> str | None:
        if importlib.util.find_spec("cupy") is None:
            return f"CuPy is not installed: {install('cuda')}"
        import cupy

        if getattr(cupy.cuda.runtime, "is_hip", False):
            return "CuPy is built for AMD's GPUs here: use 'hip'"
        return self._no_device(cupy, "CUDA") or _no_compiler()

    def _no_device(self, cupy: Any, kind: str) -> str | None:
        """Why no device can be used; None where there is one."""
        device_begins()
        try:
            count = cupy.cuda.runtime.getDeviceCount()
            _ = self.target if count else None  # asked for now: a process that forks cannot ask any more
        except (cupy.cuda.runtime.CUDARuntimeError, ImportError, RuntimeError) as error:
            return f"no {kind} device can be used ({' '.join(str(error).split())})"
        return None if count else f"there is no {kind} device"

    @property
    def target(self) -> Target:
        return self.engine.target

    @property
    def compiles_apart(self) -> bool:
        return self.engine.compiles_apart

    def place(self, storage: Any) -> Any:
        """A field's or global's values in the memory of this back end."""
        return self.engine.upload(storage) if isinstance(storage, np.ndarray) else storage

    def zeros(self, storage: Any) -> Any:
        return self.engine.zeros(storage) if isinstance(storage, np.ndarray) else storage

    # ----- the stages -------------------------------------------------------------------------------------------
    def options(self, bound: BoundLoop, plan: Plan) -> GpuOptions:
        spec, schedule, target = bound.spec, bound.schedule, self.target
        per_thread, threads = chosen_per_thread(spec, schedule, bound.elements, target), target.whole_warps(plan.block)
        return GpuOptions(per_thread, schedule.whole_rows, plan.block, threads, schedule.registers or None,
                          spec.may_use_more_registers, _largest(bound, plan, target) >= 2**31, self.engine.architecture,
                          target)  # fmt: skip

    def lower(self, spec: LoopSpec, plan: Plan, options: GpuOptions) -> Lowered:
        return lowered_kernels(spec, plan, options)

    def known(self, lowered: Lowered) -> Compiled | None:
        return compiled_kernels(lowered, self.engine.known, self.engine.emulation)

    def compiled(self, lowered: Lowered, *, apart: bool = False) -> Compiled:
        found = compiled_kernels(lowered, partial(self.engine.compiled, apart=apart), self.engine.emulation)
        assert found is not None
        return found

    def load(self, lowered: Lowered, compiled: Compiled) -> Mapping[str, Any]:
        return self.engine.load(compiled, lowered.kernels, wide_index=lowered.options.wide_index)

    def launches(self, bound: BoundLoop, lowered: Lowered, loaded: Loaded) -> Launches:
        plan, passes, threads = bound.plan(), lowered.unit.passes, lowered.options.threads
        sizes = sizes_of(bound, plan)
        shared = [_shared(one, sizes) for one in passes]
        _check_shared(bound, shared)
        used = {name: dict(one) for name, one in loaded.compiled.resources.items()}
        for name, needed in zip(lowered.pass_names, shared, strict=True):
            used.setdefault(name, {}).update(self.engine.usage(loaded.functions[name], threads, needed))
        grids = [list(_grids(one, sizes, plan, self._most_blocks(lowered, one, plan, used[name])))
                 for name, one in zip(lowered.pass_names, passes, strict=True)]  # fmt: skip
        parts = sum(grid for k, one in enumerate(passes) if one.reductions for *_, grid in grids[k])
        scratch = {name: self.engine.zeros(one) for name, one in scratch_of(bound, plan, max(parts, 1)).items()}
        values = values_of(bound) | self._maps_of(bound) | self._tables(bound, lowered) | scratch | sizes
        found = tuple(_launches(lowered, loaded, grids, shared, values))
        largest = (grid * threads / (used[name].get("occupancy") or 1.0)
                   for name, one in zip(lowered.pass_names, grids, strict=True) for *_, grid in one)  # fmt: skip
        return Launches(found, (loaded,), used, max(largest, default=0.0), self.engine.events())

    def _most_blocks(self, lowered: Lowered, one: Pass, plan: Plan, used: Mapping[str, Any]) -> int | None:
        """As many as run at a time, for a pass whose threads then go on with other items; None where each has one."""
        target, threads = self.target, lowered.options.threads
        if not dialect.goes_on(lowered.unit, one, threads, plan.block):
            return None
        at_a_time = int((used.get("occupancy") or 1.0) * target.resident_threads / threads)
        return max(1, at_a_time) * target.multiprocessors

    def copy_bandwidth(self) -> float:
        return self.engine.copy_bandwidth()

    def rate(self, kind: str, dtype: str) -> float | None:
        return self.engine.rate(kind, dtype)

    def recording(
        self, operations: Sequence[Callable[[], None]], waits: Waits | None = None, of: Sequence[Any] = ()
    ) -> Recording:
        assigned = assign_streams(operations, waits, self.target)
        made = self._recording(operations, assigned)
        made.summary = summary(assigned)
        return made

    def _recording(self, operations: Sequence[Callable[[], None]], assigned: Sequence[StreamAssignment]) -> Recording:
        assert isinstance(self.engine, Device)
        return GraphRecording(operations, assigned, self.engine)

    def _maps_of(self, bound: BoundLoop) -> dict[str, Any]:
        """The stored maps by name."""
        found = {}
        for k, one in enumerate(bound.maps):
            if not one.formula:
                version, there = self._maps.get(one, (-1, None))
                if version != one.version:
                    there = self.engine.upload(one.positions)
                    self._maps[one] = one.version, there
                found[f"m{k}"] = there
        return found

    def _tables(self, bound: BoundLoop, lowered: Lowered) -> dict[str, Any]:
        """The arrays of the plan that kernels receive, by name; loops with one plan share them."""
        plan, wide_index = bound.plan(), lowered.options.wide_index
        received = {name for one in lowered.kernels for _, name in one.parameters}
        there = self._plans.setdefault(plan, {})
        arrays = {name: array for name, array in plan_arrays(plan).items() if name in received}
        for name, array in arrays.items():
            if (name, wide_index) not in there:
                there[name, wide_index] = self.engine.upload(array if wide_index else narrow(array))
        return {name: there[name, wide_index] for name in arrays}


class EmulatedCuda(CudaBackend):
    """A GPU on the CPU: what it would run, the same text and the same fused programs, where there is none. To be asked
    for by name: it is right, and slow. ``target``: the GPU; its language may be any that says what a CPU's compiler
    makes of it."""

    name = "emulated"

    def __init__(self, target: Target = H200, name: str = "") -> None:
        super().__init__()
        self.name = name or self.name
        self.engine = Emulator(target)

    def unavailable(self) -> str | None:
        from meshloom.backend.cpu import CpuBackend

        return CpuBackend().unavailable()

    def place(self, storage: Any) -> Any:
        return Backend.place(self, storage)

    def zeros(self, storage: Any) -> Any:
        return Backend.zeros(self, storage)

    def _recording(self, operations: Sequence[Callable[[], None]], assigned: Sequence[StreamAssignment]) -> Recording:
        return Recording(operations)


def _no_compiler() -> str | None:
    """Why nothing can be compiled for a device; None where it can be."""
    try:
        nvrtc.library()
    except CompilerError as error:
        return str(error)
    return None


def _largest(bound: BoundLoop, plan: Plan, target: Target) -> int:
    """The largest position that generated code may compute."""
    sizes = [s.storage.size for s in bound.storages] + [m.source.total * m.arity for m in bound.maps]
    sizes += [a.size for a in plan_arrays(plan).values()]
    known = sizes_of(bound, plan)
    sizes += [number_of(count, known) for _, _, count in temporaries(bound.spec, plan)]
    # A thread that goes on looks as far behind the last one as all that run at a time reach.
    return max(sizes, default=0) + 2 * plan.block + target.multiprocessors * target.resident_threads


def _launches(
    lowered: Lowered, loaded: Loaded, grids: list[list[LaunchRange]], shared: list[int], values: dict[str, Any]
) -> Iterator[Launch]:
    """One for each range of a pass, in order; ranges of colors are known, so nothing is decided at run time."""
    unit, parameters, parts = lowered.unit, {one.name: one.parameters for one in lowered.kernels}, 0

    def launch(name: str, grid: int, threads: int, room: int, **own: int) -> Launch:
        function, found = loaded.functions[name], values | own
        arguments = tuple([found[n] for _, n in parameters[name]])
        bind = getattr(function, "bound", None) or partial(partial, function)  # some decide everything beforehand
        return Launch(name, function, arguments, bind(grid, threads, room, arguments), grid, threads, room)

    for k, (name, one) in enumerate(zip(lowered.pass_names, unit.passes, strict=True)):
        for low, high, extra_blocks, grid in grids[k]:
            own = {"low": low, "high": high, "parts": parts, "blocks_ahead": extra_blocks}
            yield launch(name, grid, lowered.options.threads, shared[k], **own)
            parts += grid if one.reductions else 0
    if unit.spec.reductions:
        yield launch(FINISH, 1, dialect.finish_threads(unit.target), 0, parts=parts)


_WIDTH = {"double": 8, "float": 4, "int32_t": 4, "int64_t": 8}


def _width(ctype: str | PairOf) -> int:
    return 2 * _WIDTH[ctype.ctype] if isinstance(ctype, PairOf) else _WIDTH[ctype]


def _shared(one: Pass, sizes: dict[str, int]) -> int:
    """Bytes of shared memory that a pass asks for at launch."""
    return sum(-(-number_of(x.size, sizes) * _width(x.ctype) // 16) * 16 for x in one.scratch)


def _check_shared(bound: BoundLoop, shared: list[int]) -> None:
    """Raise ScheduleError when a block needs more shared memory than the schedule allows."""
    needed, allowed = max(shared, default=0), bound.schedule.shared
    if allowed is not None and needed > allowed:
        raise ScheduleError(
            f"loop {bound.spec.name}: a block of '{bound.schedule}' needs {needed:,} bytes of shared memory; use"
            " smaller blocks, or allow more"
        )


def _grids(one: Pass, sizes: dict[str, int], plan: Plan, most: int | None) -> Iterator[LaunchRange]:
    """Those of the launches of a pass that have anything to do, each with at ``most`` so many blocks."""
    extra_blocks = -(-number_of(one.extra_items[0], sizes) // plan.block) if one.extra_items else 0
    ends = [0, number_of(one.count, sizes)] if one.colors is None else plan_arrays(plan)[one.colors.name].tolist()
    for low, high in pairwise(ends):
        grid = high - low if one.blocked else -(-(high - low) // plan.block)
        if grid > 0:
            yield low, high, extra_blocks, extra_blocks + (grid if most is None else min(grid, most))
