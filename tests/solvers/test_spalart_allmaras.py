"""The functions of Spalart and Allmaras' model against formulas written again from the paper, and at their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meshloom as ml
from meshloom.solvers.finite_volume import spalart_allmaras as sa

NU = 1.5e-5  # of air


def by_the_paper(nu: float, laminar: float, vorticity: float, d: float) -> float:
    """P - D in plain Python, term by term as NASA's page of the model lists them."""
    kappa, cb1, cb2, sigma = 0.41, 0.1355, 0.622, 2 / 3
    cw1 = cb1 / kappa**2 + (1 + cb2) / sigma
    if nu < 0:
        return cb1 * (1 - 1.2) * vorticity * nu + cw1 * (nu / d) ** 2
    chi = nu / laminar
    fv1 = chi**3 / (chi**3 + 7.1**3)
    fv2 = 1 - chi / (1 + chi * fv1)
    s_bar = nu / (kappa**2 * d**2) * fv2
    if s_bar >= -0.7 * vorticity:
        s = vorticity + s_bar
    else:
        s = vorticity + vorticity * (0.7**2 * vorticity + 0.9 * s_bar) / ((0.9 - 2 * 0.7) * vorticity - s_bar)
    r = min(nu / (s * kappa**2 * d**2), 10.0) if s > 0 else 10.0
    g = r + 0.3 * (r**6 - r)
    fw = g * ((1 + 2.0**6) / (g**6 + 2.0**6)) ** (1 / 6)
    ft2 = 1.2 * math.exp(-0.5 * chi**2)
    return cb1 * (1 - ft2) * s * nu - (cw1 * fw - cb1 / kappa**2 * ft2) * (nu / d) ** 2


