"""The reference: the traced graph evaluated on whole arrays. No plan, no compiler, one thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from meshloom.backend.base import Backend
from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.lowering import Launch, Launches
from meshloom.backend.numpy_binned import Bins
from meshloom.backend.numpy_buffer import Buffer, buffer_of
from meshloom.backend.numpy_lines import line_work, run_lines
from meshloom.kernel.access import identity
from meshloom.kernel.evaluate import Evaluation
from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output
from meshloom.mesh.box import Box
from meshloom.mesh.formula import Formula, computed_rows
from meshloom.records import dataclass
from meshloom.schedule.lines.spec import LineSpec
from meshloom.schedule.spec import LoopSpec

CHUNK = 1 << 14  # elements at a time, so that intermediate arrays stay in the cache
Binned = dict[tuple[int, int], Bins]  # by parameter and component
_MERGE = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}


class NumpyBackend(Backend):
    """Vectorised NumPy; strategies are ignored because nothing runs at the same time."""

    name = "numpy"
    fuses = False  # the reference: every loop by itself

    def unavailable(self) -> str | None:
        return None

    def prepare(self, bound: BoundLoop) -> Launches:
        buffers = tuple(map(buffer_of, bound.storages))
        if isinstance(bound.spec, LineSpec):
            return Launches((Launch.here(run_lines, line_work(bound, buffers)),))
        rows = tuple(one.formula or one.positions for one in bound.maps)
        values = Evaluation([output.value for output in bound.spec.outputs])
        work = NumpyWork(bound.spec, bound.elements, buffers, rows, bound.box, values)
        return Launches((Launch.here(run, work),))


@dataclass(frozen=True)
class NumpyWork:
    """A loop with its memory; ``rows``: where maps lead to, or their formulas. It keeps no field and no map alive."""

    spec: LoopSpec
    elements: int
    buffers: tuple[Buffer, ...]
    rows: tuple[np.ndarray | Formula, ...]
    box: Box | None
    values: Evaluation  # of its outputs


def run(work: NumpyWork) -> None:
    """Execute a loop. Values read through maps are those from before the loop, as on every back end."""
    spec, fields, globals_ = work.spec, [], []
    binned = {(o.param, o.comp): Bins(work.buffers[o.param].storage[o.comp : o.comp + (not mode.open)])
              for o in spec.reductions if (mode := spec.params[o.param].mode).binned}  # fmt: skip
    for param, buffer in zip(spec.params, work.buffers, strict=True):
        fields.append(np.empty((0, 0)) if param.is_global else buffer.unpacked())
        globals_.append(buffer.storage.copy() if param.is_global else np.empty(0))
    for first in range(0, work.elements, CHUNK):
        rows = slice(first, min(first + CHUNK, work.elements))
        _chunk(work, rows, fields, globals_, binned)
    for (number, comp), one in binned.items():
        if spec.params[number].mode.open:
            globals_[number].view(np.int64)[4 * comp : 4 * comp + 4] = one.words()
        else:
            globals_[number][comp] = one.rounded(spec.params[number].dtype)
    for param, buffer, values, total in zip(spec.params, work.buffers, fields, globals_, strict=True):
        if param.mode.writes:
            buffer.repack(total.reshape(1, -1) if param.is_global else values)


def _chunk(work: NumpyWork, rows: slice, fields: list, globals_: list, binned: Binned) -> None:
    spec = work.spec

    @cache  # of all components, and of what is read and written
    def place(param: int, slot: int) -> slice | np.ndarray:
        described = spec.params[param]
        if work.box is not None:
            offset = described.offsets[slot] if described.offsets else None
            return work.box.rows(offset, rows.start, rows.stop)
        if described.map is None:
            return rows
        led = work.rows[described.map]
        if isinstance(led, tuple):
            return computed_rows((led[slot],), rows.start, rows.stop)[:, 0]
        return led[rows, slot]

    @cache
    def targets(param: int, slots: tuple[int, ...]) -> np.ndarray:
        return np.stack([np.asarray(place(param, slot)) for slot in slots], axis=1).ravel()  # as ``owner`` does

    def leaf(node: Node) -> np.ndarray:
        param, slot, comp = node.value
        if spec.params[param].is_global:
            return work.buffers[param].storage[comp]
        values = fields[param][place(param, slot), comp]
        return values.copy() if spec.params[param].mode.writes else values  # what is written later must not show here

    with np.errstate(all="ignore"):
        meeting: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = {}  # at a component of a target: slots, values
        for output, value in zip(spec.outputs, work.values(leaf), strict=True):
            values = np.broadcast_to(value, (rows.stop - rows.start,))
            if spec.params[output.param].mode.combine and spec.params[output.param].map is not None:
                meeting.setdefault((output.param, output.comp), []).append((output.slot, values))
            elif spec.params[output.param].mode.binned:
                binned[output.param, output.comp].add(values.astype(spec.params[output.param].dtype))
            else:
                _sink(work, output, values, place, fields, globals_)
        for (param, comp), given in meeting.items():
            slots, offers = zip(*sorted(given, key=lambda one: one[0]), strict=True)
            column = fields[param][:, comp]
            _MERGE[spec.params[param].mode.combine].at(column, targets(param, slots), np.stack(offers, axis=1).ravel())


def _sink(work: NumpyWork, output: Output, value: np.ndarray, place: Callable, fields: list, globals_: list) -> None:
    param, combine = work.spec.params[output.param], work.spec.params[output.param].mode.combine
    if param.is_global:
        total = globals_[output.param]
        nothing = identity(combine, param.dtype)  # NumPy's own is 0.0, which turns -0.0 round
        part = _MERGE[combine].reduce(value, dtype=param.dtype, initial=nothing)  # integers wrap, as they do in at()
        merged = _MERGE[combine](total[output.comp], part, dtype=param.dtype)
        total[output.comp] = merged if combine == "add" else merged + 0  # not -0.0, as ``Reduction.total`` has it
        return
    column = fields[output.param][:, output.comp]
    rows = place(output.param, output.slot)
    column[rows] = _MERGE[combine](column[rows], value) if combine else value
