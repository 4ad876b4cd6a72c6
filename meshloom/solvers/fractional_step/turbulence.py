"""Turbulent flow between walls: what it begins with, how fast eddies get, and how its means are drawn.

Units: half the height, and the friction velocity; y+ is the distance from the nearer wall over the viscosity.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from meshloom.case import Chart
from meshloom.solvers.fractional_step.cells import CellGrid, Velocity
from meshloom.solvers.fractional_step.statistics import Profiles, folded

KARMAN_INVERSE, INTERCEPT = 2.44, 5.2  # of the law of the wall: u+ = 2.44 ln y+ + 5.2
GUSTS = 1.3  # the fastest that fluid goes along x, over the mean in the middle
ACROSS = 6.0  # and along the other axes, in friction velocities
STREAKS, VORTICES, NOISE = 4.0, 2.0, 1.5  # amplitudes of what the start is disturbed by, in friction velocities
SPACING = 120.0  # of streaks along z, in wall units
WAVES = 4  # of the noise: so many lengths along x and along z
SEED = 180


def mean_velocity(y_plus: np.ndarray) -> np.ndarray:
    """H. Reichardt's (1951) formula: y+ at the wall, the law of the wall away from it."""
    near = 1.0 - np.exp(-y_plus / 11.0) - y_plus / 11.0 * np.exp(-0.33 * y_plus)
    return np.log1p(0.41 * y_plus) / 0.41 + 7.8 * near


def fastest(cells: CellGrid, viscosity: float) -> tuple[float, ...]:
    """Along each axis, of cells in space. Across the channel eddies are slow where cells are narrow, next to walls: the
    speed is that which would take the narrowest cell as long as any cell is taken at least."""
    axis = cells.axes[1]
    y_plus = (1.0 - np.abs(axis.centres)) / viscosity
    rate = float((ACROSS * (1.0 - np.exp(-y_plus / 25.0)) / axis.widths).max())
    middle = float(mean_velocity(np.array(1.0 / viscosity)))
    return GUSTS * middle, rate * cells.narrowest[1], ACROSS


def start(cells: CellGrid, viscosity: float) -> Velocity:
    """The mean velocity, with streaks near the walls that wave from side to side, pairs of vortices along x that fill
    the channel, and noise of large waves; the same on every grid. What has a divergence in it is taken out by who
    begins with it."""
    length, width = (float(cells.edges[a][-1] - cells.edges[a][0]) for a in (0, 2))
    return partial(_disturbed, length, width, viscosity)


def _disturbed(
    length: float, width: float, viscosity: float, x: np.ndarray, y: np.ndarray, z: np.ndarray
) -> list[np.ndarray]:
    y_plus = (1.0 - np.abs(y)) / viscosity
    turn, wave = 2.0 * np.pi / width, 2.0 * np.pi / length
    streaks = max(round(width / viscosity / SPACING), 1) * turn
    waves = max(round(length / viscosity / 500.0), 1) * wave
    near = y_plus / 30.0 * np.exp(0.5 - 0.5 * (y_plus / 30.0) ** 2)  # 1 at y+ = 30
    u = mean_velocity(y_plus) + STREAKS * near * np.cos(streaks * z + 0.5 * np.sign(y)) + 0.0 * x
    w = VORTICES * near * np.sin(waves * x + np.sign(y)) + 0.0 * z
    rolls = max(round(width / 2.0), 1) * turn  # about as wide as high
    v = VORTICES * (1.0 - y**2) ** 2 * np.cos(rolls * z) + 0.0 * x
    w = w + VORTICES * 4.0 * y * (1.0 - y**2) / rolls * np.sin(rolls * z)
    dice, shape = np.random.default_rng(SEED), (1.0 - y**2)
    found = [u, v, w]
    for m in range(1, WAVES + 1):
        for n in range(1, WAVES + 1):
            for c in range(3):
                first, second, third = dice.uniform(0.0, 2.0 * np.pi, 3)
                across = shape * np.cos(np.pi * dice.integers(1, 4) * y + third)
                noise = across * np.cos(m * wave * x + first) * np.cos(2 * n * turn * z + second)
                found[c] += NOISE * 2.0 / WAVES * noise
    return found


def charts(found: Profiles, viscosity: float, now: np.ndarray) -> tuple[Chart, ...]:
    """From means over both halves: velocity in wall units, fluctuations, and the balance of momentum. ``now`` (n,): the
    mean velocity along x at the end."""
    plus = folded((1.0 - np.abs(found.y)) / viscosity, 1.0)
    mean = folded(found.mean[:, 0], 1.0)
    law = KARMAN_INVERSE * np.log(plus) + INTERCEPT
    velocity = Chart(
        "mean_velocity", plus,
        {"this run": mean, "u+ = y+": np.where(plus < 15.0, plus, np.nan),
         f"{KARMAN_INVERSE:g} ln y+ + {INTERCEPT:g}": np.where(plus > 8.0, law, np.nan)},
        "y+", "u+", dots=("this run",), decades=True,
    )  # fmt: skip
    names = ("u'", "v'", "w'")
    strengths = {f"root mean square of {name}": np.sqrt(folded(found.squares[:, c], 1.0))
                 for c, name in enumerate(names)}  # fmt: skip
    fluctuations = Chart("fluctuations", plus, strengths, "y+", "over the friction velocity")
    return velocity, fluctuations, shear_chart(found, viscosity, now)


def shear_chart(found: Profiles, viscosity: float, now: np.ndarray) -> Chart:
    """Shear stresses at edges, seen from the walls: what viscosity and eddies carry on together is what drives the
    fluid beyond, 1 - y, less what that gains of momentum while the flow is not steady yet."""
    y = folded(1.0 - np.abs(found.edges), 1.0)
    viscous, eddies = (folded(one, -1.0) for one in (found.viscous_shear(viscosity), found.reynolds_shear()))
    gain = found.gain(now)
    beyond = folded(gain[-1] / 2.0 - gain, -1.0)
    curves = {"friction": viscous, "eddies": eddies, "together": viscous + eddies, "1 - y": 1.0 - y,
              "1 - y less what the fluid gains": 1.0 - y - beyond}  # fmt: skip
    return Chart("shear_stress", y, curves, "distance from the wall", "shear stress", dots=("together",))
