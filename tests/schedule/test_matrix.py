"""Every strategy x layout x ordering x precision against the NumPy reference, which is checked against plain Python.

Text depends on strategy, layout, precision and whether there is an ordering: all combinations of these run on ``cpu``
every time. Which ordering is data alone: each meets each strategy, layout and precision; the whole product is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import UserError
from meshloom.mesh.core import Set
from tests.covering import every_pair
from tests.schedule.forms import FORMS, every_deterministic_form, every_form

LAYOUTS = ("aos", "soa", "aosoa4", "aosoa3")
ORDERINGS = ml.orderings()
ORDERED = [name for name in ORDERINGS if name != "given"]
PRECISIONS = (np.float64, np.float32)
MESHES = ("structured", "shuffled", "random", "cells")


@ml.kernel
def everything(
    x: ml.Read,
    w: ml.Read,
    scale: ml.Read,
    force: ml.Inc,
    low: ml.Min,
    high: ml.Max,
    hits: ml.Inc,
    flux: ml.Write,
    age: ml.ReadWrite,
    total: ml.Sum,
    least: ml.Min,
    most: ml.Max,
):
    """All access modes at once: direct, through a map, and global."""
    d = x[1] - x[0]
    length = np.sqrt(d @ d + 0.01)
    pull = w * d / length
    force[0] += scale[0] * pull
    force[1] -= scale[0] * pull
    low[0] = length
    low[1] = length + w
    high[0] = pull
    high[1] = 2.0 * pull
    hits[0] += 1
    hits[1] += 2
    flux[...] = scale[1] * pull
    age[...] = np.where(w > 0.5, age + length, -age)
    total += w * length
    least[...] = length
    most[...] = length


class Case:
    """A mesh-like pair of sets with a map and random data for the kernel."""

    def __init__(self, kind: str, dtype: type, layout: str):
        points, pairs = topology(kind)
        rng = np.random.default_rng(5)
        self.nodes = Set(len(points), "nodes", points=points)
        self.edges = Set(len(pairs), "edges", points=points[pairs].mean(axis=1))
        self.ends = ml.Map(self.edges, self.nodes, pairs, "ends")

        def make(on: Set, name: str, dim: int = 1, data: object = None, kind: type = dtype) -> ml.Field:
            return on.field(name, dim, dtype=kind, data=data, layout=layout)

        self.x = make(self.nodes, "x", 2, points)
        self.w = make(self.edges, "w", data=rng.random(len(pairs)))
        self.scale = ml.Global(np.array([1.5, 0.5]), "scale", dtype=dtype)
        self.force, self.high = make(self.nodes, "force", 2), make(self.nodes, "high", 2)
        self.low, self.hits = make(self.nodes, "low"), make(self.nodes, "hits", kind=np.int32)
        self.flux, self.age = make(self.edges, "flux", 2), make(self.edges, "age")
        self.start = rng.random(len(pairs))
        self.total, self.least, self.most = (ml.Global(0.0, n) for n in ("total", "least", "most"))

    def reset(self) -> None:
        self.force.fill(1.0)
        self.low.fill(np.inf)
        self.high.fill(-np.inf)
        self.hits.fill(0)
        self.flux.fill(7.0)
        self.age.assign(self.start)
        self.total.value, self.least.value, self.most.value = 2.0, np.inf, -np.inf

    @property
    def arguments(self) -> tuple:
        e = self.ends
        return (
            self.x[e],
            self.w,
            self.scale,
            self.force[e],
            self.low[e],
            self.high[e],
            self.hits[e],
            self.flux,
            self.age,
            self.total,
            self.least,
            self.most,
        )

    def results(self) -> dict[str, np.ndarray]:
        fields = (self.force, self.low, self.high, self.hits, self.flux, self.age)
        return {f.name: f.numpy() for f in fields} | {
            g.name: np.asarray(g.value) for g in (self.total, self.least, self.most)
        }


@cache
def topology(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) and pairs (m, 2): a box of triangles, the same shuffled, or random pairs with self-loops."""
    rng = np.random.default_rng(11)
    if kind == "random":
        return rng.random((60, 2)), rng.integers(0, 60, (311, 2))
    if kind == "cells":  # nearly every cell has four neighbours: regular enough for tables and unrolled loops
        mesh = ml.generate.box((18, 16))
        return mesh.cell_centroids, np.array(mesh.face_cells.indices)
    mesh = ml.generate.box((9, 7), cells="triangle")
    points, pairs = mesh.coordinates.numpy(), mesh.face_nodes.indices
    if kind == "shuffled":
        renumber = rng.permutation(len(points))
        pairs = renumber[pairs][rng.permutation(len(pairs))]
        points = points[np.argsort(renumber)]
    return points, np.array(pairs)


