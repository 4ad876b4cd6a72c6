"""Parts of sets: loops over them give what NumPy gives with the same mask, however they run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import MeshError, MeshloomError
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip


@ml.kernel
def every_mode(a: ml.Read, b: ml.ReadWrite, c: ml.Write, d: ml.Inc, low: ml.Min, high: ml.Max, own: ml.Read,
               total: ml.Sum):  # fmt: skip
    b += a
    c[...] = 2.0 * a + own
    d += a[0] - 3.0 * own
    low[...] = a
    high[...] = a
    total += a[0]


@ml.kernel
def spread(q: ml.Read, weight: ml.Read, res: ml.Inc, seen: ml.Inc):
    flux = weight * (q[0] - 2.0 * q[1])
    res[0] += flux
    res[1] -= 3.0 * flux
    seen += weight


def whole_set(size: int, dice: np.random.Generator, arranged: bool) -> ml.Set:
    return ml.Set(size, "things", numbering=dice.permutation(size) if arranged else None)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 40), st.booleans(), st.sampled_from(["aos", "soa", "aosoa4"]), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("backend", BACKENDS)
def test_fields_of_the_whole_in_every_mode(backend: str, size: int, arranged: bool, layout: str, seed: int) -> None:
    ml.use(backend)
    dice = np.random.default_rng(seed)
    things = whole_set(size, dice, arranged)
    mask = dice.random(size) < dice.choice([0.0, 0.3, 0.7, 1.0])
    some = things.subset(mask)
    fields = {n: things.field(n, 2, data=dice.integers(-9, 9, (size, 2)).astype(float), layout=layout) for n in "abcd"}
    low, high = (things.field(n, 2, data=dice.integers(-9, 9, (size, 2)).astype(float)) for n in ("low", "high"))
    own, total = some.field("own", data=np.arange(mask.sum(), dtype=float)), ml.Global(0.0)
    a, b, c, d = (fields[n].numpy() for n in "abcd")
    lowest, highest = low.numpy(), high.numpy()
    every_mode(some, *fields.values(), low, high, own, total)
    ours = np.arange(mask.sum(), dtype=float)[:, None]
    b[mask], c[mask], d[mask] = b[mask] + a[mask], 2 * a[mask] + ours, d[mask] + a[mask][:, :1] - 3 * ours
    lowest[mask], highest[mask] = np.minimum(lowest[mask], a[mask]), np.maximum(highest[mask], a[mask])
    for field, expected in zip((*fields.values(), low, high), (a, b, c, d, lowest, highest), strict=True):
        np.testing.assert_array_equal(field.numpy(), expected, err_msg=field.name)
    assert total.value == a[mask][:, 0].sum()


@ml.kernel
def set_to(a: ml.Read, b: ml.Write) -> None:
    b[...] = a


@ml.kernel
def change_to(a: ml.Read, b: ml.ReadWrite) -> None:
    b[...] = b + a


@ml.kernel
def increase(a: ml.Read, b: ml.Inc) -> None:
    b += a


@pytest.mark.parametrize("give", [set_to, change_to, increase], ids=lambda one: one.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_kernel_with_fields_of_the_part_and_of_the_whole_in_any_places(backend: str, give: ml.Kernel) -> None:
    """Loops of one kernel over a part share what they compile only where the same arguments belong to the whole."""
    ml.use(backend)
    whole = ml.Set(20, "whole")
    numbers = np.arange(3, 15, 2)
    part = whole.subset(numbers)
    for a_in_whole, b_in_whole in [(True, False), (False, True), (False, False), (True, True), (True, False)]:
        a = (whole if a_in_whole else part).field("a", data=1.0 + np.arange(20 if a_in_whole else 6))
        b = (whole if b_in_whole else part).field("b", data=0.0)
        expected = b.numpy()
        expected[numbers if b_in_whole else ...] = a.numpy()[numbers if a_in_whole else ...]
        give(part, a, b)
        np.testing.assert_array_equal(b.numpy(), expected)


@pytest.mark.parametrize("arranged", ["given", "random"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_strategy_through_maps_of_the_whole(backend: str, arranged: str) -> None:
    """Maps and fields of the whole, restricted by themselves; part of a part as well."""
    ml.use(backend)
    mesh = ml.generate.box((9, 7), cells="triangle").arranged(arranged)
    dice = np.random.default_rng(3)
    q = mesh.cells.field("q", data=dice.integers(-9, 9, len(mesh.cells)).astype(float))
    weight, seen = mesh.faces.field("w", data=dice.integers(1, 5, len(mesh.faces))), mesh.faces.field("seen")
    some = mesh.faces.subset(dice.random(len(mesh.faces)) < 0.6)
    few = some.subset(np.arange(0, len(some), 3), "few")
    for part in (some, few):
        members = part.members_of(mesh.faces)
        assert members is not None
        chosen = members.indices[:, 0]
        cells, weights = mesh.face_cells.indices[chosen], weight.numpy()[chosen]
        flux = weights * (q.numpy()[cells[:, 0]] - 2.0 * q.numpy()[cells[:, 1]])
        expected = np.zeros(len(mesh.cells))
        np.add.at(expected, cells[:, 0], flux)
        np.subtract.at(expected, cells[:, 1], 3.0 * flux)
        marked = np.zeros(len(mesh.faces))
        marked[chosen] = weights
        for wish in ("auto", *ml.strategies()):
            res = mesh.cells.field("res")
            seen.fill(0.0)
            arguments = (q[mesh.face_cells], weight, res[mesh.face_cells], seen)
            loop = spread.loop(part, *arguments, schedule=ml.Schedule(wish, block=16))
            if not loop.applies:
                continue
            loop()
            np.testing.assert_array_equal(res.numpy(), expected, err_msg=f"{wish} {part.name}")
            np.testing.assert_array_equal(seen.numpy(), marked, err_msg=f"{wish} {part.name}")
        res, again = mesh.cells.field("res"), mesh.faces.field("seen")
        spread.python(part, q[mesh.face_cells], weight, res[mesh.face_cells], again)
        np.testing.assert_array_equal(res.numpy(), expected)
        np.testing.assert_array_equal(again.numpy(), marked)


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_keep_the_order_of_loops_over_parts_and_the_whole(backend: str) -> None:
    ml.use(backend)
    things = ml.Set(50, "things")
    u, v = things.field("u"), things.field("v", temporary=True)
    odd, low = things.subset(np.arange(50) % 2 == 1, "odd"), things.subset(range(20), "low")

    @ml.kernel
    def set_to(v: ml.Write):
        v[...] = 1.0

    @ml.kernel
    def more(v: ml.ReadWrite):
        v *= 10.0

    @ml.kernel
    def take(v: ml.Read, u: ml.Inc):
        u += v

    @ml.program
    def step() -> None:
        set_to(things, v)
        more(odd, v)
        take(things, v, u)
        more(low, v)
        take(low, v, u)

    step.run(2)
    v_now = np.where(np.arange(50) % 2 == 1, 10.0, 1.0)
    expected = v_now + np.where(np.arange(50) < 20, 10 * v_now, 0.0)
    np.testing.assert_array_equal(u.numpy(), 2 * expected)


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("order", ["given", "hilbert"])
def test_boundary_groups_close_the_domain(dimension: int, order: str) -> None:
    kind = "triangle" if dimension == 2 else "tetrahedron"
    mesh = ml.generate.box((4, 3, 5)[:dimension], cells=kind).arranged(order)
    total = np.zeros(dimension)
    for name in mesh.groups:
        side = mesh.boundary(name)
        assert side is mesh.boundary(name) and len(side) == len(mesh.group(name))
        numbers = side.members.indices[:, 0]
        np.testing.assert_array_equal(side.cells.indices, mesh.boundary_cells.indices[numbers])
        np.testing.assert_array_equal(side.nodes.indices, mesh.boundary_nodes.indices[numbers])
        axis = "xyz".index(name[0])
        np.testing.assert_allclose(side.centre.numpy()[:, axis], float(name.endswith("max")), atol=1e-14)
        total += side.normal.numpy().sum(axis=0)
        assert abs(np.linalg.norm(side.normal.numpy(), axis=1).sum() - 1.0) < 1e-12
    assert np.abs(total).max() < 1e-12


def test_a_part_lies_in_memory_as_the_whole_does() -> None:
    mesh = ml.generate.box((20, 20)).arranged("random")
    some = mesh.cells.subset(np.arange(0, len(mesh.cells), 2))
    assert (np.diff(some.members.positions[:, 0]) > 0).all()
    np.testing.assert_array_equal(some.members.indices[:, 0], np.arange(0, len(mesh.cells), 2))


@pytest.mark.parametrize(("which", "words"), [
    ([True, False], "a mask of things has the shape (5,), got (2,)"),
    ([[True] * 5], "a mask of things has the shape (5,), got (1, 5)"),
    ([0, 5], "things has no element 5; its 5 are counted from 0"),
    ([-1], "things has no element -1"),
    ([1, 2, 1], "element 1 of things is named twice"),
    ([0.5], "numbers of things"),
    ([[1, 2]], "a mask or a list of numbers of things, got shape (1, 2)"),
    ("abc", "numbers of things"),
    (None, "numbers of things"),
])  # fmt: skip
def test_what_is_no_choice_is_refused(which: Any, words: str) -> None:
    with one_line_from(MeshloomError, re.escape(words)):
        ml.Set(5, "things").subset(which)


def test_other_sets_stay_strangers() -> None:
    things, others = ml.Set(4, "things"), ml.Set(4, "others")
    some = things.subset([1, 2], "some")
    weight = some.field("w")
    with one_line_from(MeshError, "lives on others, but the loop runs over some"):
        every_mode.loop(some, *[others.field("x", 2)] * 6, weight, ml.Global(0.0))
    with one_line_from(MeshError, "map m starts at others, of which some is no part"):
        some.restricted(ml.Map(others, things, [[0]] * 4, "m"))
    with one_line_from(MeshError, "lives on some, but the loop runs over things"):
        spread.loop(things, weight, weight, weight, weight)
    with one_line_from(MeshError, "unknown boundary group 'xmn'"):
        ml.generate.box((2, 2)).boundary("xmn")


def test_halo_elements_are_in_no_part() -> None:
    things = ml.Set(4, "things", halo=2)
    assert len(things.subset(np.ones(4, bool))) == 4
    with one_line_from(MeshError, "has no element 4"):
        things.subset([4])


@pytest.mark.parametrize("backend", BACKENDS)
def test_points_of_a_grid(backend: str) -> None:
    """A mask has the grid's shape; numbers are of its points, not of places in memory."""
    ml.use(backend)
    grid = ml.Grid((6, 5), ghosts=2)
    u = grid.field("u", data=np.arange(30.0).reshape(6, 5))
    mask = np.random.default_rng(2).random((6, 5)) < 0.4

    @ml.kernel
    def negate(u: ml.ReadWrite):
        u *= -1.0

    for which in (mask, np.flatnonzero(mask)):
        u.assign(np.arange(30.0).reshape(6, 5))
        negate(grid.subset(which), u)
        np.testing.assert_array_equal(u.numpy(), np.where(mask, -1.0, 1.0) * np.arange(30.0).reshape(6, 5))
    with one_line_from(MeshError, re.escape("a mask of grid has the shape (6, 5), got (30,)")):
        grid.subset(mask.ravel())
    with one_line_from(MeshError, "grid has no element 30; its 30 are counted from 0"):
        grid.subset([30])


