"""Targets: read from a device's attributes, and asked by choices, plans, tilings of lines and text."""

from dataclasses import replace

import pytest

import meshloom as ml
from meshloom.backend import CudaBackend
from meshloom.backend.cuda import dialect
from meshloom.backend.translation_unit import make_unit
from meshloom.native import cache
from meshloom.native.machine import cpu_count
from meshloom.schedule.choice.auto import estimates
from meshloom.schedule.choice.counts import Counts
from meshloom.schedule.lines import on_gpu
from meshloom.schedule.plan import plan_cache
from meshloom.target import CPU, H200, Target, of_device

#: What CuPy says of an H200, and of a small GPU.
LARGE = {"WarpSize": 32, "MultiProcessorCount": 132, "MaxThreadsPerBlock": 1024, "MaxThreadsPerMultiProcessor": 2048,
         "MaxRegistersPerMultiprocessor": 65536, "MaxSharedMemoryPerBlockOptin": 232448,
         "MaxSharedMemoryPerBlock": 49152, "ClockRate": 1980000}  # fmt: skip
LITTLE = LARGE | {"MultiProcessorCount": 66, "MaxThreadsPerMultiProcessor": 1536,
                  "MaxSharedMemoryPerBlockOptin": 101376}  # fmt: skip


@ml.kernel
def spread(x: ml.Read, force: ml.Inc, total: ml.Sum):
    for k in range(2):
        force[k] += x[k] * (1.0 + k)
    total += x[0]


def spread_loop(cells: int, schedule: ml.Schedule | None = None) -> ml.Loop:
    mesh = ml.generate.box((cells, cells))
    x, force = mesh.cells.field("x"), mesh.cells.field("force")
    return spread.loop(mesh.faces, x[mesh.face_cells], force[mesh.face_cells], ml.Global(0.0, "s"), schedule=schedule)


def test_a_device_tells_what_it_has() -> None:
    assert of_device(LARGE) == H200 and H200.is_simt and H200.threads == 132 * 2048
    little = of_device(LITTLE)
    assert (little.multiprocessors, little.resident_threads, little.shared) == (66, 1536, 101376)
    assert little.rates.per_byte == 2 * H200.rates.per_byte and little.rates.per_launch == H200.rates.per_launch


def test_a_cpu_has_cores_and_no_lanes() -> None:
    assert (CPU.lanes, CPU.multiprocessors, CPU.is_simt) == (1, cpu_count(), False)


def test_blocks_have_whole_warps() -> None:
    assert [H200.whole_warps(n) for n in (1, 32, 33, 5000)] == [32, 32, 64, 1024]
    assert replace(H200, lanes=64).whole_warps(33) == 64
    assert H200.blocks_with(61, 512) == 65536 // (64 * 512)


def test_back_ends_hold_their_target() -> None:
    for name, target in (("numpy", CPU), ("cpu", CPU), ("emulated", H200)):
        ml.use(name)
        assert spread_loop(3).backend.target == target


def test_the_cuda_back_end_asks_its_engine() -> None:
    backend, little = CudaBackend(), of_device(LITTLE)
    backend.engine.__dict__["target"] = little  # where a device has put it
    assert backend.target is little


def test_the_choice_leaves_out_what_has_no_room_on_a_small_device() -> None:
    loop = spread_loop(60)
    work = Counts(loop.spec, loop.set.size, loop.storages, loop.maps, 1024).work(H200)
    assert "tile" in estimates(loop.spec, work, H200)
    assert "tile" not in estimates(loop.spec, work, replace(H200, shared=1000))
    assert "tile" in estimates(loop.spec, work, CPU), "memory of a thread has no such limit"


def test_lines_are_cut_up_for_the_multiprocessors_there_are() -> None:
    ml.use("emulated")
    grid = ml.Grid((512, 256), periodic=True)
    operator = ml.linalg.LineOperator(
        ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True), ml.linalg.LineStencil({0: 1.0}), 1.0
    )
    loop = ml.linalg.LineLoop(grid, 0, operator, grid.field("f"), grid.field("out"))
    devices = [replace(H200, multiprocessors=n) for n in (1, 132)]
    tiles = [on_gpu.tiling(loop.spec, loop.domain.geometry, {}, one).tile for one in devices]
    assert tiles[0] > tiles[1], "fewer multiprocessors need fewer blocks"


@pytest.mark.parametrize("lanes", [32, 64])
def test_text_is_for_the_lanes_there_are(lanes: int) -> None:
    ml.use("emulated")
    target, loop = replace(H200, lanes=lanes), spread_loop(6, ml.Schedule("warp_atomic", block=128))
    unit = make_unit(loop.spec, loop.plan, target=target)
    text = dialect.render(unit, dialect.kernels(unit, 128, 128), wide_index=False)
    for line in (f"threadIdx.x % {lanes})", f"own_lane < {lanes - 1} ", f"int h = {lanes // 2};",
                 f"tree_r2_0[{128 // lanes}]", f"tree_r2_0[threadIdx.x / {lanes}]"):  # fmt: skip
        assert line in text, line


def test_plans_on_disk_are_told_apart_by_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan for any number of multiprocessors, another one for other lanes."""
    monkeypatch.setattr(plan_cache, "smallest_stored", lambda: 1)
    keys: list[str] = []
    monkeypatch.setattr(cache, "load_arrays", lambda kind, key: keys.append(key))
    monkeypatch.setattr(cache, "store_arrays", lambda *given: None)
    ml.use("emulated")
    loop = spread_loop(6, ml.Schedule("strip", block=128))

    def plan_for(target: Target) -> str:
        monkeypatch.setattr(type(loop.backend), "target", target)
        loop.plan_of(loop.schedule)
        return keys[-1]

    assert plan_for(H200) == plan_for(replace(H200, multiprocessors=7))
    assert len({plan_for(one) for one in (H200, replace(H200, lanes=64), CPU)}) == 3
