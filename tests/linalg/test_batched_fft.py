"""All transformed axes at once, as on a GPU: what one axis after the other gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.backend.cuda import dialect, nvrtc
from meshloom.backend.translation_unit import make_unit
from meshloom.linalg.batched_fft import MIX, SEPARATE, BatchedFFT
from meshloom.linalg.fast_poisson import FastPoisson
from meshloom.linalg.fft_nests import order_operation, pairs_operation
from meshloom.linalg.spectral_solve import SpectralSolve
from meshloom.operation.operation import Operation
from meshloom.target import H200

KINDS = {"p": (None, True), "n": ("neumann", False), "d": ("dirichlet", False), "s": ("neumann", False)}
ALL_KINDS = ["spp", "snn", "sdd", "spn", "snp", "sdp", "snd", "psp", "pps", "nsn", "dsp", "ps", "sn", "sd", "sp", "nnn",
             "ppp", "pnd", "nns", "pns", "dps", "ns", "ds"]  # fmt: skip


def made(kinds: str, shape: tuple[int, ...], dtype: str = "float64", **grid: object) -> tuple[
    FastPoisson, BatchedFFT, SpectralSolve
]:  # fmt: skip
    """Axes that are periodic, hold slopes or values, or are stretched."""
    shape = shape[: len(kinds)]
    places = [np.cumsum(1.2 ** np.arange(n)) if k == "s" else None for k, n in zip(kinds, shape, strict=True)]
    sides = [KINDS[k][0] for k in kinds]
    extent, periodic = [2.0 if one is None else None for one in places], [KINDS[k][1] for k in kinds]
    on = ml.Grid(shape, coordinates=places, periodic=periodic, extent=extent, **grid)
    fast = FastPoisson(ml.linalg.Poisson(on, sides, sides, dtype=dtype))
    found = fast._batched
    assert found is not None
    return fast, *found


def random(fast: FastPoisson) -> ml.Field:
    values = np.random.default_rng(0).standard_normal(fast.poisson.grid.shape)
    return fast.poisson.grid.field("b", data=values.astype(fast.poisson.dtype), dtype=fast.poisson.dtype)


@pytest.mark.parametrize("shape", [(4, 6, 8), (5, 7, 9), (3, 2, 2), (2, 5, 4), (35, 3, 40)])
@pytest.mark.parametrize("kinds", ALL_KINDS)
def test_as_axis_after_axis(kinds: str, shape: tuple[int, ...]) -> None:
    """Steps by threads of blocks; the systems between them are solved by NumPy."""
    ml.use("numpy")
    for ghosts, aligned in ((0, False), (1, False), (2, True)):
        least = min(shape[: len(kinds)])
        fast, batched, modes = made(kinds, shape, ghosts=min(ghosts, least), aligned=aligned)
        b, x = random(fast), fast.poisson.grid.field("x")
        given = b.numpy()
        x.fill(7.0)
        with ml.using("emulated"):
            batched.forwards(b, modes.field)
        modes.solve_in_place(modes.memory)
        with ml.using("emulated"):
            batched.backwards(modes.field, x)
        right = fast.solved(given)
        np.testing.assert_allclose(x.numpy(), right, atol=1e-11 * np.abs(right).max())
        assert (b.numpy() == given).all()
        x.assign(7.0)
        assert (x.numbered() == 7.0).all(), "ghosts are left alone"


@pytest.mark.parametrize(("kinds", "lanes"), [("snd", 64), ("dps", 64), ("pnn", 32)])
def test_single_precision_and_other_warps(kinds: str, lanes: int) -> None:
    """Through ``solve``, whose right-hand sides are no fields where something is taken out of them: ``pnn``."""
    ml.use("emulated", lanes=lanes)
    fast, *_ = made(kinds, (5, 6, 7), "float32", ghosts=1)
    b, x = random(fast), fast.poisson.grid.field("x", dtype="float32")
    fast.solve(x, b, tol=1e-12)
    ml.use("numpy")
    right = x.like("right")
    fast.solve(right, b, tol=1e-12)
    assert np.abs(x.numpy() - right.numpy()).max() < 1e-4 * np.abs(right.numpy()).max()


def operations(batched: BatchedFFT, modes: SpectralSolve) -> Iterator[Operation]:
    """Its steps."""
    cells = batched.grid.field("cells", dtype=batched.dtype)
    for into in (True, False):
        yield order_operation(cells, batched._room, batched.order, into)
    for name, by in (("mix_waves", MIX), ("separate_waves", SEPARATE)):
        yield pairs_operation(modes.field, *batched._phases, name, batched.pairs, by[batched.first in batched.cosines])


def test_each_number_is_moved_once() -> None:
    """A step takes the bytes of its array twice: read, and written."""
    ml.use("emulated")
    _, batched, modes = made("snd", (4, 6, 8), ghosts=1)
    into, out, mix, separate = operations(batched, modes)
    assert into.compulsory == out.compulsory == 2 * 8 * 4 * 6 * 8
    assert mix.compulsory == separate.compulsory == 2 * 16 * 4 * 6 * 5
    assert "into_order: fft_order block=" in into.explain() and "3.072 kB" in into.explain()
    assert mix.flops > 0.0 and "ml_load<double, 2>" in mix.source, "both parts of a wave at once"


@pytest.mark.parametrize("kinds", ["snn", "dps", "sn", "spn"])
def test_the_same_bits_on_a_cpu_and_on_gpus(kinds: str) -> None:
    """Nests are nobody's: threads of a CPU, of NVIDIA's GPUs and of AMD's do the same."""
    ml.use("numpy")
    fast, batched, modes = made(kinds, (35, 3, 40), ghosts=1)
    b, found = random(fast), []
    for name, options in (("cpu", {}), ("emulated", {}), ("emulated", {"target": "hip"})):
        with ml.using(name, **options):
            x = b.like("x")
            batched.forwards(b, modes.field)
            shares = modes.field.numpy()
            batched.backwards(modes.field, x)
        found.append((shares.tobytes(), x.numpy().tobytes()))
        size = prod(batched.shape[a] for a in batched.axes)
        np.testing.assert_allclose(x.numpy() / size, b.numpy(), atol=1e-13)
    assert found[1] == found[2]
    assert np.abs(np.frombuffer(found[0][0]) - np.frombuffer(found[1][0])).max() < 1e-12, "but for contraction"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kinds", ["snn", "sdp", "spn", "dps", "ds"])
