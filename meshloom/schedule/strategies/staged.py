"""staged: a first pass writes the increments of every element to a temporary array, a second pass over the targets adds
up what belongs to each. No races, deterministic; the price is one write and some reads of the increments.

Slots that share values (``res[0] += f; res[1] -= f``) share them in the array too. Where every slot has values of its
own, as the corners of a hexahedron, the array holds a row for each (slot, element), slot by slot: neighbouring elements
then write, and neighbouring targets read, side by side.
"""

from __future__ import annotations

import numpy as np

from meshloom.schedule.code import ElementCode, Pass, Phase, combined
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.gather import (
    Columns,
    accumulate,
    accumulator,
    columns_of,
    over_targets,
    split_entry,
    stage_at,
    staging,
    unroll,
    usual_degree,
)
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import visiting
from meshloom.schedule.verify import check_gather


class Staged(Strategy):
    name = "staged"
    summary = "increments to a temporary array, then a gather by target"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        arrays, sizes = incidences(topology)
        return Plan(self.name, block, visiting(topology) | arrays, sizes)

    def check(self, plan: Plan, topology: Topology) -> None:
        check_gather(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        groups = [(m, staged_columns(spec, m)) for m in spec.racy_maps]
        columns = [c for _, members in groups for c in members]
        element = "visit[i]" if "visit" in plan.arrays else "i"
        body = (f"const ml_index e = {element};", *staging(ElementCode(spec, spec.other_outputs), columns, "e", place))
        first = Pass(
            "elements", "n", (Phase("", "", body, independent="visit" not in plan.arrays),), reductions=spec.reductions
        )
        return [
            first,
            *(gather_pass(spec, m, members, plan.sizes[f"degree{m}"] if simt else 0) for m, members in groups),
        ]

    def temporaries(self, spec: LoopSpec) -> list[tuple[str, np.dtype, int]]:
        return [
            (f"stage{c.param}", spec.params[c.param].dtype, len(c.nodes))
            for m in spec.racy_maps
            for c in columns_of(spec, m)
        ]

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        return Cost(work.compulsory + 2 * work.staged + 4 * work.incidences + 8 * work.targets, work.flops, launches=2)


def incidences(topology: Topology) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Plan arrays ``offsets<m>`` and ``entries<m>`` of every racy map, and ``degree<m>``, their usual number."""
    arrays, sizes = {}, {}
    for m in topology.maps:
        arrays[f"offsets{m}"], arrays[f"entries{m}"] = topology.incidence(m)
        sizes[f"degree{m}"] = usual_degree(arrays[f"offsets{m}"])
    return arrays, sizes


def has_own_rows(columns: Columns) -> bool:
    """Does every slot add a value of its own to every component, so that nothing is shared?"""
    slots, dim = len(columns.use), len(columns.use[0])
    return slots > 1 and len(columns.nodes) == slots * dim and all(used for slot in columns.use for used in slot)


def staged_columns(spec: LoopSpec, map_number: int) -> tuple[Columns, ...]:
    """The columns to stage. Those in rows of their own carry their sign, so all slots are read alike."""

    def signed(columns: Columns) -> Columns:
        outputs = [o for o in spec.racy_outputs if o.param == columns.param]
        dim = len(columns.use[0])
        values = {(o.slot, o.comp): o.value for o in outputs}
        nodes = tuple(values[slot, comp] for slot in range(len(columns.use)) for comp in range(dim))
        use = tuple(tuple((slot * dim + comp, 1) for comp in range(dim)) for slot in range(len(columns.use)))
        return Columns(columns.param, nodes, use)

    return tuple(signed(c) if has_own_rows(c) else c for c in columns_of(spec, map_number))


def place(columns: Columns, element: str, column: int) -> str:
    """Where a column of an element is kept."""
    if not has_own_rows(columns):
        return stage_at(columns, element, column)
    slot, comp = divmod(column, len(columns.use[0]))
    return _row_entry(columns, element, str(slot), comp)


def _row_entry(columns: Columns, element: str, slot: str, comp: int) -> str:
    dim = len(columns.use[0])
    row = f"({slot} * n + {element})"
    return f"stage{columns.param}[{row} * {dim} + {comp}]" if dim > 1 else f"stage{columns.param}[{row}]"


def _add_row(spec: LoopSpec, columns: Columns) -> list[str]:
    """Merge the row of element ``e`` and slot ``s`` into the accumulators."""
    combine = spec.params[columns.param].mode.combine
    lines = []
    for comp in range(len(columns.use[0])):
        target = accumulator(columns.param, comp)
        lines.append(f"{target} = {combined(combine, target, _row_entry(columns, 'e', '(ml_index)s', comp))};")
    return lines


def gather_pass(spec: LoopSpec, map_number: int, groups: tuple[Columns, ...], degree: int) -> Pass:
    """A pass over the targets of a map that merges the staged columns."""
    arity, offsets = spec.maps[map_number].arity, f"offsets{map_number}"
    rows, shared = [g for g in groups if has_own_rows(g)], [g for g in groups if not has_own_rows(g)]
    by_param = {g.param: g for g in shared}
    incident = split_entry(f"entries{map_number}", arity)
    incident += [line for g in rows for line in _add_row(spec, g)]
    if shared:
        incident += accumulate(spec, shared, arity, lambda p, k: stage_at(by_param[p], "e", k))
    return Pass(
        f"gather{map_number}",
        f"targets{map_number}",
        (Phase("", "", over_targets(spec, groups, incident, offsets, unroll(incident, offsets, degree))),),
    )
