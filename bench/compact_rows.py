"""What ``bench.compact`` measures: line loops on grids, each checked against NumPy before it is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

import meshloom as ml
from bench.locality import Cpu
from bench.race_loop import Device, kernel_figures
from meshloom import compact
from meshloom.backend import current
from meshloom.errors import MeshloomError
from meshloom.schedule.lines.spec import LineSpec

TOLERANCE = {"float64": 1e-12, "float32": 2e-4}  # largest difference from NumPy in double, as a share of the largest
SMALL = (21, 40, 37)  # points along the axes of the grids on which everything is checked first; no multiple of anything
PLANES = ((256, 256), (512, 512), (1024, 1024), (2048, 2048))
BLOCKS = ((256, 256, 256), (512, 512, 512))
MANY = 32  # variables of the largest plane
PRIME = (509, 509, 509)  # lengths that are no multiple of anything
OWN = "segmented"  # our one-pass solver
FLOW_VALUES = 5  # density, momentum, energy


class Host(Cpu):
    """The cores of this machine: the fastest of many runs, for these are short and neighbours are not."""

    def seconds(self, run: Callable[[], Any]) -> float:
        run()
        taken: list[float] = []
        while len(taken) < 3 or (sum(taken) < 0.3 and len(taken) < 200):
            begin = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begin)
        return min(taken)


@dataclass(frozen=True)
class Problem:
    """One thing to do to a field of ``values`` components along an axis.

    ``what``: "derivative", or "solve", the tridiagonal system alone, which is all that solvers but our own do, or
    "fused": flux, derivative and sum of the five variables of a flow. ``tuning``: entries of the solver's tiling.
    ``aligned``: rows of the grid begin at cache lines, whatever their length.
    """

    shape: tuple[int, ...]
    axis: int
    values: int = 1
    precision: str = "float64"
    periodic: bool = True
    method: str = OWN
    what: str = "derivative"
    tuning: tuple[tuple[str, int], ...] = ()
    aligned: bool = False

    def small(self) -> Problem:
        """The same on a grid that NumPy does at once: what is checked first."""
        return replace(self, shape=SMALL[: len(self.shape)], values=min(self.values, 8))

    def entries(self) -> dict[str, Any]:
        """How a row of the result begins."""
        ends = "periodic" if self.periodic else "closed"
        form = "".join(f", {key} {value}" for key, value in self.tuning) + (", aligned rows" if self.aligned else "")
        return {"what": self.what, "shape": list(self.shape), "values": self.values, "axis": self.axis,
                "precision": self.precision, "ends": ends, "method": self.method + form}  # fmt: skip


Room = tuple[tuple[int, ...], int, str, bool, bool]  # shape, values, precision, periodic, aligned


def room_of(problem: Problem) -> Room:
    """What problems that may share their fields have in common."""
    return problem.shape, problem.values, problem.precision, problem.periodic, problem.aligned


def made(room: Room) -> tuple[ml.Grid, ml.Field, ml.Field]:
    """A grid, and fields of zeros for operands and results."""
    shape, values, precision, periodic, aligned = room
    extent = [float(n) for n in shape]  # spacing about 1: so are the values
    grid = ml.Grid(shape, extent, periodic=periodic, aligned=aligned)
    f, out = (grid.field(name, values, dtype=np.dtype(precision)) for name in ("f", "out"))
    return grid, f, out


@lru_cache(maxsize=2)
def fields(room: Room, backend: str) -> list[Any]:
    """The same on the device, with operands; kept while rows on the same grid follow each other.

    Operands are numbers from 1 to 2 without a pattern, made where the field lies; the same in every run.
    """
    ml.use(backend)
    grid, f, out = made(room)
    for one in (f, out):
        one.move(current().place(one.storage))
    xp = _module(f.storage)
    numbers = xp.arange(f.storage.size, dtype=np.float64)
    numbers *= 0.6180339887498949
    numbers -= xp.floor(numbers)
    f.storage[...] = 1.0 + numbers
    return [grid, f, out]


def loop_of(problem: Problem, grid: ml.Grid, f: ml.Field, out: ml.Field) -> ml.Loop:
    """What a problem is about, on these fields."""
    axis, fused = problem.axis, problem.what == "fused"
    derivative = compact.operator(compact.LELE6, grid, axis)
    operator = ml.linalg.LineOperator(derivative.matrix) if problem.what == "solve" else derivative
    before, after, values = (flow_flux(axis), accumulate, problem.values) if fused else (None, None, None)
    return ml.linalg.LineLoop(grid, axis, operator, f, out, before=before, after=after, values=values,
                              method=problem.method, tuning=dict(problem.tuning))  # fmt: skip


def empty_loop(problem: Problem) -> ml.Loop:
    """The loop on fields that nobody has filled: to be compiled, not to be run."""
    return loop_of(problem, *made(room_of(problem)))


def form_of(loop: ml.Loop) -> str:
    """How lines are cut up."""
    assert isinstance(loop.spec, LineSpec)
    return str(loop.spec.tiling)


class Setup:
    """The fields of a problem and its loop."""

    def __init__(self, problem: Problem, backend: str):
        self.problem = problem
        self.grid, self.f, self.out = fields(room_of(problem), backend)
        ml.use(backend)
        self.loop = loop_of(problem, self.grid, self.f, self.out)
        self.operator = self.loop.body.operators[0]

    def component(self, field: ml.Field, c: int) -> Any:
        """A view of a component as an array (*shape), where the field lies."""
        flat = field.storage.reshape(field.dim, -1)[c, : self.grid.total]
        return flat.reshape(self.grid.places)[self.grid.inner]

    def lines(self, field: ml.Field, where: list[tuple[int, ...]]) -> np.ndarray:
        """Some lines along the axis, (n, lines, values), in double; ``where``: indices on the other axes."""
        found = []
        for index in where:
            at = (*index[: self.problem.axis], slice(None), *index[self.problem.axis :])
            line = [self.component(field, c)[at] for c in range(field.dim)]
            found.append([np.asarray(one.get() if hasattr(one, "get") else one, np.float64) for one in line])
        return np.moveaxis(np.array(found), -1, 0)

    def places(self) -> list[tuple[int, ...]]:
        """Lines to look at: all of a small grid, else the first, the last and some between."""
        others = [n for a, n in enumerate(self.problem.shape) if a != self.problem.axis]
        if not others:
            return [()]
        count = int(np.prod(others))
        picked = range(count) if count <= 2000 else sorted({0, 1, count // 3, count // 2, count - 2, count - 1})
        return [tuple(int(i) for i in np.unravel_index(k, others)) for k in picked]

    def error(self) -> float:
        """How far the results of one run are from NumPy's, on the lines looked at, as a share of the largest."""
        where = self.places()
        operands = self.lines(self.f, where)
        if self.problem.what == "fused":
            operands = numpy_flux(operands, self.problem.axis)
        n, rest = len(operands), operands.shape[1:]
        expected = self.operator.applied(operands.reshape(n, -1)).reshape(n, *rest)
        if self.problem.what == "fused":
            expected = -expected
        self.out.storage[...] = 0.0
        self.loop.prepare()()
        found = self.lines(self.out, where)
        return float(np.abs(found - expected).max() / np.abs(expected).max())


