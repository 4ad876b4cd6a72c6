"""What programs ask of sets over ranks: sets, links, and what is exchanged; and all of it for the ready cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.catalogue import case_names
from meshloom.config import Setting
from meshloom.dist.distribute import distribute, qualities
from meshloom.dist.ownership import EVERY, everywhere
from meshloom.dist.usage import Usage, usage
from meshloom.dist.verify import verify
from meshloom.errors import UserError
from meshloom.launch import Request, check, recorded_loops
from tests.dist.samples import messages
from tests.one_line import one_line_from


@ml.kernel
def exchange_flux(u: ml.Read, area: ml.Read, gain: ml.Inc) -> None:
    flux = area * (u[1] - u[0])
    gain[0] += flux
    gain[1] -= flux


@ml.kernel
def advance(gain: ml.Read, u: ml.ReadWrite) -> None:
    u[...] = u + gain


@ml.kernel
def widen(u: ml.Read, area: ml.Write) -> None:
    area[...] = u[0] + u[1]


@ml.kernel
def look_far(u: ml.Read, v: ml.Write) -> None:
    v[...] = u[2, 0] + u[-2, 0]


@ml.kernel
def take(v: ml.Read, u: ml.Write) -> None:
    u[...] = v


def used_by(function: Callable[[], None]) -> Usage:
    return usage(ml.program(function).loops)


def on_plate(order: str = "given") -> tuple[ml.Mesh, Usage]:
    """A field that flows over a plate of 6 x 4 cells, through faces whose area follows it."""
    mesh = ml.generate.box((6, 4)).arranged(order, seed=3)
    cells, faces, sides = mesh.cells, mesh.faces, mesh.face_cells
    u, gain, area = cells.field("u", 3), cells.field("gain", 3), faces.field("area", 3, dtype=np.float32)

    def step() -> None:
        gain.fill(0.0)
        widen(faces, u[sides], area)
        exchange_flux(faces, u[sides], area, gain[sides])
        advance(cells, gain, u)

    with ml.using("numpy"):
        return mesh, used_by(step)


def test_what_is_changed_and_reached_is_exchanged() -> None:
    """Cells: u, read through a map. Faces: area, read where faces run on the exec halo. gain is added up by its owner,
    and read there."""
    mesh, used = on_plate()
    assert used.due == {mesh.cells: (24, 24), mesh.faces: (12, 0)}
    assert [(one.source, one.target, one.updated) for one in used.links] == [(mesh.faces, mesh.cells, True)]
    assert list(used.tasks) == [mesh.cells] and not used.radius and not used.across


def test_what_is_filled_is_not_exchanged() -> None:
    mesh = ml.generate.box((3, 2))
    u, gain, area = mesh.cells.field("u"), mesh.cells.field("gain"), mesh.faces.field("area")

    def step() -> None:
        u.fill(1.0)
        exchange_flux(mesh.faces, u[mesh.face_cells], area, gain[mesh.face_cells])

    with ml.using("numpy"):
        assert used_by(step).due == {}


def test_a_plate_in_two_halves() -> None:
    mesh, used = on_plate()
    sets = distribute(used, "rcb", 2)
    verify(sets, used.links, 2)
    cells, faces = sets[mesh.cells], sets[mesh.faces]
    assert (cells.owner == (mesh.cells.points[:, 0] > 0.5)).all()
    cut = np.flatnonzero(cells.owner[mesh.face_cells.indices[:, 0]] != cells.owner[mesh.face_cells.indices[:, 1]])
    assert len(cut) == 4 and messages(faces.exec_halo.receives) == {(1, 0): cut.tolist()}
    assert np.flatnonzero(faces.rim).tolist() == cut.tolist()
    by_name = {one.name: one for one in qualities(used, sets, 2)}
    assert (by_name["cells"].halo, by_name["cells"].bytes) == (8 / 24, 4 * 24)
    assert (by_name["faces"].halo, by_name["faces"].bytes) == (4 / 38, 4 * 12)
    assert {(one.most_neighbours, one.mean_neighbours) for one in by_name.values()} == {(1, 1.0)}
    assert by_name["cells"].balance == pytest.approx(1.0)


def test_a_given_partition_is_by_number_and_lists_are_by_position() -> None:
    """Wherever cells lie in memory."""
    mesh, used = on_plate("random")
    numbering = mesh.cells.numbering
    assert numbering is not None and (numbering != np.arange(24)).any()
    ranks = np.arange(24) % 5
    sets = distribute(used, ranks, 5)
    verify(sets, used.links, 5)
    assert (sets[mesh.cells].owner == ranks[numbering]).all()
    lowest = mesh.face_cells.positions.min(axis=1)
    assert (sets[mesh.faces].owner == sets[mesh.cells].owner[lowest]).all()


def test_cells_weigh_as_many_faces_as_they_have() -> None:
    x = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (2, 0)], float)
    mesh = ml.Mesh.from_cells(x, {"quad": [(0, 1, 2, 3)], "triangle": [(1, 4, 2)]})
    u, gain = mesh.cells.field("u", 3), mesh.cells.field("gain", 3)
    area = mesh.faces.field("area", 3)
    with ml.using("numpy"):
        used = used_by(lambda: exchange_flux(mesh.faces, u[mesh.face_cells], area, gain[mesh.face_cells]))
    assert used.tasks[mesh.cells].weights.tolist() == [4, 3]


def test_parts_and_nodes_follow() -> None:
    mesh = ml.generate.box((5, 5))
    wall = mesh.boundary("xmin")
    temperature, heat = mesh.cells.field("t", 3), wall.field("heat", 3)
    height = mesh.nodes.field("h", 3)

    @ml.kernel
    def cool(t: ml.Read, h: ml.Read, heat: ml.Write) -> None:
        heat[...] = t[0] * (h[0] + h[1])

    with ml.using("numpy"):
        used = used_by(lambda: cool(wall, temperature[wall.cells], height[wall.nodes], heat))
    sets = distribute(used, "rcb", 3)
    cells = sets[mesh.cells].owner
    assert (sets[wall].owner == cells[wall.cells.indices[:, 0]]).all()
    corners = mesh.cell_nodes.indices
    assert all(sets[mesh.nodes].owner[k] == cells[np.flatnonzero((corners == k).any(axis=1))[0]] for k in range(36))
    assert messages(sets[mesh.nodes].import_halo.receives)


def test_what_a_part_reads_of_its_set_where_it_runs_on_the_halo_is_exchanged() -> None:
    """Only there: the same loop without a map to add through runs on its own elements alone."""
    mesh = ml.generate.box((4, 4))
    faces, wall = mesh.boundary_faces, mesh.boundary("xmin")
    heat, flux = mesh.nodes.field("heat"), faces.field("flux")

    @ml.kernel
    def grow(flux: ml.ReadWrite) -> None:
        flux[...] = 2.0 * flux

    @ml.kernel
    def pass_on(flux: ml.Read, heat: ml.Inc) -> None:
        heat[0] += flux
        heat[1] += flux

    @ml.kernel
    def keep(flux: ml.Read, own: ml.Write) -> None:
        own[...] = flux

    def adds() -> None:
        grow(faces, flux)
        pass_on(wall, flux, heat[wall.nodes])

    def looks() -> None:
        grow(faces, flux)
        keep(wall, flux, wall.field("own"))

    with ml.using("numpy"):
        assert used_by(adds).due == {faces: (8, 8)} and used_by(looks).due == {}


def on_grid(**options: Any) -> tuple[ml.Grid, Usage]:
    grid = ml.Grid((12, 5), **options)
    u, v = grid.field("u"), grid.field("v")

    def step() -> None:
        if any(grid.ghosts):
            ml.fill_ghosts(u)
        look_far(grid if any(grid.periodic) else grid.interior((2, 0)), u[grid.offsets((2, 0), (-2, 0))], v)
        take(grid, v, u)

    with ml.using("numpy"):
        return grid, used_by(step)


def test_slabs_of_a_grid() -> None:
    grid, used = on_grid()
    sets = distribute(used, "rcb", 3)
    assert sets[grid].owner.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert messages(sets[grid].import_halo.receives) == {(0, 1): [4, 5], (1, 0): [2, 3], (1, 2): [8, 9], (2, 1): [6, 7]}
    (found,) = qualities(used, sets, 3)
    assert (found.elements, found.halo, found.rim, found.bytes) == (60, 8 / 12, 8 / 12, 4 * 5 * 8)


@pytest.mark.parametrize("options", [
    {}, {"ghosts": (2, 0)}, {"ghosts": (2, 1), "aligned": True},
], ids=str)  # fmt: skip
def test_slabs_of_a_periodic_grid(options: dict[str, Any]) -> None:
    """Over its ends, whether loops look there themselves or ghosts are filled from there."""
    grid, used = on_grid(periodic=(True, False), **options)
    received = messages(distribute(used, "rcb", 3)[grid].import_halo.receives)
    assert received[0, 2] == [10, 11] and received[2, 0] == [0, 1] and len(received) == 6


def test_a_part_of_a_grid_and_a_set_of_points_in_it_follow_its_planes() -> None:
    """Ghosts belong to the plane at their end."""
    grid = ml.Grid((4, 3), ghosts=1)
    corner = grid.subset(np.arange(12).reshape(4, 3) % 5 == 0)
    probes = ml.Set(2, "probes")
    rows = np.arange(grid.total).reshape(grid.places)
    where = ml.Map(probes, grid, [(rows[0, 2], rows[1, 1]), (rows[5, 0], rows[4, 0])], "where")
    u, seen = grid.field("u"), probes.field("seen")

    @ml.kernel
    def probe(u: ml.Read, seen: ml.Write) -> None:
        seen[...] = u[0] + u[1]

    @ml.kernel
    def reset(u: ml.Write) -> None:
        u[...] = 0.0

    def step() -> None:
        probe(probes, u[where], seen)
        reset(corner, u)

    with ml.using("numpy"):
        used = used_by(step)
    sets = distribute(used, "rcb", 4)
    assert sets[probes].owner.tolist() == [0, 3] and sets[corner].owner.tolist() == [0, 1, 3]
    assert [(one.source, one.as_member, one.updated) for one in used.links] == [
        (probes, False, False), (corner, True, True)
    ]  # fmt: skip


def test_sets_of_one_element_are_on_every_rank() -> None:
    mesh, clock = ml.generate.box((3, 2)), ml.Set(1, "clock")
    at_corner = ml.Map(clock, mesh.cells, [[5]], "at_corner")
    u, time = mesh.cells.field("u"), ml.Global(0.0, "time")

    @ml.kernel
    def look(u: ml.Read, time: ml.Write) -> None:
        time[...] = u[0]

    with ml.using("numpy"):
        used = used_by(lambda: look(clock, u[at_corner], time))
    sets = distribute(used, np.zeros(6, int), 3)
    assert sets[clock].owner.tolist() == [EVERY]
    assert messages(sets[mesh.cells].import_halo.receives) == {(1, 0): [5], (2, 0): [5]}
    assert [one.name for one in qualities(used, sets, 3)] == ["cells"]


@pytest.mark.parametrize(("ranks", "message"), [
    (13, "13 ranks are too many for grid: .* axis x, and has 12 planes there and stencils .* 2 planes far; at most 6"),
    (7, "7 ranks are too many for grid: .* at most 6"),
])  # fmt: skip
def test_slabs_are_no_thinner_than_stencils(ranks: int, message: str) -> None:
    _, used = on_grid()
    with one_line_from(UserError, message):
        distribute(used, "rcb", ranks)
    distribute(used, "rcb", 6)


def loops_of(name: str) -> tuple[Any, Usage]:
    case = check(Request(name)).case
    small = tuple(Setting(tuple(key.split(".")), value, "small") for key, value in case.small.items())
    made, loops = recorded_loops(check(Request(name, small)))
    return made, usage(loops)


@pytest.mark.slow
@pytest.mark.parametrize("name", case_names())
def test_every_ready_case(name: str) -> None:
    """As many ranks as its grids have room for, up to three; all sets have owners, lists pass the verifier."""
    case, used = loops_of(name)
    room = [used.sizes[grid] // max(radius, 1) for grid, radius in used.radius.items()]
    ranks = min([3, *room])
    sets = distribute(used, "rcb", ranks)
    verify(sets, used.links, ranks)
    assert any(not everywhere(one.owner) for one in sets.values()), case
    for key, one in sets.items():
        assert everywhere(one.owner) or ((one.owner >= 0) & (one.owner < ranks)).all(), key
        assert used.sizes[key] == len(one.owner)  # type: ignore[index]
