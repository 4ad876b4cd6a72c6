"""Whole arrays lie once on a node, and are what they were."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.dist import once, shared
from meshloom.dist.local import Distribution, distribution
from meshloom.dist.shared import HeldArray, is_in_file, share, take
from meshloom.dist.world import World
from meshloom.process.signals import undo_all

FIRST = World(0, 2)  # of two ranks, by itself: nothing is sent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are made; however small arrays are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shared, "LEAST", 0)
    return tmp_path


def cut_mesh() -> tuple[ml.Mesh, Distribution]:
    """One that is arranged, so that numbers and positions differ, with maps of one arity and of several."""
    mesh = ml.generate.box((5, 4), cells="triangle").arranged("hilbert")
    cut = distribution(FIRST, [mesh.cells, mesh.nodes], {mesh.face_cells: True, mesh.cell_nodes: False})
    for one in (mesh.cells, mesh.faces, mesh.nodes):
        cut.local(one)
    return mesh, cut


def arrays_of(mesh: ml.Mesh, cut: Distribution) -> dict[str, np.ndarray]:
    lists = mesh.lists
    return {
        "face_cells": mesh.face_cells.indices, "positions": mesh.face_cells.positions, "nodes": mesh.nodes.points,
        "cells": mesh.cells.points, "lists": lists.faces.entries, "starts": lists.cells.nodes.starts,
        "blocks": lists.cells.blocks[0].nodes, "sizes": lists.faces.sizes[0].nodes,
        "numbering": mesh.cells.numbering, "position": mesh.cells.position, "owner": cut.owners[mesh.faces],
        "rim": cut.halos(mesh.cells).rim, "coordinates": mesh.coordinates.storage,
    }  # fmt: skip


def test_a_mesh_is_what_it_was_and_lies_in_a_file_that_is_gone(folder: Path) -> None:
    mesh, cut = cut_mesh()
    before = {name: (one.copy(), one.flags.writeable) for name, one in arrays_of(mesh, cut).items()}
    digest, version, local = mesh.digest, mesh.coordinates.version, cut.local(mesh.cells)
    share(FIRST, cut)
    assert not list(folder.iterdir()), "nobody can open it any more"
    now = arrays_of(mesh, cut)
    for name, (values, writeable) in before.items():
        assert np.array_equal(now[name], values) and now[name].dtype == values.dtype, name
        assert is_in_file(now[name]) and now[name].flags.writeable == writeable, name
    assert (mesh.digest, mesh.coordinates.version) == (digest, version) and cut.local(mesh.cells) is local
    assert np.shares_memory(mesh.lists.faces.entries, mesh.face_nodes.indices), "what lay in one place does so still"
    share(FIRST, cut)
    assert arrays_of(mesh, cut)["face_cells"] is now["face_cells"], "once is enough"


def test_what_is_written_later_is_this_ranks_own() -> None:
    """Nodes that move: pages that a rank has written are its own, and sets of the mesh stay where they were."""
    mesh, cut = cut_mesh()
    share(FIRST, cut)
    places, points = mesh.coordinates.numpy(), mesh.nodes.points.copy()
    mesh.coordinates.assign(places + 1.0)
    assert np.array_equal(mesh.coordinates.numpy(), places + 1.0) and np.array_equal(mesh.nodes.points, points)


def test_a_rank_with_other_values_keeps_them(folder: Path) -> None:
    same, other = np.arange(5.0), np.arange(4)
    with shared.opened_by_all(FIRST) as room:
        places = shared.written({"same": same, "other": other}, room)
        files = [shared.mapped(room) for _ in range(4)]
    found: dict[str, Any] = {}
    mine = {"same": same.copy(), "other": other[::-1].copy(), "longer": other}
    zero = np.where(same == 0.0, -0.0, same)  # equal, but not the same bits
    others = mine, {"same": same.astype(np.float32)}, {"same": np.arange(6.0)}, {"same": zero}
    for given, file in zip(others, files, strict=True):
        assert file is not None
        take({name: HeldArray(one, lambda new, name=name: found.update({name: new})) for name, one in given.items()},
             places, file)  # fmt: skip
    assert list(found) == ["same"] and np.array_equal(found["same"], same) and is_in_file(found["same"])


def interrupted() -> None:
    raise KeyboardInterrupt


def killed() -> None:
    """What a handler of signals does before it ends the process."""
    undo_all()
    interrupted()


@dataclass(frozen=True)
class Watching(World):
    """The first of two ranks, by itself: sizes of what is in the folder whenever it waits for others, and what comes to
    pass at one such time, if any."""

    size: int = 2
    folder: Path = Path()
    ends: int = 0
    how: Callable[[], None] = interrupted
    seen: list[list[int]] = field(default_factory=list)

    def of_first_on_node(self, value: Any, what: str) -> Any:
        self.wait_for_node(what)
        return value

    def wait_for_node(self, what: str) -> None:
        self.seen.append([one.stat().st_size for one in self.folder.iterdir()])
        if len(self.seen) == self.ends:
            self.how()


@pytest.mark.parametrize("make", ["share", "made once"])
@pytest.mark.parametrize("how", [interrupted, killed])
def test_however_a_run_ends_there_is_no_file_of_its_values(make: str, how: Callable[[], None], folder: Path) -> None:
    """While values are written, and until everybody has mapped them, there is no name: what ends a rank at once, such
    as want of memory, leaves nothing either."""
    mesh, cut = cut_mesh()

    def work(world: World) -> object:
        return share(world, cut) if make == "share" else once._made_on_node(world, lambda: mesh)

    work(calm := Watching(folder=folder))
    named = [sizes for sizes in calm.seen if sizes]
    assert named == [[0]] * 2 and calm.seen[2:] == [[]] * (len(calm.seen) - 2) and len(calm.seen) > 2
    for ends in range(1, len(calm.seen) + 1):
        mesh, cut = cut_mesh()
        with pytest.raises(KeyboardInterrupt):
            work(Watching(folder=folder, ends=ends, how=how))
        assert not list(folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_what_is_raised_while_values_are_written_leaves_no_file(
    error: type[BaseException], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[Path]] = []

    def ends(one: np.ndarray, other: np.ndarray) -> bool:
        found.append(list(folder.iterdir()))
        raise error

    monkeypatch.setattr(shared, "_begins", ends)
    with pytest.raises(error):
        share(FIRST, cut_mesh()[1])
    assert found == [[]] and not list(folder.iterdir())


@pytest.mark.parametrize("room", ["no folder", "no room"])
def test_without_a_file_everything_stays(room: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_folder(prefix: str) -> tuple[int, str]:
        raise FileNotFoundError(prefix)

    def no_room(prefix: str) -> tuple[int, str]:
        (folder / prefix).touch()
        return os.open("/dev/full", os.O_WRONLY), str(folder / prefix)

    mesh, cut = cut_mesh()
    before = arrays_of(mesh, cut)
    monkeypatch.setattr(tempfile, "mkstemp", no_folder if room == "no folder" else no_room)
    share(FIRST, cut)
    assert not list(folder.iterdir()) and not any(is_in_file(one) for one in arrays_of(mesh, cut).values())
    assert arrays_of(mesh, cut)["positions"] is before["positions"]
    assert shared._opened(str(folder / "gone")) is None is shared.mapped(None)
