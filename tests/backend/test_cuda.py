"""The CUDA back end: every generated kernel compiles, every strategy for three architectures; on a device: graphs,
sharing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cuda import nvrtc
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.backend.cuda.engine import Engine
from meshloom.backend.cuda.kernels import GpuText
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.errors import CompilerError, ScheduleError, install
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.program import fuse
from meshloom.operation.program import FusedRecording
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, AirfoilGas, AirfoilMeshOptions, kernels
from tests.covering import every_value
from tests.schedule.forms import FORMS

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
AIRFOIL_LAYOUTS = ("aos", "soa", "aosoa8")
LAYOUTS = ("aos", "soa", "aosoa4", "aosoa3")


def has_nvrtc() -> bool:
    try:
        nvrtc.library()
    except CompilerError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason=f"no NVRTC: {install('nvrtc')}")


class CompileOnly(Engine):
    """Compiles for some architectures and keeps what the compiler says; launches nothing."""

    def __init__(self, architectures: tuple[str, ...]):
        self.architectures = architectures
        self.resources: dict[str, dict[str, dict[str, int]]] = {}

    def upload(self, array: np.ndarray) -> Any:
        return array

    def compiled(self, text: GpuText, *, apart: bool = False) -> Compiled:
        for architecture in self.architectures:
            _, log = nvrtc.build(text.source, text.name, architecture, flags=text.flags)
            self.resources[f"{text.name} {architecture}"] = nvrtc.resources(log)
        return Compiled(None)

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> Any:
        return {one.name: lambda *_: None for one in made}


class CompileBackend(EmulatedCuda):
    def __init__(self, architectures: tuple[str, ...] = ARCHITECTURES):
        super().__init__()
        self.engine = CompileOnly(architectures)


every_compilation = partial(every_value, form=FORMS, dtype=(np.float64, np.float32), architecture=ARCHITECTURES)


def airfoil_loops(backend: Any, form: ml.Schedule, layout: str, dtype: type) -> list[ml.Loop]:
    """The airfoil's loops on a back end, the racy ones by a strategy."""
    mesh = ml.generate.naca0012(6, 4)
    k = kernels(AirfoilGas.of(AirfoilConfig().flow))
    cells = mesh.cells
    x = mesh.nodes.field("x", 2, dtype=dtype, layout=layout, data=mesh.coordinates.numpy())
    make = {
        n: cells.field(n, d, dtype=dtype, layout=layout) for n, d in (("q", 4), ("qold", 4), ("res", 4), ("adt", 1))
    }
    q, qold, res, adt = make["q"], make["qold"], make["res"], make["adt"]
    fc, bc, wish = mesh.face_cells, mesh.boundary_cells, form.having(block=128)
    loops = [
        k.save_soln.loop(cells, q, qold),
        k.adt_calc.loop(cells, x[mesh.cell_nodes], q, adt),
        k.res_calc.loop(mesh.faces, x[mesh.face_nodes], q[fc], adt[fc], res[fc], schedule=wish),
        k.bres_calc.loop(mesh.boundary_faces, x[mesh.boundary_nodes], q[bc], adt[bc], res[bc], mesh.boundary_group,
                         schedule=wish),
        k.update.loop(cells, qold, q, res, adt, ml.Global(0.0)),
    ]  # fmt: skip
    return [loop.on(backend) for loop in loops]


@needs_nvrtc
@every_value(form=FORMS, dtype=(np.float64, np.float32), layout=AIRFOIL_LAYOUTS)
def test_airfoil_kernels_compile_without_spills(form: ml.Schedule, dtype: type, layout: str) -> None:
    """Each strategy, layout and precision, all together when slow, for architectures that take turns. Loops without
    increments are the same under all of them: they are compiled once for each architecture."""
    turn = FORMS.index(form) + AIRFOIL_LAYOUTS.index(layout)
    backend, direct = CompileBackend(ARCHITECTURES[turn % 3 :][:1]), form == FORMS[0]
    loops = [one for one in airfoil_loops(backend, form, layout, dtype) if direct or one.spec.racy_maps]
    for one in loops:
        one.prepare()
    found = backend.engine.resources
    assert len(found) == len(loops) == (5 if direct else 2)
    for name, per_kernel in found.items():
        assert per_kernel, name
        for kernel, used in per_kernel.items():
            assert used["registers"] > 0 and used["spills"] == 0, (name, kernel, used)


