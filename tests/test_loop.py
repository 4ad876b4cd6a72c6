"""Loops: the automatic schedule, explanations, overrides, caching of loops, threads."""

from __future__ import annotations

import gc
import re
import weakref

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ScheduleError, nearest
from meshloom.operation.weak_cache import loops_over
from meshloom.schedule.choice.schedule import parse_schedule


@pytest.fixture(autouse=True)
def back_end():
    before = ml.backend(), ml.threads()
    ml.use("cpu", threads=2)
    yield
    ml.use(before[0], threads=before[1])


@ml.kernel
def spread(v: ml.Read, out: ml.Inc):
    out[0] += v
    out[1] -= v


@ml.kernel
def double(v: ml.ReadWrite):
    v[...] = 2.0 * v


def mesh_and_fields(n: int = 30) -> tuple[ml.Mesh, ml.Field, ml.Field]:
    mesh = ml.generate.box((n, n))
    v = mesh.faces.field("v", data=np.random.default_rng(0).random(mesh.faces.size))
    return mesh, v, mesh.cells.field("out")


def test_rules_of_the_automatic_schedule() -> None:
    mesh, v, out = mesh_and_fields()
    small = spread.loop(mesh.faces, v, out[mesh.face_cells])
    assert small.schedule.strategy == "block_color" and small.schedule.block == mesh.faces.size
    assert "serial" in small.reason
    assert double.loop(mesh.faces, v).schedule.strategy == "direct"
    assert "nothing to protect" in double.loop(mesh.faces, v).reason
    mesh, v, out = mesh_and_fields(100)
    large = spread.loop(mesh.faces, v, out[mesh.face_cells])
    assert large.schedule.strategy in ml.strategies() and large.schedule.block
    assert "deterministic" in large.reason


def test_a_strategy_by_name_by_mapping_and_per_call() -> None:
    mesh, v, out = mesh_and_fields()
    for schedule in ("owner", {"strategy": "owner", "block": 64}, ml.Schedule("owner")):
        loop = spread.loop(mesh.faces, v, out[mesh.face_cells], schedule=schedule)
        assert loop.schedule.strategy == "owner" and loop.reason == "asked for"
    spread(mesh.faces, v, out[mesh.face_cells], schedule="color")
    by_call = out.numpy()
    out.fill(0)
    spread(mesh.faces, v, out[mesh.face_cells], schedule={"strategy": "tile"})
    np.testing.assert_allclose(out.numpy(), by_call, rtol=1e-13, atol=1e-15)


def test_a_schedule_may_ask_for_a_layout() -> None:
    mesh = ml.generate.box((10, 10))
    v, out = mesh.faces.field("v", 3, data=np.ones((mesh.faces.size, 3))), mesh.cells.field("out", 3)
    spread(mesh.faces, v, out[mesh.face_cells])
    expected = out.numpy()
    out.fill(0)
    spread(mesh.faces, v, out[mesh.face_cells], schedule=ml.Schedule("color", layout="soa"))
    assert str(v.layout) == str(out.layout) == "soa"
    np.testing.assert_allclose(out.numpy(), expected)


def test_wrong_schedules_are_refused_in_one_line() -> None:
    mesh, v, out = mesh_and_fields()
    arguments = (mesh.faces, v, out[mesh.face_cells])
    with pytest.raises(ScheduleError, match="unknown strategy 'oner'; did you mean 'owner'"):
        spread(*arguments, schedule="oner")
    loop = spread.loop(*arguments)
    asking = lambda: spread.loop(*arguments, schedule="oner"), lambda: loop.by("oner"), lambda: loop.reschedule("oner")
    for ask in asking:
        with pytest.raises(ScheduleError, match="unknown strategy 'oner'; did you mean 'owner'"):
            ask()  # at once, not when it runs
    with pytest.raises(ScheduleError, match="block must be a whole number from 1 to 16777216, got 0"):
        spread(*arguments, schedule=ml.Schedule("owner", block=0))
    with pytest.raises(ScheduleError, match="unknown layout 'xyz'"):
        ml.Schedule(layout="xyz")
    with pytest.raises(ScheduleError, match="unknown key 'blok'; did you mean 'block'"):
        parse_schedule({"blok": 3})
    with pytest.raises(ScheduleError, match="ordering"):
        spread(*arguments, schedule=ml.Schedule("color", order="hilbrt"))
    with pytest.raises(ScheduleError, match="strategy 'direct' does not apply: elements meet"):
        spread(*arguments, schedule="direct")
    with pytest.raises(ScheduleError, match="unknown back end 'gpu'; allowed: numpy, cpu, cuda, hip, emulated"):
        ml.use("gpu")
    with pytest.raises(ScheduleError, match="threads must be"):
        ml.use("cpu", threads=0)


