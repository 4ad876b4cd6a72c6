"""What one generated source consists of, whatever the dialect: pointers, sizes and passes, all by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshloom.backend.bound_loop import BoundLoop
from meshloom.errors import ScheduleError
from meshloom.kernel.emit import literal
from meshloom.kernel.expr import C_TYPES
from meshloom.records import dataclass
from meshloom.schedule.nest.binned import BINNED, WORDS
from meshloom.schedule.nest.code import Pass, partial_name, serial_pass
from meshloom.schedule.nest.nodes import Name, Statement, let
from meshloom.schedule.nest.walk import names as names_in
from meshloom.schedule.nest.walk import number_of
from meshloom.schedule.plan.emitter import passes_of, temporaries
from meshloom.schedule.plan.plan import Plan, arrays, sizes
from meshloom.schedule.spec import LoopSpec
from meshloom.target import CPU, Target

_PASTED = re.compile(r"^//@ (\w+\.hpp)\n", re.MULTILINE)
#: What lies in memory where generated code sees a structure.
_STORED = {BINNED: C_TYPES[WORDS[0]]}
_C_OF = {np.dtype(f"uint{bits}"): f"uint{bits}_t" for bits in (8, 16, 32)} | C_TYPES


@dataclass(frozen=True)
class Argument:
    """A pointer the generated code receives."""

    name: str
    ctype: str
    const: bool

    @property
    def pointer_type(self) -> str:
        return f"{'const ' if self.const else ''}{self.ctype}*"


class Parameter(NamedTuple):
    """A parameter of a generated function; pointers are promised to lead to memory of their own."""

    ctype: str
    name: str

    @property
    def is_pointer(self) -> bool:
        return self.ctype.endswith("*")

    @property
    def declaration(self) -> str:
        return f"{self.ctype} __restrict__ {self.name}" if self.is_pointer else f"{self.ctype} {self.name}"


@dataclass(frozen=True)
class KernelText:
    """One generated function: its parameters in order, and its text where that is printed by itself."""

    name: str
    parameters: tuple[Parameter, ...]
    text_lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class GlobalValue:
    """A value of a Global that is read: its type, what it is called, and the array that it is an entry of."""

    ctype: str
    name: str
    array: str
    place: int

    @property
    def declaration(self) -> Statement:
        return let(self.name, Name(self.array)[self.place], self.ctype)


@dataclass(frozen=True, eq=False)
class TranslationUnit:
    """Everything one generated source needs: pointers, sizes (whole numbers), passes; and where it runs."""

    spec: LoopSpec
    pointers: tuple[Argument, ...]
    sizes: tuple[str, ...]
    passes: tuple[Pass, ...]
    target: Target = CPU
    serial: Pass | None = None  # what one thread does instead


def prelude(path: Path, **parts: str) -> str:
    """What generated code of a dialect may call, with parts by their names (``//@ words``), and what dialects share
    (``//@ operations.hpp``), in their place."""
    text = path.read_text()
    for name, part in parts.items():
        text = text.replace(f"//@ {name}\n", part)
    return _PASTED.sub(lambda found: prelude(Path(__file__).with_name(found[1])), text)


def make_unit(
    spec: LoopSpec, plan: Plan, *, extra: tuple[Argument, ...] = (), target: Target = CPU, serial: bool = False
) -> TranslationUnit:
    """The generated source as data: a function of the loop's spec and of which arrays the plan has, of which types."""
    pointers = [Argument(spec.access(k).pointer, p.ctype, not p.mode.writes) for k, p in enumerate(spec.params)]
    pointers += [Argument(f"m{k}", C_TYPES[m.dtype], True) for k, m in enumerate(spec.maps) if not m.formula]
    pointers += [Argument(name, _C_OF[array.dtype], True) for name, array in sorted(arrays(plan).items())]
    pointers += [Argument(name, C_TYPES[dtype], False) for name, dtype, _ in temporaries(spec, plan)]
    pointers += [Argument(f"{partial_name(o)}_parts", spec.reduction(o).ctype, False) for o in spec.reductions]
    passes, alone = passes_of(spec, plan, target), serial_pass(spec) if serial else None
    names = _size_names(spec, plan, passes)
    return TranslationUnit(spec, (*pointers, *extra), tuple(names), tuple(passes), target, alone)


def check_arrays(name: str, pointers: Sequence[Argument], arrays: Mapping[str, Any]) -> None:
    """ScheduleError unless every array is of the type that the generated code takes it for."""
    for one in pointers:
        found = arrays[one.name]
        if _C_OF.get(found.dtype) != _STORED.get(one.ctype, one.ctype):
            raise ScheduleError(f"loop {name}: {one.name} is an array of {found.dtype}, compiled for {one.ctype}")


def _size_names(spec: LoopSpec, plan: Plan, passes: Sequence[Pass]) -> list[str]:
    names = ["n", "block", *(["shares"] if spec.per_thread.count > 1 else []), *sorted(sizes(plan))]
    names += [f"stride{k}" for k, p in enumerate(spec.params) if p.layout.kind == "soa" and not p.is_global]
    names += sorted({one.n_colors.name for one in passes if one.n_colors is not None})
    return names + [f"targets{m}" for m in range(len(spec.maps))]


def color_counts(unit: TranslationUnit, arrays: Mapping[str, Any]) -> dict[str, int]:
    """How many colors there are in the passes that have any, by what generated code calls that."""
    colored = ((one.n_colors, one.colors) for one in unit.passes)
    return {n.name: len(arrays[c.name]) - 1 for n, c in colored if n is not None and c is not None}


def sizes_of(bound: BoundLoop, plan: Plan) -> dict[str, int]:
    """The values of all sizes a unit may name."""
    shares = -(-bound.elements // bound.spec.per_thread.count)
    found = {"n": bound.elements, "shares": shares, "block": plan.block} | sizes(plan)
    for k, storage in enumerate(bound.storages):
        if not bound.spec.params[k].is_global:
            found[f"stride{k}"] = storage.storage.size // storage.dim
    return found | {f"targets{m}": one.target.total for m, one in enumerate(bound.maps)}


def values_of(bound: BoundLoop) -> dict[str, Any]:
    """The memory of fields and globals, wherever it is, by name."""
    return {bound.spec.access(k).pointer: one.storage for k, one in enumerate(bound.storages)}


def scratch_of(bound: BoundLoop, plan: Plan, parts: int) -> dict[str, np.ndarray]:
    """Arrays that a loop writes for itself, by name; ``parts``: blocks that have a share of the globals."""
    spec = bound.spec
    values = sizes_of(bound, plan)
    found = {name: np.zeros(number_of(count, values), dtype) for name, dtype, count in temporaries(spec, plan)}
    for o in spec.reductions:
        dtype, each = spec.reduction(o).stored
        found[f"{partial_name(o)}_parts"] = np.zeros(parts * each, dtype)
    return found


def block_names(one: Pass) -> set[str]:
    """Everything a pass speaks of by name about one block."""
    phases = one.phases if one.extra_items is None else (*one.phases, one.extra_items[1])
    ranges = [x for phase in phases for x in (phase.first, phase.last, phase.repeat) if x is not None]
    counted = () if one.extra_items is None else (one.extra_items[0],)
    return names_in((*ranges, *(x for phase in phases for x in phase.body), *counted))


def parameters(unit: TranslationUnit, names: Set[str]) -> list[Parameter]:
    """Every pointer, size and global value among some names."""
    found = [Parameter(a.pointer_type, a.name) for a in unit.pointers if a.name in names]
    found += [Parameter("const ml_index", name) for name in unit.sizes if name in names]
    return found + [Parameter(f"const {one.ctype}", one.name) for one in global_values(unit) if one.name in names]


def global_values(unit: TranslationUnit) -> list[GlobalValue]:
    """Every value of a Global that is read."""
    return [
        GlobalValue(p.ctype, f"g{k}_{c}", unit.spec.access(k).pointer, c)
        for k, p in enumerate(unit.spec.params) if p.is_global and not p.mode.writes for c in range(p.dim)
    ]  # fmt: skip


def tables(unit: TranslationUnit, words: str) -> list[str]:
    """Declarations of the constants that the code looks something up in; ``words``: what the dialect says first."""
    return [
        f"{words} const {C_TYPES[one.values.dtype]} {one.name}[] ="
        f" {{{', '.join(literal(value, one.values.dtype) for value in one.values.tolist())}}};"
        for one in unit.spec.tables
    ]  # fmt: skip


def rounding(unit: TranslationUnit, *, contract: bool = True) -> list[str]:
    """What a text begins with where products that sums have taken in are to be rounded by themselves (``ml_fma``)."""
    return [] if contract and not unit.spec.strict and unit.target.has_fma else ["#define ML_NO_FMA"]


def indent(text_lines: list[str]) -> list[str]:
    """Lines indented by their braces."""
    result, depth = [], 0
    for line in text_lines:
        code = line.split("//")[0]
        closing = len(code) - len(code.lstrip("}"))
        result.append("  " * (depth - closing) + line)
        depth += code.count("{") - code.count("}")
    return result
