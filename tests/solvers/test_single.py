"""Single precision stays single: no kernel of fields in float32 alone computes in double."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.kernel.expr import topological
from meshloom.kernel.model import Trace

CASES = {
    "airfoil": ("airfoil", "mesh.i=8", "mesh.j=10"),
    "bookleaf": ("bookleaf_sod", "mesh.cells=[10,2]"),
    "lulesh": ("lulesh", "mesh.size=4"),
    "miniaero": ("miniaero_ramp", "mesh.cells=[5,4,3]", "mesh.angle=10.0", "time.dt=1e-5"),
    "taylor_green": ("taylor_green",),
    "volna": ("volna_thacker", "mesh.nx=8", "mesh.ny=7"),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_of_single_precision_compute_in_it(case: str) -> None:
    """An array of constants in double precision would make a kernel compute in it, as in NumPy."""
    ml.use("numpy")
    name, *settings = CASES[case]
    program = make(name, *settings, "run.precision=single").program
    program.run(1)
    kernels = {kernel for loop in program.loops for kernel in loop.kernels}
    traced: list[Trace] = [t for kernel in kernels for t in kernel.state.traces.values()]
    single = [t for t in traced if {p.dtype for p in t.params if p.dtype.kind == "f"} == {np.dtype(np.float32)}]
    assert len(single) > 1
    for one in single:
        double = [n for n in topological(o.value for o in one.outputs) if n.dtype == np.float64]
        assert not double, f"{one.name} computes in double precision: {double[0].where}"