def test_generated_cuda_compiles_without_spilling(kinds: str, dtype: str) -> None:
    try:
        nvrtc.library()
    except ml.errors.CompilerError as absent:
        pytest.skip(str(absent))
    ml.use("emulated")
    for one in operations(*made(kinds, (4, 6, 8), dtype, ghosts=1)[1:]):
        unit, block = make_unit(replace(one.spec, whole_rows=True), one.plan, target=H200), one.plan.block
        texts = dialect.kernels(unit, block, H200.whole_warps(block))
        for wide in (False, True):
            _, log = nvrtc.build(dialect.render(unit, texts, wide_index=wide), one.name, "sm_90")
            assert nvrtc.resources(log)["pass0"]["spills"] == 0, one


def test_numbers_of_cells_that_32_bits_do_not_hold() -> None:
    """Those of a field with ghosts count: with few cells along two axes these are many times as many."""
    ml.use("emulated")
    into, *_ = operations(*made("spp", (4, 4, 8), ghosts=2)[1:])
    bound = into.policy.described(into)

    def wide(*sizes: int) -> bool:
        fields = tuple(SimpleNamespace(storage=SimpleNamespace(size=n), dim=1) for n in sizes)
        return current().options(replace(bound, storages=fields), into.plan).wide_index

    assert not wide(516**3, 512**3) and wide(2**31, 2**30) and wide(36 * 2**28, 2**30)


def test_more_cells_than_other_axes_of_a_launch_have_blocks() -> None:
    """In squares, one or more for each cell along the middle axis: all of them are numbered along one axis."""
    ml.use("emulated")
    grid = ml.Grid((70000, 2, 3), coordinates=[None, None, np.cumsum(1.2 ** np.arange(3))])
    fast = FastPoisson(ml.linalg.Poisson(grid))
    batched = BatchedFFT.of(grid, dict(fast._transforms), np.dtype(np.float64))
    assert batched is not None and batched.shape == (3, 70000, 2)
    into = order_operation(grid.field("b"), batched._room, batched.order, into=True)
    (launch,) = into.prepare().launches
    assert launch.grid == 70000 and launch.threads == 256
