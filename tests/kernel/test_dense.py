"""Small dense algebra in kernels: solve, inverse and determinant against NumPy, products, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError
from meshloom.kernel.dense import LARGEST

SIZES = range(1, LARGEST + 1)
#: Every size by the reference; the compiled back ends share them out, and all have everything when slow.
QUICK = [("numpy", n, t) for n in SIZES for t in ("double", "single") if t == "double" or n in (2, 5)]
QUICK += [("cpu", 3, "single"), ("cpu", 4, "double"), ("cpu", 6, "double"), ("emulated", 4, "double")]
ALL = [(b, n, t) for b in ("numpy", "cpu", "emulated", "cuda") for n in SIZES for t in ("double", "single")]
MARKS = {"cuda": pytest.mark.gpu}
CASES = QUICK + [pytest.param(*one, marks=MARKS.get(one[0], pytest.mark.slow)) for one in ALL if one not in QUICK]


def matrices(n: int, dtype: np.dtype) -> np.ndarray:
    """Random ones, badly scaled by rows, columns and as a whole, permuted ones, nearly singular ones; (m, n, n)."""
    rng = np.random.default_rng(n)
    many = rng.normal(size=(40, n, n))
    reach = 4 if dtype == np.float32 else 40
    rows, columns, whole = (10.0 ** rng.uniform(-reach, reach, (40, *s)) for s in ((n, 1), (1, n), (1, 1)))
    permuted = np.stack([np.eye(n)[rng.permutation(n)] * rng.choice([-4.0, 0.5, 2.0], n) for _ in range(40)])
    triangles = np.triu(many) + 0.0
    close = many.copy()
    close[:, -1] = close[:, 0] + 1e-3 * close[:, -1]
    return np.concatenate([many, many * rows, many * columns, many * whole, permuted, permuted @ triangles,
                           triangles.transpose(0, 2, 1), close]).astype(dtype)  # fmt: skip


@ml.kernel
def all_of_it(a: ml.Read, b: ml.Read, c: ml.Read, x: ml.Write, y: ml.Write, inverse: ml.Write, det: ml.Write):
    x[...] = np.linalg.solve(a, b)
    y[...] = np.linalg.solve(a, c)
    inverse[...] = np.linalg.inv(a)
    det[...] = np.linalg.det(a)


strictly = ml.kernel(all_of_it.function, strict=True)


def computed(kernel: ml.Kernel, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    on, n, dtype = ml.Set(len(a), "matrices"), a.shape[-1], a.dtype
    given = [on.field("a", (n, n), data=a), on.field("b", (n,), data=b), on.field("c", (n, 2), data=c)]
    found = [on.field(name, shape, dtype=dtype) for name, shape in
             (("x", (n,)), ("y", (n, 2)), ("inverse", (n, n)), ("det", 1))]  # fmt: skip
    kernel(on, *given, *found)
    return tuple(one.numpy() for one in found)


def size(values: np.ndarray, axes: int) -> np.ndarray:
    """The largest magnitude over the last axes, kept as axes of 1."""
    return abs(values).max(axis=tuple(range(-axes, 0)), keepdims=True)


def determinants(a: np.ndarray) -> np.ndarray:
    """By elimination in what precision they have: np.linalg.det, by logarithms, loses digits with the scale."""
    rows, every, result = a.copy(), np.arange(len(a)), np.ones(len(a), a.dtype)
    for k in range(a.shape[-1]):
        best = k + np.argmax(abs(rows[:, k:, k]), axis=1)
        rows[every, k], rows[every, best] = rows[every, best], rows[every, k]
        result *= np.where(best == k, 1, -1) * rows[:, k, k]
        rows[:, k + 1 :] -= (rows[:, k + 1 :, k] / rows[:, k, None, k])[..., None] * rows[:, k, None]
    return result


@pytest.mark.filterwarnings("ignore:(overflow|underflow|invalid value|divide by zero):RuntimeWarning")
@pytest.mark.parametrize("kernel", [all_of_it, strictly], ids=["free", "strict"])
@pytest.mark.parametrize(("back_end", "n", "precision"), CASES)
def test_against_numpy(back_end: str, n: int, precision: str, kernel: ml.Kernel) -> None:
    ml.use(back_end)
    dtype = np.dtype(np.float64 if precision == "double" else np.float32)
    a, rng, eps = matrices(n, dtype), np.random.default_rng(9), np.finfo(dtype).eps
    b, c = rng.normal(size=(len(a), n)).astype(dtype), rng.normal(size=(len(a), n, 2)).astype(dtype)
    x, y, inverse, det = computed(kernel, a, b, c)
    wide, row = a.astype(np.longdouble), size(a.astype(np.longdouble), 1)
    for found, given in ((x[..., None], b[..., None]), (y, c)):
        left = wide @ found - given  # small beside the terms that it is a sum of, row by row of the whole matrix
        assert (abs(left) <= 4 * n * n * eps * (size(wide, 2) * size(found, 2) + size(given, 2))).all()
    reference = np.linalg.inv(a.astype(np.float64))
    condition = size(a.astype(np.float64), 2) * size(reference, 2)
    assert (abs(inverse - reference) <= 4 * n * n * eps * (1 + condition) * size(reference, 2)).all()
    bound = np.prod(row[..., 0], axis=-1) * np.sqrt(n) ** n  # Hadamard's
    assert (abs(det - determinants(wide)) <= 4 * n * n * eps * bound).all()


@pytest.mark.parametrize("back_end", ["numpy", "cpu", "emulated"])
def test_permutations_are_solved_exactly(back_end: str) -> None:
    ml.use(back_end)
    rng = np.random.default_rng(4)
    orders = np.stack([rng.permutation(4) for _ in range(50)])
    a = 2.0 * np.eye(4)[orders]
    b, c = rng.normal(size=(50, 4)), rng.normal(size=(50, 4, 2))
    x, y, inverse, det = computed(all_of_it, a, b, c)
    back = np.argsort(orders, axis=1)
    np.testing.assert_array_equal(x, np.take_along_axis(b, back, 1) / 2.0)
    np.testing.assert_array_equal(y, np.take_along_axis(c, back[..., None], 1) / 2.0)
    np.testing.assert_array_equal(inverse, a.transpose(0, 2, 1) / 4.0)
    np.testing.assert_array_equal(det, np.rint(np.linalg.det(a)))


@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
@pytest.mark.parametrize("n", SIZES)
def test_singular_matrices_have_no_solution_and_a_determinant_of_zero(n: int) -> None:
    ml.use("numpy")
    x, y, inverse, det = computed(all_of_it, np.zeros((2, n, n)), np.ones((2, n)), np.ones((2, n, 2)))
    assert not np.isfinite(x).any() and not np.isfinite(y).any() and not np.isfinite(inverse).any()
    assert det.tolist() == [0.0, 0.0]


def test_all_back_ends_give_the_bits_of_the_strict_formula() -> None:
    a = matrices(4, np.dtype(np.float64))[:80]
    b, c = np.ones((80, 4)), np.ones((80, 4, 2))
    results = []
    for back_end in ("numpy", "cpu", "emulated"):
        ml.use(back_end)
        results.append(computed(strictly, a, b, c))
    for other in results[1:]:
        for one, same in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_few_operations() -> None:
    """Those of LAPACK: about 2/3 n^3 for a solve, 2 n^3 for an inverse, and one division for each pivot."""
    on = ml.Set(2, "s")

    @ml.kernel
    def solve(a: ml.Read, b: ml.Read, x: ml.Write):
        x[...] = np.linalg.solve(a, b)

    @ml.kernel
    def invert(a: ml.Read, x: ml.Write):
        x[...] = np.linalg.inv(a)

    six = on.field("a", (6, 6))
    solved = solve.counts(on, six, on.field("b", 6), on.field("x", 6)).flops_by_kind
    inverted = invert.counts(on, six, on.field("x", (6, 6))).flops_by_kind
    assert solved["div"] == inverted["div"] == 6
    assert solved["add"] + solved["mul"] <= 200 and solved["select"] <= 200
    assert inverted["add"] + inverted["mul"] <= 400 and inverted["select"] <= 400


def outcome(function: Any, a: np.ndarray, b: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel that is given a and b computes, and what NumPy does."""
    on = ml.Set(len(a), "points")
    given = [on.field(name, v.shape[1:], data=v) for name, v in (("a", a), ("b", b))]
    out = on.field("out", shape)

    @ml.kernel
    def k(a: ml.Read, b: ml.Read, out: ml.Write):
        out[...] = function(a, b)

    k(on, *given, out)
    return out.numpy(), np.stack([function(one, other) for one, other in zip(a, b, strict=True)])


