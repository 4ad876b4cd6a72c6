"""Meshes of several kinds of cells for the tests: random ones that fill the unit square or cube."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import Delaunay

from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.connectivity import CellTable, NodeLists
from meshloom.mesh.generate import box
from meshloom.mesh.mesh import Mesh

Cells = dict[str, Any]


def plane(seed: int, *, polygons: bool = True) -> tuple[np.ndarray, Cells]:
    """The unit square with random inner nodes: quadrilaterals, some cut into triangles, and, where four of them meet,
    some joined to one polygon; others are Delaunay's triangles."""
    rng = np.random.default_rng(seed)
    n = 6
    mesh = box((n, n))
    x = moved(mesh, rng, 0.02)
    found: dict[str, list[list[int]]] = {"quad": [], "triangle": [], "polygon": []}
    for row, column in np.ndindex(n // 2, n // 2):
        first = 2 * row * (n + 1) + 2 * column
        ring = [first, first + 1, first + 2, first + n + 3, first + 2 * n + 4, first + 2 * n + 3, first + 2 * n + 2,
                first + n + 1]  # fmt: skip
        how = rng.integers(4)
        if how == 0 and polygons:
            found["polygon"].append(ring)
        elif how == 1:
            flat = [[0, 0], [1, 0], [2, 0], [2, 1], [2, 2], [1, 2], [0, 2], [0, 1], [1.1, 0.9]]
            found["triangle"] += np.array([*ring, first + n + 2])[Delaunay(flat).simplices].tolist()
        else:
            middle = first + n + 2
            for k in range(0, 8, 2):
                quad = [ring[k], ring[k + 1], middle, ring[k - 1]]
                if rng.integers(2):
                    found["quad"].append(quad)
                else:
                    found["triangle"] += [quad[:3], [quad[0], *quad[2:]]]
    return x, {kind: rows for kind, rows in found.items() if rows}


def moved(mesh: Mesh, rng: np.random.Generator, by: float) -> np.ndarray:
    """The coordinates of a mesh, those inside moved at random."""
    x = mesh.coordinates.numpy()
    inner = np.setdiff1d(np.arange(len(x)), mesh.lists.boundary_faces.entries)
    x[inner] += rng.uniform(-by, by, (len(inner), x.shape[1]))
    return x


def space(seed: int, n: int = 3) -> tuple[np.ndarray, Cells]:
    """The unit cube: cuboids with random inner nodes, so with warped sides, some cut into pyramids round their middle,
    some into two prisms where the neighbours' sides allow it; pyramids' own halves are tetrahedra."""
    rng = np.random.default_rng(seed)
    mesh = box((n, n, n))
    x = moved(mesh, rng, 0.12 / n)
    cuboids = mesh.cell_nodes.indices.astype(int)
    columns = rng.integers(0, 3, (n, n))  # what becomes of each column of cuboids along z
    found: dict[str, list[list[int]]] = {"hexahedron": [], "pyramid": [], "prism": [], "tetrahedron": []}
    points = [x]
    for number, corners in enumerate(cuboids):
        how = columns[number // n % n, number % n]
        if how == 1:  # cut along its diagonal, as all of its column: its floor and roof have triangles
            found["prism"] += [corners[[0, 2, 1, 4, 6, 5]].tolist(), corners[[0, 3, 2, 4, 7, 6]].tolist()]
        elif how == 2 and rng.integers(2):
            middle = len(x) + len(points) - 1
            points.append(x[corners].mean(axis=0)[None])
            level = (number // n**2 - 1, number // n**2 + 1)
            for k, side in enumerate(KINDS["hexahedron"].faces):
                base = corners[list(side)][::-1].tolist()
                if k < 2 and not 0 <= level[k] < n:  # on the boundary a side may be cut
                    found["tetrahedron"] += [[*base[:3], middle], [base[0], *base[2:], middle]]
                else:
                    found["pyramid"].append([*base, middle])
        else:
            found["hexahedron"].append(corners.tolist())
    return np.concatenate(points), {kind: np.array(rows) for kind, rows in found.items() if rows}


def layered(seed: int) -> tuple[np.ndarray, Cells]:
    """Two layers of prisms over a random triangulation, and tetrahedra above them, to the point over it."""
    rng = np.random.default_rng(seed)
    flat = np.concatenate(([(0, 0), (1, 0), (1, 1), (0, 1)], 0.1 + 0.8 * rng.random((8, 2))))
    triangles = Delaunay(flat).simplices
    heights = np.array((0.0, 0.1, 0.3))
    x = np.concatenate([np.column_stack((flat, np.full(len(flat), z))) for z in heights])
    prisms = np.concatenate([np.column_stack((triangles + k * len(flat), triangles + (k + 1) * len(flat)))
                             for k in range(2)])  # fmt: skip
    tetrahedra = np.column_stack((triangles + 2 * len(flat), np.full(len(triangles), len(x))))
    return np.concatenate((x, [(0.5, 0.5, 1.0)])), {"prism": prisms, "tetrahedron": tetrahedra}


def shuffled_table(x: np.ndarray, cells: Cells, seed: int) -> tuple[np.ndarray, CellTable]:
    """The same mesh with nodes numbered at random and cells of all kinds in any order, some inside out."""
    rng = np.random.default_rng(seed)
    table = CellTable.by_kind(cells, None)
    old_node = rng.permutation(len(x))
    new_node = np.argsort(old_node)
    turned = []
    for block in table.blocks:
        nodes = block.nodes.copy()
        half = rng.random(len(nodes)) < 0.5
        nodes[half] = nodes[half][:, block.kind.mirrored]
        turned.append(nodes)
    return x[old_node], table.with_nodes(turned).taken(rng.permutation(len(table)), new_node)


def neighbours(table: CellTable) -> set[tuple[frozenset[int], frozenset[int]]]:
    """The interior faces, as nodes and cells, by looking at all sides of all cells."""
    met: dict[frozenset[int], list[int]] = {}
    for block in table.blocks:
        for cell, nodes in zip(block.listed(len(table)).tolist(), block.nodes, strict=True):
            for side in block.kind.faces:
                met.setdefault(frozenset(nodes[list(side)].tolist()), []).append(cell)
    return {(nodes, frozenset(cells)) for nodes, cells in met.items() if len(cells) == 2}


def rows(nodes: NodeLists) -> list[list[int]]:
    """The nodes of each element as Python numbers."""
    return [one.tolist() for one in nodes]
