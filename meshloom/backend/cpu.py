"""C++17 with OpenMP, compiled by the host's compiler and cached by content."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from meshloom.backend.base import Backend, BoundLoop, CopyMemory, FillMemory, Recording, Replayed, Waits
from meshloom.backend.cpu_dialect import render
from meshloom.backend.unit import (
    Argument,
    TranslationUnit,
    check_arrays,
    color_counts,
    make_unit,
    sizes_of,
    temporaries,
)
from meshloom.errors import CompilerError
from meshloom.mesh.condition import SIGNS, Comparison
from meshloom.mesh.core import Global
from meshloom.native import runtime, threads, together
from meshloom.native.compiler import host_compiler
from meshloom.native.dlclose import function_of
from meshloom.native.runtime import NativeCall
from meshloom.schedule.nest.code import partial_name
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.plan.plan import arrays as plan_arrays
from meshloom.target import CPU, Rates

#: Neither changes a value: no errno from sqrt, no care for floating-point traps. Both let loops be vectorised.
FLAGS = ("-fno-math-errno", "-fno-trapping-math")
NO_CONTRACTION = "-ffp-contract=off"
#: What GCC is spared where a text is long, none of it arithmetic: a third copy of the loop for the last elements of a
#: block, looks at what earlier turns and loads have left in registers, and long searches for the best register to give
#: up. Time that it spends on values which do not fit into registers grows faster than a loop: 2,500 operations took
#: 9.1 s of a core, and take 2.6 to 4.4.
FLAGS_OF_MANY = ("--param=vect-epilogues-nomask=0", "-fno-predictive-commoning", "-fno-gcse-after-reload",
                 "--param=lra-max-considered-reload-pseudos=5")  # fmt: skip


class CppText(NamedTuple):
    """A loop as text: what was printed, the text, and how it is compiled."""

    unit: TranslationUnit
    source: str
    flags: tuple[str, ...]


def flags_for_size(source: str) -> tuple[str, ...]:
    """What a long text is compiled with, besides: code as fast, sooner."""
    return FLAGS_OF_MANY if host_compiler().is_gnu and source.count(";\n") >= CPU.cpu.compiling.many_statements else ()


class CpuBackend(Backend):
    """``threads`` is read by generated code at every call, so changing it needs no new code."""

    name = "cpu"

    def __init__(self) -> None:
        self.threads = threads.in_use
        self.contract = True

    @property
    def rates(self) -> Rates:
        return self.target.rates.on_threads(int(self.threads[0]), self.target.cpu.threads.bytes_per_second)

    @property
    def key(self) -> tuple[object, ...]:
        return *super().key, self.contract

    @property
    def compiles_apart(self) -> bool:
        return True

    def unavailable(self) -> str | None:
        try:
            host_compiler()
        except CompilerError as error:
            return str(error)
        return None

    def prepare(self, bound: BoundLoop) -> NativeCall:
        plan = bound.plan()
        made_for, unit, function = bound.compiled.get(self.key, (None, None, None))
        if made_for is not plan:
            text = self._text(bound, plan)
            library = together.load(text.source, bound.spec.name, extra_flags=text.flags)
            unit, function = text.unit, function_of(library, "ml_loop", ctypes.c_void_p, ctypes.c_void_p)
            bound.compiled[self.key] = plan, unit, function
        arrays = self._arrays(bound, plan, unit)
        sizes = sizes_of(bound, plan) | color_counts(unit, arrays)
        check_arrays(bound.spec.name, unit.pointers, arrays)
        return NativeCall(function, [arrays[a.name] for a in unit.pointers], [sizes[name] for name in unit.sizes])

    def source(self, bound: BoundLoop) -> str:
        return self._text(bound, bound.plan()).source

    def begin(self, bound: BoundLoop) -> None:
        plan = bound.plan()
        if bound.compiled.get(self.key, (None,))[0] is not plan:
            text = self._text(bound, plan)
            bound.compiled[self.key, "text"] = plan, text  # for prepare, which comes soon
            together.begin(text.source, bound.spec.name, extra_flags=text.flags)
            runtime.begin()  # which replays it

    def _text(self, bound: BoundLoop, plan: Plan) -> CppText:
        made_for, text = bound.compiled.pop((self.key, "text"), (None, None))
        if text is not None and made_for is plan:
            return text
        threads_in_use = Argument("threads_in_use", "int64_t", True)
        unit = make_unit(bound.spec, plan, extra=(threads_in_use,), serial=bound.serial)
        flags = FLAGS if self.contract and not bound.spec.strict else (*FLAGS, NO_CONTRACTION)
        source = render(unit)
        return CppText(unit, source, (*flags, *flags_for_size(source)))

    def _arrays(self, bound: BoundLoop, plan: Plan, unit: TranslationUnit) -> dict[str, np.ndarray]:
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

    def recording(self, operations: Sequence[Callable[[], None]], waits: Waits | None = None) -> Recording:
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
        return runtime.copy_operation(operation.source, operation.target)
    assert isinstance(operation, NativeCall)
    return operation
