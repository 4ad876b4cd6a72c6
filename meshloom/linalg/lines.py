"""Line loops: for every line of a grid, y = scale A^-1 B f, with kernels before and after, in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np

from meshloom.backend import current
from meshloom.errors import KernelError, MeshError, ScheduleError, one_line, whole_number
from meshloom.kernel.access import Mode, Read, ReadWrite, Write
from meshloom.kernel.count import arithmetic, flops_by_kind, instructions, loads, repeated
from meshloom.kernel.expr import Node, load
from meshloom.kernel.model import Output, Param
from meshloom.linalg.factors import LineFactors
from meshloom.linalg.operator import LineOperator, as_operators
from meshloom.mesh.buffer import Buffered
from meshloom.mesh.components import MOST_COMPONENTS
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import Grid
from meshloom.mesh.layout import Layout
from meshloom.operation.body import Body, BodyGraph
from meshloom.operation.calls import remembered
from meshloom.operation.domain import Domain, GridLines
from meshloom.operation.fusion.substitution import loading, substituted
from meshloom.operation.loop import Kernel
from meshloom.operation.operand import ALONG_LINES, DIRECTLY, Operand, merged_operands
from meshloom.operation.operation import Operation
from meshloom.operation.policy import ExecutionPolicy, Wish
from meshloom.schedule.choice.candidate import Candidate, Candidates, rank
from meshloom.schedule.choice.counts import Counts
from meshloom.schedule.choice.explain import algebra_of, amount
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.lines.along import SystemsAlong
from meshloom.schedule.lines.methods import LineMethod, method, names
from meshloom.schedule.lines.spec import LineSpec, LineTiling, as_tuning
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import SpecParam

Storage = Field | Global
Fields = Storage | Sequence[Storage]
Operators = LineOperator | Sequence[LineOperator] | LineFactors
_SOLVE = 5  # operations for a point of a tridiagonal system; a stencil takes two for each point that it reaches
_NO_GRID = "line loop: the first argument is a Grid, got {}"


def LineLoop(
    grid: Grid, axis: int, operator: Operators, reads: Fields, writes: Fields, *,
    before: Kernel | None = None, after: Kernel | None = None, values: int | None = None, method: str = "auto",
    name: str | None = None, tuning: Mapping[str, int] | None = None, strict: bool = False,
) -> Operation:  # fmt: skip
    """For every line of ``grid`` along ``axis``: operands f, results y = scale A^-1 B f, each field moved once.

    ``operator``: one for all operands, or for each its own; or ``LineSystems``, coefficients that vary: y = A^-1 f.
    Without ``before`` the components of ``reads``, in order, are the operands; with it, it is a kernel of the fields
    ``reads`` and one more parameter, the operands, which it sets. Without ``after`` the results go to the components of
    ``writes``; with it, it is a kernel of the results and the fields ``writes``. ``values``: the number of operands,
    needed where both are given. ``tuning``: entries of the tiling that a measurement wants to try. ``strict``: both
    kernels as written; so they are where one of them is strict, since they become one piece of code.
    """
    if not isinstance(grid, Grid):
        raise MeshError(_NO_GRID.format(type(grid).__name__))
    kernels = tuple(k for k in (before, after) if k is not None)
    called = name or "_".join(k.name for k in kernels) or "lines"
    domain, backend = GridLines(grid, grid.axis(axis)), current()
    policy = MethodPolicy(domain, method, as_tuning(called, tuning))
    sources, targets = _listed(grid, called, reads), _listed(grid, called, writes)
    count = _count(called, values, [fields for kernel, fields in ((before, sources), (after, targets)) if not kernel])
    strictly = strict or backend.strict or any(k.strict for k in kernels)
    if isinstance(operator, LineFactors):
        body = LineBody(before, after, sources, targets, count, (), strictly, operator)
    else:
        body = LineBody(before, after, sources, targets, count, as_operators(operator, count), strictly)
    _check(called, domain, body)
    return Operation(called, domain, body.line_operands(), body, policy, backend)


def _count(name: str, given: int | None, listed: Sequence[Sequence[Storage]]) -> int:
    """The number of operands, however it is known: from ``values=``, or from fields that no kernel stands before."""
    known = [sum(s.dim for s in fields) for fields in listed]
    if given is not None:
        known.append(whole_number(f"line loop {name}: values", given, 1, MOST_COMPONENTS, error=MeshError))
    found = set(known)
    if len(found) != 1:
        what = "give values=, the number of operands" if not found else f"it has {sorted(found)} operands"
        raise MeshError(f"line loop {name}: {what}; reads, writes and values must agree")
    return found.pop()


def _check(name: str, domain: GridLines, body: LineBody) -> None:
    grid, axis = domain.grid, domain.axis
    if body.factors:
        body.factors.check_lines(f"line loop {name}", grid, axis, body.targets)
    elif body.operators[0].matrix.periodic != grid.periodic[axis]:
        both = (body.operators[0].matrix.periodic, grid.periodic[axis])
        words = ["periodic" if p else "closed" for p in both]
        raise MeshError(f"line loop {name}: the matrix is {words[0]}, but axis {axis} of {grid.name} is {words[1]}")
    length, shortest = grid.shape[axis], max((one.shortest for one in body.operators), default=1)
    if length < shortest:
        raise MeshError(
            f"line loop {name}: axis {axis} of {grid.name} has {length} points, this operator needs {shortest}"
        )
    for one, mode in zip(body.targets, body.target_modes(), strict=True):
        if mode.writes and body.targets.count(one) > 1:
            raise MeshError(
                f"line loop {name}: {one.name} is passed twice and written; pass it once, as ReadWrite, or use a second"
                " field"
            )
    kinds = {one.storage.dtype for one in body.line_operands() if not one.is_global}
    if len(kinds) != 1 or next(iter(kinds)).kind != "f":
        raise MeshError(f"line loop {name}: fields must have one floating type, got {sorted(map(str, kinds))}")


@dataclass(frozen=True)
class LineBody(Body):
    """At each point of a line the operands, by a kernel or as they are stored; the operators; and what is done with the
    results, by a kernel or a store."""

    before: Kernel | None
    after: Kernel | None
    sources: tuple[Storage, ...]
    targets: tuple[Storage, ...]
    values: int  # that are solved for
    operators: tuple[LineOperator, ...]
    strict: bool
    factors: LineFactors | None = None

    @property
    def systems(self) -> SystemsAlong | None:  # type: ignore[override]
        return self.factors.along if self.factors else None

    @property
    def coefficients(self) -> tuple[Storage, ...]:
        """Those of its systems, at every point."""
        return self.factors.fields if self.factors else ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        return tuple(k for k in (self.before, self.after) if k is not None)

    @property
    def dtype(self) -> np.dtype:
        return next(s.dtype for s in (*self.sources, *self.targets) if isinstance(s, Field))

    def line_operands(self) -> tuple[Operand, ...]:
        """One for each field or global: what is read before the solve is needed all along the line."""
        along = (*self.sources, *self.coefficients)
        read = [Operand(one, Read, ALONG_LINES, one.name) for one in along]
        used = [Operand(one, ReadWrite if mode.combine and one in along else mode, DIRECTLY, one.name)
                for one, mode in zip(self.targets, self.target_modes(), strict=True)]  # fmt: skip
        return merged_operands((*read, *used))

    def target_modes(self) -> list[type[Mode]]:
        if self.after is None:
            return [Write for _ in self.targets]
        return list(self.after.signature.expanded(len(self.targets) + 1).values())[1:]

    def loaded(self, of: Operation) -> Collection[int]:
        return range(len(of.operands))  # all that is read: nothing has to be traced to say so

    def as_written(self) -> LineBody:
        return self if self.strict else replace(self, strict=True)

    def graph(self, of: Operation) -> BodyGraph:
        numbers = {s: k for k, s in enumerate(of.storages)}
        outputs, combines = self._results(numbers)
        coefficients = tuple(load(numbers[one], 0, 0, one.dtype) for one in self.coefficients)
        return BodyGraph(outputs, (*self._operands(numbers), *coefficients), combines)

    def _operands(self, numbers: dict[Storage, int]) -> tuple[Node, ...]:
        if self.before is None:
            return tuple(load(numbers[s], 0, c, s.dtype) for s in self.sources for c in range(s.dim))
        modes = _modes(self.before, len(self.sources) + 1, "reads, then the operands")
        for (name, mode), storage in zip(modes, self.sources, strict=False):
            if mode is not Read:
                raise KernelError(
                    f"kernel {self.before.name}: parameter {name} ({storage.name}) must be Read before the solve"
                )
        if modes[-1][1] is not Write:
            raise KernelError(
                f"kernel {self.before.name}: the last parameter {modes[-1][0]} is the operands: annotate it Write"
            )
        params = [_param(n, m, s) for (n, m), s in zip(modes, self.sources, strict=False)]
        params.append(self._between(*modes[-1]))
        traced = self.before.outputs(tuple(params), strict=self.strict)
        return tuple([o.value for o in substituted(traced, loading(self.sources, numbers))])

    def _results(self, numbers: dict[Storage, int]) -> tuple[tuple[Output, ...], tuple[str, ...]]:
        here = len(numbers)
        if self.after is None:
            places = [(numbers[s], c) for s in self.targets for c in range(s.dim)]
            found = tuple(Output(p, 0, c, load(here, 0, v, self.dtype)) for v, (p, c) in enumerate(places))
            return found, ("",) * len(found)
        modes = _modes(self.after, len(self.targets) + 1, "the results, then writes")
        if modes[0][1] is not Read:
            raise KernelError(
                f"kernel {self.after.name}: the first parameter {modes[0][0]} is the results: annotate it Read"
            )
        params = [self._between(*modes[0])]
        params += [_param(n, m, s) for (n, m), s in zip(modes[1:], self.targets, strict=True)]
        traced = self.after.outputs(tuple(params), strict=self.strict)
        found = substituted(traced, loading((None, *self.targets), numbers))
        outputs = tuple([Output(numbers[self.targets[o.param - 1]], 0, o.comp, o.value) for o in found])
        return outputs, tuple(modes[o.param][1].combine for o in traced)

    def _between(self, name: str, mode: type[Mode]) -> Param:
        values = self.values
        return Param(name, mode, () if values == 1 else (values,), self.dtype, 0, values)


@dataclass(frozen=True)
class MethodPolicy(ExecutionPolicy):
    """Lines by a method; ``tuning``: entries of its tiling that a measurement wants to try. ``all_lines``: where these
    are some of others, those, by which they are cut up."""

    lines: GridLines
    name: str = "auto"
    tuning: Mapping[str, int] = field(default_factory=dict)
    all_lines: GridLines | None = None

    @property
    def method(self) -> LineMethod:
        return method(self.name)

    def spec(self, of: Operation) -> LineSpec:
        graph = of.graph
        params = tuple(_spec_param(one) for one in of.operands)
        made = LineSpec(
            of.name, params, (), (), operands=graph.operands, results=graph.outputs, combines=graph.combines,
            operators=of.body.operators, systems=of.body.systems, dtype=_dtype(of), axis=self.lines.axis,
            may_use_more_registers=True, plain=not of.kernels, strict=of.strict,
        )  # fmt: skip
        return self._cut(made, self.method, of)

    def over_some(self, domain: Domain) -> MethodPolicy:
        return replace(self, lines=cast(GridLines, domain), all_lines=self.all_lines or self.lines)

    def _cut(self, spec: LineSpec, by: LineMethod, of: Operation) -> LineSpec:
        """With lines cut up as a method does it."""
        found = self._tilings(spec, by, of)[0].what
        # of some lines the first need not lie where pairs begin
        return replace(spec, tiling=replace(found, pair=found.pair and self.lines.geometry.pairs is not None))

    def _tilings(self, spec: LineSpec, by: LineMethod, of: Operation) -> tuple[Candidate[LineTiling], ...]:
        lines = (self.all_lines or self.lines).geometry
        return by.tilings(spec, lines, self.tuning, target=of.backend.target)

    def candidates(self, of: Operation) -> Candidates:
        """Methods, of which ``segmented`` is taken unless another one is asked for, and how lines may be cut up."""
        lines, target, cost = self.lines.geometry, of.backend.target, self.cost(of)

        def offered(one: LineMethod) -> Candidate[str]:
            declined = one.declines(self._cut(_spec_of(of), one, of), lines, target=target)
            if one.name == self.method.name:
                return Candidate(one.name, cost.parts(of.backend.rates), cost.figures, declined)
            return Candidate(one.name, {}, {"how": one.summary}, declined, f"{self.method.name} is taken")

        cuts = self._tilings(_spec_of(of), self.method, of)
        return Candidates(method=rank(offered(method(name)) for name in names()), tiling=cuts)

    def chosen(self, of: Operation) -> tuple[Schedule, str]:
        registers = _spec_of(of).tiling.registers or None  # none: as the compiler likes
        return Schedule(self.method.name, block=of.plan.block, registers=registers), self.method.summary

    def plan(self, of: Operation, schedule: Schedule | None = None) -> Plan:
        return self.method.plan(_spec_of(of), self.lines.geometry, target=of.backend.target)

    def words(self, of: Operation) -> str:
        return f"{self.method.name} lines"

    def asked(self, name: str, wish: Wish) -> MethodPolicy:
        """Lines cut up in another way."""
        if wish is not None and not isinstance(wish, Mapping):
            raise ScheduleError(f"line loop {name}: strategies do not apply along lines; name entries of its tiling")
        return replace(self, tuning=as_tuning(name, wish))

    def counts(self, of: Operation, block: int) -> Counts:
        raise ScheduleError(f"line loop {of.name}: counts are those of elements; ask for compulsory (bytes) and flops")

    def compulsory(self, of: Operation) -> int:
        """Every value read once, every value written once."""
        graph = of.graph
        moved = {(p, c) for p, _, c in loads(graph.operands)}
        moved |= {(p, c) for p, _, c in loads(o.value for o in graph.outputs) if p < len(of.storages)}
        moved |= {(o.param, o.comp) for o, policy in zip(graph.outputs, graph.combines, strict=True) if policy}
        fields = [k for k, s in enumerate(of.storages) if isinstance(s, Field)]
        stored = {(o.param, o.comp) for o in graph.outputs}
        each = sum(p in fields for p, _ in moved) + len(stored)
        return each * _dtype(of).itemsize * of.elements

    def flops(self, of: Operation) -> float:
        """Those of the solve included."""
        graph, reach = of.graph, _spec_of(of).reach
        each = arithmetic(flops_by_kind([*graph.operands, *(o.value for o in graph.outputs)]))
        each += sum(bool(policy) for policy in graph.combines) + _spec_of(of).values * (_SOLVE + 4 * reach)
        return float(each * of.elements)

    def instructions(self, of: Operation) -> Counter[tuple[str, str]]:
        """The same of units of a processor; a division for each value of a solve."""
        graph, spec, name = of.graph, _spec_of(of), _dtype(of).name
        each = instructions([*graph.operands, *(o.value for o in graph.outputs)])
        each["multiply-add", name] += sum(map(bool, graph.combines)) + spec.values * (_SOLVE + 4 * spec.reach - 1)
        each["division", name] += spec.values
        return repeated(of.elements, each)

    def declines(self, of: Operation) -> str | None:
        return self.method.declines(_spec_of(of), self.lines.geometry, target=of.backend.target)

    def check(self, of: Operation) -> None:
        reason = self.declines(of)
        if reason:
            raise ScheduleError(f"line loop {of.name}: method '{self.method.name}' does not apply: {reason}")

    def explain(self, of: Operation) -> str:
        """How lines are cut up, and the figures."""
        domain, spec = self.lines, _spec_of(of)
        values = spec.values
        lines = domain.geometry
        head = (
            f"{of.name}: {lines.count:,} line{'s' if lines.count != 1 else ''} of {lines.length:,}"
            f" points along axis {domain.axis} of"
            f" {domain.grid.name}, {values} operand{'s' if values > 1 else ''}, back end {of.backend.name}"
        )
        rows = [("method", f"{self.method.name} ({self.method.summary})"),
                ("tiling", spec.tiling.in_words(lines.count, lines.length, is_simt=of.backend.target.is_simt)),
                *algebra_of(spec, of.backend),
                ("bytes", f"compulsory {amount(of.compulsory)}")]  # fmt: skip
        if of.seconds:
            rate = of.compulsory / of.seconds
            rows.append(("measured", f"{of.seconds * 1e3:.4g} ms, {rate / 1e9:.3g} GB/s of compulsory bytes"))
        return "\n".join(map(one_line, (head, *(f"  {label:<10} {text}" for label, text in rows))))


def _spec_of(of: Operation) -> LineSpec:
    assert isinstance(of.spec, LineSpec)
    return of.spec


def _dtype(of: Operation) -> np.dtype:
    return next(s.dtype for s in of.storages if isinstance(s, Field))


def line_loop(grid: Grid, axis: int, operator: Operators, reads: Fields, writes: Fields, **options: Any) -> None:
    """Run a ``LineLoop`` (see there for the arguments), kept for the next call with the same; in a program, record."""
    fields = [tuple(x) if isinstance(x, list | tuple) else (x,) for x in (reads, writes)]
    known = tuple((k, v.serial if isinstance(v, Kernel) else str(v)) for k, v in sorted(options.items()))
    known_by = operator.serial if isinstance(operator, LineFactors) else repr(operator)
    storages = [s.serial if isinstance(s, Buffered) else None for s in (*fields[0], *fields[1])]  # None: refused
    key = (LineLoop, current().key, axis, known_by, len(fields[0]), *storages, known)
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


def _spec_param(operand: Operand) -> SpecParam:
    one, mode = operand.storage, ReadWrite if operand.mode.writes else Read
    if isinstance(one, Global):
        return SpecParam(one.name, Read, one.dim, one.dtype, Layout("aos"), None, True)
    return SpecParam(one.name, mode, one.dim, one.dtype, one.layout, None)


def _param(name: str, mode: type[Mode], storage: Storage) -> Param:
    if isinstance(storage, Global):
        if mode is not Read:
            raise KernelError(f"line loop: parameter {name}: a Global can only be Read here")
        return Param(name, mode, storage.shape, storage.dtype, 0, storage.dim)
    return Param(name, mode, storage.components, storage.dtype, 0, storage.dim)