def samples(count: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """nu, vorticity and distance, over all sizes that a flow has; a few without vorticity."""
    rng = np.random.default_rng(7)
    nu = NU * 10.0 ** rng.uniform(-4, 4, count) * np.where(rng.random(count) < 0.25, -1.0, 1.0)
    vorticity = 10.0 ** rng.uniform(-3, 6, count) * (rng.random(count) > 0.05)
    return nu, vorticity, 10.0 ** rng.uniform(-6, 1, count)


def test_source_is_that_of_the_paper() -> None:
    nu, vorticity, d = samples()
    wanted = np.array([by_the_paper(*row) for row in zip(nu, np.full_like(nu, NU), vorticity, d, strict=True)])
    scale = np.abs(nu) * (np.abs(vorticity) + np.abs(nu) / d**2)
    assert (np.abs(sa.source(nu, NU, vorticity, d) - wanted) <= 1e-11 * scale).all()
    strength, _ = sa.modified_vorticity(np.abs(nu), NU, vorticity, 1 / d**2)
    assert (strength >= 0.1 * vorticity * (1 - 1e-12)).all()


def test_slope_is_the_derivative() -> None:
    nu, vorticity, d = samples()
    step = 1e-5 * np.abs(nu)
    _, slope = sa.source_and_slope(nu, NU, vorticity, d)
    difference = (sa.source(nu + step, NU, vorticity, d) - sa.source(nu - step, NU, vorticity, d)) / (2 * step)
    size = vorticity + 50.0 * np.abs(nu) / d**2 + 1e-300
    off = np.abs(slope - difference) / size
    assert np.median(off) < 1e-9
    # Where one of the two values lies beyond a kink (r = 10; fv2 so negative that S~ changes its form), they differ.
    assert (off < 1e-5).mean() > 0.995


@pytest.mark.parametrize("vorticity", [0.0, 1.0, 1e5])
@pytest.mark.parametrize("d", [1e-8, 1e-3, 10.0])
def test_nothing_jumps_at_zero(vorticity: float, d: float) -> None:
    tiny = 1e-9 * NU
    assert sa.source(0.0, NU, vorticity, d) == 0.0 and sa.eddy_viscosity(0.0, NU, 1.2) == 0.0
    assert sa.diffusivity(0.0, NU) == NU
    (above, slope_above), (below, slope_below) = (sa.source_and_slope(nu, NU, vorticity, d) for nu in (tiny, -tiny))
    scale = tiny * (vorticity + tiny / d**2)
    assert abs(above) + abs(below) <= 20 * scale
    assert abs(slope_above - slope_below) <= 1e-6 * vorticity + 50 * tiny / d**2
    assert abs(sa.diffusivity(tiny, NU) - sa.diffusivity(-tiny, NU) - 2 * tiny) <= 1e-12 * NU
    assert sa.eddy_viscosity(-tiny, NU, 1.2) == 0.0 <= sa.eddy_viscosity(tiny, NU, 1.2) < 1e-20


def test_negative_values_diffuse_and_decay() -> None:
    nu = -NU * np.logspace(-6, 6, 400)
    chi = nu / NU
    assert (sa.diffusivity(nu, NU) > 0).all()
    assert np.allclose(sa.diffusivity(nu, NU), NU + nu * (16.0 + chi**3) / (16.0 - chi**3))
    assert (sa.source(nu, NU, 100.0, 0.01) > 0).all()  # back to zero
    assert (sa.eddy_viscosity(nu, NU, 1.2) == 0).all()


def test_the_log_law_is_a_solution() -> None:
    """nu = kappa d u_tau with S = u_tau / (kappa d) - nu fv2 / (kappa d)^2 makes S~ = u_tau / (kappa d) and fw = 1:
    sources and diffusion cancel, by the definition of cw1."""
    u_tau, d = 1.3, np.logspace(-2, 0, 50)
    nu = sa.KAPPA * d * u_tau
    assert (nu / NU > 40).all()  # ft2 is gone
    chi = nu / NU
    fv1 = chi**3 / (chi**3 + sa.CV1**3)
    vorticity = u_tau / (sa.KAPPA * d) - nu * (1 - chi / (1 + chi * fv1)) / (sa.KAPPA * d) ** 2
    diffusion = (1 + sa.CB2) / sa.SIGMA * (sa.KAPPA * u_tau) ** 2  # div((nu_laminar + nu) grad nu) + cb2 |grad nu|^2
    assert np.allclose(sa.source(nu, NU, vorticity, d), -diffusion, rtol=1e-10)
    assert np.allclose(sa.eddy_viscosity(nu, NU, 1.2), 1.2 * nu * fv1, rtol=1e-14)


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_in_a_kernel(backend: str, dtype: type) -> None:
    nu, vorticity, d = samples(200)

    @ml.kernel
    def evaluate(nu: ml.Read, vorticity: ml.Read, d: ml.Read, result: ml.Write):  # type: ignore[no-untyped-def]
        value, slope = sa.source_and_slope(nu, NU, vorticity, d)
        result[...] = [value, slope, sa.diffusivity(nu, NU), sa.eddy_viscosity(nu, NU, 1.2)]

    ml.use(backend)
    cells = ml.Set(len(nu), "cells")
    given = [cells.field(name, dtype=dtype, data=values) for name, values in (("n", nu), ("s", vorticity), ("d", d))]
    result = cells.field("result", 4, dtype=dtype)
    evaluate(cells, *given, result)
    wanted = np.stack([*sa.source_and_slope(nu, NU, vorticity, d), sa.diffusivity(nu, NU),
                       sa.eddy_viscosity(nu, NU, 1.2)], axis=1)  # fmt: skip
    shear = vorticity + np.abs(nu) / d**2
    scale = np.stack([np.abs(nu) * shear, 50 * shear, NU + np.abs(nu), 1.2 * np.abs(nu)], axis=1)
    near_kink = 1e-3 if dtype is np.float32 else 1e-11
    assert (np.abs(result.numpy() - wanted) <= near_kink * scale).mean() > 0.99
    assert np.isfinite(result.numpy()).all()
