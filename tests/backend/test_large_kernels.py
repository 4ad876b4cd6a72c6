"""Kernels of thousands of operations: compiled in seconds, as fast, and the same to the last bit."""

from __future__ import annotations

import importlib
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.jacobians import face_jacobian
from meshloom.solvers.finite_volume.kernels import FlowScheme

cpu = importlib.import_module("meshloom.backend.cpu")  # the package has a function of that name
pytestmark = pytest.mark.filterwarnings("ignore:kernel .* operations after unrolling")


def seconds() -> float:
    """Of this process and of compilers that it has waited for, whatever else the machine does."""
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def straight(terms: int) -> ml.Kernel:
    """About six operations for each term, with selections, roots and quotients, all of them needed."""

    @ml.kernel
    def straight_on(u: ml.Read, w: ml.Inc):
        a = [u[k // 6, k % 6] for k in range(12)]
        for k in range(terms):
            i, j, m = k % 12, (k + 1) % 12, (k + 3) % 12
            root, part = np.sqrt(a[i] * a[i] + 0.1 * (k % 5 + 1)), a[i] / (1.0 + a[j] * a[j])
            a[i] = np.where(a[j] > a[m], root, np.maximum(part, 0.3))
        for k in range(6):
            w[0, k] += a[k]
            w[1, k] -= a[k + 6]

    return straight_on


def loop_of(
    terms: int, cells: tuple[int, ...] = (30, 20), schedule: str = "color"
) -> tuple[ml.Operation, ml.Field]:
    mesh = ml.generate.box(cells, cells="triangle")
    data = 1.0 + np.random.default_rng(1).random((mesh.cells.size, 6))
    u, w = mesh.cells.field("u", 6, data=data), mesh.cells.field("w", 6)
    at = mesh.face_cells
    return straight(terms).loop(mesh.faces, u[at], w[at], schedule=schedule), w


def jacobian_of(gas: IdealGas) -> tuple[ml.Operation, ml.Field]:
    mesh, rng = ml.generate.box((12, 12, 12)), np.random.default_rng(1)
    n, at = mesh.cells.size, mesh.face_cells
    state = np.c_[1.0 + 0.1 * rng.random(n), 0.1 * rng.random((n, 3)), 2.5 + 0.1 * rng.random(n)]
    area, reach = rng.random((mesh.faces.size, 3)), rng.random((mesh.faces.size, 2, 3))
    matrix = ml.Matrix(mesh.cells, through=at, block=5)
    loop = face_jacobian(gas, FlowScheme(), False).loop(
        mesh.faces, mesh.cells.field("u", 5, data=state)[at], mesh.faces.field("area", 3, data=area),
        mesh.faces.field("reach", (2, 3), data=reach), matrix[at],
    )  # fmt: skip
    written = loop.storages[3]
    assert isinstance(written, ml.Field)
    return loop, written


VISCOUS = IdealGas(law="sutherland", reference_viscosity=1e-3, sutherland_temperature=0.4)


def test_long_texts_have_flags_of_their_own_and_short_ones_have_none() -> None:
    ml.use("cpu")
    loops = [loop_of(terms)[0] for terms in (20, 400)]
    few, many = (cpu.CpuBackend().options(one.policy.described(one), one.plan).of(one.source) for one in loops)
    assert few == (*cpu.LOOP_FLAGS, cpu.NO_CONTRACTION)
    assert many == (*few, *(cpu.FLAGS_OF_MANY if cpu.host_compiler().is_gnu else ()))


@pytest.mark.slow
@pytest.mark.parametrize("case", ("straight", "inviscid", "viscous"))
def test_a_kernel_of_4000_operations_compiles_in_six_seconds(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced, simplified, printed and compiled; without the plan, which is the mesh's, and its algorithms."""
    ml.use("cpu")
    loop, _ = loop_of(667) if case == "straight" else jacobian_of(VISCOUS if case == "viscous" else IdealGas())
    before = seconds()
    assert len(loop.graph.outputs) > 10
    traced = seconds() - before
    assert loop.plan.block > 0
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    cpu.host_compiler()
    before = seconds()
    loop.prepare()
    took = traced + seconds() - before
    assert loop.flops / loop.elements > 2400
    assert took < 6.0, f"{loop.flops / loop.elements:.0f} operations took {took:.1f} s"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs binutils, which read machine code")
@pytest.mark.parametrize("case", ("straight", "inviscid"))
def test_flags_change_no_bit_and_no_number_of_instructions(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits but for the last elements of a block, fewer than there are lanes: a compiler has other code for
    them, which may round once more or once less. Whatever the flags, these lie elsewhere for another size of the mesh.
    """
    ml.use("cpu", threads=1)
    values, counts = [], []
    for k, flags in enumerate(((), cpu.FLAGS_OF_MANY)):
        monkeypatch.setattr(cpu, "FLAGS_OF_MANY", flags)
        monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / f"{k}"))
        loop, written = loop_of(400, schedule="tile") if case == "straight" else jacobian_of(IdealGas())
        loop()
        values.append(written.numpy().copy())
        (library,) = (tmp_path / f"{k}").rglob(f"{loop.name}-*.so")
        counts.append(instructions_of_body(library))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12, atol=1e-14)
    same = (values[0] == values[1]).reshape(len(values[0]), -1).all(axis=1)
    assert same.mean() > 0.95
    (widest, count), (as_wide, as_many) = counts
    assert count > 2400 and as_wide == widest and as_many == pytest.approx(count, rel=0.03)


def instructions_of_body(library: Path) -> tuple[str, int]:
    """Those of the loop itself: where it is vectorised, of those with the widest registers, which the code for the last
    elements has not; else all."""
    command = ("objdump", "-d", "--no-show-raw-insn", library)
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = ((name, sum(bool(re.search(name, line)) for line in lines)) for name in (r"zmm\d", r"ymm\d", r"\.2d"))
    return next((one for one in found if one[1] > len(lines) / 20), ("", len(lines)))
