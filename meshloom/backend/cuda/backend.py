"""CUDA: the same passes as kernels of a device, launched one after the other on a stream, without waiting."""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from meshloom.backend.base import Backend, BoundLoop, Recording, Waits
from meshloom.backend.branches import StreamAssignment, summary
from meshloom.backend.cuda import dialect, nvrtc
from meshloom.backend.cuda.dialect import FINISH, KernelText
from meshloom.backend.cuda.driver import DeviceLaunch
from meshloom.backend.cuda.emulator import Emulator
from meshloom.backend.cuda.engine import Device, Engine, LaunchFunction
from meshloom.backend.cuda.graph import GraphRecording, assign_streams
from meshloom.backend.cuda.kernels import WantedKernels, compiled_kernels, known_kernels
from meshloom.backend.unit import TranslationUnit, make_unit, sizes_of, temporaries
from meshloom.errors import CompilerError, ScheduleError, install
from meshloom.mesh.core import Map
from meshloom.native import together
from meshloom.native.threads import DEVICE_LEFT_BEHIND, check_device, device_begins, invalid_after_fork
from meshloom.schedule.nest.code import Pass, partial_name
from meshloom.schedule.nest.nodes import PairOf
from meshloom.schedule.nest.walk import number_of
from meshloom.schedule.plan.plan import Plan, with_arrays
from meshloom.schedule.plan.plan import arrays as plan_arrays
from meshloom.schedule.strategies.common.vectors import share_of
from meshloom.target import H200, Target


@dataclass(frozen=True, eq=False)
class LoadedKernels:
    """Kernels as text, their launch functions, and what they use of the device, by name: gone with the last loop."""

    made: list[KernelText]
    functions: dict[str, LaunchFunction]
    resources: dict[str, dict[str, Any]]


