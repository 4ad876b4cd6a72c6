"""``map.assign``: loops, kept calls, programs and parts of sets see other indices, on every back end."""

from __future__ import annotations

import pickle
import tracemalloc
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import MeshloomError
from tests.counted import python_calls

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
STRATEGIES = ("auto", "fastest", "owner", "color", "tile", "block_color", "block_atomic", "block_staged")


@ml.kernel
def deposit(weight: ml.Read, density: ml.Inc):
    for corner in range(3):
        density[corner] += (corner + 1.0) * weight


@ml.kernel
def feel(density: ml.Read, force: ml.Write):
    force[...] = density[0] - 2.0 * density[2]


class Cloud:
    """Particles that see three cells each; sets may lie in memory in another order than by number."""

    def __init__(self, particles: int = 40, cells: int = 9, seed: int = 0, arranged: bool = False):
        self.dice = np.random.default_rng(seed)
        order = self.dice.permutation if arranged else lambda n: None
        self.particles = ml.Set(particles, "particles", numbering=order(particles))
        self.cells = ml.Set(cells, "cells", numbering=order(cells))
        self.weight = self.particles.field("weight", data=self.dice.integers(1, 9, particles).astype(float))
        self.force, self.density = self.particles.field("force"), self.cells.field("density")
        self.where = ml.Map(self.particles, self.cells, self.places(), "where")

    def places(self) -> np.ndarray:
        return self.dice.integers(0, len(self.cells), (len(self.particles), 3))

    def expected(self, which: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Density and force as NumPy has them; whole numbers, so to the bit."""
        density, rows, weight = np.zeros(len(self.cells)), self.where.indices[which], self.weight.numpy()[which]
        for corner in range(3):
            np.add.at(density, rows[:, corner], (corner + 1.0) * weight)
        return density, density[rows[:, 0]] - 2.0 * density[rows[:, 2]]

    def check(self) -> None:
        density, force = self.expected()
        assert (self.density.numpy() == density).all() and (self.force.numpy() == force).all()


def refused(change: Any) -> str:
    with pytest.raises(MeshloomError) as caught:
        change()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_loops_and_programs_see_it(backend: str, strategy: str) -> None:
    ml.use(backend)
    one = Cloud(arranged=strategy == "owner")
    deposited = deposit.loop(one.particles, one.weight, one.density[one.where], schedule=strategy)

    @ml.program
    def step() -> None:
        one.density.fill(0.0)
        deposit(one.particles, one.weight, one.density[one.where], schedule=strategy)
        feel(one.particles, one.density[one.where], one.force)

    @ml.program
    def of(density: ml.Field) -> None:
        density.fill(0.0)
        deposit(one.particles, one.weight, density[one.where], schedule=strategy)
        feel(one.particles, density[one.where], one.force)

    for _ in range(3):
        step()
        one.check()
        of(one.density)
        one.check()
        one.density.fill(0.0)
        deposited()
        feel(one.particles, one.density[one.where], one.force)
        one.check()
        one.where.assign(one.places())


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
def test_any_sizes_in_any_order(particles: int, cells: int, arranged: bool, seed: int) -> None:
    one = Cloud(particles, cells, seed, arranged)
    for _ in range(2):
        one.density.fill(0.0)
        deposit(one.particles, one.weight, one.density[one.where])
        feel(one.particles, one.density[one.where], one.force)
        one.check()
        one.where.assign(one.places())


def test_many_elements_are_planned_quickly_and_deterministically() -> None:
    ml.use("cpu")
    one = Cloud(20_000, 4_000)
    loop = deposit.loop(one.particles, one.weight, one.density[one.where])
    assert loop.schedule.strategy != "staged"
    one.where.assign(one.places())
    assert loop.schedule.strategy == "staged" and "map where is given other indices" in loop.reason
    loop()
    assert (one.density.numpy() == one.expected()[0]).all()
    quick = deposit.loop(one.particles, one.weight, one.density[one.where], schedule="fastest")
    assert quick.schedule.strategy == "atomic"


def test_parts_of_the_source_follow() -> None:
    one = Cloud()
    some = one.particles.subset(np.arange(0, 40, 3))
    for _ in range(3):
        one.density.fill(0.0)
        deposit(some, one.weight, one.density[one.where])
        assert (one.density.numpy() == one.expected(some.members.indices[:, 0])[0]).all()
        one.where.assign(one.places())
    assert (some.restricted(one.where).indices == one.where.indices[::3]).all()


def test_a_pickled_map_can_be_assigned_to() -> None:
    one = Cloud()
    one.where.assign(one.places())
    where, density, weight = pickle.loads(pickle.dumps((one.where, one.density, one.weight)))
    where.assign(one.where.indices[::-1])
    deposit(where.source, weight, density[where])
    one.where.assign(one.where.indices[::-1])
    assert (density.numpy() == one.expected()[0]).all()


def test_what_is_wrong_is_named_and_the_map_stays() -> None:
    one = Cloud()
    before = one.where.indices
    wrong = one.places()
    wrong[7, 2] = 9
    bad: list[tuple[Any, str]] = [
        (wrong, "map where: index 9 at row 7, slot 2 is out of range; cells has 9 elements (0 to 8)"),
        (one.places()[:-1], "map where: indices have shape (39, 3), but particles has 40 elements: expected (40,"),
        (one.places()[:, :2], "map where: indices have shape (40, 2), expected (40, 3)"),
        (one.places() + 0.5, "map where: indices"),
        ("abc", "map where: indices"),
    ]
    for indices, words in bad:
        assert words in refused(lambda indices=indices: one.where.assign(indices))
        assert one.where.indices is before and one.where.version == 0


def test_the_array_that_was_given_is_not_the_map() -> None:
    one = Cloud()
    places = one.places()
    one.where.assign(places)
    kept = places.copy()
    places[:] = 0
    assert (one.where.indices == kept).all() and not one.where.indices.flags.writeable


def test_maps_that_others_rely_on_stay() -> None:
    mesh, one = ml.generate.box((3, 2), cells="triangle"), Cloud()
    for of_mesh in (mesh.cell_nodes, mesh.face_cells, mesh.boundary_cells, mesh.cell_cells, mesh.edge_nodes):
        assert "stays as it is: it is one of a mesh" in refused(lambda m=of_mesh: m.assign(m.indices))
    assert "lists of different lengths" in refused(lambda: mesh.node_cells.assign([[0]]))
    assert "it follows map cell_nodes" in refused(lambda: mesh.cells.subset([0]).nodes.assign([[0, 1, 2]]))
    assert "a part" in refused(lambda: mesh.cells.subset([0]).members.assign([0]))
    ml.Matrix(one.cells, through=one.where, name="mass")
    assert "matrix mass has its entries by it" in refused(lambda: one.where.assign(one.places()))
    doubled = ml.Map.computed(one.cells, one.cells, lambda e: e, "same")
    assert "it is given by a formula" in refused(lambda: doubled.assign(np.zeros(9, int)))

    places = one.places()

    @ml.program
    def inside() -> None:
        one.where.assign(places)

    assert "assigning to map where inside a program" in refused(inside)


def test_rules_of_a_loop_are_asked_again() -> None:
    """Writing through a map needs different targets; what is read outside of a part must stay outside."""
    one, cells = ml.Set(3, "one"), ml.Set(6, "cells")
    u, v = one.field("u", data=[1.0, 2.0, 3.0]), cells.field("v")
    to = ml.Map(one, cells, [0, 2, 4], "to")

    @ml.kernel
    def put(u: ml.Read, v: ml.Write):
        v[0] = u

    put(one, u, v[to])
    to.assign([5, 3, 3])
    assert "writes through map to, but element" in refused(lambda: put(one, u, v[to]))
    to.assign([5, 3, 1])
    put(one, u, v[to])
    assert v.numpy().tolist() == [1.0, 3.0, 2.0, 2.0, 3.0, 1.0]

    ends, inner = cells.subset([0, 5], "ends"), ml.Map(cells, cells, [1, 1, 2, 3, 4, 4], "inner")

    @ml.kernel
    def mirror(inside: ml.Read, edge: ml.Write):
        edge[...] = -inside[0]

    loop = mirror.loop(ends, v[inner], v)
    loop()
    assert v.numpy()[[0, 5]].tolist() == [-3.0, -3.0]
    inner.assign([5, 1, 2, 3, 4, 4])
    assert "v is passed as inside and as edge" in refused(loop)


def test_its_work_is_one_pass_over_the_indices() -> None:
    """Whatever the size, the same few calls of Python, and no room beyond two copies: a pass that checks them all."""
    counts, dice = [], np.random.default_rng(0)
    for size in (100, 100_000):
        particles, cells = ml.Set(size, "particles"), ml.Set(20_000, "cells")
        where = ml.Map(particles, cells, dice.integers(0, 20_000, (size, 4)), "where")
        places = dice.integers(0, 20_000, (size, 4))
        counts.append(python_calls(lambda where=where, places=places: where.assign(places)))
        assert where.indices[-1].tolist() == places[-1].tolist()
    tracemalloc.start()
    where.assign(places)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts[0] == counts[1] < 60 and most < 2.5 * places.nbytes, (counts, most / places.nbytes)


def test_whatever_is_known_of_a_map_is_that_of_the_new_indices() -> None:
    """Each question that a map answers once: an answer of before would be of other indices."""
    cells, points = ml.Set(9, "cells"), ml.Set(6, "points")
    old, new = np.array([[0], [1], [2], [3], [4], [5]]), np.array([[7], [2], [2], [2], [0], [2]])
    moved, fresh = ml.Map(points, cells, old, "at"), ml.Map(points, cells, new, "at")
    names = [name for kind in ml.Map.__mro__ for name, one in vars(kind).items() if isinstance(one, cached_property)]
    assert {"distinct_targets", "digest", "ascends"} <= {*names}
    before = {name: getattr(moved, name) for name in names}
    moved.assign(new)
    for name in names:
        assert np.array_equal(getattr(moved, name), getattr(fresh, name)), name
        assert not np.array_equal(getattr(moved, name), before[name]), f"{name}: nothing is told apart here"


@pytest.mark.parametrize("targets", [10, 100_000])
def test_distinct_targets_are_counted_in_the_time_of_few_rows(targets: int) -> None:
    """A part of a large set, such as a color of a solver's rows, does not look at all of that."""
    rows = np.random.default_rng(0).integers(0, targets, (50, 3))
    where = ml.Map(ml.Set(50, "part"), ml.Set(targets, "rows"), rows, "where")
    tracemalloc.start()
    found = where.distinct_targets
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == len(set(rows.ravel().tolist())) and most < 20_000
