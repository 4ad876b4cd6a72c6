"""Every strategy x layout x precision on small meshes under NVIDIA's compute-sanitizer: no byte out of bounds, no race.

    python -m tests.backend.sanitized                      memcheck and racecheck over all loops, then the planted bugs
    python -m tests.backend.sanitized --program loops      the loops alone, without the sanitizer

One process runs all loops for a tool. Memory comes straight from the device, not from CuPy's pool, whose blocks are
larger than what was asked for: an access just beyond the end would be inside. The planted bugs prove that a clean
report means something: two small kernels, and two loops whose plans are spoilt.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import glob
from itertools import pairwise, product
from pathlib import Path

import numpy as np

import meshloom as ml
from meshloom.schedule.plan.plan import Plan, arrays
from tests.schedule.spoil import spoilt

ROOT = Path(__file__).parents[2]
PLACES = ("/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda*/compute-sanitizer/compute-sanitizer")
TOOLS = ("memcheck", "racecheck")
ERROR_EXIT, WRONG_EXIT = 9, 3
LAYOUTS, PRECISIONS = ("aos", "soa", "aosoa4"), (np.float64, np.float32)
BLOCK = 64
GRID_VARIANTS = ml.variants("box")
WIDTHS = (16, 64)  # bytes of a component for each thread
#: program -> the tool that must find its bug
PLANTED = {"outside": "memcheck", "beyond": "memcheck", "race": "racecheck", "one_color": "racecheck"}


# --- what is run --------------------------------------------------------------------------------------------------


@ml.kernel
def exchange(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc, high: ml.Max, flow: ml.Write, total: ml.Sum):
    """Reads through two maps, increments and maxima at shared targets, a direct output and a global sum."""
    d = x[1] - x[0]
    f = w * (d @ d) * (q[0] - q[1])
    res[0] += f
    res[1] -= f
    high[0] = q[1]
    high[1] = q[0]
    flow[...] = f
    total += w * (d @ d)


def topologies() -> dict[str, tuple[int, int, np.ndarray, np.ndarray]]:
    """(cells, nodes, cells of each face, nodes of each face): pairs at random, with loops, and a box of quads."""
    rng = np.random.default_rng(3)
    box = ml.generate.box((13, 11))
    return {
        "random": (57, 41, rng.integers(0, 57, (331, 2)), rng.integers(0, 41, (331, 2))),
        "box": (box.cells.size, box.nodes.size, box.face_cells.indices, box.face_nodes.indices),
    }


class Case:
    """The loop on one mesh, with random data."""

    def __init__(self, kind: str, layout: str, dtype: type):
        cells, nodes, sides, ends = topologies()[kind]
        rng = np.random.default_rng(7)
        self.faces, on_cells, on_nodes = ml.Set(len(sides), "faces"), ml.Set(cells, "cells"), ml.Set(nodes, "nodes")
        to_cells = ml.Map(self.faces, on_cells, sides, "sides")
        to_nodes = ml.Map(self.faces, on_nodes, ends, "ends")
        x = on_nodes.field("x", 2, dtype=dtype, layout=layout, data=rng.random((nodes, 2)))
        q = on_cells.field("q", 3, dtype=dtype, layout=layout, data=rng.random((cells, 3)))
        w = self.faces.field("w", dtype=dtype, data=rng.random(len(sides)))
        self.res, self.high = (on_cells.field(n, 3, dtype=dtype, layout=layout) for n in ("res", "high"))
        self.flow, self.total = self.faces.field("flow", 3, dtype=dtype, layout=layout), ml.Global(0.0)
        self.arguments = (x[to_nodes], q[to_cells], w, self.res[to_cells], self.high[to_cells], self.flow, self.total)

    def run(self, wish: ml.Schedule | None, spoil: Callable[[Plan], Plan] | None = None) -> list[np.ndarray]:
        """Run once on the back end in use; returns everything that the loop writes."""
        self.res.fill(1.0)
        self.high.fill(-1.0)
        self.total.value = 2.0
        loop = exchange.loop(self.faces, *self.arguments, schedule=wish)
        if spoil:
            loop.prepare()  # fields move to the device, which makes a loop forget its plan: so this comes first
            loop.__dict__["plan"], loop.execution.launches = spoil(loop.plan), None
        loop()
        return [f.numpy() for f in (self.res, self.high, self.flow)] + [np.array(self.total.value)]


def wishes() -> Iterator[ml.Schedule]:
    """Every way to run the loop."""
    for name in ml.strategies():
        for variant in ml.variants(name):
            yield ml.Schedule(name, block=BLOCK, variant=variant)


def run_loops(backend: str) -> int:
    """All loops, each compared with NumPy; the number of wrong ones."""
    wrong = 0
    for kind, layout, dtype in product(topologies(), LAYOUTS, PRECISIONS):
        ml.use("numpy")
        expected = Case(kind, layout, dtype).run(None)
        ml.use(backend)
        case, tolerance = Case(kind, layout, dtype), 1e-12 if dtype is np.float64 else 1e-4
        for wish in wishes():
            found = case.run(wish)
            right = all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(found, expected, strict=True))
            print(f"{kind} {layout} {np.dtype(dtype).name} {wish}: {'right' if right else 'WRONG'}", flush=True)
            wrong += not right
    return wrong


@ml.kernel
def around(q: ml.Read, out: ml.Write, more: ml.Inc, total: ml.Sum):
    """Reads on all sides of a point of a grid, wide and narrow, and writes there."""
    out[...] = q[1, 0] - q[-1, 0] + q[0, 2] - q[0, -1]
    more += q[-2, 1] @ q[0, 0]
    total += q[2, 0][0]


def run_grids(backend: str) -> int:
    """Loops over grids, each compared with NumPy; the number of wrong ones."""
    wrong = 0
    for periodic, layout, dtype, variant in product((False, True), LAYOUTS, PRECISIONS, GRID_VARIANTS):
        found = []
        for name in ("numpy", backend):
            ml.use(name)
            grid = ml.Grid((9, 68), periodic=periodic)
            values = np.random.default_rng(5).random((9, 68, 2))
            q = grid.field("q", 2, dtype=dtype, layout=layout, data=values)
            out, more = (grid.field(n, dim, dtype=dtype, layout=layout) for n, dim in (("out", 2), ("more", 1)))
            total = ml.Global(0.0)
            at = grid.offsets((0, 0), (1, 0), (-1, 0), (0, 2), (0, -1), (-2, 1), (2, 0))
            wish = ml.Schedule("box", block=BLOCK, variant=variant)
            around(grid.interior(2), q[at], out, more, total, schedule=wish)
            found.append([out.numpy(), more.numpy(), np.array(total.value)])
        tolerance = 1e-12 if dtype is np.float64 else 1e-4
        right = all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(*found, strict=True))
        ends = "round" if periodic else "closed"
        print(f"grid {ends} {layout} {np.dtype(dtype).name} {variant}: {'right' if right else 'WRONG'}", flush=True)
        wrong += not right
    return wrong


@ml.kernel
def own(q: ml.Read, out: ml.Write, more: ml.Inc, total: ml.Sum):
    """Looks at its own element only."""
    out[...] = 2.0 * q
    more += q[0]
    total += q[1]


def run_widths(backend: str) -> int:
    """Loops over own elements, several for each thread, each compared with NumPy; the number of wrong ones."""
    wrong = 0
    for n, layout, dtype, width in product((1, 7, 331), LAYOUTS, PRECISIONS, WIDTHS):
        found = []
        for name in ("numpy", backend):
            ml.use(name)
            points = ml.Set(n, "points")
            q = points.field("q", 3, dtype=dtype, layout=layout, data=np.random.default_rng(5).random((n, 3)))
            out, more = (points.field(name, dim, dtype=dtype, layout=layout) for name, dim in (("out", 3), ("more", 1)))
            total = ml.Global(0.0)
            own(points, q, out, more, total, schedule=ml.Schedule(block=BLOCK, vector=width))
            found.append([out.numpy(), more.numpy(), np.array(total.value)])
        tolerance = 1e-12 if dtype is np.float64 else 1e-4
        right = all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(*found, strict=True))
        print(f"own {n} {layout} {np.dtype(dtype).name} {width}: {'right' if right else 'WRONG'}", flush=True)
        wrong += not right
    return wrong


# --- planted bugs -------------------------------------------------------------------------------------------------

OUTSIDE = """extern "C" __global__ void outside(int* p) { p[threadIdx.x + 1] = 1; }"""  # the last thread writes too far
RACE = """extern "C" __global__ void race(int* p) {
  __shared__ int s[128];
  s[threadIdx.x] = threadIdx.x;
  p[threadIdx.x] = s[(threadIdx.x + 37) % 128];  // no barrier: the other thread may not have written yet
}"""


def run_kernel(source: str, name: str) -> None:
    """A kernel of 128 threads on an array of 128 numbers."""
    import cupy

    numbers = cupy.zeros(128, np.int32)
    cupy.RawModule(code=source).get_function(name)((1,), (128,), (numbers,))
    cupy.cuda.Device().synchronize()


def beyond(plan: Plan) -> Plan:
    """An element that does not exist is visited: its row of the map is read beyond the end."""
    return spoilt(plan, "visit", lambda visit: visit.__setitem__(0, len(visit)))


def one_color(plan: Plan) -> Plan:
    """All elements of a block in one color: those that share a cell add to it at the same time."""
    starts = arrays(plan)["color_starts"]

    def join(positions: np.ndarray) -> None:
        for first, last in pairwise(starts):
            positions[first + 1 : last] = positions[last - 1]

    return spoilt(plan, "color_positions", join)


def run_program(name: str, backend: str) -> int:
    """One program by its name; the exit code."""
    if backend == "cuda":
        import cupy

        cupy.cuda.set_allocator(None)
        cupy.cuda.set_pinned_memory_allocator(None)
    if name == "loops":
        return WRONG_EXIT if run_loops(backend) + run_grids(backend) + run_widths(backend) else 0
    if name in ("outside", "race"):
        run_kernel({"outside": OUTSIDE, "race": RACE}[name], name)
        return 0
    ml.use(backend)
    strategy, spoil = {"beyond": ("color", beyond), "one_color": ("block_color", one_color)}[name]
    Case("box", "aos", np.float64).run(ml.Schedule(strategy, block=BLOCK), spoil)
    return 0


# --- under the sanitizer ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What a tool found. ``errors`` is None when it came to no conclusion."""

    errors: int | None
    exit_code: int
    text: str

    @property
    def clean(self) -> bool:
        return self.errors == 0 and self.exit_code == 0

    @property
    def unusable(self) -> str | None:
        """Why the tool cannot work on this machine, in one line; None when it can."""
        found = re.search(r"^=+ .*(?:not supported|[Uu]nable to|Failed to initialize).*$", self.text, re.MULTILINE)
        return found[0].strip("= ") if found and self.errors in (None, 0) and self.exit_code else None


