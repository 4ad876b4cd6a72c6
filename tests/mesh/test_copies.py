"""What copy and pickle make of fields, sets, loops and programs: another one, itself, or one line."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError, ProgramError
from meshloom.mesh.mesh import mesh_of
from tests.mesh.mixed_samples import plane, space


@ml.kernel
def halved(u: ml.Read, out: ml.Write):
    out[...] = 0.5 * u


class World:
    def __init__(self) -> None:
        self.cells, self.grid = ml.Set(4, "cells", numbering=[2, 0, 3, 1]), ml.Grid((3, 3))
        self.mesh, self.next = ml.generate.box((2, 2)), ml.Map(self.cells, self.cells, [1, 2, 3, 0], "next")
        self.u, self.out = self.cells.field("u", 2, data=np.arange(8.0).reshape(4, 2)), self.cells.field("out", 2)
        self.total = ml.Global([1.0, 2.0], "total")
        self.loop = halved.loop(self.cells, self.u, self.out)
        self.program = ml.program(lambda: halved(self.cells, self.u, self.out))


@pytest.fixture
def world() -> World:
    ml.use("numpy")
    return World()


COPIES = [copy.copy, copy.deepcopy]


@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4"])
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_field_has_the_same_values_and_its_own_memory(world: World, how: Callable, layout: str) -> None:
    world.u.relayout(layout)
    other = how(world.u)
    assert (other.set, other.name, other.dim, other.layout) == (world.cells, "u", 2, world.u.layout)
    halved(world.cells, other, world.u)
    np.testing.assert_array_equal(other.numpy(), np.arange(8.0).reshape(4, 2))
    np.testing.assert_array_equal(world.u.numpy(), 0.5 * np.arange(8.0).reshape(4, 2))
    other.relayout("aosoa2")  # loops with the first one need not notice
    np.testing.assert_array_equal(world.u.numpy(), 0.5 * np.arange(8.0).reshape(4, 2))


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_global_has_the_same_values(world: World, how: Callable) -> None:
    other = how(world.total)
    world.total.value = [5.0, 6.0]
    np.testing.assert_array_equal(other.value, [1.0, 2.0])
    assert how(ml.Global(3, "n", dtype=np.int32)).value == 3


def test_a_copy_keeps_what_a_field_is(world: World) -> None:
    between = world.cells.field("between", temporary=True, dtype=np.float32)
    between.undefined_after = "step"
    other = copy.deepcopy(between)
    assert other.temporary and other.layout_is_free and other.dtype == np.float32
    with pytest.raises(ProgramError, match="temporary and has no values after program step"):
        other.numpy()


def test_copies_of_several_fit_together(world: World) -> None:
    """Fields in a container: the same field twice becomes one other field, and both are on the set that there is."""
    mine = {"u": world.u, "again": world.u, "out": world.out, "on": world.cells, "through": world.u[world.next]}
    other = copy.deepcopy(mine)
    assert other["u"] is other["again"] is other["through"].field is not world.u
    halved(other["on"], other["u"], other["out"])
    np.testing.assert_array_equal(other["out"].numpy(), 0.5 * world.u.numpy())
    assert not world.out.numpy().any()


CONSTANT: dict[str, Callable[[World], Any]] = {
    "a set": lambda w: w.cells, "a map": lambda w: w.next, "a mesh": lambda w: w.mesh, "a grid": lambda w: w.grid,
    "a box": lambda w: w.grid.inside, "offsets": lambda w: w.grid.star(), "a kernel": lambda w: halved,
}  # fmt: skip


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("what", CONSTANT)
def test_what_never_changes_is_its_own_copy(world: World, what: str, how: Callable) -> None:
    assert how(CONSTANT[what](world)) is CONSTANT[what](world)


BOUND: dict[str, Callable[[World], Any]] = {
    "operation halved": lambda w: w.loop, "program <lambda>": lambda w: w.program
}  # fmt: skip


@pytest.mark.parametrize("how", [*COPIES, pickle.dumps])
@pytest.mark.parametrize("what", BOUND)
def test_loops_and_programs_are_not_copied(world: World, what: str, how: Callable) -> None:
    with pytest.raises(ProgramError, match=f"^{what} can be neither copied nor pickled.*make another one") as caught:
        how(BOUND[what](world))
    assert "\n" not in str(caught.value)


def sent(*things: Any) -> Any:
    """As another process would get them."""
    return pickle.loads(pickle.dumps(things))


@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4"])
def test_what_is_pickled_together_fits_together(world: World, layout: str) -> None:
    world.u.relayout(layout)
    cells, u, again, out, follows, total = sent(
        world.cells, world.u, world.u, world.out, world.next, world.total
    )  # fmt: skip
    assert u is again and u.set is out.set is follows.source is cells is not world.cells and u.layout == world.u.layout
    np.testing.assert_array_equal(cells.numbering, world.cells.numbering)
    assert not cells.numbering.flags.writeable and not follows.positions.flags.writeable
    halved(cells, u, out)
    np.testing.assert_array_equal(out.numpy(), 0.5 * world.u.numpy())
    np.testing.assert_array_equal(total.value, [1.0, 2.0])
    assert not world.out.numpy().any()


def test_a_field_alone_brings_its_set_and_fits_no_other(world: World) -> None:
    (u,), (out,) = sent(world.u), sent(world.out)
    np.testing.assert_array_equal(u.numpy(), world.u.numpy())
    with pytest.raises(MeshloomError) as caught:
        halved(u.set, u, out)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", ["given", "hilbert"])
def test_meshes_are_pickled_with_all_that_they_have(order: str) -> None:
    mesh = ml.generate.box((4, 3), cells="triangle").arranged(order)
    side, u = mesh.boundary("xmin"), mesh.cells.field("u", data=np.arange(24.0))
    u2, mesh2, side2, normal2 = sent(u, mesh, side, side.normal)
    assert mesh2.digest == mesh.digest and u2.set is mesh2.cells and side2.outermost is mesh2.boundary_faces
    assert normal2 is side2.normal and mesh2.boundary("ymin").nodes.target is mesh2.nodes
    assert mesh2.cells.of("triangle").nodes.target is mesh2.nodes and mesh2.coordinates.set is mesh2.nodes
    halved(mesh2.cells, u2, u2.like("out"))
    ml.march(ml.program(lambda: u2.fill(1.0)), steps=1)
    assert mesh_of(u2.set) is mesh2


@pytest.mark.parametrize("order", ["given", "hilbert"])
@pytest.mark.parametrize("sample", [plane, space])
def test_meshes_of_several_kinds_are_pickled(sample: Callable, order: str) -> None:
    mesh = ml.Mesh.from_cells(*sample(1), order=order)
    assert mesh.cell_volumes.min() > 0.0 and mesh.wall_distance("boundary").min() > 0.0  # made once, and not sent
    size = len(pickle.dumps(mesh))
    assert size == len(pickle.dumps(ml.Mesh.from_cells(*sample(1), order=order)))
    u, mesh2 = sent(mesh.cells.field("u", data=mesh.cell_volumes), mesh)
    assert mesh2.digest == mesh.digest and u.set is mesh2.cells and mesh2.cells.kinds.keys() == mesh.cells.kinds.keys()
    for elements, others in ((mesh.cells, mesh2.cells), (mesh.faces, mesh2.faces)):
        for kind in elements.kinds:
            assert others.of(kind).nodes.target is mesh2.nodes and len(others.of(kind)) == len(elements.of(kind))
    for measure in ("cell_volumes", "cell_centroids", "face_normals", "boundary_centres"):
        np.testing.assert_array_equal(getattr(mesh2, measure), getattr(mesh, measure))
    np.testing.assert_array_equal(u.numpy(), mesh2.cell_volumes)


def test_the_nodes_of_cells_are_sent_once_and_stay_read_only() -> None:
    mesh = ml.generate.box((4, 3), cells="triangle").periodic({"xmin": "xmax"})
    (mesh2,) = sent(mesh)
    assert mesh2.lists.cells.nodes.rows is mesh2.cell_nodes.indices
    assert not mesh2.lists.cells.nodes.entries.flags.writeable and not mesh2.lists.faces.entries.flags.writeable
    assert mesh2.digest == mesh.digest and mesh2.opened().digest == mesh.opened().digest


def test_grids_and_maps_of_all_sorts_are_pickled() -> None:
    grid = ml.Grid((4, 5), ghosts=1, aligned=True)
    f, inside, star, grid2 = sent(grid.field("f", data=2.0), grid.inside, grid.star(1), grid)
    assert f.set is inside.grid is star.grid is grid2 and grid2.digest == grid.digest
    assert (f.numpy() == 2.0).all() and grid2.box((0, 0), (1, 1)).size == 1
    s = ml.Set(8, "s")
    maps = ml.Map.computed(s, s, lambda e: (e ^ 1, e), "flip"), ml.Map.varying(s, s, [0, 1, 1, *[3] * 6], [4, 5, 6])
    s2, flip, lists = sent(s, *maps)
    u, out = s2.field("u", data=np.arange(8.0)), s2.field("out")

    @ml.kernel
    def first(u: ml.Read, v: ml.Read, out: ml.Write):
        out[...] = u[0] + np.sum(v)

    first(s2, u[flip], u[lists], out)
    np.testing.assert_array_equal(out.numpy(), [5.0, 0.0, 14.0, 2.0, 5.0, 4.0, 7.0, 6.0])


def total_of(given: tuple[ml.Mesh, ml.Field]) -> float:
    """What a worker does."""
    ml.use("numpy")
    mesh, u = given
    assert u.set is mesh.cells
    return float(u.sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(world: World, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    mesh = world.mesh
    jobs = [(mesh, mesh.cells.field("u", data=float(k))) for k in range(3)]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        assert list(pool.map(total_of, jobs)) == [0.0, 4.0, 8.0]


def test_kernels_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(halved)) is halved
