"""The reference: the traced graph evaluated on whole arrays. No plan, no compiler, one thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.backend.base import Backend, Bound
from meshloom.backend.numpy_lines import run_lines
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output
from meshloom.schedule.lines.spec import LineSpec

CHUNK = 1 << 14  # elements at a time, so that intermediate arrays stay in the cache
_AT = {"add": np.add.at, "minimum": np.minimum.at, "maximum": np.maximum.at}
_REDUCE = {"add": np.add.reduce, "minimum": np.minimum.reduce, "maximum": np.maximum.reduce}


class NumpyBackend(Backend):
    """Vectorised NumPy; strategies are ignored because nothing runs at the same time."""

    name = "numpy"

    def unavailable(self) -> str | None:
        return None

    def prepare(self, bound: Bound) -> Callable[[], None]:
        if isinstance(bound.spec, LineSpec):
            return lambda: run_lines(bound)
        return lambda: run(bound)


def run(bound: Bound) -> None:
    """Execute a loop. Values read through maps are those from before the loop, as on every back end."""
    spec, fields, globals_ = bound.spec, [], []
    for param, storage in zip(spec.params, bound.storages, strict=True):
        fields.append(np.empty((0, 0)) if param.is_global else storage.unpacked())
        globals_.append(storage.storage.copy() if param.is_global else np.empty(0))
    for first in range(0, bound.elements, CHUNK):
        rows = slice(first, min(first + CHUNK, bound.elements))
        _chunk(bound, rows, fields, globals_)
    for param, storage, values, total in zip(spec.params, bound.storages, fields, globals_, strict=True):
        if param.mode.writes:
            storage.repack(total.reshape(1, -1) if param.is_global else values)


def _chunk(bound: Bound, rows: slice, fields: list, globals_: list) -> None:
    spec = bound.spec

    def place(param: int, slot: int) -> slice | np.ndarray:
        described = spec.params[param]
        if bound.box is not None:
            offset = described.offsets[slot] if described.offsets else None
            return bound.box.rows(offset, rows.start, rows.stop)
        return rows if described.map is None else bound.maps[described.map].positions[rows, slot]

    def leaf(node: Node) -> np.ndarray:
        param, slot, comp = node.value
        if spec.params[param].is_global:
            return bound.storages[param].storage[comp]
        values = fields[param][place(param, slot), comp]
        return values.copy() if spec.params[param].mode.writes else values  # what is written later must not show here

    with np.errstate(all="ignore"):
        values = evaluate([o.value for o in spec.outputs], leaf)
        for output, value in zip(spec.outputs, values, strict=True):
            _sink(bound, output, np.broadcast_to(value, (rows.stop - rows.start,)), place, fields, globals_)


def _sink(bound: Bound, output: Output, value: np.ndarray, place: Callable, fields: list, globals_: list) -> None:
    param, combine = bound.spec.params[output.param], bound.spec.params[output.param].mode.combine
    if param.is_global:
        total = globals_[output.param]
        part = _REDUCE[combine](value, dtype=param.dtype)  # in its own type: integers wrap, as they do in at()
        total[output.comp] = _REDUCE[combine]([total[output.comp], part], dtype=param.dtype)
        return
    column = fields[output.param][:, output.comp]
    rows = place(output.param, output.slot)
    if combine:
        _AT[combine](column, rows, value) if param.map is not None else column.__setitem__(
            rows, _REDUCE[combine]([column[rows], value])
        )
    else:
        column[rows] = value