@ml.kernel
def relax(w: ml.Read, near: ml.Read, z: ml.ReadWrite):
    z[...] = 0.5 * z + np.sum(w * near)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("numbering", [None, [3, 1, 0, 7, 2, 6, 5, 4]])
def test_a_part_reads_what_it_writes_at_other_elements(backend: str, numbering: list[int] | None) -> None:
    """One color of a ring from the other, in place, as loops and as a program; never where the two could meet."""
    ml.use(backend)
    ring = ml.Set(8, "ring", numbering=numbering)
    halves = [ring.subset(np.arange(first, 8, 2)) for first in (0, 1)]
    sides = [ml.Map(one, ring, [[(k - 1) % 8, (k + 1) % 8] for k in one.members.indices[:, 0]]) for one in halves]
    weights = [one.field("w", 2, data=np.arange(8.0).reshape(4, 2)) for one in halves]
    z, expected = ring.field("z", data=np.arange(8.0)), np.arange(8.0)

    def sweep() -> None:
        for one, side, w in zip(halves, sides, weights, strict=True):
            relax(one, w, z[side], z)

    sweep()
    ml.program(sweep).run(2)
    for first in (0, 1) * 3:
        near = np.stack([expected[(np.arange(first, 8, 2) + step) % 8] for step in (-1, 1)], axis=1)
        expected[first::2] = 0.5 * expected[first::2] + (np.arange(8.0).reshape(4, 2) * near).sum(axis=1)
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-13)
    inside = ml.Map(halves[0], ring, [[1, 3], [1, 3], [1, 2], [1, 3]])
    with one_line_from(MeshloomError, "z is passed as near and as z, and one of them is written"):
        relax(halves[0], weights[0], z[inside], z)
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-13)


