"""Steps of the applications and solutions of Poisson's equation, timed on request: one half of ``bench.compare``, run
with either tree on the path.

Reads one request a line, a name of ``STEPS`` or ``SOLVERS``, and answers with seconds of a step or a solution. It uses
what both trees have alone: cases by name, their programs, ``fuse``, solvers by name.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Protocol

import numpy as np

import meshloom as ml
from meshloom.config import build, parse_set

try:
    from meshloom.solvers import find_case
except ImportError:  # the first edition had it elsewhere
    from meshloom.solvers.case import find_case  # type: ignore[no-redef]

#: Case, settings on a GPU and on a CPU; steps of one timing on each; loop by loop as well?
STEPS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[int, int], bool]] = {
    "airfoil": ("airfoil", ("mesh.i=800", "mesh.j=1200"), ("mesh.i=200", "mesh.j=300"), (200, 20), True),
    "volna": ("volna_hump", ("mesh.nx=2000", "mesh.ny=600"), ("mesh.nx=200", "mesh.ny=150"), (200, 20), True),
    "bookleaf": ("bookleaf_sod", ("mesh.cells=[2000,1000]",), ("mesh.cells=[200,100]",), (100, 10), True),
    "lulesh": ("lulesh", ("mesh.size=120",), ("mesh.size=30",), (50, 10), True),
    "miniaero": ("miniaero_ramp", ("mesh.cells=[96,96,96]", "time.dt=2e-6"), ("mesh.cells=[24,24,24]",), (50, 5), True),
    "vortex": ("vortex_outflow", ("mesh.points=[512,512]",), ("mesh.points=[128,128]",), (200, 10), False),
    "taylor_green": ("taylor_green", ("mesh.points=256",), ("mesh.points=32",), (10, 10), False),
    "finite_volume": ("naca0012_transonic", ("mesh.around=1024", "mesh.outward=512"),
                      ("mesh.around=96", "mesh.outward=48"), (50, 10), True),
    "implicit": ("naca0012_transonic", ("mesh.around=512", "mesh.outward=256", "time.method=implicit"),
                 ("mesh.around=64", "mesh.outward=32", "time.method=implicit"), (10, 3), False),
    "cavity3d": ("cavity3d", ("mesh.cells=[192,192,192]", "scheme.form=staggered"),
                 ("mesh.cells=[24,24,24]", "scheme.form=staggered"), (20, 5), False),
}  # fmt: skip
#: Solver of ``ml.linalg``, cells on a GPU and on a CPU, solutions of one timing on each.
SOLVERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, int]]] = {
    "piccg": ("PICCG", (1024, 1024), (96, 96), (2, 2)),
    "multigrid": ("Multigrid", (128, 128, 128), (24, 24, 24), (5, 2)),
    "fast_poisson": ("FastPoisson", (256, 256, 256), (32, 32, 32), (20, 10)),
}
APART = " loop by loop"


def names() -> list[str]:
    """What can be asked for."""
    steps = [f"{name}{how}" for name, one in STEPS.items() for how in ("", *([APART] if one[4] else []))]
    return [*steps, *SOLVERS]


class Repeatable(Protocol):
    """What is timed: a program, or solutions."""

    def run(self, times: int, /) -> Any: ...


class Solutions:
    """Poisson's equation on even cells of a square or cube whose sides hold the value 0, from zero each time."""

    def __init__(self, solver: str, shape: tuple[int, ...]):
        edges = [np.linspace(0.0, 1.0, n + 1) for n in shape]
        grid = ml.Grid(shape, extent=[(0.5 / n, 1.0 - 0.5 / n) for n in shape])
        self.solver = getattr(ml.linalg, solver)(ml.linalg.Poisson(grid, "dirichlet", "dirichlet", edges=edges))
        self.b = grid.field("b", data=np.random.default_rng(7).standard_normal(shape))
        self.x = grid.field("x")

    def run(self, times: int, /) -> None:
        for _ in range(times):
            self.x.fill(0.0)
            if not self.solver.solve(self.x, self.b, tol=1e-8).converged:
                raise RuntimeError("it does not converge")


class Steps:
    """Cases and solvers that are made when they are first asked for, and stay."""

    def __init__(self, backend: str):
        ml.use(backend)
        self.on_gpu = backend == "cuda"
        self.made: dict[str, tuple[Repeatable, int]] = {}

    def program(self, name: str) -> tuple[Repeatable, int]:
        """What a step takes, run so often that it is ready, and how many steps one timing takes."""
        if name not in self.made and name in SOLVERS:
            solver, *shapes, counts = SOLVERS[name]
            solutions = Solutions(solver, shapes[0 if self.on_gpu else 1])
            solutions.run(2)
            self.made[name] = solutions, counts[0 if self.on_gpu else 1]
        if name not in self.made:
            case_name, on_gpu, on_cpu, counts, _ = STEPS[name.removesuffix(APART)]
            kind = find_case(case_name)
            case = kind(build(kind.Config, [parse_set(one) for one in (on_gpu if self.on_gpu else on_cpu)]))
            program = ml.Program(case.program.function, fuse=False) if name.endswith(APART) else case.program
            program.run(3)
            self.made[name] = program, counts[0 if self.on_gpu else 1]
        return self.made[name]

    def seconds(self, name: str) -> float:
        program, count = self.program(name)
        self._wait()
        start = time.perf_counter()
        program.run(count)
        self._wait()
        return (time.perf_counter() - start) / count

    def _wait(self) -> None:
        if self.on_gpu:
            import cupy

            cupy.cuda.Device().synchronize()


def main(backend: str) -> None:
    steps = Steps(backend)
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"seconds": steps.seconds(line.strip())}
        except Exception as problem:  # told to whoever asks, who goes on with the others
            answer = {"problem": " ".join(f"{type(problem).__name__}: {problem}".split())[:300]}
        print("answer " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
