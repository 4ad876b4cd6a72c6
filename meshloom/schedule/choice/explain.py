"""``loop.explain()``: the schedule in force, why, and the figures, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from meshloom.errors import CompilerError, one_line
from meshloom.kernel.access import Mode
from meshloom.kernel.expr import FLOAT32, FLOAT64, topological
from meshloom.mesh.core import Field, Global, Map, Set
from meshloom.mesh.layout import Layout
from meshloom.mesh.number import PlainNumber
from meshloom.native.algorithms import color_blocks, thread_colors
from meshloom.order import BAD_EXCESS, blocks_of, excess
from meshloom.schedule.choice.counts import LINE, Counts
from meshloom.schedule.choice.per_thread import chosen_per_thread, in_words
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.plan.plan import topology
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies import strategy
from meshloom.schedule.strategies.common.blocks import block_offsets
from meshloom.schedule.strategies.common.points import tile_of
from meshloom.target.limit import Peaks, Roofline

NOT_BY_ITSELF = "not yet: call the loop by itself, then ask again"
REPRODUCIBLE = "to Globals the same bits in any order (reproducible)"


class ExplainedOperand(Protocol):
    """What a field or global that a loop uses must tell about itself. ``pattern`` is printed behind its name."""

    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> type[Mode]: ...
    @property
    def storage(self) -> Field | Global: ...
    @property
    def pattern(self) -> object: ...


class Explained(Protocol):
    """What a loop must tell about itself to be explained."""

    @property
    def name(self) -> str: ...
    @property
    def backend(self) -> Any: ...
    @property
    def calls(self) -> int: ...
    @property
    def operands(self) -> Sequence[ExplainedOperand]: ...
    @property
    def set(self) -> Set: ...
    @property
    def elements(self) -> int: ...
    @property
    def over(self) -> str: ...
    @property
    def maps(self) -> tuple[Map, ...]: ...
    @property
    def spec(self) -> LoopSpec: ...
    @property
    def counts(self) -> Counts: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def reason(self) -> str: ...
    @property
    def seconds(self) -> float | None: ...
    def layout_of(self, one: Field) -> Layout: ...
    def limit_by(self, peaks: Peaks) -> Roofline: ...


def explain(loop: Explained) -> str:
    """Lines of ``label  text`` under a headline."""
    why = [] if loop.backend.name == "numpy" else [("why", loop.reason)]
    rows = [("schedule", _schedule(loop)), *why, ("arguments", _arguments(loop))]
    rows += [*algebra_of(loop.spec, loop.backend), *_figures(loop)]
    rows += [*_plan_figures(loop), *_bad_order(loop), ("measured", _measured(loop))]
    head = f"{loop.name} over {loop.over}: {_several(loop.elements, 'element')}, back end {loop.backend.name}"
    return "\n".join(map(one_line, (head, *(f"  {label:<10} {text}" for label, text in rows))))


def _schedule(loop: Explained) -> str:
    chosen = strategy(loop.schedule.strategy)
    if loop.backend.name == "numpy":
        return "whole arrays, one after the other (the reference ignores strategies)"
    sameness = "deterministic" if chosen.deterministic else "sums may differ in the last digits from run to run"
    return f"{loop.schedule} ({chosen.summary}{_per_thread(loop)}; {sameness})"


def _per_thread(loop: Explained) -> str:
    """What a thread of a GPU takes, where that is more than one element."""
    if not loop.backend.target.is_simt:
        return ""
    if loop.spec.box is not None:
        tile = [min(one, there) for one, there in zip(tile_of(loop.spec), loop.spec.box.lengths, strict=True)]
        return f"; {' x '.join(map(str, tile))} points for each thread" if max(tile, default=1) > 1 else ""
    return in_words(chosen_per_thread(loop.spec, loop.schedule, loop.elements, loop.backend.target), loop.elements)


def _arguments(loop: Explained) -> str:
    return ", ".join(f"{one.name}: {one.mode.shown} {_value(loop, one)}" for one in loop.operands)


def _value(loop: Explained, one: ExplainedOperand) -> str:
    if isinstance(one.storage, Field):
        return f"{one.storage.name}{one.pattern} {loop.layout_of(one.storage)}"  # when it runs, as the schedule says
    return "number" if isinstance(one.storage, PlainNumber) else "global"


def algebra_of(spec: LoopSpec, backend: Any) -> list[tuple[str, str]]:
    """What was done to the formulas."""
    contracted = ""
    if getattr(backend, "contract", backend.name != "numpy"):
        contracted = ", a*b + c contracted" if backend.target.has_fma else ", no fma on this processor: bits of its own"
    fast = f"fast (terms collected, reciprocals shared{contracted}; strict=True turns it off)"
    rows = [("algebra", "as written, operation by operation (strict)" if spec.strict else fast)]
    if spec.binned:
        rows.append(("sums", REPRODUCIBLE))
    floats = {p.dtype for p in spec.params if p.dtype.kind == "f"}
    double = [n for n in topological(o.value for o in spec.outputs) if n.dtype == FLOAT64 and n.args]
    if floats == {FLOAT32} and double:
        place = next((f" ({n.where[0]}:{n.where[1]})" for n in double if n.where), "")
        why = "all its fields and Globals are single: numbers in a list, or of NumPy"
        rows.append(("precision", f"double, though {why}{place}"))
    return rows


def _figures(loop: Explained) -> list[tuple[str, str]]:
    counts = loop.counts
    kinds = ", ".join(f"{n} {k}" for k, n in counts.flops_by_kind.items())
    moved = counts.bytes
    return [
        ("flops", f"{counts.flops} per element ({kinds or 'none'})"),
        (
            "bytes",
            f"compulsory {amount(moved.compulsory)}, issued {amount(moved.issued)}, lines {amount(moved.cache_lines)}",
        ),
        ("ratios", f"V/S {counts.vector_scalar_ratio:.2f}, B/F {counts.bytes_per_flop:.2f}"),
    ]


def _plan_figures(loop: Explained) -> list[tuple[str, str]]:
    if not loop.spec.racy_outputs or not loop.set.size:
        return []
    counts = loop.counts
    blocks, block = -(-loop.set.size // counts.block), min(counts.block, loop.set.size)
    per_block = f"{counts.bytes.cache_lines / LINE / blocks:,.0f} cache lines per block of {block}"
    text = f"reuse {counts.reuse:.2f}, {per_block}"
    try:
        block_colors, most = _colors(loop)
    except CompilerError:
        return [("plan", text + "; colors unknown without a compiler")]
    return [("plan", f"{text}, {_several(block_colors, 'block color')}, {_several(most, 'thread color')}")]


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _bad_order(loop: Explained) -> list[tuple[str, str]]:
    """A warning and the remedy, where elements that follow each other use targets that lie far apart.

    A map with fewer entries than targets is not judged: its elements cannot be neighbours of each other.
    """
    dense = [m for m in loop.maps if loop.set.size * m.arity >= m.target.total]
    if not dense or loop.schedule.order != "given":
        return []
    worst, name = max((excess(m.positions[: loop.set.size], m.target.total), m.name) for m in dense)
    if worst <= BAD_EXCESS:
        return []
    blocks = blocks_of(loop.set.size, loop.set.name)
    return [("order", f"bad: {blocks} load {worst:.2g} times the memory they need through {name}; take"
                      " mesh.arranged(), or give sets of your own a numbering")]  # fmt: skip


def _colors(loop: Explained) -> tuple[int, int]:
    maps = {k: (m.positions, m.target.total, m.digest) for k, m in enumerate(loop.maps)}
    arrays, targets = topology(loop.spec, loop.set.size, maps).conflicts()
    return colors_of(arrays, targets, loop.set.size, loop.counts.block)


def colors_of(arrays: list[np.ndarray], targets: list[int], elements: int, block: int) -> tuple[int, int]:
    """Colors of blocks of consecutive elements, and the most colors inside a block."""
    offsets, visit = block_offsets(elements, block), np.arange(elements)
    return (
        int(color_blocks(offsets, visit, arrays, targets).max()) + 1,
        int(thread_colors(offsets, visit, arrays, targets).max()) + 1,
    )


def _measured(loop: Explained) -> str:
    if loop.seconds is None:
        return NOT_BY_ITSELF
    rate = loop.counts.compulsory / loop.seconds
    runs = f"{loop.calls} run{'s' if loop.calls > 1 else ''}"
    text = f"{loop.seconds * 1e3:.4g} ms ({runs}), {rate / 1e9:.3g} GB/s of compulsory bytes"
    try:
        copy = loop.backend.known_copy_bandwidth()
        limit = None if copy is None else loop.limit_by(Peaks(copy, loop.backend.rate))
    except CompilerError:
        return text
    if copy is None or limit is None:
        return text
    text += f", {rate / copy:.2f} of copy ({copy / 1e9:.3g} GB/s)"
    return text + f"; limit {limit.seconds * 1e3:.4g} ms by {limit.words}, {limit.seconds / loop.seconds:.2f} of it"


def amount(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.4g} {unit}"
        count /= 1000
    raise AssertionError
