"""Code for ``owner`` on a GPU where the kernel is symmetric: every incident element seen from the target's own side.

What depends on the target alone is computed once; all loads are under way before the first element is computed. The
tables are those of ``neighbours.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from meshloom.kernel import emit
from meshloom.kernel.count import loads
from meshloom.kernel.expr import C_TYPES, Node, topological
from meshloom.kernel.model import Output
from meshloom.schedule.code import ElementCode, merged, row_name
from meshloom.schedule.gather import accumulator
from meshloom.schedule.neighbours import GAP, MARKED
from meshloom.schedule.plan import Plan
from meshloom.schedule.spec import Address, LoopSpec


@dataclass(frozen=True)
class RoleGather:
    """What the elements of map ``m`` give to target ``t``."""

    spec: LoopSpec
    m: int
    degree: int
    index_types: dict[str, str]  # plan array -> C type
    outputs: tuple[Output, ...]  # to slot 0, the own side
    turned: bool = False  # rings go round the other way: they hold the second end of each element
    ring_of: str = ""  # the array of the ring's nodes, where it is not the plan's own: a map of the targets
    ring_through: int = -1  # the map whose rings those are

    @classmethod
    def of(cls, spec: LoopSpec, m: int, plan: Plan) -> RoleGather:
        types = {name: C_TYPES[a.dtype] for name, a in plan.arrays.items() if a.dtype in (np.int32, np.int64)}
        outputs = tuple(o for o in spec.racy_outputs if spec.params[o.param].map == m and o.slot == 0)
        made = cls(spec, m, plan.sizes[f"degree{m}"], types, outputs)
        if (k := plan.sizes.get(f"ring_of{m}")) is None:
            return made
        types[f"m{k}"] = C_TYPES[spec.maps[k].dtype]
        turned, through = bool(plan.sizes[f"turned{m}"]), plan.sizes[f"ring_through{m}"]
        return replace(made, turned=turned, ring_of=f"m{k}", ring_through=through)

    def lines(self, known: dict[Node, str] | None = None) -> list[str]:
        """Statements that merge the elements into the accumulators, which must be declared. ``listed`` tells whether
        the target is in the tables; if not, its accumulators are of no use.

        ``known`` is extended by the values of the target alone that have got a name.
        """
        code, roots = ElementCode(self.spec, ()), [o.value for o in self.outputs]
        own = self._known_to_target(roots)
        needed = {a for n in topological(roots) if n not in own for a in n.args} | set(roots)
        edge = [n for n in own if n in needed and n.op != "const"]
        known = {} if known is None else known
        before = [f"const ml_index {row_name(self.m, 0)} = t;", *code.whole_rows(edge), *code.values(edge, known)[0]]
        fetch = self.fetched
        text, names = emit.statements(roots, lambda n: fetch.names[n.value], known=dict(known))
        added = ["if (there) {", *(self._add(o, name) for o, name in zip(self.outputs, names, strict=True)), "}"]
        each = ["#pragma unroll", f"for (int v = 0; v < {self.degree}; ++v) {{"]
        each.append(f"const bool there = near.v[v] > {GAP};")
        near = self._table("near", f"near{self.m}", self.degree)
        near.append(f"const bool listed = {self._listed};")
        return [*near, *fetch.lines, *before, *each, *text, *added, "}"]

    @cached_property
    def fetched(self) -> Fetch:
        """Everything that the elements load."""
        roots = [o.value for o in self.outputs]
        own = set(self._known_to_target(roots))
        return Fetch(self, [n for n in topological(roots) if n.op == "load" and n not in own])

    def _add(self, output: Output, value: str) -> str:
        param, total = self.spec.params[output.param], accumulator(output.param, output.comp)
        return f"{total} = {merged(param, total, value)};"

    def _table(self, name: str, array: str, width: int) -> list[str]:
        """The target's row of a table with ``width`` entries for each."""
        ctype = self.index_types[array]
        return [f"const ml_row<{ctype}, {width}> {name} = ml_load<{ctype}, {width}>({array} + t * {width});"]

    @property
    def _listed(self) -> str:
        """C expression: is the target in the tables?"""
        return f"near.v[0] != {MARKED}" if f"marked{self.m}" in self.index_types else "true"

    def _known_to_target(self, roots: list[Node]) -> list[Node]:
        """Nodes that need nothing but the target's own values, globals and constants, in order."""
        own: dict[Node, None] = {}
        for node in topological(roots):
            if node.op == "load":
                param, slot, _ = node.value
                if self.spec.params[param].is_global or (self.spec.params[param].map == self.m and slot == 0):
                    own[node] = None
            elif all(a in own for a in node.args):
                own[node] = None
        return list(own)


