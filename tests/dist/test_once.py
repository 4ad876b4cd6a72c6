"""Meshes that all ranks would make alike are made by one rank of a node, and are what they would be."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.dist import placement, shared
from meshloom.dist.once import MADE, Asked, pack, unpacked
from meshloom.dist.placement import Placement
from meshloom.dist.shared import is_in_file
from meshloom.dist.world import World
from meshloom.errors import MeshError
from meshloom.mesh import generate
from meshloom.mesh.numbering import Rows
from meshloom.process import ranks as of_process
from tests.dist.launch import launched


@dataclass(frozen=True)
class First(World):
    """The first of two ranks, by itself: what is compared, and what the other one has."""

    size: int = 2
    node_size: int = 2
    compared: list[Any] = field(default_factory=list)
    other: list[Any] = field(default_factory=list)

    def allgathered(self, value: Any, what: str = "values") -> list[Any]:
        self.compared.append(value)
        return [value, *(self.other or [value])]

    @property
    def asked(self) -> list[str]:
        return [one.digest for one in self.compared]


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> First:
    """However small arrays are, they are worth a file."""
    found = First()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shared, "LEAST", 0)
    monkeypatch.setattr(placement, "world", lambda: found)
    monkeypatch.setattr(of_process, "_found", lambda: found)
    monkeypatch.setattr(Rows, "placement", Placement())
    return found


def arrays_of(one: Any, seen: set[int]) -> Iterator[np.ndarray]:
    """All arrays of a mesh, and of what it has, but for those of no element."""
    if isinstance(one, np.ndarray):
        yield from [one] if one.size else []
    elif id(one) not in seen and (isinstance(one, dict) or type(one).__module__.startswith("meshloom.mesh")):
        seen.add(id(one))
        held = one if isinstance(one, dict) else getattr(one, "__dict__", {}) | {"": getattr(one, "_storage", None)}
        for each in list(held.values()):
            yield from arrays_of(each, seen)


def lies_in_a_file(mesh: ml.Mesh) -> bool:
    """All of it, or nothing."""
    found = [is_in_file(one) for one in arrays_of(mesh, set())]
    assert len(found) > 10 and len(set(found)) == 1, "a mesh has more arrays"
    return found[0]


ASKED: dict[str, Callable[[], ml.Mesh]] = {
    "generated": lambda: ml.generate.box((5, 4), cells="triangle"),
    "arranged": lambda: ml.generate.box((5, 4), cells="triangle").arranged("random"),
    "as it was": lambda: ml.generate.box((5, 4)).arranged("given").arranged("given"),
    "reordered": lambda: ml.generate.naca0012(3, 4).reordered("hilbert"),
    "periodic": lambda: ml.generate.box((5, 4)).periodic({"xmin": "xmax"}).reordered("random"),
    "opened": lambda: ml.generate.box((5, 4)).arranged("random").periodic({"xmin": "xmax"}).opened(),
    "mixed": lambda: ml.generate.cylinder(8, 4, cells="mixed"),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_mesh_is_what_it_would_be_and_lies_in_a_file_that_is_gone(name: str, first: First, tmp_path: Path) -> None:
    with of_process.alone():
        plain = ASKED[name]()
    made = ASKED[name]()
    assert first.compared and not any(tmp_path.iterdir())
    assert lies_in_a_file(made) and not lies_in_a_file(plain)
    assert repr(made) == repr(plain) and made.digest == plain.digest and str(made.arrangement) == str(plain.arrangement)
    for which in ("nodes", "cells", "faces", "boundary_faces"):
        assert np.array_equal(made.permutation.of(which), plain.permutation.of(which))
        assert np.array_equal(getattr(made, which).points, getattr(plain, which).points)
        assert getattr(made, which).kept["mesh"]() is made
    writeable = [sorted(one.flags.writeable for one in arrays_of(mesh.lists, set())) for mesh in (made, plain)]
    assert writeable[0] == writeable[1]
    assert np.shares_memory(made.lists.faces.entries, made.face_nodes.indices), "what lay in one place does so still"
    made.coordinates.fill(0.0)
    assert made.nodes.points.any(), "what is written is this rank's own"


def test_a_read_mesh_is_made_once(first: First, tmp_path: Path) -> None:
    with of_process.alone():
        ml.write(tmp_path / "mesh.su2", ml.generate.box((3, 2)))
    read = ml.read(tmp_path / "mesh.su2")
    assert lies_in_a_file(read) and len(first.compared) == 1
    (tmp_path / "wrong.su2").write_text("NDIME= 2\nNELEM= 1\n5 0 1 7 0\nNPOIN= 1\n0 0 0\n")
    with of_process.alone(), pytest.raises(MeshError) as plain:
        ml.read(tmp_path / "wrong.su2")
    with pytest.raises(MeshError) as told:
        ml.read(tmp_path / "wrong.su2")
    assert str(told.value) == str(plain.value)


def test_ranks_that_ask_for_different_things_make_their_own(first: First) -> None:
    first.other.append(Asked("another digest", changed=False))
    mesh = ml.generate.box((5, 4))
    assert not lies_in_a_file(mesh) and MADE not in mesh.cells.kept
    mesh.reordered("random").periodic({"xmin": "xmax"})
    assert len(first.compared) == 1, "nothing is asked of the others for what is made of it"


def test_what_nobody_can_compare_is_each_ranks_own(first: First) -> None:
    """All ranks ask all the same: they may have been given something else."""
    with pytest.raises(MeshError, match="extent"):
        ml.generate.box((3, 2), extent=lambda: None)  # type: ignore[arg-type]
    assert first.asked == [""]


def test_other_arguments_are_other_meshes(first: First) -> None:
    """Also of what a mesh was made of."""
    for extent in (1.0, 2.0):
        mesh = ml.generate.box((3, 2), extent=(extent, 1.0))
        for seed in (0, 1):
            mesh.reordered("random", seed=seed)
    assert len(set(first.asked)) == 6


def test_meshes_of_a_script_are_its_own(first: First) -> None:
    square = ml.Mesh.from_cells([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2, 3]], "quad")
    square.reordered("random")
    assert not first.compared


def test_what_is_made_of_changed_values_is_each_ranks_own(first: First) -> None:
    mesh = ml.generate.box((3, 2))
    mesh.reordered("random")
    mesh.coordinates.assign(2.0 * mesh.coordinates.numpy())
    own = mesh.reordered("random")
    assert not lies_in_a_file(own) and MADE not in own.cells.kept
    *_, before, now = first.compared
    assert now == Asked(before.digest, changed=True), "others are asked, whose values may be as they were"


def test_a_rank_asks_where_another_has_changed_values(first: First) -> None:
    """Whether there is a collective is not up to what one rank has done."""
    mesh = ml.generate.box((3, 2))
    mesh.reordered("random")
    first.other.append(first.compared[-1]._replace(changed=True))
    own = mesh.reordered("random")
    assert not lies_in_a_file(own) and MADE not in own.cells.kept and len(first.compared) == 3


def test_arranging_asks_once_whatever_comes_of_it(first: First) -> None:
    """On another node there may be no compiler."""
    mesh = ml.generate.box((5, 4))
    for order, stays in (("given", True), ("random", False)):
        asked = len(first.compared)
        assert (mesh.arranged(order).cells is mesh.cells) == stays and len(first.compared) == asked + 1


def test_without_a_file_each_makes_its_own_and_the_first_only_once(
    first: First, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    counted: list[str] = []
    faces = generate._airfoil_faces

    def counting(node: np.ndarray, cell: np.ndarray, i: int) -> np.ndarray:
        counted.append("faces")
        return faces(node, cell, i)

    monkeypatch.setattr(generate, "_airfoil_faces", counting)
    mesh = ml.generate.naca0012(3, 4)
    assert len(counted) == 1 and not lies_in_a_file(mesh)
    mesh.reordered("random")
    assert len(first.compared) == 2, "ranks of other nodes may have files"


def test_what_is_small_needs_no_file(first: First, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "LEAST", 1 << 16)
    with of_process.alone():
        mesh = ml.generate.box((2, 1))
        packed = pack(mesh, None)
    assert packed is not None and not packed.places and unpacked(packed, None).digest == mesh.digest


# ----- under a launcher ----------------------------------------------------------------------------------------------
NODES = "tests.dist.on_ranks_nodes"
PLACES = "set cells has its elements at other places on rank 1 than on rank 0: all ranks must be given the same mesh"


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "made_by_one_of_each", "no_file_for_one", "error_on_one_node", "error_of_each_node", "changed_on_one",
    "changed_by_loops", "asked_by_the_root",
])  # fmt: skip
@pytest.mark.parametrize("checks", ["0", "60"])
def test_two_nodes_go_on_together(name: str, checks: str) -> None:
    """However one of their ranks fares."""
    done = launched(4, ["-m", NODES, name], MPIR_CVAR_NUM_CLIQUES="2", MESHLOOM_CHECK_RANKS=checks)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", ""), done.stderr[-3000:]


@pytest.mark.slow
def test_a_node_without_a_compiler_is_told_by_the_first_loop() -> None:
    """Its mesh lies otherwise, and nobody waits for what another node does not ask."""
    done = launched(4, ["-m", NODES, "no_compiler_on_one"], MPIR_CVAR_NUM_CLIQUES="2", MESHLOOM_CHECK_RANKS="60")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"meshloom: {PLACES}\n"), done.stderr[-3000:]


@pytest.mark.slow
def test_ranks_wait_for_the_first_of_their_node_as_long_as_it_takes() -> None:
    done = launched(2, ["-m", NODES, "one_takes_long"], MESHLOOM_CHECK_RANKS="2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", ""), done.stderr[-3000:]


@pytest.mark.slow
def test_one_rank_of_three_makes_a_mesh_of_200_000_cells() -> None:
    done = launched(3, ["-m", "tests.dist.on_ranks_once"])
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
