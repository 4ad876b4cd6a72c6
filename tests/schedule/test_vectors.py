"""Light loops over own elements: several for each thread of a GPU, moved at once, and the rest one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cuda import nvrtc
from meshloom.backend.translation_unit import TranslationUnit
from meshloom.errors import ScheduleError
from meshloom.mesh.layout import parse_layout
from meshloom.schedule.choice.per_thread import chosen_per_thread
from meshloom.schedule.choice.schedule import VECTORS
from meshloom.schedule.spec import ElementsPerThread
from meshloom.target import H200
from tests.backend.test_cuda import CompileBackend, needs_nvrtc
from tests.fitted import changed

HALO = 9  # elements after those of the loop, which it must not touch
PRECISIONS = (np.float64, np.float32)
LAYOUTS = ("aos", "soa", "aosoa4", "aosoa3")
FORMS = [("soa", v) for v in VECTORS] + [(layout, 32) for layout in LAYOUTS if layout != "soa"]


@ml.kernel
def copy(a: ml.Read, b: ml.Write):
    b[...] = a


@ml.kernel
def everything(
    q: ml.Read, k: ml.Read, scale: ml.Read, out: ml.Write, age: ml.ReadWrite, sum_of: ml.Inc, low: ml.Min,
    total: ml.Sum, most: ml.Max,
):  # fmt: skip
    """All access modes of own elements and globals, two types, a vector field."""
    out[...] = scale * q + k
    age[...] = np.where(q[0] > 0.5, age + 1.0, -age)
    sum_of += q
    low[...] = q[1]
    total += q[0] * q[1]
    most[...] = q[1]


def results_of(backend: str, n: int, dtype: Any, layout: str, wish: ml.Schedule) -> dict[str, np.ndarray]:
    ml.use(backend)
    rng, points = np.random.default_rng(3), ml.Set(n, "points", halo=HALO)
    rows = n + HALO

    def make(name: str, dim: int = 1, kind: Any = dtype) -> ml.Field:
        data = rng.integers(0, 9, rows) if kind is np.int32 else rng.random((rows, dim))
        return points.field(name, dim, dtype=kind, data=data, layout=layout)

    fields = [make("q", 2), make("k", kind=np.int32), make("out", 2), make("age"), make("sum_of", 2), make("low")]
    q, k, *written = fields
    total, most = ml.Global(1.0, "total"), ml.Global(-np.inf, "most")
    everything(points, q, k, ml.Global(1.5, dtype=dtype), *written, total, most, schedule=wish)
    return {f.name: f.numpy() for f in written} | {g.name: np.asarray(g.value) for g in (total, most)}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=["double", "single"])
@pytest.mark.parametrize(("layout", "vector"), FORMS)
def test_every_width_equals_numpy_for_any_number_of_elements(layout: str, vector: int, dtype: Any) -> None:
    """Up to a vector and one more, whole blocks and not, and no element at all."""
    wish = ml.Schedule(block=32, vector=vector)
    for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 17, 64, 257):
        expected, found = (results_of(b, n, dtype, layout, wish) for b in ("numpy", "emulated"))
        for name, values in expected.items():
            rtol = 1e-13 if dtype is np.float64 else 1e-5
            np.testing.assert_allclose(found[name], values, rtol=rtol, err_msg=f"{name}, {n} elements")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", PRECISIONS, ids=["double", "single"])
@pytest.mark.parametrize(("layout", "vector"), FORMS)
def test_every_width_equals_numpy_on_the_device(layout: str, vector: int, dtype: Any) -> None:
    for n in (1, 2, 3, 4, 5, 17, 1031, 100_003):
        wish = ml.Schedule(vector=vector)
        expected, found, again = (results_of(b, n, dtype, layout, wish) for b in ("numpy", "cuda", "cuda"))
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-12 if dtype is np.float64 else 1e-4, err_msg=name)
            np.testing.assert_array_equal(found[name], again[name])


def loop_of(dtype: Any, dim: int, layout: str, n: int, wish: ml.Schedule | None = None) -> ml.Loop:
    points = ml.Set(n, "points")
    a, b = (points.field(name, dim, dtype=dtype, layout=layout) for name in "ab")
    return copy.loop(points, a, b, schedule=wish)


def per_thread(loop: ml.Loop) -> ElementsPerThread:
    return chosen_per_thread(loop.spec, loop.schedule, loop.elements, H200)


def test_light_loops_with_many_elements_take_16_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, vectors={"many": 100})
    ml.use("emulated")
    for dim, layout in ((1, "aos"), (2, "soa"), (2, "aosoa4")):
        assert per_thread(loop_of(np.float64, dim, layout, 100)) == ElementsPerThread(2)
        assert per_thread(loop_of(np.float32, dim, layout, 100)) == ElementsPerThread(4)
    assert "direct block=128 (" in (text := loop_of(np.float64, 1, "aos", 100).explain())
    assert "; 2 elements for each thread;" in text
    assert per_thread(loop_of(np.float64, 1, "aos", 99)) == ElementsPerThread(), "too few elements"
    assert per_thread(loop_of(np.float64, 2, "aos", 100)) == ElementsPerThread(), "rows are loaded as a whole"
    assert per_thread(loop_of(np.float64, 2, "aosoa3", 100)) == ElementsPerThread(), "groups of three"
    assert per_thread(loop_of(np.float64, 9, "soa", 100)) == ElementsPerThread(), "18 values are not light"
    asked = loop_of(np.float64, 9, "soa", 10, ml.Schedule(vector=32))
    assert per_thread(asked) == ElementsPerThread(2, 2) and "vector=32" in asked.explain()
    assert per_thread(loop_of(np.float64, 2, "aos", 10, ml.Schedule(vector=16))) == ElementsPerThread(2), "asked for"
    assert "4 elements for each thread, 2 at once" in asked.explain()
    ml.use("cpu")
    assert "for each thread" not in loop_of(np.float64, 1, "aos", 100).explain()


def test_the_automatic_choice_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, vectors={"many": 100})
    made = loaded(loop_of(np.float64, 1, "aos", 101))
    assert made.spec.per_thread == ElementsPerThread(2) and "ml_load<double, 2>" in body(made)


def test_components_begin_where_16_bytes_can_be_loaded() -> None:
    """In the smallest type; buffers themselves begin aligned, on every back end."""
    for n in range(1, 40):
        assert parse_layout("soa").stride(n) * np.dtype(np.float32).itemsize % 16 == 0


def test_sums_of_little_take_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are fewer shares to merge then."""
    changed(monkeypatch, vectors={"many": 100})

    @ml.kernel
    def dot(a: ml.Read, b: ml.Read, total: ml.Sum):
        total += a @ b if a.shape else a * b

    ml.use("emulated")
    points = ml.Set(100, "points")
    for dim, expected in ((1, ElementsPerThread(2, 2)), (2, ElementsPerThread(2))):
        a, b = (points.field(name, dim, layout="soa") for name in "ab")
        assert per_thread(dot.loop(points, a, b, ml.Global(0.0))) == expected


