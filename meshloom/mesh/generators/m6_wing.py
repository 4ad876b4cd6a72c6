"""The ONERA M6 wing: planform, section, and a triangulated surface of the half wing, in metres.

x points downstream, y along the span, z up; the root's leading edge is at 0. The section is one symmetric curve for the
whole span, fitted by least squares to the 271 pressure taps of test 2308 (AGARD AR-138; x/c and z/c of seven sections,
which lie on one curve within about 1e-4): sqrt(x) (1 - x) times a polynomial of sqrt(x), which closes the trailing edge
at x = 1 (the taps themselves, continued, leave it about 0.0014 chords thick). It is convex and stays within 0.00017
chords of the taps in the mean square, 0.00057 at most (at x/c = 0.90). The tip is rounded: half a turn of the tip
section about its chord, added to the span.
"""

from __future__ import annotations

import numpy as np

from meshloom.mesh.generators.arrays import cut_in_two
from meshloom.records import dataclass

#: Planform: Schmitt and Charpin, AGARD AR-138 (1979), as NASA Glenn's validation archive has it.
SEMI_SPAN = 1.1963
ROOT_CHORD = 0.8059
TIP_CHORD = 0.4529
MEAN_CHORD = 0.64607  # aerodynamic
LEADING_SWEEP = np.radians(30.0)
_SECTION = np.array([0.1452034, 1.0313969, -11.60430482, 49.89825416,
                     -112.12348502, 140.45977463, -92.94160664, 25.29432811])  # fmt: skip
NOSE_RADIUS = float(_SECTION[0] ** 2 / 2)  # chords
THICKEST = 0.372  # x/c; the half thickness there is 0.0489 chords
_THICKNESS = 0.0489
#: The last angle of the cosine that spaces nodes along the chord. Lines fan out from the tail, and pi would spread them
#: evenly; a little less makes the cells there 4 times longer than those at the nose, and leaves enough lines behind.
_TAIL_ANGLE = 0.97 * np.pi
#: The ends of the mean line of the tip, x/c: behind the nose as far as half the section is thick there, and close
#: to the sharp tail.
_FOLD = (0.03, 0.98)
#: The share of even spacing along the mean line: its end cells then are as long as the rows beside it are apart.
_EVEN = 0.3


@dataclass(frozen=True)
class WingSurface:
    """A triangulated half wing: nodes (n, 3), triangles (t, 3) that go around outwards, the closed line of ``root``
    nodes in order, and ``rank`` (n,): an order of the nodes that is the same above and below; neighbours differ.
    """

    nodes: np.ndarray
    triangles: np.ndarray
    root: np.ndarray
    rank: np.ndarray


def half_thickness(x: np.ndarray) -> np.ndarray:
    """Half the thickness of the section at x from 0 to 1, in chords."""
    s = np.sqrt(x)
    return s * (1 - x) * np.polynomial.polynomial.polyval(s, _SECTION)


def chord(y: np.ndarray) -> np.ndarray:
    return ROOT_CHORD + (TIP_CHORD - ROOT_CHORD) * y / SEMI_SPAN


def leading_edge(y: np.ndarray) -> np.ndarray:
    return y * np.tan(LEADING_SWEEP)


def wing_surface(side: int, span: int) -> WingSurface:
    """4 * side * span triangles: ``side`` columns on each side from tail to nose, ``span`` rows from root to tip line.

    Rows are closed lines: sections of the wing, then ovals on the rounded tip, which shrink to its mean line. There the
    last row's upper and lower nodes are the same. An oval has its foremost node behind the nose of the one before, so
    that lines do not meet in one point at nose and tail of the tip.
    """
    tip_rows = max(2, round(span / 8))  # on the rounded tip, whose arc is a 34th of the span: an eighth of all
    x = (1 - np.cos(np.linspace(0, _TAIL_ANGLE, side + 1))) / (1 - np.cos(_TAIL_ANGLE))
    x = np.concatenate((x[::-1], x[1:-1]))  # tail, upper side, nose, lower side
    upward = np.where(np.arange(2 * side) < side, 1.0, -1.0)
    wing = _wing_rows(x, upward, _stations(span - tip_rows, np.pi / 2 * _THICKNESS * TIP_CHORD / tip_rows))
    tip = _tip_ovals(x, upward, tip_rows)
    fold = tip[-1, : side + 1]
    nodes = np.concatenate((wing.reshape(-1, 3), tip[:-1].reshape(-1, 3), fold))
    node = np.arange(2 * side * span).reshape(span, 2 * side)
    last = 2 * side * span + np.concatenate((np.arange(side + 1), np.arange(side - 1, 0, -1)))
    node = np.concatenate((node, last[None]))
    ring = np.concatenate((node, node[:, :1]), axis=1)
    quads = np.stack((ring[:-1, :-1], ring[1:, :-1], ring[1:, 1:], ring[:-1, 1:]), axis=2).reshape(-1, 4)
    mirrored = np.minimum(np.arange(2 * side), 2 * side - np.arange(2 * side))
    rank = np.empty(len(nodes), np.int64)
    rank[node] = mirrored * (span + 1) + np.arange(span + 1)[:, None]
    return WingSurface(nodes, cut_in_two(nodes, quads), node[0], rank)


def _wing_rows(x: np.ndarray, upward: np.ndarray, stations: np.ndarray) -> np.ndarray:
    """Sections (rows, columns, 3) at all stations but the last, which is that of the tip."""
    y = stations[:-1, None]
    places = (
        leading_edge(y) + x * chord(y),
        np.broadcast_to(y, (len(y), len(x))),
        upward * half_thickness(x) * chord(y),
    )
    return np.stack(places, axis=2)


def _stations(rows: int, last: float) -> np.ndarray:
    """Places (rows + 1,) along the span: a sine whose last step is ``last``, where it is shorter than the mean one."""
    low, high = 0.0, np.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        step = 1 - np.sin(angle * (rows - 1) / rows) / np.sin(angle)
        low, high = (angle, high) if step * SEMI_SPAN > last else (low, angle)
    share = np.arange(rows + 1) / rows
    return SEMI_SPAN * (np.sin(low * share) / np.sin(low) if low > 1e-6 else share)


def _tip_ovals(x: np.ndarray, upward: np.ndarray, rows: int) -> np.ndarray:
    """Ovals (rows + 1, columns, 3) from the tip section to its mean line, on the body of revolution.

    Towards the thickest place, so that the body is always at least as thick as the oval is high.
    """
    share = (np.arange(rows + 1) / rows)[:, None]
    side = len(x) // 2
    even = np.abs(np.arange(2 * side) - side) / side
    x = x + _EVEN * share**2 * (even - x)
    # The nose is as thick as a root of x, the tail in proportion to it: these steps are even along both.
    moved = np.where(x < THICKEST, _FOLD[0] / THICKEST * share**2, (1 - _FOLD[1]) / (1 - THICKEST) * share)
    along = x + (THICKEST - x) * moved
    height = half_thickness(x) * np.cos(np.pi / 2 * share)
    height[-1] = 0.0
    out = np.sqrt(np.maximum(half_thickness(along) ** 2 - height**2, 0.0))
    start = leading_edge(np.array(SEMI_SPAN))
    return np.stack((start + along * TIP_CHORD, SEMI_SPAN + out * TIP_CHORD, upward * height * TIP_CHORD), axis=2)
