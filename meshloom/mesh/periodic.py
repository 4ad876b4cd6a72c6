"""Periodic boundaries: the faces of two groups are paired, and every pair becomes one interior face, a joint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshloom.errors import MeshError, known_name, shown
from meshloom.mesh.connectivity import NodeLists, SizeBlock
from meshloom.mesh.input_checks import by_name
from meshloom.mesh.joints import Joints
from meshloom.mesh.protocols import MeshData
from meshloom.mesh.validation_error import ValidationError

_MOST_APART = 0.1  # of the size of a face: what is further away is another place
_SAME_SHAPE = 1e-3  # of the size of a face: nodes of partners lie no further apart, seen from their middles


def paired_groups(mesh: MeshData, twins: Sequence[np.ndarray]) -> dict[str, str]:
    """Groups of the boundary that belong together, {"xmin": "xmax"}, by pairs of nodes (n, 2) of periodic sides: each
    node, and the one that it is a copy of. A group whose faces have no partners, or such in two groups, is left out."""
    names = {number: name for name, number in mesh.groups.items()}
    ends, group = mesh.lists.boundary_faces, mesh.boundary_group.numpy()
    at = {tuple(sorted(row.tolist())): number for number, row in enumerate(ends)} if twins else {}
    partners: dict[str, set[str]] = {}
    for pairs in twins:
        other = np.full(mesh.nodes.total, -1)
        other[pairs[:, 0]] = pairs[:, 1]
        sides = np.logical_and.reduceat(other[ends.entries] >= 0, ends.starts[:-1]) if len(ends) else np.zeros(0, bool)
        for number in np.flatnonzero(sides).tolist():
            found = at.get(tuple(sorted(other[ends[number]].tolist())))
            if found is not None:
                partners.setdefault(names[int(group[number])], set()).add(names[int(group[found])])
    taken: set[str] = set()
    result = {}
    for name, others in partners.items():
        (first,) = others if len(others) == 1 else (name,)
        if first != name and not {name, first} & taken:
            result[name] = first
            taken |= {name, first}
    return result


def joined(mesh: MeshData, pairs: Mapping[str, str], tolerance: float) -> dict[str, Any]:
    """What the mesh with paired groups is made of, by the names of the arguments of ``Mesh``."""
    names = by_name("periodic", pairs)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0.0 < tolerance <= _MOST_APART:
        raise MeshError(f"periodic: tolerance must be a number above 0 and up to {_MOST_APART}, got {shown(tolerance)}")
    for name, other in names.items():
        for one in (name, other):
            known_name("boundary group", one, mesh.groups, error=MeshError)
    used = [one for pair in names.items() for one in pair]
    twice = [one for one in used if used.count(one) > 1]
    if not used:
        raise MeshError('periodic: which groups belong together? Say {"xmin": "xmax"}')
    if twice:
        raise MeshError(f"periodic: group {twice[0]} is named twice; each may have one partner")
    if any(getattr(mesh, one).halo for one in ("nodes", "cells", "faces", "boundary_faces")):
        raise MeshError("periodic: this is a part of a mesh, with copies of elements of others; join the mesh as one")
    found = [_paired(mesh, name, other, float(tolerance)) for name, other in names.items()]
    return _with_faces(mesh, np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found]), used)


def _paired(mesh: MeshData, name: str, other: str, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Boundary faces (p,) of one group and of the other that are matched by translation."""
    from scipy.spatial import cKDTree

    here, there = mesh.group(name), mesh.group(other)
    if len(here) != len(there) or len(here) == 0:
        raise MeshError(f"periodic: group {name} has {len(here)} faces and group {other} {len(there)}; each needs a"
                        " partner")  # fmt: skip
    centres, normals = mesh.boundary_centres, mesh.boundary_normals
    areas = np.linalg.norm(normals, axis=1)
    sizes = areas ** (1.0 / (mesh.dim - 1))
    shift = np.average(centres[there], axis=0, weights=areas[there]) - np.average(
        centres[here], axis=0, weights=areas[here])  # fmt: skip
    distance, nearest = cKDTree(centres[there]).query(centres[here] + shift)
    apart = np.asarray(distance)
    wrong = apart > tolerance * sizes[here]
    if wrong.any():
        face = here[np.argmax(wrong)]
        raise _no_partner(mesh, face, name, other, shift, f"the nearest is {apart[wrong][0]:.3g} away")
    taken, times = np.unique(nearest, return_counts=True)
    if (times > 1).any():
        face = there[np.setdiff1d(np.arange(len(there)), taken)[0]]
        raise _no_partner(mesh, face, other, name, -shift, "another face is nearer to it")
    partner = there[nearest]
    against = np.linalg.norm(normals[here] + normals[partner], axis=1) > np.sqrt(tolerance) * areas[here]
    if against.any():
        face = here[np.argmax(against)]
        raise _no_partner(mesh, face, name, other, shift, "the one there does not face it")
    return here, partner


