"""owner: iterate over the targets; for each incident element evaluate the part of the kernel that feeds this target.

No races, one launch, deterministic. Elements are evaluated once for every target they touch, which pays where
arithmetic is cheap compared with memory. Outputs that do not go through a racy map get a pass over the elements, after
the targets, so that everybody sees the values from before the loop.
"""

from __future__ import annotations

import re

from meshloom.kernel.count import loads
from meshloom.kernel.expr import C_TYPES, Node, topological
from meshloom.schedule.code import ElementCode, Pass, Phase, combined, row_name
from meshloom.schedule.cost import Cost, Work
from meshloom.schedule.gather import Columns, accumulate, accumulator, columns_of, over_targets, split_entry
from meshloom.schedule.neighbours import neighbour_rows, neighbour_tables
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.direct import element_pass, visiting
from meshloom.schedule.strategies.staged import incidences
from meshloom.schedule.symmetry import swapped_maps
from meshloom.schedule.verify import check_owner

BATCH = 2  # incident elements whose loads are under way at the same time: more costs registers, so threads


class Owner(Strategy):
    name = "owner"
    summary = "over the targets, recomputing what each incident element gives it"

    def plan(self, topology: Topology, block: int, *, simt: bool = False) -> Plan:
        arrays, sizes = incidences(topology)
        if simt:
            for m in topology.maps:
                offsets, entries, degree = arrays[f"offsets{m}"], arrays[f"entries{m}"], sizes[f"degree{m}"]
                arrays |= neighbour_tables(topology, m, offsets, entries, degree)
        return Plan(self.name, block, visiting(topology) | arrays, sizes)

    def check(self, plan: Plan, topology: Topology) -> None:
        check_owner(plan, topology)

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        degrees = {m: plan.sizes[f"degree{m}"] if simt else 0 for m in spec.racy_maps}
        targets = [_target_pass(spec, m, columns_of(spec, m), degrees[m]) for m in spec.racy_maps]
        return targets + ([element_pass(spec, plan)] if spec.other_outputs else [])

    def cost(self, spec: LoopSpec, work: Work) -> Cost:
        repeated = work.incidences / max(work.elements, 1) + bool(spec.other_outputs)
        return Cost(work.compulsory + 4 * work.incidences + 8 * work.targets, work.flops * repeated)


def _target_pass(spec: LoopSpec, m: int, groups: tuple[Columns, ...], degree: int) -> Pass:
    arity = spec.maps[m].arity
    code = ElementCode(spec, ())
    roots = [n for g in groups for n in g.nodes]
    incident = [*split_entry(f"entries{m}", arity), *code.rows(roots), *_slices(spec, code, groups, arity)]
    regular: list[str] = []
    if degree and swapped_maps(spec, m) is not None:
        regular = _by_roles(spec, code, m, degree)
    elif degree:
        body = [*neighbour_rows(code, m, loads(roots), roles=False), *code.whole_rows(roots)]
        body += _slices(spec, code, groups, arity)
        loop = ["#pragma unroll", f"for (int u = 0; u < {degree}; ++u) {{", *body, "}"]
        regular = [f"if (entry{m}[t] >= 0) {{", *loop, "}"]
    phase = Phase("", "", over_targets(spec, groups, incident, f"offsets{m}", regular))
    return Pass(f"targets{m}", f"targets{m}", (phase,))


def _by_roles(spec: LoopSpec, code: ElementCode, m: int, degree: int) -> list[str]:
    """Every incident element from the target's own side: what depends on the target alone comes before the loop."""
    outputs = [o for o in spec.racy_outputs if spec.params[o.param].map == m and o.slot == 0]
    roots = [o.value for o in outputs]
    own = _known_to_target(spec, m, roots)
    edge = sorted({a for n in topological(roots) if n not in own for a in n.args if a in own}, key=own.index)
    edge = [n for n in edge if n.op != "const"]
    known: dict[Node, str] = {}
    before = [f"const ml_index {row_name(m, 0)} = t;", *code.whole_rows(edge), *code.values(edge, known)[0]]
    rest = [n for n in topological(roots) if n not in own and n.op == "load"]
    single = [n for n in rest if not code.in_whole_row(n)]
    loaded = {n: "l" + "_".join(map(str, n.value)) for n in single}
    declared = [*neighbour_rows(code, m, loads(roots), roles=True), *code.whole_rows(rest)]
    declared += [f"const {C_TYPES[n.dtype]} {loaded[n]} = {code.leaf(n)};" for n in single]
    text, names = code.values(roots, known | loaded)
    added = []
    for o, name in zip(outputs, names, strict=True):
        total = accumulator(o.param, o.comp)
        added.append(f"{total} = {combined(spec.params[o.param].mode.combine, total, name)};")
    return [f"if (near{m}_{m}[t] >= 0) {{", *before, *_batches(declared, [*text, *added], degree), "}"]


def _batches(declarations: list[str], body: list[str], degree: int) -> list[str]:
    """The ``body`` for all incident elements; what it declares is loaded for ``BATCH`` of them before any is computed.

    Declarations are ``const T name = source;``. Loads that wait for nothing but an index are all under way at once.
    """
    group = next(g for g in range(min(BATCH, degree), 0, -1) if degree % g == 0)
    fetch: list[str] = []
    named: list[str] = []
    known: list[str] = []
    for line in declarations:
        kind, name, source = re.fullmatch(r"const (.+) (\w+) = (.+);", line).groups()  # type: ignore[union-attr]
        for other in known:
            source = re.sub(rf"\b{other}\b", f"all_{other}[v]", source)
        known.append(name)
        fill = [
            f"for (int v = 0; v < {group}; ++v) {{",
            "const int u = start + v; (void)u;",
            f"all_{name}[v] = {source};",
            "}",
        ]
        fetch += [f"{kind} all_{name}[{group}];", "#pragma unroll", *fill]
        named.append(f"const {kind} {name} = all_{name}[v];")
    compute = ["#pragma unroll", f"for (int v = 0; v < {group}; ++v) {{", *named, *body, "}"]
    return ["#pragma unroll 1", f"for (int start = 0; start < {degree}; start += {group}) {{", *fetch, *compute, "}"]


def _known_to_target(spec: LoopSpec, m: int, roots: list[Node]) -> list[Node]:
    """Nodes that need nothing but the target's own values (slot 0 of map ``m``), globals and constants, in order."""
    own: dict[Node, None] = {}
    for node in topological(roots):
        if node.op == "load":
            param, slot, _ = node.value
            if spec.params[param].is_global or (spec.params[param].map == m and slot == 0):
                own[node] = None
        elif all(a in own for a in node.args):
            own[node] = None
    return list(own)


def _slices(spec: LoopSpec, code: ElementCode, groups: tuple[Columns, ...], arity: int) -> list[str]:
    """For each slot the slice of the kernel that feeds it, merged into the accumulators."""
    names: dict[tuple[int, int], str] = {}

    def evaluate(slot: int | None) -> list[str]:
        wanted = [(g.param, k, g.nodes[k]) for g in groups for k in _needed(g, slot)]
        text, found = code.values([node for _, _, node in wanted])
        names.update({(param, k): name for (param, k, _), name in zip(wanted, found, strict=True)})
        return text

    return accumulate(spec, groups, arity, lambda p, k: names[p, k], evaluate)


def _needed(group: Columns, slot: int | None) -> list[int]:
    slots = group.use if slot is None else (group.use[slot],)
    return sorted({used[0] for comps in slots for used in comps if used})
