"""HIP: its text, emulated with wavefronts of 64 threads, agrees with NumPy; what stands round it runs on a stand-in."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.backend import _BACKENDS
from meshloom.backend.cuda import dialect
from meshloom.backend.cuda.backend import _shared
from meshloom.backend.cuda.emulator import Emulator
from meshloom.backend.hip import HipBackend
from meshloom.backend.translation_unit import KernelText, Parameter, make_unit
from meshloom.errors import CompilerError, ScheduleError
from meshloom.native import compiler, threads
from meshloom.schedule.lines import on_gpu
from meshloom.schedule.plan.plan import sizes
from meshloom.target import CUDA, GFX90A, GFX942, H200, HIP, Target, of_properties
from tests.backend import on_hip
from tests.linalg.test_lines import check, differ, lele6, matrix
from tests.one_line import one_line_from
from tests.schedule.forms import FORMS, every_form
from tests.schedule.test_matrix import LAYOUTS, Case, assert_same, check_variant, everything, reference
from tests.solvers import test_agreement as applications
from tests.target.test_target import spread_loop

AROUND_WARPS = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129)


# --- agreement with NumPy -----------------------------------------------------------------------------------------


@every_form
def test_every_strategy_agrees_with_numpy(form: ml.Schedule) -> None:
    expected = reference("cells", np.float64)
    ml.use("emulated", target="hip")
    case = Case("cells", np.float64, "aos")
    case.reset()
    loop = everything.loop(case.edges, *case.arguments, schedule=form.having(block=128))
    loop()
    assert loop.backend.target is GFX90A
    assert_same(case.results(), expected, np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["double", "single"])
@pytest.mark.parametrize("ordering", ["given", "random"])
@pytest.mark.parametrize("layout", LAYOUTS)
@every_form
def test_every_variant_agrees_with_numpy(form: ml.Schedule, layout: str, ordering: str, dtype: type) -> None:
    check_variant(on_hip.NAME, form, layout, ordering, dtype)


@ml.kernel
def pull(v: ml.Read, at: ml.Inc, high: ml.Max, total: ml.Sum, most: ml.Max):
    """Neighbouring elements meet at a target each."""
    at[0] += v
    at[1] -= 2.0 * v
    high[0] = v
    high[1] = -v
    total += v
    most[...] = v


def pulled(backend: str, n: int, form: ml.Schedule | None) -> list[np.ndarray]:
    """A chain of n elements: what their ends get, and globals."""
    ml.use(backend)
    elements, ends = ml.Set(n, "elements"), ml.Set(n + 1, "ends")
    to = ml.Map(elements, ends, [[k, k + 1] for k in range(n)], "to")
    v = elements.field("v", data=np.cos(np.arange(n)))
    at, high, total, most = ends.field("at"), ends.field("high"), ml.Global(0.0, "total"), ml.Global(-9.0, "most")
    high.fill(-9.0)
    pull(elements, v, at[to], high[to], total, most, schedule=form)
    return [at.numpy(), high.numpy(), np.asarray(total.value), np.asarray(most.value)]


@pytest.mark.parametrize("form", [one if one.strategy in ("warp_atomic", "strip") else
                                  pytest.param(one, marks=pytest.mark.slow) for one in FORMS], ids=str)  # fmt: skip
@pytest.mark.parametrize("block", [64, *(pytest.param(n, marks=pytest.mark.slow) for n in (32, 96))])
def test_sizes_around_those_of_warps(form: ml.Schedule, block: int) -> None:
    for n in AROUND_WARPS:
        found, expected = pulled(on_hip.NAME, n, form.having(block=block)), pulled("numpy", n, None)
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-13, atol=1e-13, err_msg=str(n))


@ml.kernel
def around(u: ml.Read, out: ml.Write, total: ml.Sum):
    out[...] = u[0, 0] + 2.0 * u[0, 1] - u[1, 0]
    total += u[0, 0]


def smoothed(backend: str, n: int) -> list[np.ndarray]:
    ml.use(backend)
    grid, total = ml.Grid((5, n), periodic=True), ml.Global(0.0)
    u, out = grid.field("u", data=np.cos(np.arange(5.0 * n)).reshape(5, n)), grid.field("out")
    around(grid, u[grid.offsets((0, 0), (0, 1), (1, 0))], out, total)
    return [out.numpy(), np.asarray(total.value)]


def test_boxes_of_sizes_around_those_of_warps() -> None:
    for n in (31, 33, 63, 64, 65, 127, 128, 129):
        for mine, other in zip(smoothed(on_hip.NAME, n), smoothed("numpy", n), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12, err_msg=str(n))


@pytest.mark.parametrize("periodic", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n", [65, *(pytest.param(n, marks=pytest.mark.slow) for n in (32, 64, 127, 128, 129))])
def test_lines(n: int, periodic: bool) -> None:
    check((n, 3), 0, periodic, on_hip.NAME)
    check((3, n), 1, periodic, on_hip.NAME)


OTHER_METHODS = ("thomas", "cyclic_reduction", "cgs", "bicgstab")


@pytest.mark.parametrize("method", ["pcr", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_METHODS)])
def test_other_methods_of_solving_lines(method: str) -> None:
    operator = ml.linalg.LineOperator(matrix(True), ml.linalg.Stencil({0: 1.0}), 2.0)
    for n in (33, 64, 65, 128):
        for shape, axis in (((n, 3), 0), ((2, n), 1)):
            found = []
            for backend in (on_hip.NAME, "numpy"):
                ml.use(backend)
                grid = ml.Grid(shape, periodic=True)
                f = grid.field("f", data=np.random.default_rng(3).random(shape))
                out = grid.field("out")
                ml.linalg.line_loop(grid, axis, operator, f, out, method=method if backend != "numpy" else "auto")
                found.append(out.numpy())
            assert differ(*found) < 1e-9, (method, shape)


#: Their steps cancel so much that every back end is 1e-11 to 1e-10 away from NumPy, which contracts nothing: they are
#: compared with CUDA.
APART = ("taylor_green", "vortex_outflow", "lulesh")


@pytest.mark.parametrize("name", ["tophat1d", *(pytest.param(name, marks=pytest.mark.slow)
                                                for name in (applications.CASES | applications.GRIDS)
                                                if name != "tophat1d")])  # fmt: skip
@pytest.mark.slow
def test_applications_agree(name: str) -> None:
    """Fused programs, with everything that their loops have."""
    ml.use("emulated" if name in APART else "numpy")
    _, expected = applications.five_steps(name, fuse=False)
    ml.use("emulated", target="hip")
    program, found = applications.five_steps(name, fuse=True)
    assert bool(program.fused_steps) == ((name, "emulated") not in applications.NOTHING_FUSES)
    applications.assert_same(found, expected)


# --- the text -----------------------------------------------------------------------------------------------------


def text_for(target: Target, resident: tuple[int, ...] = ()) -> str:
    """A loop with atomics, shuffles and a tree, as a device gets it."""
    ml.use("emulated")
    loop = spread_loop(6, ml.Schedule("warp_atomic", block=128))
    unit = make_unit(loop.spec, loop.plan, target=target)
    return dialect.render(unit, dialect.kernels(unit, 128, 128, resident), wide_index=False)


def test_the_text_has_the_words_of_its_language_alone() -> None:
    hip, cuda = text_for(GFX90A), text_for(H200)
    for word in ("_sync(", "0xffffffff", "asm ", "__CUDA_ARCH__", "(1.0f / 0.0f)"):
        assert word in cuda and word not in hip, word
    for word in ("__shfl(", "__shfl_xor(", "unsafeAtomicAdd(", "HIP_DYNAMIC_SHARED(", "__hip_atomic_load("):
        assert word in hip and word not in cuda, word
    assert "CUDA" not in hip and "HIP" not in cuda


def test_bounds_count_wavefronts_of_an_execution_unit() -> None:
    assert "void __launch_bounds__(128, 3) pass0(" in text_for(H200, (3,))
    assert "void __launch_bounds__(128, 2) pass0(" in text_for(GFX90A, (3,)), "6 wavefronts for 4 units"
    assert HIP.bounds(1024, 1, GFX90A) == "__launch_bounds__(1024, 4)"
    assert HIP.bounds(64, 1, GFX90A) == "__launch_bounds__(64, 1)"
    assert HIP.bounds(1024, 9, GFX90A) == "__launch_bounds__(1024, 8)", "not more than there is room for"
    assert HIP.bounds(256, 2, replace(GFX90A, lanes=32)) == "__launch_bounds__(256, 8)", "2 units of 32 lanes"


def test_a_block_that_has_no_room_is_refused_in_one_line() -> None:
    """What fits 227 KB may not fit 64 KB."""
    for target, fits in (("cuda", True), ("hip", False)):
        ml.use("emulated", target=target)
        loop = spread_loop(80, ml.Schedule("tile", block=4096))
        if fits:
            loop.prepare()
            continue
        with one_line_from(ScheduleError, "bytes of shared memory, the device has 65,536; use smaller blocks"):
            loop.prepare()


def test_the_automatic_choice_fits() -> None:
    """Tiles that fit an H200 but not 64 KB are not chosen by themselves."""
    ml.use("numpy")
    (forces,) = (one for one in make("lulesh", "mesh.size=14").program.loops if one.name == "forces")
    assert forces.domain.visits_elements
    needed = {}
    for target in ("cuda", "hip"):
        ml.use("emulated", target=target)
        loop = forces.by(None)
        known = sizes(loop.plan) | {"block": loop.plan.block}
        passes = make_unit(loop.spec, loop.plan, target=loop.backend.target).passes
        needed[target] = loop.schedule.strategy, max(_shared(one, known) for one in passes)
    assert needed["cuda"][0] == "tile" and needed["cuda"][1] > GFX90A.shared >= needed["hip"][1]


@ml.kernel
def several(q: ml.Read, f: ml.Write):
    f[...] = np.stack([q[k] * q[(k + 1) % 12] for k in range(12)])


@ml.kernel
def joined(df: ml.Read, out: ml.Write):
    out[...] = df.sum() * df


def several_loop(backend: str, shape: tuple[int, int], axis: int) -> ml.Loop:
    """Twelve operands, all of which every result needs."""
    ml.use(backend)
    grid = ml.Grid(shape, periodic=True)
    q = grid.field("q", 12, data=np.random.default_rng(1).random((*shape, 12)), layout="soa")
    return ml.linalg.LineLoop(grid, axis, lele6(True), q, grid.field("out", 12, layout="soa"), before=several,
                              after=joined, values=12)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "axis"), [((2, 2100), 1), ((2100, 3), 0), ((18, 40), 0)])
def test_lines_go_in_smaller_parts_where_shared_memory_is_small(shape: tuple[int, int], axis: int) -> None:
    found, expected = (several_loop(name, shape, axis) for name in (on_hip.NAME, "numpy"))
    ml.use(on_hip.NAME)
    found()
    ml.use("numpy")
    expected()
    assert differ(found.writes[0].numpy(), expected.writes[0].numpy()) < 1e-13


def test_forms_of_lines_keep_within_shared_memory() -> None:
    for shape, axis in (((2, 2100), 1), ((2100, 64), 0), ((18, 640), 0), ((64, 64), 0), ((64, 64), 1)):
        loop = several_loop("emulated", shape, axis)
        needed = []
        for target in (H200, GFX90A):
            tiling = on_gpu.tiling(loop.spec, loop.domain.geometry, {}, target)
            cut = replace(loop.spec, tiling=tiling), loop.domain.geometry
            needed.append(on_gpu._shared_bytes(*cut, target.gpu.lines))
            assert needed[-1] <= target.shared
        assert needed[1] <= needed[0]


@pytest.mark.parametrize("method", ["cgs", *(pytest.param(name, marks=pytest.mark.slow)
                                             for name in ("pcr", "cyclic_reduction", "bicgstab"))])  # fmt: skip
def test_the_longest_line_that_a_method_takes_fits_shared_memory(method: str) -> None:
    operator = ml.linalg.LineOperator(matrix(True), ml.linalg.Stencil({0: 1.0}), 2.0)

    def solving(n: int) -> ml.Loop:
        grid = ml.Grid((n,), periodic=True)
        return ml.linalg.LineLoop(grid, 0, operator, grid.field("f"), grid.field("out"), method=method)

    def takes(n: int) -> bool:
        loop = solving(n)
        return loop.policy.method.declines(loop.spec, loop.domain.geometry, target=GFX90A) is None

    ml.use(on_hip.NAME)
    longest = next(n for n in range(2100, 0, -1) if takes(n))
    solving(longest).prepare()
    with one_line_from(ScheduleError, "bytes of shared memory, a block has 65,536"):
        solving(longest + 1).prepare()


# --- choosing it --------------------------------------------------------------------------------------------------


def test_a_target_is_chosen_by_name() -> None:
    for target, found in (("cuda", H200), ("hip", GFX90A), ("gfx942", GFX942)):
        ml.use("emulated", target=target)
        assert ml.backend() == "emulated" and spread_loop(3).backend.target is found
    ml.use("emulated", target="hip", lanes=32)
    assert spread_loop(3).backend.target == replace(GFX90A, lanes=32)
    ml.use("emulated")
    assert spread_loop(3).backend.target is H200


@pytest.mark.parametrize(
    "name, target, said",
    [("cpu", "hip", "target can be chosen on the back end 'emulated' only, not on 'cpu'"),
     ("emulated", "rocm", "unknown target 'rocm'; allowed: cuda, hip, gfx942"),
     ("emulated", 64, "unknown target 64; allowed: cuda, hip, gfx942")],
)  # fmt: skip
def test_what_a_target_cannot_be(name: str, target: object, said: str) -> None:
    ml.use("numpy", threads=2)
    with one_line_from(ScheduleError, said):
        ml.use(name, target=target, threads=1, strict=True)  # type: ignore[arg-type]
    assert ml.backend() == "numpy" and ml.threads() == 2, "nothing has changed"


def test_what_was_made_for_one_target_is_not_taken_for_another() -> None:
    expected, case, schedule = reference("cells", np.float64), Case("cells", np.float64, "aos"), ml.Schedule("strip")
    seen = []
    for target in ("cuda", "hip", "cuda"):
        ml.use("emulated", target=target)
        seen.append(spread_loop(3).backend)
        case.reset()
        everything(case.edges, *case.arguments, schedule=schedule)
        assert_same(case.results(), expected, np.float64)
    assert seen[0] is seen[2] is not seen[1] and seen[0].key != seen[1].key


def test_amd_gpus_are_told_by_their_properties() -> None:
    found = of_properties(PROPERTIES)
    assert found == replace(GFX90A, multiprocessors=104, speed=1.6e12 * 104 / 110, registers=65536)
    assert found.rates.per_byte == pytest.approx(GFX90A.rates.per_byte * 110 / 104)
    assert found.language is HIP is not CUDA and GFX942.rates.per_byte < GFX90A.rates.per_byte


# --- round the text: CuPy for ROCm, and no device -----------------------------------------------------------------

#: What CuPy for ROCm says of half an MI250, in part.
PROPERTIES = {"warpSize": 64, "multiProcessorCount": 104, "maxThreadsPerBlock": 1024, "regsPerBlock": 65536,
              "maxThreadsPerMultiProcessor": 2048, "sharedMemPerBlock": 65536, "name": b"AMD Instinct"}  # fmt: skip
_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+, \d+\) )?(\w+)\((.*)\) \{')


class Placed(np.ndarray):
    """An array on a device of its own."""


class CompileException(Exception):
    pass


def _parameter(declaration: str) -> Parameter:
    ctype, name = declaration.replace(" __restrict__", "").rsplit(" ", 1)
    return Parameter(ctype, name)


class RawModule:
    """What CuPy's does, on the CPU: it takes the text as a device gets it, and nothing else."""

    asked: ClassVar[list[tuple[str, ...]]] = []

    def __init__(self, *, code: str, options: tuple[str, ...]):
        self.asked.append(options)
        if "refused" in code:
            raise CompileException("noise\nloop.hip:3:1: error: expected something else\nmore noise")
        texts = [KernelText(name, tuple(map(_parameter, declared.split(", "))), ())
                 for name, declared in _KERNEL.findall(code)]  # fmt: skip
        entries = "\n".join(line for one in texts for line in dialect._entry(one))
        source = f"{dialect.for_a_cpu(GFX90A)}{dialect.FIBRES}{code}\n{entries}\n"
        self._library = compiler.load(source, "stand_in", extra_flags=("-O1", "-fno-strict-aliasing"))

    def get_function(self, name: str) -> Any:
        launch = Emulator(GFX90A)._launcher(self._library, f"run_{name}", wide_index=False)

        def call(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], *, shared_mem: int = 0) -> None:
            launch(grid[0], block[0], shared_mem, [int(a) if isinstance(a, np.integer) else a for a in arguments])

        return call