class Fetch:
    """Loads of everything that the elements need: statements, and the name of each value at element ``v``."""

    def __init__(self, gather: RoleGather, wanted: list[Node]):
        self.gather, self.code, self.spec = gather, ElementCode(gather.spec, ()), gather.spec
        self.names: dict[Address, str] = {}
        self.lines: list[str] = []
        addresses = loads(wanted)
        by_param = {p: sorted(a for a in addresses if a[0] == p) for p in sorted({a[0] for a in addresses})}
        self._tables({self.spec.params[p].map for p in by_param})
        for param, mine in by_param.items():
            self._param(param, mine)

    def _tables(self, maps: set[int | None]) -> None:
        m, degree = self.gather.m, self.gather.degree
        for k in sorted(k for k in maps if k is not None and k != m):
            if self._ring(k):
                self.lines += self.gather._table(f"at{k}", self.gather.ring_of or f"ring{m}_{k}", degree)
            else:
                self.lines += self.gather._table(f"at{k}", f"rows{m}_{k}", degree * self.spec.maps[k].arity)
        if None in maps:
            self.lines += self.gather._table("entry", f"entry{m}", degree)

    def around(self, param: int, position: int, comp: int) -> str | None:
        """Name of what the ring holds at a position, for a parameter read through it; None if that is not loaded."""
        name = self.names.get((param, int(self.gather.turned), comp))
        return name and name.replace("[v]", f"[{position}]")

    def _ring(self, k: int) -> bool:
        return k == self.gather.ring_through or f"ring{self.gather.m}_{k}" in self.gather.index_types

    def _param(self, param: int, addresses: list[Address]) -> None:
        k, slots = self.spec.params[param].map, sorted({slot for _, slot, _ in addresses})
        comps = sorted({comp for _, _, comp in addresses})
        if k is None:
            self._array(param, 0, comps, "entry.v[v] > 0 ? entry.v[v] / 2 : 0")
        elif k == self.gather.m:
            self._array(param, 1, comps, f"near.v[v] > {GAP} ? near.v[v] : t")
        elif self._ring(k):
            self._array(param, 0, comps, f"at{k}.v[v]", ring=True)
            at = {c: self.names[param, 0, c] for c in comps}
            near, far = (1, 0) if self.gather.turned else (0, 1)
            self.names |= {(param, near, c): at[c] for c in comps}
            self.names |= {(param, far, c): at[c].replace("[v]", "[v + 1]") for c in comps}
        else:
            for slot in slots:
                self._array(param, slot, comps, f"at{k}.v[v * {self.spec.maps[k].arity} + {slot}]")

    def _array(self, param: int, slot: int, comps: list[int], row: str, ring: bool = False) -> None:
        """Values of a parameter at all elements; on a ring one more, the first again."""
        access, described, degree = self.spec.access(param), self.spec.params[param], self.gather.degree
        name, size = f"all{param}_{slot}", degree + ring
        if self.code.in_whole_row(param):
            parts = {name: (f"ml_row<{described.ctype}, {described.dim}>", access.load_row("row"))}
            self.names |= {(param, slot, c): f"{name}[v].v[{c}]" for c in comps}
        else:
            parts = {f"{name}_{c}": (described.ctype, access.at("row", c)) for c in comps}
            self.names |= {(param, slot, c): f"{name}_{c}[v]" for c in comps}
        self.lines += [f"{kind} {one}[{size}];" for one, (kind, _) in parts.items()]
        fill = [f"{one}[v] = {source};" for one, (_, source) in parts.items()]
        head = f"for (int v = 0; v < {degree}; ++v) {{"
        self.lines += ["#pragma unroll", head, f"const ml_index row = {row};", *fill, "}"]
        if ring:
            self.lines += [f"{one}[{degree}] = {one}[0];" for one in parts]