@needs_nvrtc
@pytest.mark.parametrize(("precision", "reproducible"), [
    ("double", True), ("single", False), pytest.param("double", False, marks=pytest.mark.slow),
    pytest.param("single", True, marks=pytest.mark.slow)])  # fmt: skip
def test_the_fused_airfoil_iteration_compiles_without_spills(precision: str, reproducible: bool) -> None:
    ml.use(ml.backend(), reproducible=reproducible)
    plain = AirfoilConfig()
    case = Airfoil(replace(plain, mesh=AirfoilMeshOptions(i=40, j=30), run=replace(plain.run, precision=precision)))
    backend = CompileBackend()
    loops = [loop.on(backend) if loop.domain.visits_elements else loop for loop in case.program.loops]
    FusedRecording(fuse(Dataflow(loops)), backend)
    found = backend.engine.resources
    assert len(found) == 3 * len(ARCHITECTURES)  # before the first iteration, first stage, second stage
    for name, per_kernel in found.items():
        for kernel, used in per_kernel.items():
            assert used["registers"] > 0 and used["spills"] == 0, (name, kernel, used)


@needs_nvrtc
def test_tables_and_random_numbers_compile() -> None:
    """Among others tables of what is not finite: what a variable of a device begins with must be a constant."""
    cells = ml.Set(7, "cells")
    places, heights = np.array([-np.inf, 0.0, 1.0, np.inf]), np.array([1.0, np.inf, np.nan, 2.0])
    kind, x, out = cells.field("kind", dtype=np.int32), cells.field("x", dtype=np.float32), cells.field("out", 2)

    @ml.kernel
    def look(kind: ml.Read, x: ml.Read, density: ml.Read, out: ml.Write):
        out[0] = density[kind] + heights[kind]
        out[1] = np.interp(x, places, heights)

    @ml.kernel
    def kick(out: ml.ReadWrite, r: ml.Random):
        out += r.normal(2) + r.uniform(2, dtype=np.float32) + r.integers(1, 7)

    dice, density = ml.Random(seed=7), ml.Global([1.0, 10.0, 100.0], "density")
    program = ml.program(lambda: (look(cells, kind, x, density, out), kick(cells, out, dice))[0])
    backend = CompileBackend()
    for loop in program.loops:
        loop.on(backend).prepare()
    assert len(backend.engine.resources) == len(program.loops) * len(ARCHITECTURES) > 2


@needs_nvrtc
def test_what_one_engine_has_loaded_is_not_run_by_another() -> None:
    """The plan is shared by all loops of a kernel over a set, what is made of it by those of one engine alone."""
    cells = ml.Set(3, "cells")

    @ml.kernel
    def up(u: ml.ReadWrite):
        u += 1.0

    first, second = cells.field("first"), cells.field("second")
    for one, backend in ((first, CompileBackend()), (second, EmulatedCuda())):
        up.loop(cells, one).on(backend)()
    assert first.numpy().tolist() == [0.0] * 3 and second.numpy().tolist() == [1.0] * 3


@needs_nvrtc
@every_compilation(layout=LAYOUTS, ordering=("given", "random"))
def test_every_kernel_of_the_matrix_compiles(
    form: ml.Schedule, dtype: type, architecture: str, layout: str, ordering: str
) -> None:
    """Each strategy, layout, precision and architecture, reordered or not; all together when slow."""
    from tests.schedule.test_matrix import Case, everything

    case = Case("structured", dtype, layout)
    loop = everything.loop(case.edges, *case.arguments, schedule=form.having(block=32, order=ordering))
    loop.on(CompileBackend((architecture,))).prepare()


@needs_nvrtc
def test_code_that_does_not_compile_is_one_line_with_a_log() -> None:
    with pytest.raises(
        CompilerError, match=r"broken: the CUDA code did not compile: .*error.*\(log: .*broken-[0-9a-f]{32}\.log\)"
    ) as caught:
        nvrtc.build("__global__ void k() { return 1 }", "broken", "sm_90")
    assert "\n" not in str(caught.value)