class CudaBackend(Backend):
    """Fields live in device memory while loops use them there; ``field.numpy()`` copies out."""

    name = "cuda"
    engine: Engine

    def __init__(self) -> None:
        self.engine = Device()
        self._maps: weakref.WeakKeyDictionary[Map, tuple[int, Any]] = weakref.WeakKeyDictionary()
        self._loaded: weakref.WeakValueDictionary[WantedKernels, LoadedKernels] = weakref.WeakValueDictionary()

    @property
    def key(self) -> tuple[object, ...]:
        """What is loaded belongs to the engine that loaded it."""
        return *super().key, self.engine

    def unavailable(self) -> str | None:
        if invalid_after_fork() and vars(self).get("_reason") is None:  # it had one, or nobody knows
            return DEVICE_LEFT_BEHIND
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

    def source(self, bound: BoundLoop) -> str:
        """As it was compiled; before that for as many registers as kernels like."""
        made_for, (bound, plan, unit, wide_index) = bound.plan(), self._unit(bound)
        kept = bound.compiled.get(self.key)
        if kept is not None and kept[0] is made_for:
            made = kept[1].made
        else:
            made = dialect.kernels(unit, plan.block, self.target.whole_warps(plan.block), [1] * len(unit.passes))
        return dialect.render(unit, made, wide_index=wide_index)

    def _unit(self, bound: BoundLoop) -> tuple[BoundLoop, Plan, TranslationUnit, bool]:
        """A loop as it runs here, its plan in indices of 32 bits where these suffice, the text as data, and whether
        they do not."""
        plan = bound.plan()
        wide_index = _largest(bound, plan) >= 2**31
        if not wide_index:
            plan = with_arrays(plan, lambda a: a.astype(np.int32) if a.dtype == np.int64 else a)
        made_for, needs_64_bits, unit = bound.compiled.get((self.key, "unit"), (None, False, None))
        if unit is None or made_for is not bound.plan() or needs_64_bits != wide_index:
            share = share_of(bound.spec, bound.schedule, bound.elements, self.target)
            spec = replace(bound.spec, whole_rows=bound.schedule.whole_rows, share=share)
            unit = make_unit(spec, plan, target=self.target)
        return replace(bound, spec=unit.spec), plan, unit, wide_index

    def begin(self, bound: BoundLoop) -> None:
        made_for, engine = bound.plan(), self.engine
        if bound.compiled.get(self.key, (None,))[0] is made_for:
            return
        bound, plan, unit, wide_index = self._unit(bound)
        bound.compiled[self.key, "unit"] = made_for, wide_index, unit  # for prepare, which comes soon
        wanted = self._wanted(bound, plan, unit, wide_index)
        if wanted not in self._loaded:
            known = partial(known_kernels, wanted, engine.known, engine.emulation)
            job = partial(compiled_kernels, wanted, partial(engine.compiled, apart=True), engine.emulation)
            together.start(wanted, unit.spec.name, known=known, job=job)

    def prepare(self, bound: BoundLoop) -> Executable:
        made_for, (bound, plan, unit, wide_index) = bound.plan(), self._unit(bound)
        threads = self.target.whole_warps(plan.block)
        kept = bound.compiled.get(self.key)
        if kept is None or kept[0] is not made_for:
            loaded = self._kernels(self._wanted(bound, plan, unit, wide_index))
            received = {name for one in loaded.made for _, name in one.parameters}
            tables = {name: self.engine.upload(array) for name, array in plan_arrays(plan).items() if name in received}
            kept = bound.compiled[self.key] = made_for, loaded, tables
            bound.compiled.pop((self.key, "unit"), None)
        loaded, tables = kept[1:]
        made, functions, resources = loaded.made, loaded.functions, loaded.resources
        used = {name: dict(one) for name, one in resources.items()}
        sizes = sizes_of(bound, plan)
        parts = sum(grid for one in unit.passes if one.reductions for *_, grid in _grids(one, sizes, plan))
        scratch = self._scratch(bound, plan, parts)
        arrays = self._arrays(bound) | tables | scratch
        _check_shared(bound, unit, sizes)
        steps = _steps(unit, made, functions, arrays, sizes, plan, threads)
        for number, one in enumerate(unit.passes):
            used.setdefault(f"pass{number}", {}).update(
                self.engine.usage(functions[f"pass{number}"], threads, _shared(one, sizes))
            )
        needed = [grid * threads / (used[f"pass{k}"].get("occupancy") or 1.0)
                  for k, one in enumerate(unit.passes) for *_, grid in _grids(one, sizes, plan)]  # fmt: skip
        return Executable(steps, used, list(arrays.values()), self.engine.events(), max(needed, default=0.0))

    def _wanted(self, bound: BoundLoop, plan: Plan, unit: TranslationUnit, wide_index: bool) -> WantedKernels:
        threads, registers = self.target.whole_warps(plan.block), bound.schedule.registers
        return WantedKernels(unit, plan.block, threads, registers or None, wide_index, self.engine.architecture)

    def _kernels(self, wanted: WantedKernels) -> LoadedKernels:
        """Those of another loop with such a unit, as long as there is one: often the same kernel over another color."""
        found = self._loaded.get(wanted)
        if found is None:
            engine = self.engine
            made, code = together.finish(wanted, partial(compiled_kernels, wanted, engine.compiled, engine.emulation))
            functions = engine.load(code, made, wide_index=wanted.wide_index)
            found = self._loaded[wanted] = LoadedKernels(made, functions, code.resources)
        return found

    def copy_bandwidth(self) -> float:
        return self.engine.copy_bandwidth()

    def recording(self, operations: Sequence[Callable[[], None]], waits: Waits | None = None) -> Recording:
        dealt = assign_streams(operations, waits, self.target)
        made = self._recording(operations, dealt)
        made.summary = summary(dealt)
        return made

    def _recording(self, operations: Sequence[Callable[[], None]], dealt: Sequence[StreamAssignment]) -> Recording:
        assert isinstance(self.engine, Device)
        return GraphRecording(operations, dealt, self.engine)

    def _arrays(self, bound: BoundLoop) -> dict[str, Any]:
        """The arrays of fields, globals and maps by name."""
        spec = bound.spec
        arrays = {spec.access(k).pointer: s.storage for k, s in enumerate(bound.storages)}
        for k, one in enumerate(bound.maps):
            if one.formula:
                continue
            version, there = self._maps.get(one, (-1, None))
            if version != one.version:
                there = self.engine.upload(one.positions)
                self._maps[one] = one.version, there
            arrays[f"m{k}"] = there
        return arrays

    def _scratch(self, bound: BoundLoop, plan: Plan, parts: int) -> dict[str, Any]:
        """Arrays that a loop writes for itself, by name; ``parts``: blocks that have a share of the globals."""
        spec, arrays = bound.spec, {}
        for name, dtype, per_element in temporaries(spec, plan):
            arrays[name] = self.engine.upload(np.zeros(bound.elements * per_element, dtype))
        for output in spec.reductions:
            empty = np.zeros(max(parts, 1), spec.params[output.param].dtype)
            arrays[f"{partial_name(output)}_parts"] = self.engine.upload(empty)
        return arrays


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

    def _recording(self, operations: Sequence[Callable[[], None]], dealt: Sequence[StreamAssignment]) -> Recording:
        return Recording(operations)


