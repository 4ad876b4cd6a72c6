"""Generated CUDA and HIP with one real thread per thread of a block under ThreadSanitizer: silent, unless a color is
wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cpu_dialect import PRELUDE
from meshloom.backend.cuda import dialect
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.backend.cuda.engine import Engine
from meshloom.backend.cuda.kernels import GpuText
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.errors import CompilerError
from meshloom.native.compiler import host_compiler
from meshloom.schedule.plan.plan import Plan, arrays
from meshloom.target import EMULATED, H200, Target
from tests.schedule.forms import every_form
from tests.schedule.spoil import spoilt

HEADER = Path(__file__).with_name("threads.hpp")
PROBE = """#include <pthread.h>
int main() {
  pthread_t one;
  return pthread_create(&one, nullptr, [](void* p) { return p; }, nullptr) || pthread_join(one, nullptr);
}
"""
#: Two threads add, and look for extremes, at one place. The sanitizer sees what is not atomic, however they take turns.
ATOMICS = """#include <pthread.h>
static struct { double a; float b; int32_t c; int64_t d; } sums, lows, highs;
void* both(void* given) {
  const int sign = *(int*)given;
  for (int k = 1; k <= 100; ++k) {
    ml_atomic_add(&sums.a, 1.0), ml_atomic_add(&sums.b, 1.0f);
    ml_atomic_add(&sums.c, 1), ml_atomic_add(&sums.d, (int64_t)1);
    ml_atomic_minimum(&lows.a, 1.0 * sign * k), ml_atomic_minimum(&lows.c, sign * k);
    ml_atomic_maximum(&highs.b, 1.0f * sign * k), ml_atomic_maximum(&highs.d, (int64_t)sign * k);
  }
  return nullptr;
}
int main() {
  pthread_t other;
  int ours = 1, theirs = -1;
  if (pthread_create(&other, nullptr, both, &theirs)) return 1;
  both(&ours);
  pthread_join(other, nullptr);
  const bool added = sums.a == 200 && sums.b == 200 && sums.c == 200 && sums.d == 200;
  return added && lows.a == -100 && lows.c == -100 && highs.b == 100 && highs.d == 100 ? 0 : 2;
}
"""
SUMS = """
static double room[8], found[8][2];
int main() {
  const auto body = [] {
    found[threadIdx.x][0] = ml_block_sum(1.0 + threadIdx.x, room);
    found[threadIdx.x][1] = ml_block_sum(10.0 * threadIdx.x, room);
  };
  ml_emulate(1, 8, 0, body);
  for (auto& both : found) if (both[0] != 36.0 || both[1] != 280.0) return 2;
  return 0;
}
"""
FLAGS = ("-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread")


class RaceFound(Exception):
    """ThreadSanitizer reported a race."""


class Sanitized(Engine):
    """Each launch is a process of its own, built with ThreadSanitizer."""

    def __init__(self, folder: Path, target: Target):
        self.folder, self._target = folder, target

    @property
    def target(self) -> Target:
        return self._target

    def upload(self, array: np.ndarray) -> np.ndarray:
        return np.array(array, order="C")

    @property
    def emulation(self) -> str:
        return dialect.for_a_cpu(self.target) + HEADER.read_text()

    def compiled(self, text: GpuText, *, apart: bool = False) -> Compiled:
        return Compiled(text)

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> Any:
        choices = "".join(f'if (!strcmp(w[1], "{k.name}")) return ml_launch(n, w, run_{k.name});' for k in made)
        source = code.content.source + f"int main(int n, char** w) {{ if (n < 2) return 3; {choices} return 3; }}"
        text, program = self.folder / "loop.cpp", self.folder / "loop"
        text.write_text(source)
        subprocess.run([host_compiler().path, *FLAGS, str(text), "-o", str(program)], check=True, capture_output=True)
        number = np.int64 if wide_index else np.int32
        return {k.name: self._launcher(program, k.name, number) for k in made}

    def _launcher(self, program: Path, name: str, number: type) -> Callable[..., None]:
        def launch(grid: int, threads: int, shared: int, arguments: list[Any]) -> None:
            file = self.folder / "arguments"
            parts = []
            for a in arguments:
                value = np.array(number(a)) if isinstance(a, int) else a
                size = -value.nbytes if isinstance(a, int) else value.nbytes
                parts += [np.int64(size).tobytes(), value.tobytes()]
            file.write_bytes(b"".join(parts))
            done = subprocess.run([str(program), name, str(file), str(grid), str(threads), str(shared)],
                                  capture_output=True, text=True)  # fmt: skip
            if "WARNING: ThreadSanitizer: data race" in done.stderr:
                raise RaceFound(done.stderr)
            assert done.returncode == 0, done.stderr
            data, place = file.read_bytes(), 0
            for a in arguments:
                if not isinstance(a, int):
                    a.reshape(-1)[:] = np.frombuffer(data, a.dtype, a.size, place)
                    place += a.nbytes

        return launch


class SanitizedCuda(EmulatedCuda):
    name = "sanitized"

    def __init__(self, folder: Path, target: Target):
        super().__init__()
        self.engine = Sanitized(folder, target)


@pytest.fixture(scope="module", autouse=True)
def sanitizer_works(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where the compiler has no ThreadSanitizer, or the system does not let it run."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.cpp").write_text(PROBE)
    try:
        command = [host_compiler().path, *FLAGS, str(folder / "probe.cpp"), "-o", str(folder / "probe")]
        works = subprocess.run(command, capture_output=True).returncode == 0
        works = works and subprocess.run([str(folder / "probe")], capture_output=True).returncode == 0
    except CompilerError:
        works = False
    if not works:
        pytest.skip("no ThreadSanitizer here")


@ml.kernel
def exchange(q: ml.Read, w: ml.Read, res: ml.Inc, low: ml.Min):
    f = w * (q[0] - q[1])
    res[0] += f
    res[1] -= f
    low[0] = q[1]
    low[1] = q[0]


@pytest.fixture
def back_end() -> Iterator[None]:
    before = ml.backend()
    yield
    ml.use(before)


def run_sanitized(form: ml.Schedule, folder: Path, spoil: Callable[[Plan], Plan] | None = None, *,
                  target: Target = H200) -> None:  # fmt: skip
    mesh = ml.generate.box((9, 8))
    rng = np.random.default_rng(0)
    q = mesh.cells.field("q", 2, data=rng.random((mesh.cells.size, 2)))
    w = mesh.faces.field("w", data=rng.random(mesh.faces.size))
    res, low = mesh.cells.field("res", 2), mesh.cells.field("low", 2)
    cells, results = mesh.face_cells, []
    wish = form.having(block=32)
    for backend in ("numpy", "sanitized"):
        res.fill(0.0)
        low.fill(9.0)
        ml.use("numpy")
        loop = exchange.loop(mesh.faces, q[cells], w, res[cells], low[cells], schedule=wish)
        if backend == "sanitized":
            loop = loop.on(SanitizedCuda(folder, target))
            if spoil:
                loop.__dict__["plan"] = spoil(loop.plan)
        loop()
        results.append((res.numpy(), low.numpy()))
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(results[1][1], results[0][1])


@pytest.mark.parametrize("target", ["cuda", pytest.param("hip", marks=pytest.mark.slow)])
@every_form
def test_every_strategy_is_free_of_races_inside_a_block(
    form: ml.Schedule, target: str, tmp_path: Path, back_end: None
) -> None:
    run_sanitized(form, tmp_path, target=EMULATED[target])


@pytest.mark.parametrize("strategy", ["block_color", "block_atomic"])
def test_a_planted_wrong_color_is_seen(strategy: str, tmp_path: Path, back_end: None) -> None:
    """All elements of a block in one color: those that share a cell now add to it at the same time."""

    def one_color(plan: Plan) -> Plan:
        starts = arrays(plan)["color_starts"]

        def join(positions: np.ndarray) -> None:
            for first, last in pairwise(starts):
                positions[first + 1 : last] = positions[last - 1]

        return spoilt(plan, "color_positions", join)

    with pytest.raises(RaceFound):
        run_sanitized(ml.Schedule(strategy), tmp_path, one_color)


def run_alone(source: str, folder: Path) -> None:
    """A program of its own that says by its exit status whether its numbers are right."""
    (folder / "alone.cpp").write_text(source)
    command = [host_compiler().path, *FLAGS, str(folder / "alone.cpp"), "-o", str(folder / "alone")]
    subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run([str(folder / "alone")], capture_output=True, text=True)
    assert "data race" not in done.stderr and done.returncode == 0, done.stderr


def test_atomics_of_the_cpu_are_atomic(tmp_path: Path) -> None:
    run_alone(PRELUDE + ATOMICS, tmp_path)


@pytest.mark.parametrize("target", ["cuda", pytest.param("hip", marks=pytest.mark.slow)])
def test_a_sum_of_a_block_leaves_its_room_to_the_next_one(target: str, tmp_path: Path) -> None:
    """Two at once, whatever barriers the solvers that use it have between them."""
    language = EMULATED[target].language
    assert language is not None
    words = dialect.for_a_cpu(EMULATED[target]) + HEADER.read_text() + "#define ML_INDEX int\n"
    run_alone(words + dialect.prelude_of(language) + SUMS, tmp_path)