class Event:
    def record(self) -> None: ...

    def synchronize(self) -> None: ...


def stand_in(monkeypatch: pytest.MonkeyPatch, **different: Any) -> HipBackend:
    """A back end that finds CuPy for ROCm with one device."""
    runtime = {"is_hip": True, "getDeviceCount": lambda: 1, "getDevice": lambda: 0,
               "getDeviceProperties": lambda _: PROPERTIES, "CUDARuntimeError": RuntimeError} | different  # fmt: skip
    cupy: Any = ModuleType("cupy")
    cupy.__spec__, cupy.RawModule = ModuleSpec("cupy", None), RawModule
    cupy.asarray = lambda a: a if isinstance(a, Placed) else np.array(a).view(Placed)
    cupy.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Placed)
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(**runtime), Event=Event, get_elapsed_time=lambda a, b: 1.0,
                                compiler=SimpleNamespace(CompileException=CompileException))  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(threads, "_device_process", None)
    monkeypatch.setitem(_BACKENDS, "hip", HipBackend())
    found = _BACKENDS["hip"]
    assert isinstance(found, HipBackend)
    return found


def test_loops_and_programs_go_through_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    expected = reference("cells", np.float64)
    ml.use("hip")
    case = Case("cells", np.float64, "soa")
    total = case.total
    program = ml.program(lambda: everything(case.edges, *case.arguments, schedule=ml.Schedule("strip", block=128)))
    case.reset()
    history = program.run(1, record=(total,))
    assert_same(case.results(), expected, np.float64)
    assert isinstance(case.force.storage, Placed) and history[0, 0] == total.value
    assert RawModule.asked[-1] == ("-std=c++17", "-ffp-contract=off")