@cache
def reference(kind: str, dtype: type) -> dict[str, np.ndarray]:
    ml.use("numpy")
    case = Case(kind, dtype, "aos")
    case.reset()
    everything(case.edges, *case.arguments)
    return case.results()


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], dtype: type) -> None:
    rtol = 1e-12 if dtype is np.float64 else 2e-5
    for name, values in expected.items():
        largest = np.abs(values[np.isfinite(values)]).max()
        np.testing.assert_allclose(found[name], values, rtol=rtol, atol=rtol * largest, err_msg=name)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    yield
    ml.use(before[0], threads=before[1])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("kind", MESHES)
def test_numpy_back_end_equals_the_plain_function(kind: str, dtype: type) -> None:
    case = Case(kind, dtype, "aosoa4")
    case.reset()
    everything.python(case.edges, *case.arguments)
    assert_same(case.results(), reference(kind, dtype), dtype)


def check_variant(backend: str, form: ml.Schedule, layout: str, ordering: str, dtype: type) -> None:
    for kind in MESHES:
        expected = reference(kind, dtype)
        ml.use(backend, threads=2)
        case = Case(kind, dtype, layout)
        loop = everything.loop(case.edges, *case.arguments, schedule=form.having(block=32, order=ordering))
        try:
            loop.prepare()
        except UserError as error:
            if "pip install" in str(error):  # a graph partitioner that is not there
                pytest.skip(str(error))
            raise
        assert loop.applies
        case.reset()
        loop()
        assert_same(case.results(), expected, dtype)


every_precision = pytest.mark.parametrize("dtype", PRECISIONS, ids=["double", "single"])
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


@every_precision
@every_layout
@every_form
def test_every_variant_equals_numpy(form: ml.Schedule, layout: str, dtype: type) -> None:
    check_variant("cpu", form, layout, "given", dtype)


@every_pair([("form", "layout", "dtype")], form=FORMS, layout=LAYOUTS, ordering=ORDERED, dtype=PRECISIONS)
def test_every_variant_equals_numpy_when_reordered(form: ml.Schedule, layout: str, ordering: str, dtype: type) -> None:
    check_variant("cpu", form, layout, ordering, dtype)


@pytest.mark.parametrize("dtype", [pytest.param(np.float64, id="double"),
                                   pytest.param(np.float32, id="single", marks=pytest.mark.slow)])  # fmt: skip
@pytest.mark.parametrize("ordering", ["given", pytest.param("random", marks=pytest.mark.slow)])
@every_layout
@every_form
def test_generated_cuda_equals_numpy_when_emulated(form: ml.Schedule, layout: str, ordering: str, dtype: type) -> None:
    """The very text that NVRTC compiles, run on the CPU with the threads of a block as fibres."""
    check_variant("emulated", form, layout, ordering, dtype)


@pytest.mark.gpu
@every_precision
@pytest.mark.parametrize("ordering", ORDERINGS)
@every_layout
@every_form
def test_every_variant_equals_numpy_on_the_device(form: ml.Schedule, layout: str, ordering: str, dtype: type) -> None:
    check_variant("cuda", form, layout, ordering, dtype)