@pytest.mark.parametrize(
    ("function", "left", "right", "shape"),
    [
        (lambda a, b: a @ b, (2, 3), (3, 4), (2, 4)),
        (lambda a, b: np.matmul(a, b), (2, 3), (3,), (2,)),
        (lambda a, b: np.dot(a, b), (2, 3), (3, 4), (2, 4)),
        (lambda a, b: np.matmul(a.T, b.T), (3, 2), (4, 3), (2, 4)),
        (lambda a, b: np.einsum("ij,jk->ik", a, b), (2, 3), (3, 4), (2, 4)),
        (lambda a, b: np.einsum("ij,ij", a, b), (2, 3), (2, 3), ()),
        (lambda a, b: np.einsum("ij,jk,kl->il", a, b, a), (2, 3), (3, 2), (2, 3)),
        (lambda a, b: np.einsum("ii->i", a) * b, (3, 3), (3,), (3,)),
        (lambda a, b: np.einsum("i,j->ij", a, b), (2,), (3,), (2, 3)),
        (lambda a, b: np.trace(a @ b) * np.eye(2), (2, 3), (3, 2), (2, 2)),
        (lambda a, b: np.cross(a, b), (3,), (3,), (3,)),
        (lambda a, b: np.cross(a, b), (4, 3), (3,), (4, 3)),
        (lambda a, b: np.tensordot(a, b, axes=2), (2, 3), (2, 3), ()),
        (lambda a, b: np.linalg.inv(a), (3, 2, 2), (1,), (3, 2, 2)),
        (lambda a, b: np.linalg.det(a), (3, 2, 2), (1,), (3,)),
        (lambda a, b: np.linalg.solve(a, b), (3, 2, 2), (3, 2, 1), (3, 2, 1)),
        (lambda a, b: np.linalg.solve(a, b[0]), (2, 2), (3, 2), (2,)),
        (lambda a, b: np.linalg.solve(np.eye(3) + 1.0, b), (1,), (3,), (3,)),
        (lambda a, b: np.linalg.inv(np.array([[2.0, a[0]], [0.0, b[0]]])), (1,), (1,), (2, 2)),
    ],
)
def test_products_and_stacks(function, left, right, shape) -> None:
    ml.use("numpy")
    rng = np.random.default_rng(1)
    found, expected = outcome(function, rng.normal(size=(20, *left)), rng.normal(size=(20, *right)), shape)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("left", "right"), [("float32", "float32"), ("float32", "float64"), ("int32", "float32")])
