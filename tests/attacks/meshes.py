"""Mesh files that something has happened to, and mesh files with one fault planted."""

from __future__ import annotations

import io
import random
import re
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.mesh import Mesh
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.mesh_files import GMSH_CELL, GMSH_NODE, Parts, changed, content_of, mesh_of, some_file, written
from tests.attacks.mesh_judge import faults

_CPU_SECONDS = 4.0  # of this process, whatever else the machine does; the files are small, and take milliseconds


def read_quietly(path: Path) -> Mesh | str:
    """The mesh, or the line with which it is refused; whatever else happens is Broken."""
    begin, said = time.process_time(), io.StringIO()
    found: Mesh | str
    with warnings.catch_warnings(record=True) as warned, redirect_stdout(said), redirect_stderr(said):
        warnings.simplefilter("always")
        try:
            found = ml.read(path)
        except MeshError as refusal:
            found = str(refusal)
    if (took := time.process_time() - begin) > _CPU_SECONDS:
        raise Broken(f"it took {took:.1f} s of CPU time")
    told = [str(one.message) for one in warned if not _of_empty_names(str(one.message), path, found)]
    if told or said.getvalue():
        raise Broken(f"a warning: {told} {said.getvalue()}")
    if isinstance(found, str):
        if "\n" in found or not found.startswith((str(path), f"cannot read {path}")):
            raise Broken(f"not one line that begins with the file: {found}")
        if ("not a readable" in found and path.suffix != ".vtu") or "more memory" in found:
            raise Broken(f"refused by accident: {found}")
    return found


def _of_empty_names(warning: str, path: Path, found: Mesh | str) -> bool:
    """Is it one line about names that nothing in a mesh carries, which damage may leave behind?"""
    begins = (f"{path}: no boundary face carries the name: ", f"{path}: no cell carries the name: ")
    return not isinstance(found, str) and warning.startswith(begins) and "\n" not in warning


def damaged_files(dice: random.Random, folder: Path) -> str:
    """A changed file is refused in one line, or holds a sound mesh."""
    name, kind = some_file(dice)
    path = folder / f"mesh{Path(name).suffix}"
    path.write_bytes(changed(dice, content_of(name, kind)))
    found = read_quietly(path)
    if isinstance(found, str):
        return "refused"
    wrong = faults(found)
    if wrong:
        raise Broken(f"{name}, {kind}: read, but {'; '.join(wrong[:3])}")
    return "a sound mesh"


# ---- one fault planted ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """Parts with one fault; the line must name one of these cells or nodes."""

    parts: Parts
    cells: set[int] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)


def _inside(parts: Parts) -> np.ndarray:
    """Whether each node lies inside the domain, off every boundary and cut, (n,)."""
    _, at, copies = np.unique(parts.x, axis=0, return_inverse=True, return_counts=True)
    inside = copies[at.reshape(-1)] == 1
    inside[np.concatenate([faces.ravel() for faces in parts.groups.values()])] = False
    return inside


def _some_cell(dice: random.Random, parts: Parts, whole: bool = False) -> int:
    """Any cell, or one with nodes inside the domain alone."""
    inside = _inside(parts)[parts.cells].all(axis=1) if whole else np.ones(len(parts.cells), dtype=bool)
    return int(dice.choice(np.flatnonzero(inside).tolist()))


def _with_cell(parts: Parts, cell: int, nodes: np.ndarray | list[int]) -> Parts:
    cells = parts.cells.copy()
    cells[cell] = nodes
    return replace(parts, cells=cells)


def bow_tie(dice: random.Random, parts: Parts) -> Planted | None:
    if parts.kind not in ("quad", "hexahedron"):
        return None
    cell = _some_cell(dice, parts)
    nodes = parts.cells[cell].tolist()
    first = dice.randrange(3)
    nodes[first], nodes[first + 1] = nodes[first + 1], nodes[first]
    return Planted(_with_cell(parts, cell, nodes), {cell})


def twice(dice: random.Random, parts: Parts) -> Planted:
    """A cell given again, in another order."""
    cell = _some_cell(dice, parts)
    again = np.roll(parts.cells[cell], 1) if parts.kind in ("quad", "triangle") else parts.cells[cell]
    return Planted(replace(parts, cells=np.vstack((parts.cells, again))), {cell, len(parts.cells)})


def node_repeated(dice: random.Random, parts: Parts) -> Planted:
    cell = _some_cell(dice, parts)
    nodes = parts.cells[cell].tolist()
    a, b = dice.sample(range(len(nodes)), 2)
    nodes[a] = nodes[b]
    return Planted(_with_cell(parts, cell, nodes), {cell})


def node_through_cell(dice: random.Random, parts: Parts) -> Planted:
    """A node pushed through one of its cells and out at the other side."""
    node = int(dice.choice(np.flatnonzero(_inside(parts)).tolist()))
    around = np.flatnonzero((parts.cells == node).any(axis=1)).tolist()
    across = np.setdiff1d(parts.cells[dice.choice(around)], [node])
    x = parts.x.copy()
    x[node] += 2.5 * (x[across].mean(axis=0) - x[node])
    near = (parts.cells[:, :, None] == np.unique(parts.cells[around])).any(axis=(1, 2))
    return Planted(replace(parts, x=x), {*np.flatnonzero(near).tolist()})


def wrong_node(dice: random.Random, parts: Parts) -> Planted:
    """A cell inside the domain that names a node of another place inside."""
    cell = _some_cell(dice, parts, whole=True)
    nodes = parts.cells[cell].tolist()
    slot = dice.randrange(len(nodes))
    nodes[slot] = int(dice.choice(np.setdiff1d(np.flatnonzero(_inside(parts)), nodes).tolist()))
    return Planted(_with_cell(parts, cell, nodes), {cell})