SUMMARIES = (r"ERROR SUMMARY: (\d+) error", r"RACECHECK SUMMARY: (\d+) hazard")


def errors_in(text: str) -> int | None:
    """The errors or hazards that a tool's summary counts; None without a summary."""
    counts = [int(n) for pattern in SUMMARIES for n in re.findall(pattern, text)]
    return sum(counts) if counts else None


def find_sanitizer() -> str | None:
    """The program, on the path or where CUDA puts it."""
    found = shutil.which("compute-sanitizer")
    return found or next((path for place in PLACES for path in sorted(glob(place), reverse=True)), None)


def command(sanitizer: str, tool: str, program: str) -> list[str]:
    """Errors of kernels only: CuPy asks the driver questions that it may answer with an error."""
    options = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [sanitizer, "--tool", tool, "--error-exitcode", str(ERROR_EXIT), "--target-processes", "application-only",
            *options, sys.executable, "-m", "tests.backend.sanitized", "--program", program]  # fmt: skip


def check(sanitizer: str, tool: str, program: str, seconds: float = 300) -> Report:
    """Run a program under a tool."""
    done = subprocess.run(command(sanitizer, tool, program), cwd=ROOT, stdout=subprocess.PIPE, timeout=seconds,
                          stderr=subprocess.STDOUT, text=True, errors="replace")  # fmt: skip
    return Report(errors_in(done.stdout), done.returncode, done.stdout)