def test_explain_names_the_line_that_makes_single_precision_double() -> None:
    ml.use("numpy")

    @ml.kernel
    def listed(a: ml.Read, b: ml.Write):
        b[...] = np.sum(np.stack([a, 0.5]))

    @ml.kernel
    def single(a: ml.Read, b: ml.Write):
        b[...] = [np.sum(np.stack([a, 0.5], dtype=a.dtype))][0]

    points = ml.Set(3, "points")
    a, b = (points.field(name, dtype=np.float32) for name in "ab")
    assert re.search(r"precision +double, though .*test_loop\.py:\d+\)", listed.loop(points, a, b).explain())
    assert "precision" not in single.loop(points, a, b).explain()
    wide = points.field("wide")
    assert "precision" not in listed.loop(points, wide, b).explain()


def test_explain_shows_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure, computed here from the mesh: a face reads a number and two indices, and adds to two cells."""
    mesh, v, out = mesh_and_fields()
    loop = spread.loop(mesh.faces, v, out[mesh.face_cells], schedule=ml.Schedule("block_color", block=64))
    monkeypatch.setattr(type(loop.backend), "rate", lambda self, kind, dtype: 1e15)
    faces, cells, copied = 2 * 30 * 29, 900, loop.backend.copy_bandwidth()
    pairs = mesh.face_cells.indices
    blocks = [pairs[k : k + 64].ravel() for k in range(0, faces, 64)]
    reuse = 2 * faces / sum(len(np.unique(block)) for block in blocks)
    compulsory, issued = faces * (8 + 2 * 4) + 2 * 8 * cells, faces * (8 + 2 * 4 + 2 * 2 * 8)
    expected = {
        "schedule": "block_color block=64 (",
        "why": "asked for",
        "arguments": "v: Read v aos, out: Inc out[face_cells] aos",
        "algebra": "fast (",
        "flops": "2 per element (1 sign, 2 add)",
        "bytes": f"compulsory {compulsory / 1e3:.2f} kB, issued {issued / 1e3:.2f} kB, lines ",
        "ratios": f"V/S 0.00, B/F {compulsory / (2 * faces):.2f}",
        "plan": f"reuse {reuse:.2f}, ",
        "measured": "not yet: call the loop by itself, then ask again",
    }
    head, *lines = loop.explain().splitlines()
    assert head == f"spread over faces: {faces:,} elements, back end cpu"
    shown = {line[2:12].strip(): line[13:] for line in lines}
    assert list(shown) == list(expected)
    assert all(shown[label].startswith(text) for label, text in expected.items()), shown
    assert shown["plan"].endswith("cache lines per block of 64, 2 block colors, 4 thread colors")
    loop()
    loop()
    ms, runs, rate, share, copy, least, limit = re.fullmatch(
        r"  measured   (\S+) ms \((\d+) runs\), (\S+) GB/s of compulsory bytes, (\S+) of copy \((\S+) GB/s\);"
        r" limit (\S+) ms by bytes, (\S+) of it",
        loop.explain().splitlines()[-1]).groups()  # fmt: skip
    assert float(ms) == pytest.approx(loop.seconds * 1e3, rel=1e-3) and runs == "2"
    assert float(rate) == pytest.approx(compulsory / loop.seconds / 1e9, rel=0.01)
    assert float(copy) == pytest.approx(copied / 1e9, rel=0.01)
    assert float(share) == pytest.approx(compulsory / loop.seconds / copied, abs=0.0051)
    assert float(least) == pytest.approx(compulsory / copied * 1e3, rel=1e-3)
    assert float(limit) == pytest.approx(float(share), abs=0.0051)


def test_one_of_something_is_told_as_one() -> None:
    ml.use("cpu")
    mesh = ml.generate.box((2, 1))
    v, out = mesh.faces.field("v"), mesh.cells.field("out")
    loop = spread.loop(mesh.faces, v, out[mesh.face_cells], schedule=ml.Schedule("block_color", block=64))
    loop()
    text = loop.explain()
    assert "spread over faces: 1 element, back end cpu" in text and "(1 run)" in text
    assert "1 block color, 1 thread color\n" in text and not re.search(r"\b1 [a-z ]*(elements|runs|colors)", text)


def test_a_gpu_is_no_misspelt_cpu() -> None:
    assert nearest("gpu", ("auto", "numpy", "cpu", "cuda")) == "; allowed: auto, numpy, cpu, cuda"
    assert nearest("cdua", ("auto", "numpy", "cpu", "cuda")) == "; did you mean 'cuda'?"
    assert nearest("cuda", ()) == "; none is allowed"


def test_explain_claims_no_more_than_the_back_end_does() -> None:
    """NumPy rounds every product, and chooses no schedule; a CPU contracts unless told otherwise."""
    mesh, v, out = mesh_and_fields()
    before, contracted = ml.backend(), ", a*b + c contracted"

    def shown() -> str:
        return spread.loop(mesh.faces, v, out[mesh.face_cells]).explain()

    try:
        ml.use("numpy")
        assert contracted not in shown() and "  why  " not in shown()
        ml.use("cpu", contract=False)
        assert contracted not in shown() and "  why  " in shown()
        ml.use("cpu", contract=True)
        assert contracted in shown()
        with pytest.raises(ScheduleError, match="contract must be True or False, got 'no'"):
            ml.use("cpu", contract="no")  # type: ignore[arg-type]
    finally:
        ml.use(before, contract=True)


def test_loops_are_kept_and_let_go_with_their_set() -> None:
    mesh, v, out = mesh_and_fields()
    spread(mesh.faces, v, out[mesh.face_cells])
    (first,) = loops_over(mesh.faces).calls.values()
    spread(mesh.faces, v, out[mesh.face_cells])
    (second,) = loops_over(mesh.faces).calls.values()
    assert first is second
    gone = weakref.ref(out)
    del mesh, v, out, first, second
    gc.collect()
    assert gone() is None


def test_global_reductions_do_not_depend_on_threads() -> None:
    @ml.kernel
    def reduce(v: ml.Read, total: ml.Sum, low: ml.Min, high: ml.Max):
        total += v
        low[...] = v
        high[...] = v

    n = 100_003
    values = np.random.default_rng(4).standard_normal(n)
    on = ml.Set(n, "points")
    v = on.field("v", data=values)
    results = []
    for threads in (1, 2, 2):
        ml.use("cpu", threads=threads)
        total, low, high = ml.Global(0.0), ml.Global(np.inf), ml.Global(-np.inf)
        reduce(on, v, total, low, high)
        results.append((total.value, low.value, high.value))
    assert len(set(results)) == 1
    assert results[0][1:] == (values.min(), values.max())
    assert results[0][0] == pytest.approx(values.sum(), rel=1e-12)


def test_nan_survives_minimum_and_maximum() -> None:
    """As in NumPy: a NaN offered to a Min is not silently lost."""

    @ml.kernel
    def lowest(v: ml.Read, low: ml.Min):
        low[0] = v

    on, one = ml.Set(4, "points"), ml.Set(1, "one")
    to = ml.Map(on, one, np.zeros((4, 1), int))
    v = on.field("v", data=[1.0, np.nan, 0.5, 2.0])
    for strategy in ml.strategies():
        low = one.field("low", data=[9.0])
        lowest(on, v, low[to], schedule=strategy)
        assert np.isnan(low.numpy()[0]), strategy


@pytest.mark.parametrize("back_end", ["numpy", "cpu", "emulated"])
def test_a_value_handed_on_is_the_one_before_the_loop(back_end: str) -> None:
    """``old`` gets what ``v`` was, although ``v`` is stored first."""

    @ml.kernel
    def shift(v: ml.ReadWrite, old: ml.Write):
        before = v + 0.0
        v[...] = 2.0 * v
        old[...] = before

    used = ml.backend()
    ml.use(back_end)
    try:
        cells = ml.Set(5, "cells")
        v, old = cells.field("v", data=np.arange(5.0)), cells.field("old")
        shift(cells, v, old)
    finally:
        ml.use(used)
    assert old.numpy().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0] and v.numpy().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize("back_end", ["numpy", "cpu"])
def test_only_running_a_loop_changes_the_layout(back_end: str) -> None:
    """Counts, explanations and spec are those of the wished layout; the field stays as it is until the loop runs."""
    ml.use(back_end)
    cells = ml.Set(40, "cells")

    @ml.kernel
    def first(u: ml.Read, out: ml.Write):
        out[...] = u[0]

    u, out = cells.field("u", 4, data=np.arange(160.0).reshape(40, 4)), cells.field("out")
    storage = u.storage
    lines = {}
    for layout in ("aos", "soa", "aosoa4"):
        counts = first.counts(cells, u, out, schedule={"layout": layout})
        loop = first.loop(cells, u, out, schedule={"layout": layout})
        lines[layout] = counts.bytes.cache_lines
        assert str(loop.spec.params[0].layout) == layout and loop.explain()
        assert loop.counts.bytes.cache_lines == lines[layout] and loop.plan is not None
        assert str(u.layout) == "aos" and u.storage is storage and u.layout_is_free
    assert lines["soa"] < lines["aosoa4"] <= lines["aos"]
    for layout in ("soa", "aosoa4"):
        other = cells.field("other", 4, data=np.arange(160.0).reshape(40, 4))
        loop = first.loop(cells, other, out, schedule={"layout": layout})
        assert str(other.layout) == "aos"
        loop()
        assert str(other.layout) == layout
        assert loop.counts.bytes.cache_lines == lines[layout]
        np.testing.assert_array_equal(out.numpy(), other.numpy()[:, 0])


@pytest.mark.parametrize("back_end", ["numpy", "cpu"])
def test_loops_with_different_wishes_in_one_program(back_end: str) -> None:
    ml.use(back_end)
    cells = ml.Set(40, "cells")

    @ml.kernel
    def grow(u: ml.ReadWrite):
        u += 1.0

    u = cells.field("u", 3)

    @ml.program
    def step() -> None:
        grow(cells, u, schedule={"layout": "soa"})
        grow(cells, u, schedule={"layout": "aosoa4"})
        grow(cells, u)

    assert str(u.layout) == "aos" and len(step.loops) == 3 and step.explain()
    assert str(u.layout) == "aos"
    for count in (3.0, 6.0):
        step.run()
        np.testing.assert_array_equal(u.numpy(), count)