@pytest.mark.gpu
@every_deterministic_form
def test_deterministic_strategies_give_the_same_bits_on_the_device(form: ml.Schedule) -> None:
    """Over 20 runs."""
    ml.use("cuda")
    case = Case("shuffled", np.float64, "aos")
    loop = everything.loop(case.edges, *case.arguments, schedule=form.having(block=32))
    seen = set()
    for _ in range(20):
        case.reset()
        loop()
        seen.add(b"".join(v.tobytes() for v in case.results().values()))
    assert len(seen) == 1


@every_deterministic_form
def test_deterministic_strategies_give_the_same_bits(form: ml.Schedule) -> None:
    """Run to run, and for 1 and 2 threads."""
    ml.use("cpu")
    case = Case("shuffled", np.float64, "aos")
    loop = everything.loop(case.edges, *case.arguments, schedule=form.having(block=16))
    seen = []
    for threads in (1, 2, 2, 1, 2, 2):
        ml.use("cpu", threads=threads)
        case.reset()
        loop()
        seen.append(b"".join(v.tobytes() for v in case.results().values()))
    assert len(set(seen)) == 1


@every_form
def test_signs_of_one_slot_are_its_own(form: ml.Schedule) -> None:
    """A negated value beside a negative number, through a map of one slot."""

    @ml.kernel
    def take(v: ml.Read, a: ml.Inc):
        a[0, 0] -= v
        a[0, 1] -= 1.0
        a[0, 2] += v

    elements, targets = Set(5, "elements"), Set(3, "targets")
    there = ml.Map(elements, targets, [[0], [1], [0], [2], [2]], "there")
    v = elements.field("v", data=np.arange(1.0, 6.0))
    for backend in ("numpy", "cpu", "emulated"):
        ml.use(backend)
        a = targets.field("a", 3)
        take.loop(elements, v, a[there], schedule=form.having(block=16))()
        assert a.numpy().tolist() == [[-4.0, -2.0, 4.0], [-2.0, -1.0, 2.0], [-9.0, -2.0, 9.0]]


@every_form
def test_slots_that_get_nothing(form: ml.Schedule) -> None:
    """Neighbours share targets through slots that the kernel does not change."""

    @ml.kernel
    def last(v: ml.Read, a: ml.Inc):
        a[3] += v

    elements, targets = Set(40, "elements"), Set(45, "targets")
    there = ml.Map(elements, targets, [[k, k + 1, k + 2, k + 3] for k in range(40)], "there")
    v = elements.field("v", data=np.arange(40.0))
    for backend in ("numpy", "cpu", "emulated"):
        ml.use(backend)
        a = targets.field("a")
        last.loop(elements, v, a[there], schedule=form.having(block=16))()
        assert a.numpy().tolist() == [0.0] * 3 + list(np.arange(40.0)) + [0.0] * 2


@every_form
def test_two_racy_maps_and_an_empty_loop(form: ml.Schedule) -> None:
    """Increments through two maps into one set and into another one; then the same with no element at all."""

    @ml.kernel
    def scatter(v: ml.Read, a: ml.Inc, b: ml.Inc, c: ml.Inc):
        for k in range(3):
            a[k] += (k + 1.0) * v
        b[0] += v
        c[0] += 2.0 * v
        c[1] += 3.0 * v * v

    rng = np.random.default_rng(2)
    for n in (200, 0):
        left, right, elements = Set(40, "left"), Set(30, "right"), Set(n, "elements")
        wide = ml.Map(elements, left, rng.integers(0, 40, (n, 3)), "wide")
        narrow = ml.Map(elements, left, rng.integers(0, 40, (n, 1)), "narrow")
        other = ml.Map(elements, right, rng.integers(0, 30, (n, 2)), "other", dtype=np.int64)
        v = elements.field("v", data=rng.random(n))
        fields = [left.field("a"), left.field("b"), right.field("c")]
        a, b, c = fields
        results = []
        for backend in ("numpy", "cpu"):
            ml.use(backend)
            for f in fields:
                f.fill(0.5)
            loop = scatter.loop(elements, v, a[wide], b[narrow], c[other], schedule=form.having(block=16))
            loop()
            results.append([f.numpy() for f in fields])
        for expected, found in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13)
