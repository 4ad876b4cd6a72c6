"""Which boundary faces belong to which named group: lists of nodes, matched with the faces that were found."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meshloom.errors import MeshError
from meshloom.mesh.connectivity import NodeLists, node_lists
from meshloom.mesh.faces import equal_rows
from meshloom.mesh.faults import Fault
from meshloom.native.algorithms import distinct


def group_boundary(
    boundary: NodeLists, named: Mapping[str, object], n_nodes: int, sizes: tuple[int, ...]
) -> np.ndarray:
    """For each boundary face 1 + the position in ``named`` of the group that lists its nodes, or 0 for none.

    ``sizes``: the numbers of nodes that faces may have.
    """
    groups = np.zeros(len(boundary), dtype=np.int32)
    listed = {name: _checked_group(name, faces, sizes, n_nodes) for name, faces in named.items()}
    for size in sizes if listed else ():
        arrays = [lists.of_size(size).nodes for lists in listed.values()]
        here = boundary.of_size(size)
        groups[here.numbers] = _group_rows(here.nodes, arrays, list(listed), n_nodes)
    return groups


def _group_rows(boundary_nodes: np.ndarray, arrays: list[np.ndarray], names: list[str], n_nodes: int) -> np.ndarray:
    """The same for boundary faces (b, k) and groups (m, k) with one number of nodes."""
    groups = np.zeros(len(boundary_nodes), dtype=np.int32)
    rows = np.sort(np.concatenate([boundary_nodes, *arrays]), axis=1)
    claims = np.repeat(np.arange(len(names) + 1), [len(boundary_nodes), *map(len, arrays)])
    order, starts = equal_rows(rows, n_nodes)
    labels = np.empty(len(rows), dtype=np.int64)
    labels[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    face_of = np.full(len(starts), -1, dtype=np.int64)
    face_of[labels[: len(boundary_nodes)]] = np.arange(len(boundary_nodes))
    for group, name in enumerate(names, start=1):
        mine = np.flatnonzero(claims == group)
        faces = face_of[labels[mine]]
        if (faces < 0).any():
            face = rows[mine[np.argmax(faces < 0)]]
            raise _group_fault(name, "face {nodes} is not on the boundary of the mesh", face)
        taken = groups[faces] > 0
        if taken.any():
            face, holder = rows[mine[np.argmax(taken)]], names[groups[faces[taken][0]] - 1]
            raise _group_fault(name, f"face {{nodes}} belongs to group {_unbraced(holder)} already", face)
        if len(distinct(faces)) < len(faces):
            found, counts = np.unique(faces, return_counts=True)
            again = rows[mine[faces == found[np.argmax(counts)]][0]]
            raise _group_fault(name, "face {nodes} is listed twice", again)
        groups[faces] = group
    return groups


def _group_fault(name: str, problem: str, nodes: np.ndarray) -> Fault:
    return Fault(f"boundary group {_unbraced(name)}: {problem}", nodes=nodes)


def _unbraced(name: str) -> str:
    """A name that stands in a text with places for numbers."""
    return name.replace("{", "{{").replace("}", "}}")


def _checked_group(name: str, faces: object, sizes: tuple[int, ...], n_nodes: int) -> NodeLists:
    lists = node_lists(faces, f"boundary group {name}", sizes[0])
    odd = [part for part in lists.sizes if len(part.nodes) and part.nodes.shape[1] not in sizes]
    if odd:
        wanted = " or ".join(f"(n, {size})" for size in sizes)
        raise MeshError(f"boundary group {name}: expected node numbers of shape {wanted}, got {odd[0].nodes.shape}")
    entries = lists.entries
    if len(entries) and (entries.min() < 0 or entries.max() >= n_nodes):
        at = int(np.argmax((entries < 0) | (entries >= n_nodes)))
        bad = lists[int(np.searchsorted(lists.starts, at, side="right")) - 1]
        raise _group_fault(name, f"face {{nodes}}, but nodes go from 0 to {n_nodes - 1}", bad)
    return lists
