"""Symmetry of kernels under the exchange of their two targets, decided at random points of a finite field."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel import expr
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import OPS
from meshloom.kernel.symbols import len_arguments
from meshloom.kernel.table import LOOKUPS
from meshloom.schedule.choice.symmetry import COMMUTING, EVEN, ODD, swapped_maps, values
from meshloom.schedule.strategies.common.neighbours import SlotTables, SymmetricTables
from meshloom.solvers.airfoil import AirfoilConfig, AirfoilGas, kernels


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


@ml.kernel
def upwind_by_sign(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """What flows to the left seen from one side flows to the right seen from the other: max(-u, 0) is -min(u, 0)."""
    dx, dy = x[0] - x[1]
    u = w * (dy - dx)
    f = np.maximum(u, 0.0) * q[0] + np.minimum(u, 0.0) * q[1]
    res[0] += f
    res[1] -= f


@ml.kernel
def decides_by_rounding(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """The two sides ask the same question of real numbers, but one of them rounds first; and the answer jumps."""
    res[0] += np.where(q[0] + w < q[1] + w, 1.0, 0.0) * (q[0] + q[1])
    res[1] += np.where(q[1] < q[0], 1.0, 0.0) * (q[0] + q[1])


@ml.kernel
def asks_the_same(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """The same decision, in the same formula, from both sides."""
    res[0] += np.where(q[0] * (w + 0.1) < q[1] * (w + 0.1), 1.0, 0.0) * (q[0] + q[1])
    res[1] += np.where(q[0] * (w + 0.1) > q[1] * (w + 0.1), 1.0, 0.0) * (q[0] + q[1])


@ml.kernel
def floors(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """Rounded apart and rounded together are not the same."""
    res[0] += np.floor(q[0]) + np.floor(q[1])
    res[1] += np.floor(q[0] + q[1])


@ml.kernel
def of_its_own(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """What a target gets depends on the target alone."""
    res[0] += [q[0, 0], 1.5 * q[0, 1]]
    res[1] += [q[1, 0], 1.5 * q[1, 1]]


@ml.kernel
def far_larger(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """2**61 is 1 modulo 2**61 - 1."""
    res[0] += q[1] - q[0]
    res[1] += 2.0**61 * (q[0] - q[1])


@ml.kernel
def sign_of_nothing(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """The sign of 0 is 0 here and 1 there."""
    res[0] += np.copysign(q[0], np.trunc(0.05 * q[1]))
    res[1] += np.abs(q[1]) * np.sign(np.trunc(0.05 * q[0]))


@ml.kernel
def asks_the_first(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """A number equals itself: what is no number does not."""
    f = np.where(np.sqrt(q[0]) == np.sqrt(q[0]), 1.0, 0.0)
    res[0] += f
    res[1] += f


@ml.kernel
def sign_by_rounding(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    res[0] += np.where(np.signbit((q[0] + 1e20 * w) - (q[1] + 1e20 * w)), 1.0, 0.0)
    res[1] += np.where(np.signbit(q[1] - q[0]), 1.0, 0.0)


@ml.kernel
def beyond_the_end(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """Integers go on at the other end: adding to both sides may change which is less."""
    i, j = (30_000_000.0 * q).astype(np.int32)
    res[0] += np.where(i + 1_500_000_000 < j + 1_500_000_000, 1.0, 0.0)
    res[1] += np.where(j < i, 1.0, 0.0)


@ml.kernel
def wider(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
    """Added before they are made wide, and after."""
    i, j = (30_000_000.0 * q).astype(np.int32)
    res[0] += i + j
    res[1] += i.astype(np.int64) + j


CAREFUL = [far_larger, sign_of_nothing, asks_the_first, sign_by_rounding, beyond_the_end, wider]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        *((kernel, None) for kernel in CAREFUL),
        (of_its_own, {0, 1}),
        (upwind_by_sign, {0, 1}),
        (decides_by_rounding, None),
        (asks_the_same, {0, 1}),
        (floors, None),
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
    k = kernels(AirfoilGas.of(AirfoilConfig().flow))
    for dtype in (np.float64, np.float32):
        x = mesh.nodes.field("x", 2, dtype=dtype)
        q, res, adt = (mesh.cells.field(n, d, dtype=dtype) for n, d in (("q", 4), ("res", 4), ("adt", 1)))
        cells = mesh.face_cells
        loop = k.res_calc.loop(mesh.faces, x[mesh.face_nodes], q[cells], adt[cells], res[cells])
        assert swapped_maps(loop.spec, 1) == {0, 1}


SCALES = [1.0, 2.0**-40, 2.0**40, 1e-12, 1e12, 8.85e-12, 1e-300, 1e200]


@pytest.mark.parametrize("scale", SCALES)
def test_the_verdict_does_not_depend_on_the_size_of_numbers(scale: float) -> None:
    @ml.kernel
    def lopsided(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
        f = scale * (2.0 * q[1] + q[0])
        res[0] += f
        res[1] -= f

    @ml.kernel
    def nearly(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
        f = scale * (q[1] - q[0] * (1.0 + 1e-15))
        res[0] += f
        res[1] -= f

    @ml.kernel
    def balanced(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc):
        f = scale * (q[1] - q[0]) + w * scale * 0.1 * (q[1] * 3.0 - 3.0 * q[0])
        res[0] += f
        res[1] -= f

    assert swapped_maps(loop_of(lopsided).spec, 1) is None
    assert swapped_maps(loop_of(nearly).spec, 1) is None
    assert swapped_maps(loop_of(balanced).spec, 1) == {0, 1}


def test_rounding_to_integers_is_no_rational_function() -> None:
    a, b = (expr.load(0, k, 0, expr.FLOAT64) for k in (0, 1))
    whole = lambda node: expr.cast(node, expr.INT64)  # noqa: E731
    apart, together = expr.operate("add", (whole(a), whole(b))), whole(expr.operate("add", (a, b)))
    known = {(0, 0, 0): 17, (0, 1, 0): 4}
    (first, second) = values([apart, together], known.__getitem__)
    assert first[0] != second[0] and first[1] != second[1]


def test_claimed_symmetries_of_operations_hold_to_the_last_bit() -> None:
    """A stand-in may only have a symmetry that the operation has, for every value."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.uniform(-1.0, 1.0, 200), rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200),
                             [0.0, 1.0, np.inf, 5e-324, 1.7e308]])  # fmt: skip
    assert ODD and EVEN and set(OPS) >= ODD | EVEN | COMMUTING
    with np.errstate(all="ignore"):
        for name in ODD:
            np.testing.assert_array_equal(OPS[name].numpy(-values), -OPS[name].numpy(values), err_msg=name)
        for name in EVEN:
            np.testing.assert_array_equal(OPS[name].numpy(-values), OPS[name].numpy(values), err_msg=name)
        for name in COMMUTING:
            a, b = rng.integers(-9, 9, (2, 100))
            np.testing.assert_array_equal(OPS[name].numpy(a, b), OPS[name].numpy(b, a), err_msg=name)


