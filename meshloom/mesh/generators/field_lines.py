"""Lines from a wing to the far field that never cross: those along which charges on the wing would push.

1. Charged lines lie in the plane of the wing's chords, closer together towards its edges. Their charges, a polynomial
   over the planform, are those that come closest to one potential on the whole surface: then lines of the field leave
   it nearly at right angles, spread evenly, and end as rays. This is what a conformal map does in the plane. Images on
   the other side of the root make its plane one of symmetry.
2. All lines march together by the same length. Close to the wall, within a local cell or so, they follow the
   normals of the surface, for layers of right prisms also where the charges are too coarse: at the sharp tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import ceil

import numpy as np

from meshloom.mesh.generators import m6_wing as wing
from meshloom.native.charges import mirrored_field

#: Charged lines along the chord and the span.
_CHARGES = (48, 18)
#: Terms of the polynomial along chord and span. On half of the nodes lines leave within 4.6 degrees of the normal with
#: 5 by 4 terms, 10.5 with one, 4.0 with 7 by 5; with 9 by 6 some charges come close to 0.
_TERMS = (5, 4)
#: Lines turn from the normal to the field within so many lengths of the shortest edge around: with 3 of the mean one,
#: those beside the tail rise too far, and leave a gap behind it.
_TURN = 1.0
#: The longest step for its distance from the wing.
_STEP = 0.3


def lines_from(surface: wing.WingSurface, heights: np.ndarray) -> np.ndarray:
    """Nodes (layers + 1, n, 3) on the lines from each node of the surface, at lengths ``heights`` (layers + 1,)."""
    normals, turn = node_normals(surface), _TURN * _shortest_edges(surface)
    places = np.empty((len(heights), *surface.nodes.shape))
    here = places[0] = surface.nodes
    before, last_step, layer = None, 1.0, 0
    for height, step, ends_layer in _steps(heights):
        field = _unit(mirrored_field(here, wing_charges()))
        # Half a step on, as the field has changed since the step before: second order for one evaluation.
        change = 0.0 if before is None else (field - before) * (step / 2 / last_step)
        normal_part = np.exp(-(height + step / 2) / turn)[:, None]
        way = normal_part * normals + (1 - normal_part) * (field + change)
        way[surface.root, 1] = 0.0
        here = here + step * _unit(way)
        before, last_step = field, step
        if ends_layer:
            layer += 1
            places[layer] = here
    return places


def _steps(heights: np.ndarray) -> Iterator[tuple[float, float, bool]]:
    """Where each step begins, how long it is, and whether a layer ends with it: a layer is one step unless it is long
    for its distance from the wing, as where layers grow by more than 1.3.
    """
    for height, layer in zip(heights[:-1], np.diff(heights), strict=True):
        parts = ceil(layer / (_STEP * (height + _STEP * wing.MEAN_CHORD)))
        for part in range(parts):
            yield float(height + layer * part / parts), float(layer / parts), part == parts - 1


@cache
def wing_charges() -> np.ndarray:
    """Charged lines (m, 8) of the half wing: start, end, blur and charge, as ``mirrored_field`` takes them."""
    angle = np.pi * (np.arange(_CHARGES[0]) + 0.5) / _CHARGES[0]
    span_angle = np.pi / 2 * np.arange(_CHARGES[1] + 1)[:, None] / _CHARGES[1]
    focus = wing.NOSE_RADIUS / 2  # of the parabola that the nose is: where a conformal map is singular
    x = focus + (1 - focus) * (1 - np.cos(angle)) / 2
    y = np.sin(span_angle) * (wing.SEMI_SPAN + wing.half_thickness(x) / 2 * wing.TIP_CHORD)
    on_wing = np.minimum(y, wing.SEMI_SPAN)
    chord = wing.chord(on_wing)
    ends = np.stack((wing.leading_edge(on_wing) + x * chord, y, np.zeros_like(y)), axis=2)
    chord = (chord[1:] + chord[:-1]) / 2
    blur = (np.pi / _CHARGES[0] / 2 * np.sin(angle) * chord) ** 2  # as the lines are apart
    middle = np.sin((span_angle[1:] + span_angle[:-1]) / 2) ** 2
    terms = [np.cos(angle) ** i * middle**j for i in range(_TERMS[0]) for j in range(_TERMS[1])]
    # On a plate, charge is as dense as one over the roots of the distances from its edges, which the angles make even.
    shares = np.stack([(term * chord).ravel() for term in terms], axis=1)
    segments = np.column_stack((ends[:-1].reshape(-1, 3), ends[1:].reshape(-1, 3), blur.ravel()))
    potentials = _mirrored_potentials(wing.wing_surface(28, 16).nodes, segments) @ shares
    strengths = shares @ np.linalg.lstsq(potentials, np.ones(len(potentials)), rcond=None)[0]
    charges = np.column_stack((segments, strengths))
    charges.flags.writeable = False
    return charges


def _mirrored_potentials(points: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """The potential (n, m) at each point of each line of charge 1 and its image."""
    start, way, blur = segments[:, :3], segments[:, 3:6] - segments[:, :3], segments[:, 6]
    length = np.linalg.norm(way, axis=1)
    total = np.zeros((len(points), len(segments)))
    for side in (1, -1):
        from_start = points[:, None] * (1, side, 1) - start
        along = np.einsum("nmi,mi->nm", from_start, way) / length
        across = np.sqrt(np.maximum(np.sum(from_start**2, axis=2) - along**2, 0) + blur)
        total += (np.arcsinh(along / across) - np.arcsinh((along - length) / across)) / length
    return total


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