class Executable:
    """The launches of a loop in order; calling it puts them on the current stream and returns at once.

    ``threads``: those that a device must have to run all blocks of the largest launch at the same time.
    """

    def __init__(self, steps: list[Callable[[], None]], used: dict[str, dict[str, Any]], keep: list[Any], events: Any,
                 threads: float):  # fmt: skip
        self.steps, self.resources, self.keep, self.threads, self._events = steps, used, keep, threads, events

    def launch(self) -> None:
        """The launches alone."""
        for step in self.steps:
            step()

    def __call__(self) -> None:
        """The launches between two events, so that somebody may ask later how long they took."""
        if self._events is None:
            return self.launch()
        check_device()
        start, end = self._events
        start.record()
        self.launch()
        end.record()

    @property
    def seconds(self) -> float | None:
        """Device time of the last call; waits for it. None where there is no device."""
        return self._events and self._events[0].elapsed(self._events[1])


def _no_compiler() -> str | None:
    """Why nothing can be compiled for a device; None where it can be."""
    try:
        nvrtc.library()
    except CompilerError as error:
        return str(error)
    return None


def _largest(bound: BoundLoop, plan: Plan) -> int:
    """The largest position that generated code may compute."""
    sizes = [s.storage.size for s in bound.storages] + [m.source.total * m.arity for m in bound.maps]
    sizes += [a.size for a in plan_arrays(plan).values()]
    sizes += [bound.elements * per for _, _, per in temporaries(bound.spec, plan)]
    return max(sizes, default=0) + 2 * plan.block


def _steps(unit: TranslationUnit, made: list[KernelText], functions: dict[str, LaunchFunction], arrays: dict[str, Any],
           sizes: dict[str, int], plan: Plan, threads: int) -> list[Callable[[], None]]:  # fmt: skip
    """One callable for each launch; ranges of colors are known, so nothing is decided at run time."""
    steps: list[Callable[[], None]] = []
    parts = 0
    for number, one in enumerate(unit.passes):
        text = made[number]
        shared = _shared(one, sizes)
        for low, high, extra_blocks, grid in _grids(one, sizes, plan):
            values = arrays | sizes | {"low": low, "high": high, "parts": parts, "blocks_ahead": extra_blocks}
            steps.append(_bind(functions[text.name], grid, threads, shared, [values[n] for _, n in text.parameters]))
            parts += grid if one.reductions else 0
    if unit.spec.reductions:
        values = arrays | {"parts": parts}
        arguments = [values[n] for _, n in made[-1].parameters]
        steps.append(_bind(functions[FINISH], 1, dialect.finish_threads(unit.target), 0, arguments))
    return steps


_WIDTH = {"double": 8, "float": 4, "int32_t": 4, "int64_t": 8}


def _width(ctype: str | PairOf) -> int:
    return 2 * _WIDTH[ctype.ctype] if isinstance(ctype, PairOf) else _WIDTH[ctype]


def _shared(one: Pass, sizes: dict[str, int]) -> int:
    """Bytes of shared memory that a pass asks for at launch."""
    return sum(-(-number_of(x.size, sizes) * _width(x.ctype) // 16) * 16 for x in one.scratch)


def _check_shared(bound: BoundLoop, unit: TranslationUnit, sizes: dict[str, int]) -> None:
    """Raise ScheduleError when a block needs more shared memory than the schedule allows."""
    needed, allowed = max((_shared(one, sizes) for one in unit.passes), default=0), bound.schedule.shared
    if allowed is not None and needed > allowed:
        raise ScheduleError(
            f"loop {bound.spec.name}: a block of '{bound.schedule}' needs {needed:,} bytes of shared memory; use"
            " smaller blocks, or allow more"
        )


def _bind(launch: LaunchFunction, grid: int, threads: int, shared: int, arguments: list[Any]) -> Callable[[], None]:
    if isinstance(launch, DeviceLaunch):
        return launch.bound(grid, threads, shared, arguments)
    return lambda: launch(grid, threads, shared, arguments)


def _grids(one: Pass, sizes: dict[str, int], plan: Plan) -> Iterator[tuple[int, int, int, int]]:
    """(first item, end, blocks of extra items, all blocks) of each launch of a pass that has anything to do."""
    extra_blocks = -(-number_of(one.extra_items[0], sizes) // plan.block) if one.extra_items else 0
    for low, high in _ranges(one, sizes, plan):
        grid = high - low if one.blocked else -(-(high - low) // plan.block)
        if grid > 0:
            yield low, high, extra_blocks, extra_blocks + grid


def _ranges(one: Pass, sizes: dict[str, int], plan: Plan) -> list[tuple[int, int]]:
    if one.colors is None:
        return [(0, number_of(one.count, sizes))]
    offsets = [int(x) for x in plan_arrays(plan)[one.colors.name]]
    return list(pairwise(offsets))
