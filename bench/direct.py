"""Light loops over own elements: how near they come to a copy, by the bytes that a thread takes.

    python -m bench.direct --device cuda|cpu [--blocks 128 ...] [--json FILE]

A copy, an axpy, a sum, and a Runge-Kutta update of five components, in double and single precision: one component,
``soa`` and ``aos``. Each row: elements for each thread, milliseconds, and its compulsory bytes (each value read once
and written once) per second as a share of what a copy moves in the same run. ``*`` is what Meshloom chooses itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

import meshloom as ml
from bench.grid import Cpu
from bench.race_loop import TOLERANCE, Device
from bench.started import options_of, started
from meshloom.schedule.choice.per_thread import chosen_per_thread
from meshloom.schedule.spec import ElementsPerThread

PRECISIONS = ("float64", "float32")
BYTES = {"float64": (8, 16, 32, 64), "float32": (4, 16, 32, 64)}  # of a component, for each thread
NUMBERS = 100_000_000  # of each field; of those with several components half as many
FEW_NUMBERS = 1 << 20
STEP = 0.01


@ml.kernel
def copy(a: ml.Read, b: ml.Write):
    b[...] = a


@ml.kernel
def axpy(x: ml.Read, y: ml.ReadWrite):
    y[...] = y + STEP * x


@ml.kernel
def update(before: ml.Read, rate: ml.Read, u: ml.ReadWrite):
    """The second stage of a Runge-Kutta step of third order."""
    u[...] = 0.75 * before + 0.25 * (u + STEP * rate)


@ml.kernel
def add_up(x: ml.Read, total: ml.Sum):
    total += x


@dataclass(frozen=True)
class Case:
    """A kernel and its data. ``after``: what must come out, from the flat arrays of all fields before."""

    kernel: ml.Kernel
    fields: int
    dim: int
    layout: str
    after: Callable[..., Any]
    sums: bool = False


def _updated(before: Any, rate: Any, u: Any) -> Any:
    return 0.75 * before + 0.25 * (u + STEP * rate)


CASES = (
    Case(copy, 2, 1, "soa", lambda a, b: a),
    Case(axpy, 2, 1, "soa", lambda x, y: y + STEP * x),
    Case(add_up, 1, 1, "soa", lambda x: x.sum(dtype=np.float64), sums=True),
    Case(copy, 2, 3, "soa", lambda a, b: a),
    Case(copy, 2, 3, "aos", lambda a, b: a),
    Case(update, 3, 5, "soa", _updated),
    Case(update, 3, 5, "aos", _updated),
)


class Data:
    """The fields of a case on the device, and its loops."""

    def __init__(self, case: Case, precision: str, numbers: int):
        self.case, self.points = case, ml.Set(numbers // (2 * case.dim if case.dim > 1 else 1), "points")
        self.fields = [self.points.field(f"f{k}", case.dim, dtype=precision, layout=case.layout)
                       for k in range(case.fields)]  # fmt: skip
        self.total = ml.Global(0.0, "total")
        self.loop(ml.Schedule()).prepare()  # moves the fields to where they are used

    def loop(self, wish: ml.Schedule) -> ml.Loop:
        arguments: list[Any] = [*self.fields, self.total] if self.case.sums else [*self.fields]
        return self.case.kernel.loop(self.points, *arguments, schedule=wish)

    def reset(self) -> None:
        """Values that differ from field to field and from number to number, with a period that is no power of two."""
        self.total.value = 0.0
        for k, one in enumerate(self.fields):
            library = np if isinstance(one.storage, np.ndarray) else import_module("cupy")
            one.storage[:] = (library.arange(one.storage.size, dtype=np.int32) % 997) / 997.0 + k

    def error(self, run: Callable[[], Any]) -> float:
        """The largest difference from what must come out of one run, as a share of the largest value."""
        self.reset()
        expected = self.case.after(*(values(one).copy() for one in self.fields))
        run()
        found = self.total.value if self.case.sums else values(self.fields[-1])
        return float(abs(found - expected).max() / abs(expected).max())


def values(one: ml.Field) -> Any:
    """The values of a field where they are, (n,) or (n, dim): NumPy's array, or CuPy's on a device."""
    return one.memory()


def wishes(case: Case, device: Device, precision: str, blocks: tuple[int | None, ...]) -> Iterator[ml.Schedule]:
    """What to time: on a GPU every width in blocks of every size, else the automatic choice."""
    if device.backend == "cpu":
        yield ml.Schedule()
        return
    rows: tuple[None, ...] = (None,) if case.layout == "aos" else ()  # one at a time
    for block, width in product(blocks, (*rows, *BYTES[precision])):
        yield ml.Schedule(block=block, vector=width)


def rows_of(data: Data, device: Device, precision: str, copied: float,
            blocks: tuple[int | None, ...]) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Every schedule, checked, then timed. ``copied``: bytes per second of a copy."""
    case = data.case
    usual = data.loop(ml.Schedule())
    for wish in wishes(case, device, precision, blocks):
        loop = data.loop(wish)
        executable: Any = loop.prepare()
        target = loop.backend.target
        taken = ElementsPerThread()
        if target.is_simt:
            taken = chosen_per_thread(loop.spec, loop.schedule, loop.elements, target)
        row: dict[str, Any] = {
            "loop": loop.name, "dim": case.dim, "layout": case.layout if case.dim > 1 else "-", "precision": precision,
            "schedule": str(loop.schedule), "elements_per_thread": taken.count,
            "automatic": same_code(loop, usual),
        }  # fmt: skip
        error = data.error(executable)
        if not error <= TOLERANCE[precision]:
            yield row | {"wrong": error}
            continue
        seconds = device.replayed(getattr(executable, "launch", executable))
        moved = loop.counts.bytes.compulsory
        used = getattr(executable, "resources", {}).get("pass0", {})
        yield row | {"ms": seconds * 1e3, "bytes": moved, "share_of_copy": moved / seconds / copied, "resources": used}