def test_strict_kernels_are_not_contracted(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)

    @ml.kernel(strict=True)
    def axpy(x: ml.Read, y: ml.ReadWrite):
        y[...] = y + 3.0 * x

    ml.use("hip")
    points = ml.Set(70, "points")
    x, y = points.field("x", data=np.arange(70.0)), points.field("y", data=np.ones(70))
    axpy(points, x, y)
    assert y.numpy().tolist() == (1.0 + 3.0 * np.arange(70.0)).tolist()
    assert RawModule.asked[-1] == ("-std=c++17", "-ffp-contract=off")
    assert "#define ML_NO_FMA" in axpy.loop(points, x, y).source


def test_code_that_does_not_compile_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)

    @ml.kernel
    def refused(x: ml.ReadWrite):
        x[...] = 2.0 * x

    ml.use("hip")
    points = ml.Set(7, "points")
    with one_line_from(CompilerError, "refused: the HIP code did not compile: loop.hip:3:1: error: expected something"):
        refused(points, points.field("x"))


@pytest.mark.parametrize(("different", "said"), [
    ({"is_hip": False}, "CuPy is built for NVIDIA's GPUs here, not for ROCm; ml.use('emulated', target='hip') runs"),
    ({"getDeviceCount": lambda: 0}, "there is no HIP device; ml.use('emulated', target='hip') runs its text on the"),
], ids=["another CuPy", "no device"])  # fmt: skip
def test_why_not(monkeypatch: pytest.MonkeyPatch, different: dict[str, Any], said: str) -> None:
    stand_in(monkeypatch, **different)
    with one_line_from(ScheduleError, re.escape(f"back end 'hip' cannot be used here: {said}")):
        ml.use("hip")


def test_cuda_leaves_cupy_for_rocm_to_hip(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    monkeypatch.setitem(_BACKENDS, "cuda", type(_BACKENDS["cuda"])())
    assert ml.backends()["cuda"] == "CuPy is built for AMD's GPUs here: use 'hip'" and ml.backends()["hip"] is None


def test_it_is_not_chosen_automatically() -> None:
    """Nobody has run it on a device: whoever wants it says so."""
    from meshloom.backend import automatic_backend

    assert automatic_backend(dict.fromkeys(ml.backends(), None) | {"cuda": "not here"}) == "cpu"