def not_a_number(dice: random.Random, parts: Parts) -> Planted:
    x, node = parts.x.copy(), dice.randrange(len(parts.x))
    x[node, dice.randrange(x.shape[1])] = dice.choice((np.nan, np.inf, -np.inf))
    return Planted(replace(parts, x=x), nodes={node})


def bounds_nothing(dice: random.Random, parts: Parts) -> Planted:
    """A boundary face given where two cells meet, or twice."""
    width = parts.faces.shape[1] - 2
    name, face = dice.choice([*parts.groups]), parts.faces[dice.randrange(len(parts.faces)), :width]
    if dice.random() < 0.5:
        face = parts.groups[name][dice.randrange(len(parts.groups[name]))]
    groups = {**parts.groups, name: np.vstack((parts.groups[name], face))}
    return Planted(replace(parts, groups=groups), nodes={*face.tolist()})


def face_lost(dice: random.Random, parts: Parts) -> Planted:
    face = dice.randrange(len(parts.faces))
    return Planted(replace(parts, faces=np.delete(parts.faces, face, axis=0)), {*parts.faces[face, 2:].tolist()})


def face_twice(dice: random.Random, parts: Parts) -> Planted:
    face = parts.faces[dice.randrange(len(parts.faces))]
    return Planted(replace(parts, faces=np.vstack((parts.faces, face))), {*face[2:].tolist()})


def face_backwards(dice: random.Random, parts: Parts) -> Planted:
    faces, face = parts.faces.copy(), dice.randrange(len(parts.faces))
    faces[face] = faces[face][[1, 0, 2, 3] if dice.random() < 0.5 else [0, 1, 3, 2]]
    return Planted(replace(parts, faces=faces), {*faces[face, 2:].tolist()})


def neighbours_swapped(dice: random.Random, parts: Parts) -> Planted:
    """Two faces with each other's cell behind them."""
    faces = parts.faces.copy()
    a, b = dice.sample(range(len(faces)), 2)
    side = dice.choice((2, 3))
    if faces[a, side] == faces[b, side]:
        return neighbours_swapped(dice, parts)
    faces[[a, b], side] = faces[[b, a], side]
    return Planted(replace(parts, faces=faces), {*faces[[a, b], 2:].ravel().tolist()})


def cell_backwards(dice: random.Random, parts: Parts) -> Planted:
    cell = _some_cell(dice, parts)
    return Planted(_with_cell(parts, cell, parts.cells[cell][::-1]), {cell})


def boundary_elsewhere(dice: random.Random, parts: Parts) -> Planted:
    """A boundary face at the wrong cell."""
    boundary, at = parts.boundary.copy(), dice.randrange(len(parts.boundary))
    boundary[at, 2] = (boundary[at, 2] + dice.randrange(1, len(parts.cells))) % len(parts.cells)
    return Planted(replace(parts, boundary=boundary), {int(boundary[at, 2])})


_Plant = Callable[[random.Random, Parts], Planted | None]
_ANYWHERE: tuple[_Plant, ...] = (bow_tie, twice, node_repeated, node_through_cell, wrong_node, not_a_number)
_WITH_GROUPS: tuple[_Plant, ...] = (*_ANYWHERE, bounds_nothing)
_WITH_FACES: tuple[_Plant, ...] = (*_ANYWHERE, face_lost, face_twice, face_backwards, neighbours_swapped,
                                   cell_backwards, boundary_elsewhere)  # fmt: skip


def _named(pattern: str, line: str, first: int) -> set[int]:
    """The numbers in what a pattern finds, counted from 0."""
    return {int(number) - first for some in re.findall(pattern, line) for number in re.findall(r"\d+", some)}


def planted_faults(dice: random.Random, folder: Path) -> str:
    """A file with one fault is refused, and the line names the culprit by the file's own number."""
    name, kind = some_file(dice)
    name = {"binary.vtu": "text.vtu"}.get(name, name)
    ways = _WITH_FACES if name == "mesh.dat" else _ANYWHERE if name.endswith(".vtu") else _WITH_GROUPS
    way, found = ways[0], None
    while found is None:
        way = dice.choice(ways)
        found = way(dice, Parts.of(mesh_of(kind)))
    path = folder / f"mesh{Path(name).suffix}"
    path.write_bytes(written(name, found.parts))
    line = read_quietly(path)
    if not isinstance(line, str):
        raise Broken(f"{name}, {kind}, {way.__name__}: read as if nothing were wrong")
    line = line.removeprefix(f"{path}: ")
    first_cell, first_node = (GMSH_CELL, GMSH_NODE) if name.endswith(".msh") else (0, 0)
    cells = _named(r"cells? (\d[\d, and]*)", line, first_cell)
    nodes = _named(r"(?:node |\()(\d[\d, ]*)", line, first_node)
    if not (cells & found.cells or (not found.cells and nodes >= found.nodes)):
        culprits = f"cells {found.cells} or nodes {found.nodes}"
        raise Broken(f"{name}, {kind}, {way.__name__}: {culprits} are not named: {line}")
    return way.__name__.replace("_", " ")


CAMPAIGNS = (
    Campaign("meshes", "bits, numbers, lines, nodes and sections changed in mesh files of every format and kind",
             "refused in one line, or a mesh with closed cells of positive volume; no warning, no waiting",
             damaged_files, few=40, many=5000, seconds=15.0),
    Campaign("twisted", "sound mesh files with one fault: a cell twice, crossing itself or turned inside out, a wrong"
             " node, faces lost, doubled or with the wrong cells",
             "refused, and the line names the culprit by the file's own number",
             planted_faults, few=40, many=2000),
)  # fmt: skip
