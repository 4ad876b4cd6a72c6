"""Line loops: for every line of a grid, y = scale A^-1 B f, with kernels before and after, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.backend.base import Bound
from meshloom.errors import KernelError, MeshError, ScheduleError, one_line, whole
from meshloom.kernel.access import Mode, Read, ReadWrite, Write
from meshloom.kernel.count import arithmetic, flops_by_kind, loads
from meshloom.kernel.expr import Node, load
from meshloom.kernel.model import Output, Param
from meshloom.linalg.operator import LineOperator, as_operators
from meshloom.mesh.components import MOST_COMPONENTS
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import Grid
from meshloom.mesh.layout import Layout
from meshloom.operation.calls import remembered
from meshloom.operation.loop import Kernel, Loop, Runnable, derived
from meshloom.schedule.choice.explain import algebra_of, amount
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.lines.methods import LineMethod, method
from meshloom.schedule.lines.spec import LineGeometry, LineSpec, as_tuning, geometry, renumbered
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import SpecParam

Storage = Field | Global
Fields = Storage | Sequence[Storage]
Body = tuple[tuple[Node, ...], tuple[Output, ...], tuple[str, ...]]
Operators = LineOperator | Sequence[LineOperator]
_SOLVE = 5  # operations for a point of a tridiagonal system; a stencil takes two for each point that it reaches
_NO_GRID = "line loop: the first argument is a Grid, got {}"


class LineLoop(Runnable):
    """For every line of ``grid`` along ``axis``: operands f, results y = scale A^-1 B f, each field moved once.

    Without ``before`` the components of ``reads``, in order, are the operands; with it, it is a kernel of the fields
    ``reads`` and one more parameter, the operands, which it sets. Without ``after`` the results go to the components of
    ``writes``; with it, it is a kernel of the results and the fields ``writes``. ``values``: the number of operands,
    needed where both are given. ``tuning``: entries of the form that a measurement wants to try. ``strict``: both
    kernels as written; so they are where one of them is strict, since they become one piece of code.
    """

    def __init__(
        self, grid: Grid, axis: int, operator: Operators, reads: Fields, writes: Fields, *,
        before: Kernel | None = None, after: Kernel | None = None, values: int | None = None, method: str = "auto",
        name: str | None = None, tuning: Mapping[str, int] | None = None, strict: bool = False,
    ):  # fmt: skip
        if not isinstance(grid, Grid):
            raise MeshError(_NO_GRID.format(type(grid).__name__))
        self.set, self.grid, self.axis, self.backend = grid, grid, grid.axis(axis), current()
        self.name = name or "_".join(k.name for k in (before, after) if k) or "lines"
        self.kernels = tuple(k for k in (before, after) if k is not None)
        self.before, self.after, self.tuning = before, after, as_tuning(self.name, tuning)
        self.strict = strict or self.backend.strict or any(k.strict for k in (before, after) if k)
        self._sources, self._targets = _listed(grid, self.name, reads), _listed(grid, self.name, writes)
        self.values = self._count(values)
        self.operators = as_operators(operator, self.values)
        self._method = method
        self._check()
        for storage in self.storages:
            storage.watch(self)

    def _count(self, given: int | None) -> int:
        """The number of operands, however it is known."""
        known = [sum(s.dim for s in fields) for kernel, fields in ((self.before, self._sources),
                 (self.after, self._targets)) if kernel is None]  # fmt: skip
        if given is not None:
            known.append(whole(f"line loop {self.name}: values", given, 1, MOST_COMPONENTS, error=MeshError))
        found = set(known)
        if len(found) != 1:
            what = "give values=, the number of operands" if not found else f"it has {sorted(found)} operands"
            raise MeshError(f"line loop {self.name}: {what}; reads, writes and values must agree")
        return found.pop()

    def _check(self) -> None:
        axis, length = self.axis, self.grid.shape[self.axis]
        if self.operators[0].matrix.periodic != self.grid.periodic[axis]:
            both = (self.operators[0].matrix.periodic, self.grid.periodic[axis])
            words = ["periodic" if p else "closed" for p in both]
            raise MeshError(
                f"line loop {self.name}: the matrix is {words[0]}, but axis {axis} of {self.grid.name} is {words[1]}"
            )
        shortest = max(one.shortest for one in self.operators)
        if length < shortest:
            raise MeshError(
                f"line loop {self.name}: axis {axis} of {self.grid.name} has {length} points, this operator needs"
                f" {shortest}"
            )
        kinds = {s.dtype for s in self.storages if isinstance(s, Field)}
        if len(kinds) != 1 or self.dtype.kind != "f":
            raise MeshError(f"line loop {self.name}: fields must have one floating type, got {sorted(map(str, kinds))}")

    @property
    def dtype(self) -> np.dtype:
        return next(s.dtype for s in self.storages if isinstance(s, Field))

    # ----- the loop as data -------------------------------------------------------------------------------------
    @cached_property
    def storages(self) -> tuple[Storage, ...]:
        """The fields and globals, each once."""
        return tuple(dict.fromkeys((*self._sources, *self._targets)))

    def _target_modes(self) -> list[type[Mode]]:
        if self.after is None:
            return [Write for _ in self._targets]
        return list(self.after.signature.expanded(len(self._targets) + 1).values())[1:]

    @property
    def writes(self) -> tuple[Storage, ...]:
        modes = self._target_modes()
        return tuple(dict.fromkeys(s for s, m in zip(self._targets, modes, strict=True) if m.writes))

    @property
    def reads(self) -> tuple[Storage, ...]:
        modes = self._target_modes()
        known = [s for s, m in zip(self._targets, modes, strict=True) if m.reads or m.combine]
        return tuple(dict.fromkeys((*self._sources, *known)))

    def needs(self, one: Storage) -> bool:
        return one in self.reads

    def defines(self, one: Field) -> bool:
        return one in self.writes and one not in self.reads

    @cached_property
    def lines(self) -> LineGeometry:
        """Where the lines lie."""
        return geometry(self.grid, self.axis)

    @cached_property
    def method(self) -> LineMethod:
        return method(self._method)

    @derived
    def spec(self) -> LineSpec:
        """The loop without data: both kernels traced, in terms of the same parameters."""
        written = set(self.writes)
        params = tuple(_spec_param(s, ReadWrite if s in written else Read) for s in self.storages)
        operands, results, combines = self._body()
        made = LineSpec(
            self.name, params, (), (), operands=operands, results=results, combines=combines, operators=self.operators,
            dtype=self.dtype, axis=self.axis, gives_way=True, plain=not self.kernels,
            strict=self.strict,
        )  # fmt: skip
        return replace(made, form=self.method.form(made, self.lines, self.tuning, target=self.backend.target))

    def _body(self) -> Body:
        """Operands, results and how these are merged, in terms of ``storages``."""
        numbers = {s: k for k, s in enumerate(self.storages)}
        return self._operands(numbers), *self._results(numbers)

    def taking(self, before: Mapping[Field, Loop], after: Sequence[Loop], idle: Collection[Field]) -> Runnable:
        from meshloom.linalg.composed import ComposedLines

        return ComposedLines(self, before, after, idle)

    def _operands(self, numbers: dict[Storage, int]) -> tuple[Any, ...]:
        if self.before is None:
            return tuple(load(numbers[s], 0, c, s.dtype) for s in self._sources for c in range(s.dim))
        modes = _modes(self.before, len(self._sources) + 1, "reads, then the operands")
        for (name, mode), storage in zip(modes, self._sources, strict=False):
            if mode is not Read:
                raise KernelError(
                    f"kernel {self.before.name}: parameter {name} ({storage.name}) must be Read before the solve"
                )
        if modes[-1][1] is not Write:
            raise KernelError(
                f"kernel {self.before.name}: the last parameter {modes[-1][0]} is the operands: annotate it Write"
            )
        params = [_param(n, m, s) for (n, m), s in zip(modes, self._sources, strict=False)]
        params.append(self._between(*modes[-1]))
        found = self.before.outputs(tuple(params), strict=self.strict)
        return renumbered([o.value for o in found], {k: numbers[s] for k, s in enumerate(self._sources)})

    def _results(self, numbers: dict[Storage, int]) -> tuple[tuple[Output, ...], tuple[str, ...]]:
        here = len(self.storages)
        if self.after is None:
            places = [(numbers[s], c) for s in self._targets for c in range(s.dim)]
            found = tuple(Output(p, 0, c, load(here, 0, v, self.dtype)) for v, (p, c) in enumerate(places))
            return found, ("",) * len(found)
        modes = _modes(self.after, len(self._targets) + 1, "the results, then writes")
        if modes[0][1] is not Read:
            raise KernelError(
                f"kernel {self.after.name}: the first parameter {modes[0][0]} is the results: annotate it Read"
            )
        params = [self._between(*modes[0])]
        params += [_param(n, m, s) for (n, m), s in zip(modes[1:], self._targets, strict=True)]
        traced = self.after.outputs(tuple(params), strict=self.strict)
        table = {0: here} | {k + 1: numbers[s] for k, s in enumerate(self._targets)}
        values = renumbered([o.value for o in traced], table)
        outputs = tuple(Output(table[o.param], 0, o.comp, v) for o, v in zip(traced, values, strict=True))
        return outputs, tuple(modes[o.param][1].combine for o in traced)

    def _between(self, name: str, mode: type[Mode]) -> Param:
        shape = () if self.values == 1 else (self.values,)
        return Param(name, mode, shape, self.dtype, 0, self.values)

    @derived
    def plan(self) -> Plan:
        """Tables of the factors, and sizes."""
        return self.method.plan(self.spec, self.lines, target=self.backend.target)

    @property
    def compulsory(self) -> int:
        """Compulsory bytes: every value read once, every value written once."""
        moved = {(p, c) for p, _, c in loads(self.spec.operands)}
        moved |= {(p, c) for p, _, c in loads(o.value for o in self.spec.results) if p < len(self.storages)}
        moved |= {(o.param, o.comp) for o, how in zip(self.spec.results, self.spec.combines, strict=True) if how}
        fields = [k for k, s in enumerate(self.storages) if isinstance(s, Field)]
        stored = {(o.param, o.comp) for o in self.spec.results}
        each = sum(p in fields for p, _ in moved) + len(stored)
        return each * self.dtype.itemsize * self.lines.length * self.lines.lines

    @property
    def flops(self) -> float:
        """Operations of one execution, those of the solve included."""
        spec = self.spec
        each = arithmetic(flops_by_kind([*spec.operands, *(o.value for o in spec.results)]))
        each += sum(bool(how) for how in spec.combines) + len(spec.operands) * (_SOLVE + 4 * spec.reach)
        return float(each * self.lines.length * self.lines.lines)

    # ----- running it -------------------------------------------------------------------------------------------
    def _prepared(self) -> Callable[[], None]:
        for storage in self.storages:
            storage.move(self.backend.place(storage.storage))
        reason = self.method.declines(self.spec, self.lines, target=self.backend.target)
        if reason:
            raise ScheduleError(f"line loop {self.name}: method '{self.method.name}' does not apply: {reason}")
        plan = self.plan
        registers = self.method.registers(self.spec)
        schedule = Schedule(self.method.name, block=plan.block, registers=registers)
        bound = Bound(self.spec, self.lines.lines * self.lines.length, self.storages, (), schedule, lambda: plan)
        return self.backend.prepare(bound)

    def as_written(self) -> LineLoop:
        """The same with strict kernels."""
        if self.strict:
            return self
        made = LineLoop(
            self.grid, self.axis, self.operators, self._sources, self._targets, before=self.before, after=self.after,
            values=self.values, method=self._method, name=self.name, tuning=self.tuning, strict=True,
        )  # fmt: skip
        made.backend = self.backend
        return made

    def explain(self) -> str:
        """How lines are cut up, and the figures."""
        head = (
            f"{self.name}: {self.lines.lines:,} line{'s' if self.lines.lines != 1 else ''} of {self.lines.length:,}"
            f" points along axis {self.axis} of"
            f" {self.grid.name}, {self.values} operand{'s' if self.values > 1 else ''}, back end {self.backend.name}"
        )
        rows = [("method", f"{self.method.name} ({self.method.summary})"),
                ("form", self.spec.form.in_words(together=self.backend.target.together)),
                *algebra_of(self.spec, self.backend),
                ("bytes", f"compulsory {amount(self.compulsory)}")]  # fmt: skip
        if self.seconds:
            rate = self.compulsory / self.seconds
            rows.append(("measured", f"{self.seconds * 1e3:.4g} ms, {rate / 1e9:.3g} GB/s of compulsory bytes"))
        return "\n".join(map(one_line, (head, *(f"  {label:<10} {text}" for label, text in rows))))

    def __repr__(self) -> str:
        return f"LineLoop({self.name} along axis {self.axis} of {self.grid.name})"


def line_loop(grid: Grid, axis: int, operator: Operators, reads: Fields, writes: Fields, **options: Any) -> None:
    """Run a ``LineLoop`` (see there for the arguments), kept for the next call with the same; in a program, record."""
    fields = [tuple(x) if isinstance(x, list | tuple) else (x,) for x in (reads, writes)]
    known = tuple((k, id(v) if isinstance(v, Kernel) else str(v)) for k, v in sorted(options.items()))
    key = (LineLoop, current().key, axis, repr(operator), *(tuple(map(id, one)) for one in fields), known)
    kernels = tuple(v for v in options.values() if isinstance(v, Kernel))
    if not isinstance(grid, Grid):
        raise MeshError(_NO_GRID.format(type(grid).__name__))
    remembered(grid, key, kernels, partial(LineLoop, grid, axis, operator, reads, writes, **options))


# ----- arguments ------------------------------------------------------------------------------------------------
def _listed(grid: Grid, name: str, given: Fields) -> tuple[Storage, ...]:
    found = (given,) if isinstance(given, Field | Global) else tuple(given)
    for one in found:
        if not isinstance(one, Field | Global):
            raise MeshError(f"line loop {name}: expected fields on {grid.name}, got {type(one).__name__}")
        if isinstance(one, Field) and one.set is not grid:
            raise MeshError(f"line loop {name}: field {one.name} lives on {one.set.name}, not on {grid.name}")
    return found


def _modes(kernel: Kernel, count: int, what: str) -> list[tuple[str, type[Mode]]]:
    if not kernel.signature.takes(count):
        raise KernelError(
            f"kernel {kernel.name}: in this line loop it takes {count} parameters ({what}), it has {len(kernel.modes)}"
        )
    return list(kernel.signature.expanded(count).items())


def _spec_param(storage: Storage, mode: type[Mode]) -> SpecParam:
    if isinstance(storage, Global):
        return SpecParam(storage.name, Read, storage.dim, storage.dtype, Layout("aos"), None, True)
    return SpecParam(storage.name, mode, storage.dim, storage.dtype, storage.layout, None)


def _param(name: str, mode: type[Mode], storage: Storage) -> Param:
    if isinstance(storage, Global):
        if mode is not Read:
            raise KernelError(f"line loop: parameter {name}: a Global can only be Read here")
        return Param(name, mode, storage.shape, storage.dtype, 0, storage.dim)
    return Param(name, mode, storage.components, storage.dtype, 0, storage.dim)
