"""Sums of integers over elements wrap round, whoever makes them, and C leaves nothing open on the way."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import meshloom as ml
from meshloom.schedule.strategies import names
from tests.backend.test_cuda import CompileBackend, needs_nvrtc

#: Every strategy, with every sign that a target can see, in code that ends the process where C leaves a result open.
SCRIPT = """
import sys
import numpy as np
import meshloom as ml
from meshloom.native import compiler
from meshloom.schedule.strategies import names

load = compiler.load
TRAP = ("-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error", "-O0")

def trapping(source, name, *, extra_flags=(), **more):
    return load(source, name, extra_flags=(*extra_flags, *TRAP), **more)

compiler.load = sys.modules["meshloom.backend.cpu"].load = trapping
ml.use(sys.argv[1])

@ml.kernel
def alike(x: ml.Read, y: ml.Inc, z: ml.Inc, everything: ml.Sum):
    y[0] += x
    y[1] -= x
    z[0] -= x
    z[1] -= x
    everything -= x

@ml.kernel
def uneven(x: ml.Read, y: ml.Inc, z: ml.Inc, everything: ml.Sum):
    y[0] -= x + 1
    y[1] -= x
    z[1] += x
    everything += x + 1

GIVEN = {  # to the first and second target in y, in z, and to the sum
    alike: lambda x: (x, -x, -x, -x, -x),
    uneven: lambda x: (-x - 1, -x, 0, x, x + 1),
}
ran = 0
for dtype in sys.argv[2].split():
    limits, n = np.iinfo(dtype), 600
    faces, cells = ml.Set(n, "faces"), ml.Set(40, "cells")
    indices = np.random.default_rng(1).permuted(np.tile(np.arange(40), (n, 1)), axis=1)[:, :2]
    data = np.full(n, limits.max - 3, dtype)
    data[::7] = limits.min
    to, x = ml.Map(faces, cells, indices), faces.field("x", data=data)
    for kernel, given in GIVEN.items():
        expected = [0] * 81
        for value, (a, b) in zip(data.tolist(), indices, strict=True):
            for target, part in zip((a, b, 40 + a, 40 + b, 80), given(value), strict=True):
                expected[target] += part
        expected = [(one - limits.min) % 2**limits.bits + limits.min for one in expected]
        for strategy in names():
            y, z, everything = *(cells.field(name, dtype=dtype) for name in "yz"), ml.Global(0, dtype=dtype)
            loop = kernel.loop(faces, x, y[to], z[to], everything, schedule=strategy)
            if loop.applies:
                loop()
                found = [*y.numpy().tolist(), *z.numpy().tolist(), everything.value]
                assert found == expected, (dtype, kernel.name, strategy)
                ran += 1
print(ran)
"""


@pytest.mark.parametrize(("backend", "dtypes", "loops"), [
    ("cpu", "int32", 12), pytest.param("cpu", "int64", 12, marks=pytest.mark.slow),
    pytest.param("emulated", "int32", 16, marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.slow
def test_no_sum_of_integers_is_left_open(backend: str, dtypes: str, loops: int) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, backend, dtypes], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    assert int(done.stdout) >= loops, "loops that ran"


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums_of_integers_compile_for_a_gpu(dtype: str) -> None:
    @ml.kernel
    def both(x: ml.Read, y: ml.Inc, z: ml.Inc, everything: ml.Sum):
        y[0] += x
        y[1] -= x
        z[0] -= x + 1
        z[1] -= x
        everything += x

    faces, cells = ml.Set(600, "faces"), ml.Set(40, "cells")
    to = ml.Map(faces, cells, np.random.default_rng(1).integers([0, 20], [20, 40], (600, 2)))
    x, compiler, compiled = faces.field("x", dtype=dtype), CompileBackend(("sm_90",)), 0
    for strategy in names():
        y, z, everything = *(cells.field(name, dtype=dtype) for name in "yz"), ml.Global(0, dtype=dtype)
        loop = both.loop(faces, x, y[to], z[to], everything, schedule=strategy).on(compiler)
        if loop.applies:
            loop.prepare()
            compiled += 1
    assert compiled >= 8
