"""Processes made by fork end, with the same answers; odd numbers of threads end nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshloom.backend import backends, cpu_count

ROOT = Path(__file__).parents[2]


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ | environment, capture_output=True,
                          text=True, timeout=100, check=False)  # fmt: skip


START = """
import os, numpy as np, meshloom as ml
from meshloom.order.curves import bisect, hilbert_keys
ml.use("cpu", threads=2)
points = np.random.default_rng(0).random((50000, 2))
mesh = ml.generate.box((90, 90))
q, res = mesh.cells.field("q", data=np.arange(8100.0) % 7), mesh.cells.field("res")

@ml.kernel
def spread(q: ml.Read, res: ml.Inc):
    res[0] += q[1]
    res[1] += 2 * q[0]

def answer():
    res.fill(0.0)
    spread(mesh.faces, q[mesh.face_cells], res[mesh.face_cells])
    return [res.numpy().tolist(), hilbert_keys(points).sum(), bisect(points, 64).tolist()]
"""
FORKED = START + """
def child(depth):
    pid = os.fork()
    if not pid:
        code = 1
        try:
            assert ml.threads() == 1 and answer() == first
            ml.use("cpu", threads=2)
            assert ml.threads() == 1 and answer() == first
            res.fill(7.0)  # changes nothing for the parent
            if depth:
                child(depth - 1)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0

first = answer()
child(1)
assert res.numpy().max() != 7.0 and ml.threads() == 2 and answer() == first
print("ended")
"""
FIRST_IN_CHILD = START + """
if not os.fork():
    assert ml.threads() == 2
    answer()
    os._exit(0)
assert os.wait()[1] == 0
print("ended")
"""


@pytest.mark.slow
def test_loops_in_forked_children_end_with_the_same_answers() -> None:
    done = python(FORKED)
    assert done.stdout == "ended\n", done.stderr
    assert "made by fork" in done.stderr and "spawn" in done.stderr


def test_a_child_that_begins_has_its_threads() -> None:
    done = python(FIRST_IN_CHILD)
    assert done.stdout == "ended\n", done.stderr


@pytest.mark.parametrize("wanted", ["abc", "100000"])
def test_odd_numbers_of_threads_end_nothing(wanted: str) -> None:
    done = python(START.replace(", threads=2", "") + "answer(); print(ml.threads())", OMP_NUM_THREADS=wanted)
    assert done.returncode == 0 and int(done.stdout) >= 1, done.stderr
    assert "OMP_NUM_THREADS is" in done.stderr and "Traceback" not in done.stderr


#: Threads of a run, and what its first line says of them, with settings that say nothing, 0 and 3.
OF_A_RUN = """
import meshloom as ml
from meshloom import launch
from meshloom.case import RunOptions

for options in (RunOptions(backend="cpu"), RunOptions(backend="cpu", threads=0), RunOptions(backend="cpu", threads=3)):
    launch._choose_backend(options)
    print(ml.threads(), launch._backend_text(options), sep=": ")
"""


@pytest.mark.skipif(backends()["cpu"] is not None, reason="needs a C++ compiler")
@pytest.mark.parametrize(("wanted", "first"), [
    ("5", "5: cpu, 5 threads (OMP_NUM_THREADS)"),
    pytest.param("1", "1: cpu, 1 thread (OMP_NUM_THREADS)", marks=pytest.mark.slow),
    pytest.param("", f"{cpu_count()}: cpu, {cpu_count()} thread{'s' if cpu_count() != 1 else ''}",
                 marks=pytest.mark.slow),
])  # fmt: skip
def test_the_environment_counts_in_runs_that_say_nothing(wanted: str, first: str) -> None:
    done = python(OF_A_RUN, OMP_NUM_THREADS=wanted)
    assert done.stdout.splitlines() == [first, first, "3: cpu, 3 threads"], done.stderr


@pytest.mark.parametrize(("environment", "workers", "share"), [(1, 1, 1), (2, 2, 2), (8, 2, 4)])
def test_runs_of_a_study_have_their_share_and_no_more_than_the_environment_says(
    environment: int, workers: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshloom.studies import sweep

    monkeypatch.setattr(sweep, "USUAL_THREADS", environment)
    monkeypatch.setattr(sweep, "cpu_count", lambda: 8)
    assert sweep.threads_of_each(workers) == share


def test_a_gpu_does_not_survive_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshloom.backend.cuda.backend import CudaBackend
    from meshloom.errors import RunError
    from meshloom.native import threads

    monkeypatch.setattr(threads, "_device_process", os.getpid())
    threads.check_device()
    monkeypatch.setattr(threads, "_device_process", os.getppid())  # as the child sees it
    with pytest.raises(RunError, match="does not survive that; start processes by multiprocessing's spawn"):
        threads.check_device()
    assert "made by fork" in (CudaBackend().unavailable() or "")