@ml.kernel
def hold(value: ml.Read, u: ml.Write):
    u[...] = value


@pytest.mark.parametrize("ordered", [False, True])
def test_what_a_map_leads_to(ordered: bool) -> None:
    """The nodes of a wall are a part, in any order of the mesh; to write through its map is refused, and says so."""
    mesh = ml.generate.box((3, 4), cells="triangle")
    mesh = mesh.reordered("hilbert") if ordered else mesh
    wall, at_wall = mesh.boundary("xmin"), mesh.coordinates.numpy()[:, 0] == 0.0
    part, u = mesh.nodes.subset(wall.nodes), mesh.nodes.field("u", data=0.0)
    hold(part, 1.0, u)
    assert len(part) == 5 and np.array_equal(u.numpy(), at_wall)
    middle = mesh.nodes.subset([7])
    round_it = mesh.cells.subset(middle.restricted(mesh.node_cells))
    assert np.array_equal(round_it.members.indices[:, 0], np.flatnonzero((mesh.cell_nodes.indices == 7).any(axis=1)))
    with one_line_from(MeshloomError, r"shares nodes entry .* loop over those it leads to: nodes.subset\(map\)"):
        hold(wall, 1.0, u[wall.nodes])
    with one_line_from(MeshError, "leads to nodes and not to cells"):
        mesh.cells.subset(wall.nodes)
