"""NumPy's functions of arrays in kernels: what they give, in which type, and what is said where they do not work."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError
from meshloom.kernel.access import Read, Write
from tests.kernel.test_trace import run_both


@pytest.fixture(autouse=True)
def reference_back_end() -> None:
    ml.use("numpy")


@pytest.mark.filterwarnings("ignore:Arrays of 2-dimensional vectors:DeprecationWarning")
def test_the_cross_product_in_the_plane_is_a_number() -> None:
    def crossed(v: Read, w: Read, out: Write):
        out[...] = np.cross(v, w)

    plain, traced = run_both(crossed, *np.random.default_rng(0).normal(size=(2, 5, 2)))
    np.testing.assert_allclose(traced, plain, rtol=1e-14)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda v: np.cross(v[:2], v), "np.cross with a vector of two and one of three components is not supported"),
        (lambda v: np.std(v, ddof=1), "np.std with ddof is not supported in a kernel"),
        (lambda v: np.mean(v, 0, np.float32), "np.mean with these arguments is not supported in a kernel"),
    ],
)
def test_arguments_that_are_not_known_are_named(function, said: str) -> None:
    on = ml.Set(2, "points")

    @ml.kernel
    def k(v: Read, out: Write):
        out[...] = function(v)

    with pytest.raises(KernelError, match=said):
        k(on, on.field("v", 3), on.field("out", 3))


DOUBLES, MATRIX = np.array([0.1, 0.2]), np.array([[0.1, 0.2], [0.3, 0.4]])


@pytest.mark.parametrize(
    "formula",
    [
        lambda p: np.min(np.stack([p[0], p[1], 2, np.float64(1.7)])),
        lambda p: np.sum(np.stack([p, DOUBLES])),
        lambda p: np.sum(np.concatenate([p, DOUBLES])),
        lambda p: np.sum(np.hstack([p, DOUBLES])),
        lambda p: np.sum(np.append(p, DOUBLES)),
        lambda p: np.sum(np.insert(p, 0, np.float64(0.1))),
        lambda p: np.dot(p, DOUBLES),
        lambda p: np.inner(DOUBLES, p),
        lambda p: np.vdot(p, DOUBLES),
        lambda p: np.outer(p, DOUBLES)[0, 1],
        lambda p: np.einsum("i,i", p, DOUBLES),
        lambda p: np.tensordot(MATRIX, p, 1)[1],
        lambda p: (MATRIX @ p)[0],
        lambda p: np.cross(np.stack([p[0], p[1], p[0]]), np.array([0.1, 0.2, 0.4]))[0],
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_of_numpy_keep_their_type_in_every_function(formula, dtype) -> None:
    """An array of doubles makes single precision double wherever NumPy does, to the last digits."""

    @ml.kernel(strict=True)
    def k(p: Read, out: Write):
        out[...] = formula(p)

    on = ml.Set(1, "points")
    p = on.field("p", 2, dtype=dtype, data=np.array([[6.0, 7.0]]))
    out, plain = on.field("out"), on.field("plain")
    k(on, p, out)
    k.python(on, p, plain)
    assert out.numpy()[0] == pytest.approx(plain.numpy()[0], rel=1e-15)