def _no_partner(mesh: MeshData, face: int, name: str, other: str, shift: np.ndarray, why: str) -> ValidationError:
    by = ", ".join(f"{part:.6g}" for part in shift)
    problem = f"periodic: face {{nodes}} of group {name} has no partner in group {other}, shifted by ({by}): {why}"
    error = ValidationError(problem, nodes=mesh.lists.boundary_faces[int(face)])
    return error.placed(mesh.coordinates.numpy())


def _with_faces(mesh: MeshData, here: np.ndarray, there: np.ndarray, used: list[str]) -> dict[str, Any]:
    """The mesh with pairs of boundary faces as interior ones, behind those that it has."""
    of = mesh.boundary_cells.indices[:, 0]
    later = of[here] > of[there]  # the smaller cell comes first, as everywhere
    first, second = np.where(later, there, here), np.where(later, here, there)
    ends, group = mesh.lists.boundary_faces, mesh.boundary_group.numpy()
    nodes = ends.taken(first)
    centres = mesh.boundary_centres
    joints = Joints(
        len(mesh.faces) + np.arange(len(first)),
        centres[first] - centres[second],
        _matched(mesh.coordinates.numpy(), nodes, ends.taken(second)),
        np.stack((group[first], group[second]), axis=1),
        {name: mesh.groups[name] for name in used},
    )
    old = mesh.joints
    kept = np.setdiff1d(np.arange(len(ends)), np.concatenate((here, there)))
    return {
        "face_nodes": NodeLists.joined([mesh.lists.faces, nodes]),
        "face_cells": np.concatenate((mesh.face_cells.indices, np.stack((of[first], of[second]), axis=1))),
        "boundary_nodes": ends.taken(kept),
        "boundary_cells": of[kept],
        "boundary_group": group[kept],
        "groups": {name: number for name, number in mesh.groups.items() if name not in used},
        "joints": Joints(
            np.concatenate((old.faces, joints.faces)),
            np.concatenate((old.shifts, joints.shifts)),
            NodeLists.joined([old.nodes, joints.nodes]) if len(old) else joints.nodes,
            np.concatenate((old.sides, joints.sides)),
            {**old.groups, **joints.groups},
        ),
    }


def _matched(x: np.ndarray, mine: NodeLists, theirs: NodeLists) -> NodeLists:
    """The nodes of the second sides, each in the place of the node of the first side that lies there."""
    odd = np.flatnonzero(mine.lengths != theirs.lengths)
    if len(odd):
        raise ValidationError("periodic: face {nodes} has another number of nodes than its partner",
                              nodes=mine[int(odd[0])]).placed(x)  # fmt: skip
    parts = []
    for one, other in zip(mine.sizes, theirs.sizes, strict=True):
        k = one.nodes.shape[1]
        goal = x[one.nodes] - x[one.nodes].mean(axis=1, keepdims=True)
        size = np.linalg.norm(np.ptp(x[one.nodes], axis=1), axis=1)
        best, error = np.zeros_like(other.nodes), np.full(len(goal), np.inf)
        for step in range(k if k > 2 else 1):
            order = np.roll(np.arange(k)[::-1], step)
            place = x[other.nodes[:, order]]
            off = np.abs(place - place.mean(axis=1, keepdims=True) - goal).max(axis=(1, 2))
            best[off < error], error = other.nodes[:, order][off < error], np.minimum(off, error)
        if (error > _SAME_SHAPE * size).any():
            at = int(np.argmax(error > _SAME_SHAPE * size))
            raise ValidationError("periodic: face {nodes} has its nodes at other places than its partner",
                                  nodes=one.nodes[at]).placed(x)  # fmt: skip
        parts.append(SizeBlock(one.numbers, best))
    return NodeLists.of_sizes(len(mine), parts)


def opened(mesh: MeshData) -> dict[str, Any]:
    """What the mesh is made of with the two sides of its joints as boundary faces again, in their groups."""
    joints, lists = mesh.joints, mesh.lists
    inner = np.setdiff1d(np.arange(len(mesh.faces)), joints.faces)
    pairs = mesh.face_cells.indices
    backwards = joints.nodes.turned(np.ones(len(joints), dtype=bool))
    groups = [mesh.boundary_group.numpy(), joints.sides[:, 0], joints.sides[:, 1]]
    return {
        "face_nodes": lists.faces.taken(inner),
        "face_cells": pairs[inner],
        "boundary_nodes": NodeLists.joined([lists.boundary_faces, lists.faces.taken(joints.faces), backwards]),
        "boundary_cells": np.concatenate((mesh.boundary_cells.indices[:, 0], *pairs[joints.faces].T)),
        "boundary_group": np.concatenate(groups).astype(np.int32),
        "groups": dict(sorted({**mesh.groups, **joints.groups}.items(), key=lambda one: one[1])),
    }
