"""Loops through maps from and to points of a grid on ranks: its rows as a set. What they compute is in
``test_ranks_grids.py``."""

from __future__ import annotations

import numpy as np

import meshloom as ml
from meshloom.backend import current
from meshloom.dist.backend import Ranks
from meshloom.dist.grid_rows import RowsCopy, on_rows, reaches_rows
from meshloom.dist.halo import LAYERS
from meshloom.dist.local import OWNERS
from meshloom.dist.validity import place_exchanges
from meshloom.dist.world import World
from meshloom.operation.call import functions_of
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation

WORLD = World(0, 3)


@ml.kernel
def looked_up(u: ml.Read, seen: ml.Write):
    seen[...] = u[0]


@ml.kernel
def added(seen: ml.Read, u: ml.Inc):
    u[0] += seen


@ml.kernel
def written(seen: ml.Read, u: ml.Write):
    u[...] = seen[0]


def copies(operations: list[Operation]) -> list[str]:
    """What comes to pass, in turn: a copy by what it copies to, a loop by its name."""
    ends = [functions_of([one])[0] if one.domain.is_call else one.name for one in operations]
    return [f"to {'grid' if isinstance(one.target.set, ml.Grid) else 'rows'}" if isinstance(one, RowsCopy) else one
            for one in ends]  # fmt: skip


def test_rows_belong_to_the_rank_of_their_plane() -> None:
    """Ghosts to that of the plane at their end."""
    grid, probes = ml.Grid((7, 4), ghosts=(2, 1)), ml.Set(2, "probes")
    where = ml.Map(probes, grid, [[3], [40]], "where")
    with ml.using("numpy"):
        _, loop = on_rows([looked_up.loop(probes, grid.field("u")[where], probes.field("seen"))], WORLD)
    rows = loop.operands[0].storage.set
    owner = rows.kept[OWNERS].reshape(grid.places)
    assert len(rows) == grid.total and (owner == owner[:, :1]).all()
    assert owner[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert loop.operands[0].pattern.map.positions.tolist() == where.positions.tolist()


def test_values_are_copied_where_they_are_looked_at_and_back_where_they_are_written() -> None:
    grid, probes = ml.Grid((6, 4)), ml.Set(24, "probes")
    where, home = ml.Map(probes, grid, np.arange(24), "where"), ml.Map(grid, probes, np.arange(24), "home")
    u, seen = grid.field("u"), probes.field("seen")
    with ml.using("numpy"):
        read, add, write = loops = [looked_up.loop(probes, u[where], seen), added.loop(probes, seen, u[where]),
                                    written.loop(grid, seen[home], u)]  # fmt: skip
        plain = looked_up.loop(probes, seen[ml.Map(probes, probes, np.arange(24), "own")], probes.field("other"))
    assert all(map(reaches_rows, loops)) and on_rows([plain], WORLD) == [plain]
    assert copies(on_rows([read], WORLD)) == ["to rows", "looked_up"]
    assert copies(on_rows([add], WORLD)) == ["to rows", "added", "to grid"]
    assert copies(on_rows([write], WORLD)) == ["written", "to grid"]
    assert copies(on_rows(on_rows(loops, WORLD), WORLD)) == copies(on_rows(loops, WORLD))


def test_on_rows_a_loop_does_what_it_does_on_the_grid() -> None:
    """As one process shows: copies and loops one after the other, ghosts and padding included."""
    grid, probes = ml.Grid((5, 4), ghosts=1, aligned=True), ml.Set(3, "probes")
    where = ml.Map(probes, grid, np.setdiff1d(np.arange(grid.total), grid.padding)[[2, 9, 9]], "where")
    u, seen = (on.field("u", 2, data=np.random.default_rng(1).standard_normal((*on.array_shape, 2)))
               for on in (grid, probes))  # fmt: skip
    other, before = u.copy(), grid.shaped(u, ghosts=True)
    with ml.using("numpy"):
        added.loop(probes, seen, u[where])()
        for one in on_rows([added.loop(probes, seen, other[where])], WORLD):
            one()
    assert np.array_equal(grid.shaped(u, ghosts=True), grid.shaped(other, ghosts=True))
    assert not np.array_equal(grid.shaped(u, ghosts=True), before)


def test_halos_are_stale_behind_a_copy() -> None:
    """Those of rows before the loop that looks there, and those of slabs behind."""
    grid, probes = ml.Grid((6, 4)), ml.Set(24, "probes")
    where = ml.Map(probes, grid, np.arange(24), "where")
    u, seen = grid.field("u"), probes.field("seen")
    with ml.using("numpy"):
        operations = on_rows([added.loop(probes, seen, u[where])], WORLD)
    rows = operations[1].operands[1].storage
    found = place_exchanges(Dataflow(operations), lambda _: LAYERS)
    assert not {one for one, _ in found.valid} & {u, rows}
    assert {one for one, _ in found.stale[0]} == {rows} and {one for one, _ in found.stale[2]} == {u}


def test_a_map_is_followed() -> None:
    """By one map of rows, whatever it is given."""
    grid, probes = ml.Grid((6, 4)), ml.Set(2, "probes")
    where, u, seen = ml.Map(probes, grid, [[3], [7]], "where"), grid.field("u"), probes.field("seen")

    def found() -> ml.Map:
        with ml.using("numpy"):
            return on_rows([looked_up.loop(probes, u[where], seen)], WORLD)[1].operands[0].pattern.map

    first = found()
    assert found() is first
    where.assign([[5], [9]])
    assert found() is first and first.positions.tolist() == [[5], [9]]


def test_rows_of_a_field_are_kept_and_nothing_is_given_to_them() -> None:
    """Ranks make loops ready again at other times than others do: one alone would compare, and wait for ever."""
    grid, probes = ml.Grid((6, 4)), ml.Set(2, "probes")
    where, u, seen = ml.Map(probes, grid, [[3], [7]], "where"), grid.field("u"), probes.field("seen")
    u.fill(3.0)
    with ml.using("numpy"):
        backend = Ranks(current(), WORLD)
        first, again = (on_rows([added.loop(probes, seen, u[where])], WORLD) for _ in range(2))
        rows = first[1].operands[1].storage
        assert again[1].operands[1].storage is rows
        arrays = backend._here(first).arrays
        assert arrays[rows].given is None and arrays[u].given is not None
        assert backend._here(again).arrays[rows] is arrays[rows]


def test_sets_follow_the_slabs_that_they_lead_to() -> None:
    grid, probes = ml.Grid((6, 4)), ml.Set(6, "probes")
    where = ml.Map(probes, grid, [[20], [9], [0], [23], [8], [7]], "where")
    u, seen = grid.field("u"), probes.field("seen")
    with ml.using("numpy"):
        on = on_rows([looked_up.loop(probes, u[where], seen)], WORLD)
        here = Ranks(current(), WORLD)._here(on)
    assert here.cut is not None and here.cut.owners[probes].tolist() == [2, 1, 0, 2, 1, 0]
    assert here.arrays[u].on.set.shape == (2, 4), "a slab"
