"""Libraries that nobody holds are closed, and OpenMP's own, in which its threads wait, is not."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.native import compiler
from meshloom.native.compiler import load
from meshloom.native.dlclose import function_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are closed on Linux only")


def is_mapped(name: str) -> bool:
    return f"/{name}-" in Path("/proc/self/maps").read_text()


def test_a_cache_whose_name_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", f"{tmp_path}/\udcff")
    number = ctypes.c_int()
    function_of(load('extern "C" void one(int* p) { *p = 1; }\n', "no_text"), "one", ctypes.c_void_p)(
        ctypes.byref(number)
    )
    assert number.value == 1


def test_a_library_is_open_as_long_as_one_of_its_functions() -> None:
    source = 'extern "C" void one(int* p) { *p = 1; }\nextern "C" void two(int* p) { *p = 2; }\n'
    library, number = load(source, "closed_later"), ctypes.c_int()
    one = function_of(library, "one", ctypes.c_void_p)
    two = function_of(load(source, "closed_later"), "two", ctypes.c_void_p)
    del library
    one(ctypes.byref(number))
    assert is_mapped("closed_later") and number.value == 1
    del one
    two(ctypes.byref(number))
    assert is_mapped("closed_later") and number.value == 2
    del two
    assert not is_mapped("closed_later")
    function_of(load(source, "closed_later"), "one", ctypes.c_void_p)(ctypes.byref(number))
    assert number.value == 1


def record_of(kernel: ml.Kernel, *arguments: Any) -> Callable[[], None]:
    """A function for a program that holds the kernel."""
    return lambda: kernel(*arguments)


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_what_was_compiled_for_a_kernel_goes_with_it(backend: str) -> None:
    ml.use(backend)
    cells = ml.Set(8, "cells")
    u, out = cells.field("u"), cells.field("out")

    @ml.kernel
    def closed_with_it(u: ml.Read, out: ml.Write) -> None:
        out[...] = 7.0 + u

    step = ml.program(record_of(closed_with_it, cells, u, out))
    step.run(2)
    closed_with_it(cells, u, out)
    name = "closed_with_it" if backend == "cpu" else "emulated_closed_with_it"
    before = [path for path in compiler._opened if path.name.startswith(f"{name}-")]
    assert before and is_mapped(name)
    del closed_with_it
    assert [path for path in compiler._opened if path in before], "the program has it"
    del step
    assert not [path for path in compiler._opened if path in before] and out.numpy()[0] == 7.0


#: In a process of its own, where no other library needs OpenMP; if its threads lost it, this would end by a signal.
ALONE = """
import time
from pathlib import Path
import meshloom as ml

ml.use("cpu", threads=2)
cells = ml.Set(100_000, "cells")
u, out = cells.field("u"), cells.field("out")

def once(by):
    @ml.kernel
    def alone(u: ml.Read, out: ml.Write):
        out[...] = u + by
    alone(cells, u, out)
    assert out.numpy()[-1] == by

for _ in range(3):
    once(1.0)
    maps = Path("/proc/self/maps").read_text()
    assert "/alone-" not in maps, "it is still open"
    assert "omp" in maps, "OpenMP has gone with it"
    time.sleep(0.02)
print("alive")
"""


@pytest.mark.slow
def test_openmp_stays_when_the_last_library_that_needs_it_goes() -> None:
    compiled = compiler.host_compiler()
    if not compiled.openmp:
        pytest.skip("the compiler has no OpenMP")
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_no_generated_library_shares_what_is_destroyed_with_it() -> None:
    """Symbols that are unique in a process are one for all libraries, and their destructors belong to one of them: only
    buffers of threads are such, whose library the loader keeps."""
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("there is no nm")
    cells, edges = ml.Set(64, "cells"), ml.Set(64, "edges")
    ends = ml.Map(edges, cells, np.stack([np.arange(64), (np.arange(64) + 1) % 64], axis=1))

    @ml.kernel
    def unique_or_not(u: ml.Read, out: ml.Inc, total: ml.Sum) -> None:
        out[0] += u[1]
        out[1] += u[0]
        total += u[0]

    found = set()
    for backend, strategy in (("cpu", "tile"), ("cpu", "staged"), ("emulated", "auto"), ("emulated", "tile")):
        ml.use(backend)
        loop = unique_or_not.loop(edges, cells.field("u")[ends], cells.field("out")[ends], ml.Global(0.0),
                                  schedule=strategy)  # fmt: skip
        loop()
        for path in compiler._opened:
            if "unique_or_not" in path.name:
                lines = subprocess.run([nm, "-DC", str(path)], capture_output=True, text=True, check=True).stdout
                found |= {line.split(" u ")[1] for line in lines.splitlines() if " u " in line}
    assert {name for name in found if "ml_scratch<" not in name} == set()
