"""C++17 with OpenMP, compiled by the host's compiler and cached by content."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from meshloom.backend import lowering
from meshloom.backend.base import Recording, Replayed, Waits
from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.compiling import CompilingBackend
from meshloom.backend.cpu_dialect import ENTRY, render
from meshloom.backend.lowering import Compiled, Launch, Launches, Loaded, Lowered
from meshloom.backend.translation_unit import (
    Argument,
    check_arrays,
    color_counts,
    make_unit,
    scratch_of,
    sizes_of,
    values_of,
)
from meshloom.errors import CompilerError
from meshloom.mesh.core import Global
from meshloom.mesh.globals import SIGNS, Comparison
from meshloom.native import compiler, runtime, threads
from meshloom.native.compiler import LOOP_FLAGS, Compiler, host_compiler
from meshloom.native.dlclose import function_of
from meshloom.native.peaks import rate
from meshloom.native.runtime import NativeCall
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.plan.plan import arrays as plan_arrays
from meshloom.schedule.spec import LoopSpec
from meshloom.target import CPU, Rates

T = TypeVar("T")
NO_CONTRACTION = "-ffp-contract=off"  # the text says what is contracted
#: What GCC is spared where a text is long, none of it arithmetic: a third copy of the loop for the last elements of a
#: block, looks at what earlier turns and loads have left in registers, and long searches for the best register to give
#: up. Time that it spends on values which do not fit into registers grows faster than a loop: 2,500 operations took
#: 9.1 s of a core, and take 2.6 to 4.4.
FLAGS_OF_MANY = ("--param=vect-epilogues-nomask=0", "-fno-predictive-commoning", "-fno-gcse-after-reload",
                 "--param=lra-max-considered-reload-pseudos=5")  # fmt: skip


class CppOptions(NamedTuple):
    """What code depends on besides the loop: how it is compiled, and how by GCC where it is long; by whom; and how its
    text is written."""

    flags: tuple[str, ...]
    of_many: tuple[str, ...]
    compiler: Compiler
    serial: bool  # see ``BoundLoop``
    contract: bool  # with fma

    def of(self, source: str) -> tuple[str, ...]:
        """The flags for a text. Those of a long one give code as fast, sooner."""
        many = self.compiler.is_gnu and source.count(";\n") >= CPU.cpu.compiling.many_statements
        return (*self.flags, *(self.of_many if many else ()))


class CpuBackend(CompilingBackend):
    """``threads`` is read by generated code at every call, so changing it needs no new code."""

    name = "cpu"

    def __init__(self) -> None:
        super().__init__()
        self.threads = threads.in_use
        self.contract = True

    def rate(self, kind: str, dtype: str) -> float | None:
        return rate(kind, dtype, int(self.threads[0]))

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

    def options(self, bound: BoundLoop, plan: Plan) -> CppOptions:
        flags = (*LOOP_FLAGS, NO_CONTRACTION)
        return CppOptions(flags, FLAGS_OF_MANY, host_compiler(), bound.serial, self.contract)

    def lower(self, spec: LoopSpec, plan: Plan, options: CppOptions) -> Lowered:
        unit = make_unit(spec, plan, extra=(Argument("threads_in_use", "int64_t", True),), serial=options.serial)
        return Lowered(unit, render(unit, contract=options.contract), options)

    def begin(self, bound: BoundLoop) -> None:
        super().begin(bound)
        runtime.begin()  # which replays it

    def known(self, lowered: Lowered) -> Compiled | None:
        found = _with_flags(compiler.known, lowered)
        return None if found is None else Compiled(found, source=lowered.source)

    def compiled(self, lowered: Lowered, *, apart: bool = False) -> Compiled:
        """``load`` compiles what nobody has compiled ahead."""
        return Compiled(_with_flags(compiler.build, lowered) if apart else None, source=lowered.source)

    def load(self, lowered: Lowered, compiled: Compiled) -> Mapping[str, Any]:
        library = _with_flags(compiler.load, lowered)
        return {ENTRY: function_of(library, ENTRY, ctypes.c_void_p, ctypes.c_void_p)}

    def launches(self, bound: BoundLoop, lowered: Lowered, loaded: Loaded) -> Launches:
        plan, unit, function = bound.plan(), lowered.unit, loaded.functions[ENTRY]
        arrays = values_of(bound) | {f"m{k}": m.positions for k, m in enumerate(bound.maps) if not m.formula}
        arrays |= plan_arrays(plan) | {"threads_in_use": self.threads}
        colors = color_counts(unit, arrays)
        blocks = plan.blocks(bound.elements) + sum(colors.values())  # a color ends in part of one
        arrays |= scratch_of(bound, plan, blocks)
        check_arrays(bound.spec.name, unit.pointers, arrays)
        sizes = sizes_of(bound, plan) | colors
        pointers, numbers = [arrays[a.name] for a in unit.pointers], [sizes[name] for name in unit.sizes]
        call = NativeCall(function, pointers, numbers)
        return Launches((Launch(ENTRY, function, (*pointers, *numbers), call),), (loaded,))

    def recording(
        self, operations: Sequence[Callable[[], None]], waits: Waits | None = None, of: Sequence[Any] = ()
    ) -> Recording:
        return NativeRecording(operations)


def _with_flags(step: Callable[..., T], lowered: Lowered) -> T:
    return step(lowered.source, lowered.name, extra_flags=lowered.options.of(lowered.source))


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


def _native(operation: Any) -> NativeCall:
    """An operation is one launch here."""
    (launch,) = operation.launches
    if launch.function is lowering.fill_memory:
        return runtime.fill_operation(*launch.arguments)
    if launch.function is lowering.copy_memory:
        return runtime.copy_operation(*launch.arguments)
    assert isinstance(launch.call, NativeCall)
    return launch.call
