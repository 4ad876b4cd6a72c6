"""C++17 with OpenMP, compiled by the host's compiler and cached by content."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshloom.backend.base import Backend, Bound, CopyMemory, FillMemory, Recording, Replayed
from meshloom.backend.cpu_dialect import render
from meshloom.backend.unit import Argument, Unit, check_arrays, color_counts, make_unit, sizes_of, temporaries
from meshloom.errors import CompilerError
from meshloom.mesh.condition import SIGNS, Comparison
from meshloom.mesh.core import Global
from meshloom.native import runtime, threads
from meshloom.native.closing import function_of
from meshloom.native.compiler import host_compiler, load
from meshloom.native.runtime import NativeCall
from meshloom.schedule.nest.code import partial_name
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.plan.plan import arrays as plan_arrays

#: Neither changes a value: no errno from sqrt, no care for floating-point traps. Both let loops be vectorised.
FLAGS = ("-fno-math-errno", "-fno-trapping-math")
NO_CONTRACTION = "-ffp-contract=off"


class CpuBackend(Backend):
    """``threads`` is read by generated code at every call, so changing it needs no new code."""

    name = "cpu"

    def __init__(self) -> None:
        self.threads = threads.in_use
        self.contract = True

    @property
    def key(self) -> tuple[object, ...]:
        return *super().key, self.contract

    def unavailable(self) -> str | None:
        try:
            host_compiler()
        except CompilerError as error:
            return str(error)
        return None

    def prepare(self, bound: Bound) -> NativeCall:
        plan = bound.plan()
        made_for, unit, function = bound.compiled.get(self.key, (None, None, None))
        if made_for is not plan:
            unit, function = self._compiled(bound, plan)
            bound.compiled[self.key] = plan, unit, function
        arrays = self._arrays(bound, plan, unit)
        sizes = sizes_of(bound, plan) | color_counts(unit, arrays)
        check_arrays(bound.spec.name, unit.pointers, arrays)
        return NativeCall(function, [arrays[a.name] for a in unit.pointers], [sizes[name] for name in unit.sizes])

    def _compiled(self, bound: Bound, plan: Plan) -> tuple[Unit, Any]:
        unit = make_unit(bound.spec, plan, extra=(Argument("threads_in_use", "int64_t", True),))
        flags = FLAGS if self.contract and not bound.spec.strict else (*FLAGS, NO_CONTRACTION)
        library = load(render(unit), bound.spec.name, extra_flags=flags)
        return unit, function_of(library, "ml_loop", ctypes.c_void_p, ctypes.c_void_p)

    def _arrays(self, bound: Bound, plan: Plan, unit: Unit) -> dict[str, np.ndarray]:
        """Every array the generated function may point to, by name."""
        spec = bound.spec
        arrays = {spec.access(k).pointer: s.storage for k, s in enumerate(bound.storages)}
        arrays |= {f"m{k}": m.positions for k, m in enumerate(bound.maps) if not m.formula}
        arrays |= plan_arrays(plan)
        arrays["threads_in_use"] = self.threads
        for name, dtype, per_element in temporaries(spec, plan):
            arrays[name] = np.zeros(bound.elements * per_element, dtype)
        blocks = plan.blocks(bound.elements) + sum(color_counts(unit, arrays).values())  # a color ends in part of one
        for output in spec.reductions:
            arrays[f"{partial_name(output)}_parts"] = np.zeros(blocks, spec.params[output.param].dtype)
        return arrays

    def recording(self, operations: Sequence[Callable[[], None]], *, branches: bool = True) -> Recording:
        return NativeRecording(operations)


class NativeRecording(Recording):
    """All operations, any number of times, in one native call."""

    def __init__(self, operations: Sequence[Callable[[], None]]):
        super().__init__(operations)
        self._native = [_native(o) for o in operations]

    def run(self, times: int, record: Sequence[Global]) -> Replayed:
        history = np.zeros((times, sum(g.dim for g in record)))
        operations, start = list(self._native), 0
        for g in record:
            cursor = np.array([start], np.int64)
            operations.append(runtime.record_operation(g.storage, history, cursor, history.shape[1]))
            start += g.dim
        seconds, done, stopped = self._replayed(operations, times, None)
        return Replayed(history[:done], seconds, stopped)

    def repeat(self, at_most: int, until: Comparison) -> Replayed:
        met = np.zeros(1, np.int64)
        sign = list(SIGNS).index(until.sign)
        last = runtime.compare_operation(until.left, sign, until.right, met)
        seconds, done, stopped = self._replayed([*self._native, last], at_most, met)
        return Replayed(np.zeros((done, 0)), seconds, stopped, bool(met[0]))

    def _replayed(self, operations: list[NativeCall], times: int, enough: Any) -> tuple[np.ndarray, int, bool]:
        """Seconds of the operations that were recorded, whole replays, and whether Ctrl-C came."""
        seconds, done, stopped = np.zeros(len(operations)), np.zeros(1, np.int64), False
        try:
            runtime.replay(operations, times, seconds, done, enough)
        except KeyboardInterrupt:  # it comes between native calls, and these end with a whole replay
            stopped = True
        return seconds[: len(self._native)], int(done[0]), stopped


def _native(operation: Callable[[], None]) -> NativeCall:
    if isinstance(operation, FillMemory):
        return runtime.fill_operation(operation.storage, operation.value)
    if isinstance(operation, CopyMemory):
        return runtime.copy_operation(operation.reads[0].storage, operation.writes[0].storage)
    assert isinstance(operation, NativeCall)
    return operation