def test_loops_that_look_elsewhere_stay_as_they_are() -> None:
    mesh = ml.generate.box((5, 4))

    @ml.kernel
    def length(x: ml.Read, out: ml.Write):
        out[...] = x[1, 0] - x[0, 0]

    out = mesh.faces.field("out")
    wish = ml.Schedule(vector=16)
    loop = length.loop(mesh.faces, mesh.coordinates[mesh.face_nodes], out, schedule=wish)
    assert loop.schedule.strategy == "direct" and per_thread(loop) == ElementsPerThread()


def test_a_width_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ScheduleError, match="schedule: vector must be one of 4, 8, 16, 32, 64 bytes, got 12"):
        ml.Schedule(vector=12)


def loaded(loop: ml.Loop) -> TranslationUnit:
    """What would be compiled."""
    backend = CompileBackend(())
    loop = loop.on(backend)
    loop.prepare()
    return backend.lowered(loop.policy.described(loop)).unit


def body(unit: TranslationUnit) -> str:
    return "\n".join(str(statement) for one in unit.passes for phase in one.phases for statement in phase.body)


@needs_nvrtc
@pytest.mark.parametrize(
    ("dtype", "dim", "layout", "vector"),
    [(np.float64, 1, "aos", 16), (np.float32, 1, "aos", 16), (np.float64, 3, "soa", 32), (np.float64, 3, "aos", 16)],
)
def test_the_compiler_makes_one_instruction_of_16_bytes(dtype: Any, dim: int, layout: str, vector: int) -> None:
    loop = loop_of(dtype, dim, layout, 1000, ml.Schedule(vector=vector)).on(CompileBackend(()))
    text = nvrtc.assembly(loop.source, "copy", "sm_90")
    wide = [line for line in text.splitlines() if ".global" in line and (".v2.u64" in line or ".v2.b64" in line
            or ".v2.f64" in line or ".v4." in line)]  # fmt: skip
    for word in ("ld.global", "st.global"):
        assert sum(word in line for line in wide) == dim * vector // 16, text


@needs_nvrtc
@pytest.mark.parametrize("dtype", PRECISIONS, ids=["double", "single"])
def test_vectors_compile_without_spills(dtype: Any) -> None:
    backend = CompileBackend(("sm_90",))
    points = ml.Set(1000, "points")
    fields = [points.field(f"f{k}", dim, dtype=dtype, layout="soa") for k, dim in enumerate((2, 1, 2, 1, 2, 1))]
    results = ml.Global(1.5, dtype=dtype), ml.Global(0.0), ml.Global(0.0)
    q, k, *written = fields
    loop = everything.loop(points, q, k, results[0], *written, *results[1:], schedule=ml.Schedule(vector=16))
    loop.on(backend).prepare()
    (used,) = backend.engine.resources.values()
    assert used["pass0"]["spills"] == 0 and used["pass0"]["registers"] <= 96


def test_fused_loops_take_several_elements_too(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, vectors={"many": 100})

    @ml.kernel
    def scale(a: ml.ReadWrite, total: ml.Sum):
        a[...] = 2.0 * a
        total += a

    results = []
    for backend in ("numpy", "emulated"):
        ml.use(backend)
        points = ml.Set(203, "points")
        a, b, total = points.field("a", data=np.arange(203.0)), points.field("b"), ml.Global(0.0, "total")

        @ml.program
        def step(points: ml.Set = points, a: ml.Field = a, b: ml.Field = b, total: ml.Global = total) -> None:
            scale(points, a, total)
            copy(points, a, b)

        step.run(2)
        results.append((a.numpy(), b.numpy(), total.value))
        if backend == "emulated":
            assert step.launches == 2  # the loop, and the end of its sum
            assert "as one loop over points: 24 bytes per element instead of 32; 8 elements for each" in step.explain()
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
