"""A case that shows a difference, made as small as it still shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tests.fuzz.model import Case, LoopOf, Param, SetOf, Statement
from tests.fuzz.tree import BadExpression, Node, literal, nodes_of, operate


def shrink(case: Case, fails: Callable[[Case], bool], attempts: int) -> Case:
    """Take the first smaller case that still fails, again and again, until there is none or ``attempts`` were made."""
    while True:
        for smaller in candidates(case):
            attempts -= 1
            if attempts < 0:
                return case
            try:
                failed = fails(smaller)
            except Exception:  # no case at all: something that the smaller one lacks
                failed = False
            if failed:
                case = smaller
                break
        else:
            return case


def candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, the boldest first."""
    for k in range(len(case.loops)):
        if len(case.loops) > 1:
            yield replace(case, loops=case.loops[:k] + case.loops[k + 1 :])
    for k, loop in enumerate(case.loops):
        for smaller in _smaller_loops(loop):
            yield replace(case, loops=(*case.loops[:k], smaller, *case.loops[k + 1 :]))
    yield from _smaller_sets(case)
    yield from _simpler_data(case)


def _smaller_loops(loop: LoopOf) -> Iterator[LoopOf]:
    for k in range(len(loop.statements)):
        kept = loop.statements[:k] + loop.statements[k + 1 :]
        if kept:
            yield _without_unused(replace(loop, statements=kept))
    if loop.ordered:
        yield replace(loop, ordered=False)
    if loop.lifted:
        yield replace(loop, lifted=False)
    if loop.box is not None:
        low, high = loop.box
        for a, (first, end) in enumerate(zip(low, high, strict=True)):
            if end - first > 1:
                yield replace(loop, box=(low, (*high[:a], first + 1, *high[a + 1 :])))
    for k, statement in enumerate(loop.statements):
        for value in _smaller_values(statement.value):
            changed = replace(statement, value=value)
            yield _without_unused(replace(loop, statements=(*loop.statements[:k], changed, *loop.statements[k + 1 :])))


def _without_unused(loop: LoopOf) -> LoopOf:
    """Without parameters that nothing mentions."""
    used = {s.param for s in loop.statements}
    used |= {n.value[0] for n in nodes_of([s.value for s in loop.statements]) if n.op == "load"}
    number = {old: new for new, old in enumerate(sorted(used))}
    params: tuple[Param, ...] = tuple(loop.params[k] for k in sorted(used))

    def renumbered(node: Node, args: Sequence[Node]) -> Node:
        if node.op == "load":
            return replace(node, value=(number[node.value[0]], *node.value[1:]))
        return replace(node, args=tuple(args))

    made = _rewritten([s.value for s in loop.statements], renumbered)
    statements = tuple(Statement(number[s.param], s.index, s.op, v) for s, v in zip(loop.statements, made, strict=True))
    return replace(loop, params=params, statements=statements)


def _rewritten(roots: Sequence[Node], rule: Callable[[Node, Sequence[Node]], Node]) -> list[Node]:
    new: dict[int, Node] = {}
    for node in nodes_of(roots):
        new[id(node)] = rule(node, [new[id(a)] for a in node.args])
    return [new[id(r)] for r in roots]


def _smaller_values(root: Node) -> Iterator[Node]:
    """The expression with one of its nodes replaced by an argument, or by a number."""
    for target in reversed(list(nodes_of([root]))):
        if target.op == "lit":
            continue
        others = [a for a in target.args if a.shape == target.shape]
        if not target.shape and target.op != "load":
            others += [literal(1.0), literal(1)]
        for other in others:
            made = _with(root, target, other)
            if made is not None:
                yield made


def _with(root: Node, target: Node, other: Node) -> Node | None:
    def rule(node: Node, args: Sequence[Node]) -> Node:
        if node is target:
            return other
        if not node.args:
            return node
        return operate(node.op, *args, value=node.value)

    try:
        return _rewritten([root], rule)[0]
    except BadExpression:
        return None


def _smaller_sets(case: Case) -> Iterator[Case]:
    for k, s in enumerate(case.sets):
        if s.grid is not None:
            shape = s.grid.shape
            for a, n in enumerate(shape):
                if n > 3 and all(loop.box is None for loop in case.loops):
                    yield _cut(case, k, replace(s.grid, shape=(*shape[:a], max(3, n // 2), *shape[a + 1 :])).as_set())
            if s.grid.aligned:
                yield _cut(case, k, replace(s.grid, aligned=False).as_set())
            continue
        for size in dict.fromkeys((1, s.size // 2, s.size - 1)):
            if 0 < size < s.size:
                yield _cut(case, k, SetOf(size))
        if s.halo or s.numbering is not None:
            yield _cut(case, k, SetOf(s.size))


def _cut(case: Case, which: int, smaller: SetOf) -> Case:
    sets = tuple(smaller if k == which else s for k, s in enumerate(case.sets))
    maps = []
    for m in case.maps:
        rows = m.rows[: smaller.total] if m.source == which else m.rows
        maps.append(replace(m, rows=rows % smaller.total if m.target == which else rows))
    storages = [replace(s, data=np.resize(s.data, (smaller.total, *s.data.shape[1:]))) if s.on == which else s
                for s in case.storages]  # fmt: skip
    return replace(case, sets=sets, maps=tuple(maps), storages=tuple(storages))


def _simpler_data(case: Case) -> Iterator[Case]:
    used = {p.which for loop in case.loops for p in loop.params}
    for k, s in enumerate(case.storages):
        simpler = [replace(s, layout=None)] if s.layout else []
        simpler += [replace(s, components=None)] if s.components else []
        if k not in used and s.data.size and np.any(s.data != 0):
            simpler.append(replace(s, data=np.zeros_like(s.data)))
        elif k in used:
            with np.errstate(all="ignore"):
                rounded = np.where(np.isfinite(s.data), np.rint(s.data), s.data).astype(s.data.dtype)
            simpler += [
                replace(s, data=d)
                for d in (np.ones_like(s.data), np.zeros_like(s.data), rounded)
                if s.data.size and not np.array_equal(d, s.data, equal_nan=s.data.dtype.kind == "f")
                and np.count_nonzero(d != np.rint(d)) <= np.count_nonzero(s.data != np.rint(s.data))
                and not (np.all(s.data == 0) or np.all(s.data == 1))
            ]  # fmt: skip
        for one in simpler:
            yield replace(case, storages=(*case.storages[:k], one, *case.storages[k + 1 :]))
    for k, m in enumerate(case.maps):
        if m.wide:
            yield replace(case, maps=(*case.maps[:k], replace(m, wide=False), *case.maps[k + 1 :]))