@pytest.mark.parametrize(
    "kernel",
    [
        diffusion,
        flux,
        upwind,
        one_sided,
        rarely_upwind,
        hidden_sign,
        dissipation,
        upwind_by_sign,
        asks_the_same,
        of_its_own,
        *CAREFUL,
    ],
)
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
    found = loop.plan.gathers[1]
    degree = 2 if kernel is one_sided else 4  # of its four faces a cell is given something by those that begin at it
    assert found.degree == degree and isinstance(found.tables, SymmetricTables if symmetric else SlotTables)
    assert (symmetric and 0 in found.tables.ring) == (symmetric and 0 in swapped_maps(loop.spec, 1))
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(results[1], results[0], rtol=tolerance, atol=tolerance * np.abs(results[0]).max())


def pool() -> list[expr.Node]:
    """Formulas of two levels: every operation on every choice of a few leaves, then on what came out, by chance."""
    loads = [expr.load(0, k, 0, expr.FLOAT64) for k in range(3)]
    constants = [expr.const(c, expr.FLOAT64) for c in (0.1, 0.0, -0.0)]
    leaves = [*loads, *(expr.operate("neg", (n,)) for n in loads[:2]), *constants]
    of_integers = COMMUTING | {"not", "invert", *LOOKUPS} | {n for n in OPS if "shift" in n}  # and of tables
    names = [n for n in OPS if n not in of_integers]
    first = [expr.operate(n, args) for n in names for args in product(leaves, repeat=len_arguments(n))]
    rng = np.random.default_rng(0)
    some = [n for n in first if n.dtype == expr.FLOAT64] + 4 * leaves
    chosen = [[some[k] for k in rng.integers(len(some), size=3)] for _ in range(8000)]
    second = [expr.operate(n, args[: len_arguments(n)]) for n, args in zip(names * 400, chosen, strict=False)]
    return list(dict.fromkeys([*first, *second, *(expr.operate("neg", (n,)) for n in first if n.dtype.kind == "f")]))


@pytest.mark.parametrize("which", ["real", "exact"])
def test_formulas_that_are_taken_for_equal_are_equal(which: str) -> None:
    """Those with one value modulo the prime agree for numbers of any size: to the last bit where exact."""
    formulas = pool()
    groups: dict[int, list[int]] = {}
    for k, value in enumerate(values(formulas, {(0, j, 0): 7 ** (15 + j * j) for j in range(3)}.__getitem__)):
        groups.setdefault(value[which == "exact"], []).append(k)
    meeting = [g for g in groups.values() if len(g) > 1]
    assert len(formulas) > 4000 and len(meeting) > 100
    rng = np.random.default_rng(1)
    for scale in (1.0, 1e-12, 1e12):
        data = scale * rng.normal(size=(3, 50))
        data[:2, 10:20] = np.round(data[:2, 10:20] / scale) * scale  # some that are equal, or zero
        with np.errstate(all="ignore"):
            found = evaluate(formulas, lambda n, data=data: data[n.value[1]])
        for group in meeting:
            a = np.broadcast_to(found[group[0]], 50).astype(float)
            for k in group[1:]:
                b = np.broadcast_to(found[k], 50).astype(float)
                if which == "exact":
                    np.testing.assert_array_equal(a, b, err_msg=f"{formulas[group[0]]} and {formulas[k]}")
                elif formulas[k].dtype == expr.FLOAT64:
                    _close(a, b, data, f"{formulas[group[0]]} and {formulas[k]}")


def _close(a: np.ndarray, b: np.ndarray, data: np.ndarray, message: str) -> None:
    """Equal up to rounding for most numbers: some are differences that cancel, or not finite in one formula only."""
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    size = np.maximum(np.abs(a), np.abs(b))
    close = (np.abs(a - b) <= 1e-9 * size) | (size <= 1e-12 * np.abs(data).max())
    assert not finite.any() or close.mean() > 0.9, message
