"""C++17 with OpenMP, compiled by the host's compiler and cached by content."""

from __future__ import annotations

import ctypes

import numpy as np

from meshloom.backend.base import Backend, Bound
from meshloom.backend.dialect import Argument, Unit, render
from meshloom.errors import CompilerError
from meshloom.kernel.expr import C_TYPES
from meshloom.native.compiler import host_compiler, load
from meshloom.native.runtime import Operation
from meshloom.schedule.code import partial_name
from meshloom.schedule.plan import Plan
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies import strategy

#: Neither changes a value: no errno from sqrt, no care for floating-point traps. Both let loops be vectorised.
FLAGS = ("-fno-math-errno", "-fno-trapping-math")
_C_OF = {np.dtype(np.uint8): "uint8_t"} | C_TYPES


class CpuBackend(Backend):
    """``threads`` is read by generated code at every call, so changing it needs no new code."""

    name = "cpu"

    def __init__(self) -> None:
        self.threads = np.ones(1, np.int64)
        self.contract = True

    @property
    def key(self) -> tuple[object, ...]:
        return self.name, self.contract

    def unavailable(self) -> str | None:
        try:
            host_compiler()
        except CompilerError as error:
            return str(error)
        return None

    def prepare(self, bound: Bound) -> Operation:
        plan = bound.plan()
        unit = make_unit(bound.spec, plan)
        flags = FLAGS if self.contract else (*FLAGS, "-ffp-contract=off")
        function = load(render(unit), bound.spec.name, extra_flags=flags).ml_loop
        function.restype = None
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        arrays = self._arrays(bound, plan)
        sizes = _sizes(bound, plan)
        return Operation(function, [arrays[a.name] for a in unit.pointers], [sizes[name] for name in unit.sizes])

    def _arrays(self, bound: Bound, plan: Plan) -> dict[str, np.ndarray]:
        """Every array the generated function may point to, by name."""
        spec = bound.spec
        arrays = {spec.access(k).pointer: s.storage for k, s in enumerate(bound.storages)}
        arrays |= {f"m{k}": m.indices for k, m in enumerate(bound.maps)}
        arrays |= plan.arrays
        arrays["threads_in_use"] = self.threads
        for name, dtype, per_element in temporaries(spec, plan):
            arrays[name] = np.zeros(bound.elements * per_element, dtype)
        blocks = -(-bound.elements // plan.block) + plan.sizes.get("n_colors", 0) + 1
        for output in spec.reductions:
            arrays[f"{partial_name(output)}_parts"] = np.zeros(blocks, spec.params[output.param].dtype)
        return arrays


def temporaries(spec: LoopSpec, plan: Plan) -> list[tuple[str, np.dtype, int]]:
    """(name, type, entries per element) of arrays that live between the passes of a loop."""
    return strategy(plan.strategy).temporaries(spec)


def make_unit(spec: LoopSpec, plan: Plan) -> Unit:
    """The generated source as data: a function of the loop's spec and the names and types of the plan's arrays."""
    pointers = [Argument(spec.access(k).pointer, p.ctype, not p.mode.writes) for k, p in enumerate(spec.params)]
    pointers += [Argument(f"m{k}", C_TYPES[m.dtype], True) for k, m in enumerate(spec.maps)]
    pointers += [Argument(name, _C_OF[array.dtype], True) for name, array in sorted(plan.arrays.items())]
    pointers += [Argument(name, C_TYPES[dtype], False) for name, dtype, _ in temporaries(spec, plan)]
    pointers += [Argument(f"{partial_name(o)}_parts", spec.params[o.param].ctype, False) for o in spec.reductions]
    pointers.append(Argument("threads_in_use", "int64_t", True))
    return Unit(
        spec, tuple(pointers), tuple(_size_names(spec, plan)), tuple(strategy(plan.strategy).passes(spec, plan))
    )


def _size_names(spec: LoopSpec, plan: Plan) -> list[str]:
    names = ["n", "block", *sorted(plan.sizes)]
    names += [f"stride{k}" for k, p in enumerate(spec.params) if p.layout.kind == "soa" and not p.is_global]
    return names + [f"targets{m}" for m in range(len(spec.maps))]


def _sizes(bound: Bound, plan: Plan) -> dict[str, int]:
    sizes = {"n": bound.elements, "block": plan.block} | plan.sizes
    for k, storage in enumerate(bound.storages):
        if not bound.spec.params[k].is_global:
            sizes[f"stride{k}"] = storage.storage.size // storage.dim
    return sizes | {f"targets{m}": one.target.total for m, one in enumerate(bound.maps)}
