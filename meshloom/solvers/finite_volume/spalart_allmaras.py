"""The turbulence model of Spalart and Allmaras, negative variant (SA-neg: Allmaras, Johnson and Spalart, ICCFD7, 2012).

One unknown, nu~ (``nu`` here, as kinematic viscosity: length^2 / time), is carried by the flow, made by its vorticity,
destroyed near walls and spread by diffusion:

    d nu / dt + u . grad nu = P - D + 1/sigma [div((nu_laminar + nu) grad nu) + cb2 |grad nu|^2]

    P = cb1 (1 - ft2) S~ nu                        where nu >= 0
    D = (cw1 fw - cb1 / kappa^2 ft2) (nu / d)^2
    P = cb1 (1 - ct3) S nu, D = -cw1 (nu / d)^2,   where nu < 0, which coarse meshes and first steps make at the edge of
                                                   a layer; div((nu_laminar + fn nu) grad nu) stays a diffusion there

``d`` is the distance to the wall and ``S`` the size of the vorticity. The flow feels the eddy viscosity density nu fv1,
and none where nu < 0. The flow is turbulent everywhere (there is no trip), which asks for nu = 3 to 5 nu_laminar in the
free stream. All functions take numbers, the values of a kernel, and arrays alike; none divides by zero at nu = 0 or
S = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Allmaras, Johnson and Spalart 2012; the same numbers as on NASA's turbulence modelling resource, SA-neg.
CB1, CB2, SIGMA, KAPPA = 0.1355, 0.622, 2.0 / 3.0, 0.41
CW1, CW2, CW3 = CB1 / KAPPA**2 + (1.0 + CB2) / SIGMA, 0.3, 2.0
CV1, CV2, CV3 = 7.1, 0.7, 0.9
CT3, CT4 = 1.2, 0.5
CN1 = 16.0
MOST_R = 10.0  # beyond it fw does not change any more
FREE_STREAM = 3.0  # nu / nu_laminar of air that turbulence can grow from anywhere; Spalart and Rumsey 2007: 3 to 5


def eddy_viscosity(nu: Any, laminar: Any, density: Any) -> Any:
    """The dynamic viscosity that turbulence adds; ``laminar`` is the kinematic one of the gas."""
    return density * np.maximum(nu, 0.0) * _fv1(np.maximum(nu, 0.0) / laminar)


def diffusivity(nu: Any, laminar: Any) -> Any:
    """nu_laminar + nu, with nu times fn where it is negative, so that the sum stays positive; before 1 / sigma."""
    cubed = np.minimum(nu / laminar, 0.0) ** 3
    return laminar + nu * (CN1 + cubed) / (CN1 - cubed)


def source(nu: Any, laminar: Any, vorticity: Any, distance: Any) -> Any:
    """P - D, per volume: what is made less what is destroyed; ``vorticity`` is its size, from 0, ``distance`` > 0."""
    return source_and_slope(nu, laminar, vorticity, distance)[0]


def source_and_slope(nu: Any, laminar: Any, vorticity: Any, distance: Any) -> tuple[Any, Any]:
    """P - D and its derivative by nu, which an implicit step needs."""
    negative = nu < 0.0
    wall = 1.0 / (distance * distance)
    made = CB1 * (1.0 - CT3) * vorticity
    below = made * nu + CW1 * wall * nu * nu, made + 2.0 * CW1 * wall * nu
    above = _turbulent_source(np.maximum(nu, 0.0), laminar, vorticity, wall)
    return np.where(negative, below[0], above[0]), np.where(negative, below[1], above[1])


def _turbulent_source(nu: Any, laminar: Any, vorticity: Any, wall: Any) -> tuple[Any, Any]:
    """P - D and its derivative for nu >= 0; ``wall`` is 1 / d^2."""
    chi = nu / laminar
    ft2 = CT3 * np.exp(-CT4 * chi * chi)
    ft2_slope = -2.0 * CT4 * chi * ft2 / laminar
    strength, strength_slope = modified_vorticity(nu, laminar, vorticity, wall)
    fw, fw_slope = _wall_function(nu, strength, strength_slope, wall)
    production = CB1 * (1.0 - ft2) * strength * nu
    production_slope = CB1 * ((1.0 - ft2) * (strength + nu * strength_slope) - ft2_slope * strength * nu)
    factor = CW1 * fw - CB1 / KAPPA**2 * ft2
    factor_slope = CW1 * fw_slope - CB1 / KAPPA**2 * ft2_slope
    destruction = factor * wall * nu * nu
    destruction_slope = wall * nu * (2.0 * factor + factor_slope * nu)
    return production - destruction, production_slope - destruction_slope


def modified_vorticity(nu: Any, laminar: Any, vorticity: Any, wall: Any) -> tuple[Any, Any]:
    """S~ = S + nu fv2 / (kappa d)^2, kept from going below 0.1 S, and its derivative by nu (>= 0); ``wall`` is 1 / d^2.

    Near a wall fv2 is negative. Where that would take more than cv2 S away, a curve that joins smoothly ends at
    (1 - cv3) S instead.
    """
    chi = nu / laminar
    fv1, fv1_slope = _fv1(chi), _fv1_slope(chi)
    fv2 = 1.0 - chi / (1.0 + chi * fv1)
    fv2_slope = (chi * chi * fv1_slope - 1.0) / (1.0 + chi * fv1) ** 2
    added = nu * fv2 * wall / KAPPA**2
    added_slope = (fv2 + chi * fv2_slope) * wall / KAPPA**2

    few = added < -CV2 * vorticity
    above = CV2**2 * vorticity + CV3 * added
    below = np.where(few, (CV3 - 2.0 * CV2) * vorticity - added, 1.0)
    kept = vorticity * (1.0 + above / below)
    kept_slope = vorticity * added_slope * (CV3 * below + above) / (below * below)
    return np.where(few, kept, vorticity + added), np.where(few, kept_slope, added_slope)


def _wall_function(nu: Any, strength: Any, strength_slope: Any, wall: Any) -> tuple[Any, Any]:
    """fw of r = nu / (S~ (kappa d)^2), at most 10, and its derivative by nu."""
    shear = strength * KAPPA**2 / wall
    above, below = nu, np.maximum(shear, nu / MOST_R)
    below = np.where(below > 0.0, below, 1.0)
    r = above / below
    r_slope = np.where(shear * MOST_R > nu, (1.0 - r * strength_slope * KAPPA**2 / wall) / below, 0.0)
    r5 = r**5
    g = r + CW2 * (r5 * r - r)
    g_slope = 1.0 + CW2 * (6.0 * r5 - 1.0)
    rest = CW3**6 / (g**6 + CW3**6)
    per_g = (rest * (1.0 + CW3**6) / CW3**6) ** (1.0 / 6.0)
    return g * per_g, per_g * rest * g_slope * r_slope


def _fv1(chi: Any) -> Any:
    """How much of nu the flow feels: little where it is small next to the viscosity of the gas."""
    cubed = chi**3
    return cubed / (cubed + CV1**3)


def _fv1_slope(chi: Any) -> Any:
    """By chi."""
    return 3.0 * CV1**3 * chi * chi / (chi**3 + CV1**3) ** 2


def law_of_the_wall(y: Any) -> Any:
    """u+ over y+ of the model where the shear stress is that at the wall and nu = kappa d u_tau: the integral of
    1 / (1 + kappa y+ fv1) in closed form (Allmaras, Johnson and Spalart 2012, section 6.2)."""
    a, b = (8.148221580024245, -6.9287093849022945), (7.4600876082527945, 7.468145790401841)
    c = (2.5496773539754747, 1.3301651588535228, 3.599459109332379, 3.6397531868684494)
    first, second = y + a[0], y + a[1]
    return (
        5.0333908790505579
        + c[0] * np.log(first * first + b[0] ** 2)
        - c[1] * np.log(second * second + b[1] ** 2)
        - c[2] * np.arctan2(b[0], first)
        - c[3] * np.arctan2(b[1], second)
    )
