"""The reference of line loops: whole arrays, and the LU factors of the banded matrix by scipy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.numpy_buffer import Buffer
from meshloom.kernel.evaluate import Evaluation
from meshloom.kernel.expr import Node
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.offsets import Index
from meshloom.records import dataclass
from meshloom.schedule.lines.spec import LineSpec

_MERGE: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda old, new: new,
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


@dataclass(frozen=True)
class Points:
    """Where the points of a grid are in an array (*places,), and how many there are along each axis."""

    places: Index
    inner: tuple[slice, ...]
    shape: Index


@dataclass(frozen=True)
class LineWork:
    """A line loop with its memory. It keeps no field alive."""

    spec: LineSpec
    buffers: Sequence[Buffer]
    points: Points
    operands: Evaluation
    results: Evaluation


def line_work(bound: BoundLoop, buffers: Sequence[Buffer]) -> LineWork:
    """What it takes to run a line loop."""
    spec = bound.spec
    assert isinstance(spec, LineSpec)
    grid = next(s.set for s in bound.storages if isinstance(s, Field))
    assert isinstance(grid, Grid)
    points = Points(grid.places, grid.inner, grid.shape)
    return LineWork(spec, buffers, points, Evaluation(spec.operands), Evaluation([o.value for o in spec.results]))


def solved_lines(spec: LineSpec, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The solution for each right-hand side, as it (n, lines)."""
    if not spec.systems:
        return [operator.applied(one) for operator, one in zip(spec.operators, operands, strict=True)]
    given = dict(zip(spec.systems.varying, operands[spec.values :], strict=True))
    return [spec.systems.solved(one, given) for one in operands[: spec.values]]


def run_lines(work: LineWork) -> None:
    """Execute a line loop: operands everywhere, lines solved, results brought to the fields."""
    spec, buffers, grid = work.spec, work.buffers, work.points
    axis, rows = spec.axis, [one.unpacked() for one in buffers]
    shaped = [
        r if p.is_global else r.reshape(*grid.places, -1)[grid.inner] for r, p in zip(rows, spec.params, strict=True)
    ]

    def at_points(node: Node) -> np.ndarray:
        param, _, comp = node.value
        return results[comp] if param == len(spec.params) else shaped[param][..., comp]

    results: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        operands = work.operands(at_points)
        lines = [np.moveaxis(np.broadcast_to(one, grid.shape), axis, 0) for one in operands]
        flat = [one.reshape(grid.shape[axis], -1) for one in lines]
        for k, one in enumerate(solved_lines(spec, flat)):
            results.append(np.moveaxis(one.reshape(lines[k].shape), 0, axis).astype(spec.dtype))
        values = [np.array(v) for v in work.results(at_points)]
    for output, combine, value in zip(spec.results, spec.combines, values, strict=True):
        target = shaped[output.param][..., output.comp]
        target[...] = _MERGE[combine](target, value)
    for param, buffer, values_ in zip(spec.params, buffers, rows, strict=True):
        if param.mode.writes:
            buffer.repack(values_)