def test_types_are_those_of_numpy(left: str, right: str) -> None:
    ml.use("numpy")
    seen = []

    @ml.kernel
    def k(a: ml.Read, b: ml.Read, out: ml.Write):
        results = np.linalg.solve(a, b), np.linalg.inv(a), np.linalg.det(a)
        seen.append([one.dtype for one in results])
        out[...] = results[0]

    on = ml.Set(1, "s")
    k(on, on.field("a", (2, 2), data=np.array([[[1, 2], [3, 4]]], left)), on.field("b", 2, dtype=right),
      on.field("out", 2))  # fmt: skip
    a, b = np.array([[1, 2], [3, 4]], left), np.zeros(2, right)
    assert seen[0] == [np.linalg.solve(a, b).dtype, np.linalg.inv(a).dtype, np.linalg.det(a).dtype]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda a: np.linalg.solve(a, a[0]), r"np.linalg.solve of a 7 x 7 matrix is not supported .*: at most 6 x 6"),
        (lambda a: np.linalg.inv(a), "np.linalg.inv of a 7 x 7 matrix is not supported"),
        (lambda a: np.linalg.det(a), "np.linalg.det of a 7 x 7 matrix is not supported"),
        (lambda a: np.linalg.det(a[:2]), r"np.linalg.det wants a square matrix, got \(2, 7\)"),
        (lambda a: np.linalg.inv(a[0]), r"np.linalg.inv wants a square matrix, got \(7,\)"),
        (lambda a: np.linalg.solve(a[:2, :2], a[0, :3]), r"a is \(2, 2\) and b \(3,\); b must be \(2,\) or \(2, k\)"),
    ],
)
def test_what_is_refused(function, said: str) -> None:
    ml.use("numpy")
    on = ml.Set(2, "s")

    @ml.kernel
    def k(a: ml.Read, out: ml.Write):
        out[...] = np.sum(function(a))

    with pytest.raises(KernelError, match=rf"test_dense.py:\d+: .*{said}"):
        k(on, on.field("a", (7, 7)), on.field("out"))
