"""Symmetry of kernels under the exchange of their two targets, found by evaluation at random points."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.schedule.symmetry import swapped_maps
from meshloom.solvers.airfoil import AirfoilConfig, Gas, kernels


def loop_of(kernel: ml.Kernel, *, weight: bool = False) -> ml.Loop:
    mesh = ml.generate.box((4, 3))
    q, res, w = mesh.cells.field("q", 2), mesh.cells.field("res", 2), mesh.faces.field("w")
    x, cells = mesh.coordinates[mesh.face_nodes], mesh.face_cells
    return kernel.loop(mesh.faces, x, q[cells], w, res[cells])


@ml.kernel
def diffusion(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """Does not care about the order of the nodes, nor about the sign of the normal."""
    d = x[0] - x[1]
    f = w * (d @ d) * (q[1] - q[0])
    res[0] += f
    res[1] -= f


@ml.kernel
def flux(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """The nodes must change places with the cells: the normal turns round."""
    dx, dy = x[0] - x[1]
    f = 0.5 * w * (dy * (q[0] + q[1]) ** 2 - dx * q[0] * q[1])
    res[0] += f
    res[1] -= f


@ml.kernel
def upwind(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """Takes the first cell's value, whichever side asks."""
    f = w * q[0]
    res[0] += f
    res[1] -= f


@ml.kernel
def one_sided(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    res[0] += w * (q[0] - q[1])


@ml.kernel
def rarely_upwind(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """Antisymmetric where the values are small; a few random points would not see the other branch."""
    f = np.where(q[0] > 30.0, 2.0 * q[0], q[0] - q[1])
    res[0] += f
    res[1] -= f


@ml.kernel
def hidden_sign(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """Antisymmetric for positive values only."""
    f = np.sqrt(q[0] ** 2) - q[1]
    res[0] += f
    res[1] -= f


@ml.kernel
def dissipation(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """With absolute values, maxima and roots that are the same from both sides."""
    dx, dy = x[0] - x[1]
    speed = np.maximum(np.abs(q[0] * dy), np.abs(q[1] * dy)) + np.sqrt(dx**2 + dy**2)
    f = w * speed * (q[0] - q[1])
    res[0] += f
    res[1] -= f


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (rarely_upwind, None),
        (hidden_sign, None),
        (dissipation, {0, 1}),
        (diffusion, {0, 1}),
        (flux, {0, 1}),
        (upwind, None),
        (one_sided, None),
    ],
)
def test_what_must_change_places(kernel: ml.Kernel, expected: set[int] | None) -> None:
    loop = loop_of(kernel)
    assert loop.spec.racy_maps == (1,)
    assert swapped_maps(loop.spec, 1) == expected


def test_the_airfoil_flux_is_symmetric_in_both_precisions() -> None:
    mesh = ml.generate.naca0012(6, 4)
    k = kernels(Gas.of(AirfoilConfig().flow))
    for dtype in (np.float64, np.float32):
        x = mesh.nodes.field("x", 2, dtype=dtype)
        q, res, adt = (mesh.cells.field(n, d, dtype=dtype) for n, d in (("q", 4), ("res", 4), ("adt", 1)))
        cells = mesh.face_cells
        loop = k.res_calc.loop(mesh.faces, x[mesh.face_nodes], q[cells], adt[cells], res[cells])
        assert swapped_maps(loop.spec, 1) == {0, 1}


@pytest.mark.parametrize("kernel", [diffusion, flux, upwind, one_sided, rarely_upwind, hidden_sign, dissipation])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_owner_by_roles_gives_the_same_on_a_regular_mesh(kernel: ml.Kernel, dtype: type) -> None:
    """Emulated CUDA on a mesh where nearly every cell has four faces, against NumPy."""
    mesh = ml.generate.box((17, 16))
    rng = np.random.default_rng(0)
    x = mesh.nodes.field("x", 2, dtype=dtype, data=rng.random((mesh.nodes.size, 2)))
    q = mesh.cells.field("q", 2, dtype=dtype, data=100.0 * (rng.random((mesh.cells.size, 2)) - 0.5))
    w = mesh.faces.field("w", dtype=dtype, data=rng.random(mesh.faces.size))
    res = mesh.cells.field("res", 2, dtype=dtype)
    cells, results, before = mesh.face_cells, [], ml.backend()
    for backend in ("numpy", "emulated"):
        ml.use(backend)
        res.fill(0.25)
        loop = kernel.loop(
            mesh.faces, x[mesh.face_nodes], q[cells], w, res[cells], schedule=ml.Schedule("owner", block=64)
        )
        loop()
        results.append(res.numpy())
    ml.use(before)
    symmetric = swapped_maps(loop.spec, 1) is not None
    assert loop.plan.sizes["degree1"] == 4 and ("near1" if symmetric else "near1_0") in loop.plan.arrays
    assert ("ring1_0" in loop.plan.arrays) == (symmetric and 0 in swapped_maps(loop.spec, 1))
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(results[1], results[0], rtol=tolerance, atol=tolerance * np.abs(results[0]).max())