def same_code(one: ml.Loop, other: ml.Loop) -> bool:
    """Do two schedules of a loop come to the same? Rows as a whole exist in ``aos`` only."""

    def form(loop: ml.Loop) -> tuple[Any, ...]:
        rows = loop.schedule.whole_rows or not any(loop.spec.access(k).whole_row for k in range(len(loop.spec.params)))
        target = loop.backend.target  # of a CPU nobody takes several elements at once
        share = chosen_per_thread(loop.spec, loop.schedule, loop.elements, target) if target.is_simt else None
        return share, loop.schedule.block, rows

    return form(one) == form(other)


def best_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest row of each loop, layout and precision, and the automatic one where that is another."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in (r for r in rows if "ms" in r):
        groups.setdefault((row["loop"], row["dim"], row["layout"], row["precision"]), []).append(row)
    chosen = []
    for group in groups.values():
        best = min(group, key=lambda r: r["ms"])
        chosen += [best, *(r for r in group if r["automatic"] and r is not best)]
    return chosen


def line(row: dict[str, Any]) -> str:
    figures = f"{row['ms']:8.4f} ms {row['share_of_copy']:5.3f}" if "ms" in row else f"WRONG by {row['wrong']:.1e}"
    registers = row.get("resources", {}).get("registers", "")
    what = f"{row['loop']:<7}{row['dim']} {row['layout']:<4}{row['precision'][5:]}"
    mark = "*" if row["automatic"] else " "
    return f"{what} x{row['elements_per_thread']:<3}{figures} {mark} {row['schedule']} {registers}"


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = options_of("direct", __doc__)
    parser.add_argument("--blocks", type=int, nargs="+", help="block sizes to time, on a GPU")
    parser.add_argument("--small", action="store_true", help="short fields")
    options = parser.parse_args(arguments)
    run = started("direct", options, device, Cpu)
    if run is None:
        return 2
    run.result["quick"] = options.small
    blocks = tuple(options.blocks or (None,))
    for precision, case in product(PRECISIONS, CASES):
        data = Data(case, precision, FEW_NUMBERS if options.small else NUMBERS)
        for row in rows_of(data, run.device, precision, run.copy, blocks):
            run.result["rows"].append(row)
            print(line(row), flush=True)
        del data
        run.device.clear()
        run.save()  # what there is, should it be stopped
    print(f"\ncopy: {run.copy / 1e9:.0f} GB/s; best of each, * the automatic choice:")
    for row in best_rows(run.result["rows"]):
        print(line(row))
    print(f"written to {run.record.file}")
    return int(any("wrong" in row for row in run.result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
