"""Code for ``owner`` on a GPU where the kernel is symmetric: every incident element seen from the target's own side.

What depends on the target alone is computed once; all loads are under way before the first element is computed. The
tables are those of ``neighbours.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meshloom.kernel import emit
from meshloom.kernel.count import loads
from meshloom.kernel.expr import C_TYPES, Node, topological
from meshloom.kernel.model import Output
from meshloom.schedule.code import ElementCode, merged, row_name
from meshloom.schedule.gather import accumulator
from meshloom.schedule.neighbours import GAP, MARKED, OwnRing, RoleTables, TabledIncidence
from meshloom.schedule.plan import Plan, symbol
from meshloom.schedule.spec import Address, LoopSpec


@dataclass(frozen=True)
class RoleGather:
    """What the elements of map ``m`` give to target ``t``."""

    spec: LoopSpec
    m: int
    degree: int
    plan: Plan  # whose ``gathers`` have the tables
    tables: RoleTables
    outputs: tuple[Output, ...]  # to slot 0, the own side
    along: OwnRing | None = None  # a map of the targets that names the ring's nodes

    @classmethod
    def of(cls, spec: LoopSpec, m: int, plan: Plan, found: TabledIncidence, along: OwnRing | None = None) -> RoleGather:
        outputs = tuple(o for o in spec.racy_outputs if spec.params[o.param].map == m and o.slot == 0)
        assert isinstance(found.tables, RoleTables)
        return cls(spec, m, found.degree, plan, found.tables, outputs, along)

    @property
    def turned(self) -> bool:
        """Do rings go round the other way, and hold the second end of each element?"""
        return self.along is not None and bool(self.along.turned)

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
        near = self._table("near", self.degree, self.tables.near.dtype, self._named("near"))
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

    def _named(self, *path: str | int) -> str:
        """What a table of the plan is called."""
        return symbol(self.plan, "gathers", self.m, "tables", *path)

    def _table(self, name: str, width: int, dtype: np.dtype, array: str) -> list[str]:
        """The target's row of a table with ``width`` entries for each."""
        ctype = C_TYPES[dtype]
        return [f"const ml_row<{ctype}, {width}> {name} = ml_load<{ctype}, {width}>({array} + t * {width});"]

    @property
    def _listed(self) -> str:
        """C expression: is the target in the tables?"""
        return "true" if self.tables.marked is None else f"near.v[0] != {MARKED}"

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
        degree, tables, along = self.gather.degree, self.gather.tables, self.gather.along
        table, named = self.gather._table, self.gather._named
        for k in sorted(k for k in maps if k is not None and k != self.gather.m):
            if self._ring(k) and along is not None:
                self.lines += table(f"at{k}", degree, self.spec.maps[along.ring_of].dtype, f"m{along.ring_of}")
            elif self._ring(k):
                self.lines += table(f"at{k}", degree, tables.ring[k].dtype, named("ring", k))
            else:
                width = degree * self.spec.maps[k].arity
                self.lines += table(f"at{k}", width, tables.rows[k].dtype, named("rows", k))
        if None in maps:
            self.lines += table("entry", degree, tables.entry.dtype, named("entry"))

    def around(self, param: int, position: int, comp: int) -> str | None:
        """Name of what the ring holds at a position, for a parameter read through it; None if that is not loaded."""
        name = self.names.get((param, int(self.gather.turned), comp))
        return name and name.replace("[v]", f"[{position}]")

    def _ring(self, k: int) -> bool:
        along = self.gather.along
        return k in self.gather.tables.ring or (along is not None and k == along.ring_through)

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