def check_everything(sanitizer: str) -> int:
    """All loops under both tools, and every planted bug under its own; 0 when loops are clean and bugs are found."""
    failed = 0
    for program, tool in [("loops", tool) for tool in TOOLS] + list(PLANTED.items()):
        begin = time.perf_counter()
        found = check(sanitizer, tool, program)
        right = found.clean if program == "loops" else bool(found.errors)
        verdict = "clean" if found.clean else found.unusable or f"{found.errors} errors, exit code {found.exit_code}"
        words = "as it must be" if right else "NOT AS IT MUST BE"
        print(f"{tool:<9} {program:<9} {verdict} ({time.perf_counter() - begin:.1f} s): {words}", flush=True)
        if not right:
            print("\n".join(found.text.splitlines()[-60:]), flush=True)
            failed += 1
    return int(failed > 0)


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.backend.sanitized", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--program", choices=("loops", *PLANTED), help="run this, without the sanitizer")
    parser.add_argument("--backend", choices=tuple(ml.backends()), default="cuda")
    options = parser.parse_args()
    if reason := ml.backends()[options.backend]:
        print(f"back end '{options.backend}' cannot be used here: {reason}", file=sys.stderr)
        return 2
    if options.program:
        return run_program(options.program, options.backend)
    sanitizer = find_sanitizer()
    if sanitizer is None:
        print(f"compute-sanitizer was not found (on the path, {', '.join(PLACES)})", file=sys.stderr)
        return 2
    return check_everything(sanitizer)


if __name__ == "__main__":
    sys.exit(main())
