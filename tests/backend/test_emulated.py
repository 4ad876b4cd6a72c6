"""``emulated`` is a back end like the others, for whoever asks for it by name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import automatic_backend, cpu_dialect
from meshloom.backend.cuda import dialect
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.errors import CompilerError, ScheduleError
from meshloom.native.compiler import host_compiler
from meshloom.target.cuda import CUDA, H200

EMULATED_TEXT = dialect.for_a_cpu(H200) + dialect.FIBRES + dialect.prelude_of(CUDA)

ALONE = """
import numpy as np
import meshloom as ml
assert ml.backends()["emulated"] is None
ml.use("emulated")
points = ml.Set(5, "points")
u, v = points.field("u", data=np.arange(5.0)), points.field("v")

@ml.kernel
def double(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u

double(points, u, v)
assert ml.backend() == "emulated" and v.numpy().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
"""


@pytest.mark.slow
def test_a_program_can_choose_it_without_registering_anything(tmp_path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    done = subprocess.run([sys.executable, str(script)], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


AT_BARRIERS = """
import numpy as np
import meshloom as ml
ml.use("emulated")
mesh = ml.generate.box((5, 4), cells="triangle")
u, change = mesh.cells.field("u", data=np.arange(40.0)), mesh.cells.field("change")

@ml.kernel
def smooth(u: ml.Read, change: ml.Inc):
    d = u[1] - u[0]
    change[0] += d
    change[1] -= d

loop = smooth.loop(mesh.faces, u[mesh.face_cells], change[mesh.face_cells], schedule="tile")
loop()
assert abs(change.numpy()).sum() > 1.0 and abs(change.numpy().sum()) < 1e-9
"""


@pytest.mark.slow
def test_compilers_that_check_jumps_by_themselves_do_not_end_it(tmp_path) -> None:
    """Some systems' compilers have _FORTIFY_SOURCE on, and then a jump to the stack of another fibre aborts."""
    script, cxx = tmp_path / "at_barriers.py", tmp_path / "cxx"
    script.write_text(AT_BARRIERS)
    cxx.write_text(f'#!/bin/sh\nexec {shlex.quote(host_compiler().path)} -D_FORTIFY_SOURCE=2 "$@"\n')
    cxx.chmod(0o755)
    environment = os.environ | {"CXX": str(cxx), "MESHLOOM_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(script)], timeout=300, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("missing", "chosen"), [((), "cuda"), (("cuda",), "cpu"), (("cuda", "cpu"), "numpy")])
def test_it_is_never_chosen_automatically(missing: tuple[str, ...], chosen: str) -> None:
    found = {name: "not here" if name in missing else None for name in ml.backends()}
    assert "emulated" in found and automatic_backend(found) == chosen


def test_without_a_compiler_it_says_why_it_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise CompilerError("no C++ compiler was found: install g++")

    monkeypatch.setattr(sys.modules["meshloom.backend.cpu"], "host_compiler", none)
    assert "no C++ compiler" in (ml.backends()["emulated"] or "")
    with pytest.raises(ScheduleError, match="back end 'emulated' cannot be used here: no C\\+\\+ compiler"):
        ml.use("emulated")


def test_values_come_back_from_a_device_to_be_emulated() -> None:
    class OnDevice:
        def get(self) -> np.ndarray:
            return np.arange(3.0)

    assert isinstance(EmulatedCuda().place(OnDevice()), np.ndarray)


@pytest.mark.slow
def test_threads_of_python_may_run_programs_at_the_same_time() -> None:
    """In a process of its own: fibres of two launches in each other's way end it."""
    script = """
import threading
import meshloom as ml
ml.use("emulated")
cells = ml.Set(500, "cells")
@ml.kernel
def count(x: ml.Read, r: ml.ReadWrite):
    r[...] = r + x
def work(results):
    x, r = cells.field("x", data=[1.0] * 500), cells.field("r")
    ml.program(lambda: count(cells, x, r)).run(200)
    results.append(r.numpy().tolist())
results = []
threads = [threading.Thread(target=work, args=(results,)) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
assert results == [[200.0] * 500] * 4
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", [EMULATED_TEXT, cpu_dialect.PRELUDE], ids=["emulated", "cpu"])
def test_generated_code_reads_few_headers(text: str) -> None:
    """Those of C++ take a compiler longer than most loops."""
    included = set(re.findall(r"^#include (.*)$", text, re.MULTILINE))
    assert included <= {"<stddef.h>", "<stdint.h>", "<setjmp.h>", "<ucontext.h>"} and "<stdint.h>" in included