@needs_nvrtc
def test_a_damaged_cubin_is_compiled_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    source = 'extern "C" __global__ void k(int* p) { p[threadIdx.x] = 1; }'
    cubin, log = nvrtc.build(source, "k", "sm_90")
    (file,) = (tmp_path / "cuda").glob("*.cubin")
    for damage in (b"", file.read_bytes()[:100], b"x" * 5000):
        file.write_bytes(damage)
        assert nvrtc.build(source, "k", "sm_90")[0] == cubin
    assert nvrtc.resources(log)["k"]["registers"] > 0


def test_without_a_device_it_says_so() -> None:
    reason = ml.backends()["cuda"]
    if reason is None:
        pytest.skip("there is a device")
    with pytest.raises(ScheduleError, match="back end 'cuda' cannot be used here"):
        ml.use("cuda")


def test_emulated_programs_equal_the_cpu() -> None:
    """Direct loops, races, reductions and fills of a whole airfoil iteration."""
    results = []
    for backend in ("numpy", "emulated"):
        ml.use(backend)
        mesh = ml.generate.naca0012(12, 8)
        k = kernels(AirfoilGas.of(AirfoilConfig().flow))
        cells, x, rms = mesh.cells, mesh.coordinates, ml.Global(0.0)
        far = AirfoilGas.of(AirfoilConfig().flow).free_stream
        q = cells.field("q", 4, data=np.tile(far, (cells.size, 1)))
        qold, res, adt = cells.field("qold", 4), cells.field("res", 4), cells.field("adt")

        def step(mesh=mesh, k=k, cells=cells, x=x, rms=rms, q=q, qold=qold, res=res, adt=adt) -> None:
            fc, bc = mesh.face_cells, mesh.boundary_cells
            k.save_soln(cells, q, qold)
            k.adt_calc(cells, x[mesh.cell_nodes], q, adt)
            res.fill(0.0)
            k.res_calc(mesh.faces, x[mesh.face_nodes], q[fc], adt[fc], res[fc])
            k.bres_calc(mesh.boundary_faces, x[mesh.boundary_nodes], q[bc], adt[bc], res[bc], mesh.boundary_group)
            rms.value = 0.0
            k.update(cells, qold, q, res, adt, rms)

        history = ml.program(step).run(5, record=(rms,))
        results.append((history, q.numpy()))
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-11)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-12, atol=1e-13)


@pytest.mark.gpu
def test_a_program_is_a_graph_and_equals_the_cpu() -> None:
    from meshloom.backend.cuda.graph import GraphRecording
    from tests.test_program import Heat

    results = []
    for backend in ("cpu", "cuda"):
        ml.use(backend)
        heat = Heat()
        program = ml.program(heat.step)
        results.append((program.run(50, record=(heat.total, heat.biggest)), heat.u.numpy()))
    assert isinstance(program._tape().recording(), GraphRecording)
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-11)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-11)
    assert all(o.domain.all_memory or o.backend.name == "cuda" for o in program.loops)


@pytest.mark.gpu
def test_fields_move_between_back_ends() -> None:
    @ml.kernel
    def double(v: ml.ReadWrite):
        v[...] = 2.0 * v

    on = ml.Set(1000, "points")
    v = on.field("v", 3, data=np.ones((1000, 3)), layout="soa")
    for backend in ("cpu", "cuda", "numpy", "cuda", "cpu"):
        ml.use(backend)
        double(on, v)
    np.testing.assert_array_equal(v.numpy(), np.full((1000, 3), 32.0))


@pytest.mark.gpu
def test_fields_are_shared_without_copies() -> None:
    import cupy

    @ml.kernel
    def double(v: ml.ReadWrite):
        v[...] = 2.0 * v

    ml.use("cuda")
    on = ml.Set(1000, "points")
    v = on.field("v", data=np.arange(1000.0))
    double(on, v)
    shared = cupy.asarray(v)
    assert shared.data.ptr == v.storage.data.ptr
    shared += 1.0
    np.testing.assert_array_equal(v.numpy(), 2.0 * np.arange(1000.0) + 1.0)
    torch = pytest.importorskip("torch")
    tensor = torch.from_dlpack(v)
    tensor.mul_(3.0)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(v.numpy(), 3.0 * (2.0 * np.arange(1000.0) + 1.0))
