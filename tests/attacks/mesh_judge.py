"""What a mesh must be like, found out otherwise than in the package: one cell at a time, on paper's formulas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np

from meshloom.mesh.mesh import Mesh

#: The sides of each kind as loops of local nodes, outwards, from pictures of the cells.
SIDES = {
    "triangle": ("01", "12", "20"),
    "quad": ("01", "12", "23", "30"),
    "tetrahedron": ("021", "013", "123", "032"),
    "pyramid": ("0321", "014", "124", "234", "304"),
    "prism": ("012", "354", "0341", "1452", "2530"),
    "hexahedron": ("0321", "4567", "0154", "1265", "2376", "3047"),
}


def faults(mesh: Mesh) -> list[str]:
    """What is wrong, in words; nothing for a sound mesh."""
    x = mesh.coordinates.numpy()
    cells = [nodes.tolist() for nodes in mesh.lists.cells.nodes]
    kinds = {cell: kind for kind, numbers in mesh.cells.kinds.items() for cell in numbers}
    sides = [[[*map(int, side)] for side in _sides(kinds[cell], len(nodes))] for cell, nodes in enumerate(cells)]
    if not np.isfinite(x).all():
        return ["coordinates that are not finite"]
    found = []
    for number, nodes in enumerate(cells):
        if len({*nodes}) < len(nodes):
            found.append(f"cell {number}: a node twice")
        if not _volume(x, nodes, sides[number]) > 0:
            found.append(f"cell {number}: volume {_volume(x, nodes, sides[number])}")
        if kinds[number] == "quad" and _crosses_itself(x[nodes]):
            found.append(f"cell {number}: a bow-tie")
    return found + _faces(mesh, x, cells, sides) + _overlaps(mesh, x, cells)


def _sides(kind: str, corners: int) -> Iterable[Iterable[str | int]]:
    return SIDES[kind] if kind in SIDES else [(k, (k + 1) % corners) for k in range(corners)]


def _faces(mesh: Mesh, x: np.ndarray, cells: list[list[int]], sides: list[list[list[int]]]) -> list[str]:
    """Every side has one face; outward vectors of faces sum to zero in each cell; faces are where their cells are."""
    interior = (mesh.lists.faces, mesh.face_cells, (1, -1))
    boundary = (mesh.lists.boundary_faces, mesh.boundary_cells, (1,))
    owners = [(nodes.tolist(), of, signs) for lists, map_, signs in (interior, boundary)
              for nodes, of in zip(lists, map_.indices.tolist(), strict=True)]  # fmt: skip
    total, scale, count = np.zeros((len(cells), x.shape[1])), np.zeros(len(cells)), Counter[int]()
    found = []
    for nodes, of, signs in owners:
        vector = _vector(x[nodes])
        for cell, sign in zip(of, signs, strict=True):
            total[cell] += sign * vector
            scale[cell] += float(np.abs(vector).sum())
            count[cell] += 1
            middles = [x[[cells[cell][local] for local in side]].mean(axis=0) for side in sides[cell]]
            size = float(np.ptp(x[nodes], axis=0).max())
            if min(float(np.abs(middle - x[nodes].mean(axis=0)).max()) for middle in middles) > 1e-5 * size:
                found.append(f"face {nodes} is not at cell {cell}")
    found += [f"cell {cell} has {count[cell]} faces" for cell in range(len(cells)) if count[cell] != len(sides[cell])]
    open_cells = np.flatnonzero(~(np.abs(total).sum(axis=1) <= 1e-5 * scale))
    return found + [f"cell {cell} is not closed" for cell in open_cells.tolist()]


def _vector(loop: np.ndarray) -> np.ndarray:
    """Normal times area of a loop of points."""
    if loop.shape[1] == 2:
        (ax, ay), (bx, by) = loop
        return np.array((ay - by, bx - ax))
    loop = loop - loop[0]
    return sum((np.cross(a, b) for a, b in pairwise(loop[1:])), np.zeros(3)) / 2


def _volume(x: np.ndarray, nodes: list[int], sides: list[list[int]]) -> float:
    """Shoelaces in 2-D. In 3-D cones over the sides; those of four nodes count as the mean of both ways to cut them."""
    p = x[nodes] - x[nodes[0]]
    if x.shape[1] == 2:
        return sum(p[a, 0] * p[b, 1] - p[b, 0] * p[a, 1] for a, b in sides) / 2
    total = 0.0
    for side in sides:
        cuts = [side[k:] + side[:k] for k in range(len(side) - 2)] if len(side) == 4 else [side]
        for a, b, c, *rest in cuts:
            total += np.linalg.det(p[[a, b, c]]) / len(cuts)
            total += sum(np.linalg.det(p[[a, c, d]]) for d in rest) / len(cuts)
    return total / 6


def _crosses_itself(p: np.ndarray) -> bool:
    """Whether two opposite edges of a quadrilateral cut through each other."""

    def left(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    return any(
        left(a, b, c) * left(a, b, d) < 0 and left(c, d, a) * left(c, d, b) < 0
        for a, b, c, d in ((p[0], p[1], p[2], p[3]), (p[1], p[2], p[3], p[0]))
    )


def _overlaps(mesh: Mesh, x: np.ndarray, cells: list[list[int]]) -> list[str]:
    """Triangles that share a node and have their middle inside each other."""
    if mesh.kind != "triangle":
        return []
    found = []
    for (a, here), (b, there) in combinations(enumerate(cells), 2):
        if {*here} & {*there} and (_within(x[here], x[there]) or _within(x[there], x[here])):
            found.append(f"cells {a} and {b} overlap")
    return found


def _within(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the middle of one triangle lies inside the other, without rounding: nodes may be far away."""
    corners = [[Fraction(value) for value in point] for point in other.tolist()]
    px, py = (sum(map(Fraction, values)) / 3 for values in one.T.tolist())
    turns = [(bx - ax) * (py - ay) - (by - ay) * (px - ax)
             for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True)]  # fmt: skip
    return all(turn > 0 for turn in turns) or all(turn < 0 for turn in turns)