def row(problem: Problem, device: Device, copy_rate: float, *, twice: bool = True) -> dict[str, Any]:
    """One row, timed if right on a small grid (``twice``) and on some lines of its own. ``copy_rate``: bytes/s."""
    head = problem.entries()
    try:
        small, error = small_error(problem.small(), device.backend) if twice else 0.0, 0.0
        if small <= TOLERANCE[problem.precision]:
            setup = Setup(problem, device.backend)
            error = setup.error()
    except MeshloomError as refusal:
        return head | {"declined": str(refusal)}
    if not max(small, error) <= TOLERANCE[problem.precision]:
        return head | {"wrong": max(small, error)}
    executable: Any = setup.loop.prepare()
    seconds = device.replayed(getattr(executable, "launch", executable))
    points = int(np.prod(problem.shape)) * problem.values
    return head | {
        "error": error,
        "ms": seconds * 1e3,
        "Gpoints_per_s": points / seconds / 1e9,
        "bytes_per_point": setup.loop.compulsory / points,
        "share_of_limit": setup.loop.compulsory / seconds / copy_rate,
        "launches": len(getattr(executable, "steps", ())),
        "form": form_of(setup.loop),
        **kernel_figures(getattr(executable, "resources", {})),
    }


@cache
def small_error(problem: Problem, backend: str) -> float:
    """How far the results of a small problem are from NumPy's; many large problems share it."""
    return Setup(problem, backend).error()


def rows(
    problems: list[Problem], device: Device, copy_rate: float, *, twice: bool = True
) -> Iterator[dict[str, Any]]:
    for problem in problems:
        yield row(problem, device, copy_rate, twice=twice)
        device.clear()


# --- a fused right-hand side ------------------------------------------------------------------------------


def flow_flux(axis: int) -> ml.Kernel:
    """The flux of the compressible Euler equations along an axis, from q = density, three momenta, energy."""

    @ml.kernel
    def flux(q: ml.Read, f: ml.Write):
        f[...] = np.stack(_flux(q, axis))

    return flux


@ml.kernel
def accumulate(df: ml.Read, rhs: ml.Inc):
    rhs += -df


def _flux(q: Any, axis: int) -> list[Any]:
    """Components of the flux from the components of q."""
    density, *momentum, energy = (q[c] for c in range(FLOW_VALUES))
    speed = momentum[axis] / density
    pressure = 0.4 * (energy - 0.5 * (momentum[0] ** 2 + momentum[1] ** 2 + momentum[2] ** 2) / density)
    along = [speed * one + (pressure if a == axis else 0.0) for a, one in enumerate(momentum)]
    return [momentum[axis], *along, speed * (energy + pressure)]


def numpy_flux(q: np.ndarray, axis: int) -> np.ndarray:
    """The same of values (n, lines, 5)."""
    return np.stack(_flux(np.moveaxis(q, -1, 0), axis), axis=-1)


def _module(array: Any) -> Any:
    """NumPy, or CuPy for an array on a device."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy
