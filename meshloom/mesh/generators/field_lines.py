"""Lines from a wing to the far field that never cross: those along which charges on the wing would push.

1. Charges lie in the plane of the wing's chords, closer together towards its edges. Their strengths, a polynomial over the
   planform, are those that come closest to one potential on the whole surface: then lines leave it nearly at right
   angles, spread evenly, and end as rays. This is what a conformal map does in the plane. Images on the other side
   of the root make its plane one of symmetry.
2. All lines march together, layer by layer, by the same length. Close to the wall, within a local cell or so, they follow
   the normals of the surface, for layers of right prisms also where the charges are too coarse: at the sharp tail.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from meshloom.mesh.generators import m6_wing as wing
from meshloom.native.charges import mirrored_field

#: Charges along the chord and the span: they lie as close as the nodes of a mesh of half a million cells.
_CHARGES = (48, 36)
#: Terms of the polynomial along chord and span. Lines leave the surface within 6 degrees of its normal on half of
#: the nodes with 5 by 4 terms, 13 with one, 5 with 7 by 5, whose weakest charges come close to 0.
_TERMS = (5, 4)
#: Lines turn from the normal to the field within so many lengths of the shortest edge around: with 3 of the mean one,
#: those beside the tail rise too far, and leave a gap behind it.
_TURN = 1.0


def lines_from(surface: wing.WingSurface, heights: np.ndarray) -> np.ndarray:
    """Nodes (layers + 1, n, 3) on the lines from each node of the surface, at lengths ``heights`` (layers + 1,)."""
    charges = wing_charges()
    normals = node_normals(surface)
    turn = _TURN * _shortest_edges(surface)
    places = np.empty((len(heights), *surface.nodes.shape))
    places[0] = surface.nodes
    before = None
    for layer, step in enumerate(np.diff(heights)):
        field = _unit(mirrored_field(places[layer], charges))
        # Half a step on, as the field has changed since the layer before: second order for one evaluation.
        change = 0.0 if before is None else (field - before) * (step / 2 / (heights[layer] - heights[layer - 1]))
        normal_part = np.exp(-(heights[layer] + step / 2) / turn)[:, None]
        way = normal_part * normals + (1 - normal_part) * (field + change)
        way[surface.root, 1] = 0.0
        places[layer + 1] = places[layer] + step * _unit(way)
        before = field
    return places


@cache
def wing_charges() -> np.ndarray:
    """Charges (m, 5) of the half wing: place, blur and strength, as ``mirrored_field`` takes them."""
    along, across = ((np.arange(n) + 0.5) / n for n in _CHARGES)
    angle, span_angle = (a.ravel() for a in np.meshgrid(np.pi * along, np.pi / 2 * across))
    focus = wing.NOSE_RADIUS / 2  # of the parabola that the nose is: where a conformal map is singular
    x = focus + (1 - focus) * (1 - np.cos(angle)) / 2
    y = np.sin(span_angle) * (wing.SEMI_SPAN + wing.half_thickness(x) / 2 * wing.TIP_CHORD)
    on_wing = np.minimum(y, wing.SEMI_SPAN)
    chord = wing.chord(on_wing)
    places = np.stack((wing.leading_edge(on_wing) + x * chord, y, np.zeros_like(y)), axis=1)
    area = np.pi / _CHARGES[0] / 2 * np.sin(angle) * chord * np.pi / _CHARGES[1] / 2 * np.cos(span_angle) * wing.SEMI_SPAN
    terms = [np.cos(angle) ** i * np.sin(span_angle) ** (2 * j) for i in range(_TERMS[0]) for j in range(_TERMS[1])]
    # On a plate, charge is as dense as one over the roots of the distances from its edges, which the angles make even.
    shares = np.stack(terms, axis=1) * chord[:, None]
    potentials = _mirrored_potentials(wing.wing_surface(28, 16).nodes, places, area) @ shares
    strengths = shares @ np.linalg.lstsq(potentials, np.ones(len(potentials)), rcond=None)[0]
    charges = np.column_stack((places, area, strengths))
    charges.flags.writeable = False
    return charges


def _mirrored_potentials(points: np.ndarray, places: np.ndarray, blur: np.ndarray) -> np.ndarray:
    """The potential (n, m) at each point of each charge of strength 1 and its image."""
    sides = (np.sum((points[:, None] - places * (1, side, 1)) ** 2, axis=2) for side in (1, -1))
    return np.sum([1 / np.sqrt(squared + blur) for squared in sides], axis=0)


def node_normals(surface: wing.WingSurface) -> np.ndarray:
    """Unit normals (n, 3) at the nodes: those of the triangles around, by their angles there; level at the root."""
    corners = surface.nodes[surface.triangles]
    edges = [_unit(corners[:, (k + 1) % 3] - corners[:, k]) for k in range(3)]
    normals = _unit(np.cross(edges[0], -edges[2]))
    total = np.zeros_like(surface.nodes)
    for k in range(3):
        angle = np.arccos(np.clip(-np.sum(edges[k] * edges[k - 1], axis=1), -1, 1))
        for axis in range(3):
            total[:, axis] += np.bincount(surface.triangles[:, k], normals[:, axis] * angle, len(total))
    total[surface.root, 1] = 0.0
    return _unit(total)


def _shortest_edges(surface: wing.WingSurface) -> np.ndarray:
    """(n,): the length of the shortest edge at each node."""
    pairs = np.concatenate([surface.triangles[:, [k, (k + 1) % 3]] for k in range(3)])
    lengths = np.linalg.norm(surface.nodes[pairs[:, 0]] - surface.nodes[pairs[:, 1]], axis=1)
    shortest = np.full(len(surface.nodes), np.inf)
    np.minimum.at(shortest, pairs.T.ravel(), np.concatenate((lengths, lengths)))
    return shortest


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
