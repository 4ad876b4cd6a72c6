"""The limit of a loop: what is counted, what binds, and what machines do at most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshloom as ml
from meshloom.backend import current
from meshloom.backend.cuda import nvrtc, peaks
from meshloom.native import peaks as native
from meshloom.native.peaks import ARITHMETIC_KINDS, TYPES
from meshloom.target.limit import ATOMIC, DEVICE_KINDS, Peaks, in_turn, limit_of
from tests.backend.test_cuda import needs_nvrtc


@ml.kernel
def mixed(x: ml.Read, y: ml.Read, out: ml.Inc):
    root = np.sqrt(y)
    out[0] += np.exp(x[0] * x[1] + root) / y
    out[1] -= root


def loop_of(schedule: str | None = None, dtype: type = np.float64, cells: int = 12) -> ml.Loop:
    mesh = ml.generate.box((cells, cells), cells="triangle")
    x, y = mesh.cells.field("x", data=1.0, dtype=dtype), mesh.faces.field("y", data=2.0, dtype=dtype)
    out = mesh.cells.field("out", dtype=dtype)
    return mixed.loop(mesh.faces, x[mesh.face_cells], y, out[mesh.face_cells], schedule=schedule)


def instructions(loop: ml.Loop) -> dict[tuple[str, str], int]:
    return dict(loop.policy.instructions(loop))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_instructions_are_counted_by_kind_and_type(dtype: type) -> None:
    """a*a + b is one where sums take products in; every increment is an addition to what was there."""
    ml.use("cpu")
    loop, name = loop_of("block_color", dtype), np.dtype(dtype).name
    each = {("multiply-add", name): 1 + 2, ("square root", name): 1, ("special", name): 1, ("division", name): 1}
    assert instructions(loop) == {kind: count * loop.elements for kind, count in each.items()}


def test_who_adds_by_atomics_has_them_as_a_part() -> None:
    """Of an atomic schedule as many as the cost model counts; of one that needs none, none."""
    ml.use("emulated")
    atomic, other = loop_of("atomic"), loop_of("owner")
    assert instructions(atomic)[ATOMIC, "float64"] == 2 * atomic.elements
    assert (ATOMIC, "float64") not in instructions(other)
    rate = {(ATOMIC, "float64"): 1e3}
    slow = Peaks(1e12, lambda kind, dtype: rate.get((kind, dtype)))
    assert atomic.limit_by(slow).binds == "atomics"
    assert atomic.limit_by(slow).seconds == pytest.approx(2 * atomic.elements / 1e3)
    assert other.limit_by(slow).binds == "bytes"


def test_fused_loops_have_the_bytes_and_operations_of_what_they_became() -> None:
    ml.use("cpu")
    points = ml.Set(500, "points")
    u, v, w = (points.field(name, data=1.0) for name in "uvw")

    @ml.kernel
    def scaled(u: ml.Read, v: ml.Write):
        v[...] = u / 3.7

    @ml.kernel
    def rooted(v: ml.Read, w: ml.Write):
        w[...] = np.sqrt(v)

    @ml.program
    def step() -> None:
        scaled(points, u, v)
        rooted(points, v, w)

    step.run(2)
    (one,) = [step for step in step.timed() if step.spent.calls]
    counted = one.operation.policy.instructions(one.operation)
    kinds = {kind: count for (kind, _), count in counted.items()}
    assert kinds["square root"] == 500 and sum(kinds.values()) == 1000
    assert one.operation.limit_by(Peaks(1e9)).seconds == pytest.approx(500 * 8 * 3 / 1e9), "v is stored, never read"


@given(st.dictionaries(st.tuples(st.sampled_from(DEVICE_KINDS), st.sampled_from(TYPES)), st.integers(0, 10**12)),
       st.integers(0, 10**12), st.floats(1e3, 1e13), st.floats(1e3, 1e13))  # fmt: skip
def test_no_part_is_longer_than_the_limit_and_kinds_work_side_by_side(
    counts: dict[tuple[str, str], int], moved: int, copy: float, rate: float
) -> None:
    found = limit_of(moved, counts, Peaks(copy, lambda kind, dtype: rate))
    arithmetic = max((count for (kind, _), count in counts.items() if kind in ARITHMETIC_KINDS), default=0.0) / rate
    atomics = sum(count for (kind, _), count in counts.items() if kind == ATOMIC) / rate
    assert found.seconds == pytest.approx(max(moved / copy, arithmetic, atomics))
    assert all(part <= found.seconds for part in found.parts.values()) and found.parts[found.binds] == found.seconds
    twice = in_turn([found, found])
    assert twice.seconds == pytest.approx(2 * found.seconds) and twice.binds == found.words


def test_what_nobody_measures_does_not_count() -> None:
    assert limit_of(8e9, {("division", "float64"): 1e30}, Peaks(1e9)).parts == {"bytes": 8.0}
    ml.use("numpy")
    assert loop_of().limit.binds == "bytes", "whole arrays, operation by operation"


def test_cores_have_a_rate_for_every_kind_and_none_for_others(tmp_path: Path) -> None:
    rates = {(kind, dtype): native.rate(kind, dtype, 1) for kind in ARITHMETIC_KINDS for dtype in TYPES}
    assert all(rate is not None and 1e5 < rate < 1e13 for rate in rates.values()), rates
    assert native.rate("division", "int64", 1) is None and native.rate(ATOMIC, "float64", 1) is None


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_that_measure_a_device_compile_and_spill_nothing(architecture: str) -> None:
    cubin, log = nvrtc.build(peaks.source(), "peaks", architecture)
    used = nvrtc.resources(log)
    assert cubin and {*used} == {peaks.name_of(kind, dtype) for kind in DEVICE_KINDS for dtype in TYPES}
    assert all(one["spills"] == 0 for one in used.values())
    assert {*peaks.STEPS} == {*DEVICE_KINDS}


@pytest.mark.gpu
def test_a_device_has_a_rate_for_every_kind() -> None:
    """An addition is no slower than a division, and a loop of divisions comes to most of its own limit."""
    with ml.using("cuda"):
        rates = {(kind, dtype): current().rate(kind, dtype) for kind in DEVICE_KINDS for dtype in TYPES}
        assert all(rate is not None and rate > 1e9 for rate in rates.values()), rates
        assert rates["multiply-add", "float64"] > rates["division", "float64"]
        points = ml.Set(1 << 20, "points")
        u, v = points.field("u", data=1.5), points.field("v")

        @ml.kernel
        def divided(u: ml.Read, v: ml.Write):
            x = u
            for _ in range(40):
                x = 1.3 / (x + 0.3)
            v[...] = x

        loop = divided.loop(points, u, v)
        for _ in range(5):
            loop()
        limit = loop.limit
        assert limit.words == "arithmetic (division)"
