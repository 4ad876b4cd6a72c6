"""Nothing depends on the size of the numbers: results, schedules and verdicts on symmetry at every scale.

Every kernel here is a formula of two targets with coefficients. Data and coefficients are multiplied by scales from
1e-12 to 1e12; what comes out is compared with the kernel called as plain Python at that scale, relative to the largest
result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.schedule.choice.symmetry import swapped_maps
from tests.schedule.forms import FORMS

SCALES = (2.0**-40, 2.0**40, 1e-12, 1e12)
MODERATE = (2.0**-7, 2.0**7, 1e-2, 1e2)  # in single precision, where the fourth power of 1e12 leaves the range
DIGITS = {np.float64: 1e-13, np.float32: 2e-5}  # relative to the largest result
LAYOUTS = ("aos", "soa", "aosoa4")
Values = Any


@dataclass(frozen=True)
class Formula:
    """``gives(c, x, q, w)``: what an element offers to its two targets. ``powers``: how coefficients scale, and the
    ``degree`` of the largest intermediate result, as powers of the scale."""

    gives: Callable[[Sequence[Any], Values, Values, Values], tuple[Any, Any]]
    coefficients: tuple[float, ...]
    powers: tuple[int, ...]
    degree: int

    @property
    def name(self) -> str:
        return self.gives.__name__

    def at(self, scale: float) -> tuple[float, ...]:
        return tuple(c * scale**p for c, p in zip(self.coefficients, self.powers, strict=True))


def lopsided(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    """A flux that is not the same from the other side."""
    f = c[0] * (2.0 * q[1] + q[0])
    return f, -f


def exchange(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    f = c[0] * (q[1] - q[0])
    return f, -f


def spring(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    """What the matrix runs: a pull along the edge."""
    d = x[1] - x[0]
    length = np.sqrt(d @ d + c[0])
    pull = c[1] * w * d / length
    return np.where(w > c[2], pull, 0.5 * pull), -pull


def turned(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    """The nodes change places with the cells: the normal turns round."""
    dx, dy = x[0] - x[1]
    f = c[0] * w * (dy * (q[0] + q[1]) - dx * (q[0] - q[1]) ** 2 / (c[1] + np.abs(q[0]) + np.abs(q[1])))
    return f, -f


def upwind(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    speed = c[0] * (x[1, 1] - x[0, 1])
    f = speed * np.where(speed > c[1], q[0], q[1])
    return f, -f


def rarely_lopsided(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    f = c[0] * np.where(q[0] > c[1], 2.0 * q[0], q[0] - q[1])
    return f, -f


def dissipation(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    dx, dy = x[0] - x[1]
    speed = np.maximum(np.abs(q[0] * dy), np.abs(q[1] * dy)) + np.sqrt((dx**2 + dy**2) * c[0])
    return speed * (q[0] - q[1]), speed * (q[1] - q[0])


def smaller(c: Sequence[Any], x: Values, q: Values, w: Values) -> tuple[Any, Any]:
    least = np.minimum(q[0], q[1] * c[0])
    return least, least + c[1] * w


FORMULAS = [
    Formula(lopsided, (8.85e-12 * 2**40,), (1,), 2),
    Formula(exchange, (3.0,), (1,), 2),
    Formula(spring, (0.01, 1.5, 0.5), (2, 1, 1), 3),
    Formula(turned, (0.5, 0.1), (1, 1), 4),
    Formula(upwind, (0.7, 0.1), (1, 2), 3),
    Formula(rarely_lopsided, (1.5, 0.9), (1, 1), 2),
    Formula(dissipation, (0.3,), (2,), 3),
    Formula(smaller, (1.25, 0.5), (0, 0), 1),
]
every_formula = pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)


def incs(formula: Formula, c: Sequence[float] | None) -> ml.Kernel:
    """Increments and sums. ``c``: coefficients that the kernel captures; None: a Global holds them."""
    if c is not None:

        @ml.kernel
        def captured(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Inc, total: ml.Sum):
            first, second = formula.gives(c, x, q, w)
            res[0] += first
            res[1] += second
            total += first

        return captured

    @ml.kernel
    def handed(x: ml.Read, q: ml.Read, w: ml.Read, c: ml.Read, res: ml.Inc, total: ml.Sum):
        first, second = formula.gives(c, x, q, w)
        res[0] += first
        res[1] += second
        total += first

    return handed


def extremes(formula: Formula, c: Sequence[float] | None) -> ml.Kernel:
    """Minima at the targets and over all."""
    if c is not None:

        @ml.kernel
        def captured(x: ml.Read, q: ml.Read, w: ml.Read, res: ml.Min, total: ml.Max):
            res[0], res[1] = formula.gives(c, x, q, w)
            total[...] = res_of(formula, c, x, q, w)

        return captured

    @ml.kernel
    def handed(x: ml.Read, q: ml.Read, w: ml.Read, c: ml.Read, res: ml.Min, total: ml.Max):
        res[0], res[1] = formula.gives(c, x, q, w)
        total[...] = res_of(formula, c, x, q, w)

    return handed


def res_of(formula: Formula, c: Sequence[Any], x: Values, q: Values, w: Values) -> Any:
    return formula.gives(c, x, q, w)[0]


MODES = {"inc": (incs, 0.0, 0.0), "extremes": (extremes, np.inf, -np.inf)}  # with what is there before


@cache
def mesh() -> ml.Mesh:
    return ml.generate.box((17, 16))


class Case:
    """A formula on a mesh where most cells have four faces; data times ``data``, coefficients times ``factor``."""

    def __init__(self, formula: Formula, data: float, factor: float, *, dtype: type = np.float64, layout: str = "aos",
                 captured: bool = False, mode: str = "inc"):  # fmt: skip
        on, rng = mesh(), np.random.default_rng(4)
        dim = 2 if formula.gives is spring else 1
        make, self.start_res, self.start_total = MODES[mode]
        c = np.asarray(formula.at(factor), dtype)
        x, q, w = rng.random((on.nodes.size, 2)), rng.random(on.cells.size) - 0.3, rng.random(on.faces.size)
        self.faces, cells = on.faces, on.face_cells
        self.res = on.cells.field("res", dim, dtype=dtype, layout=layout)
        self.total = ml.Global(np.zeros(dim) if dim > 1 else 0.0, "total", dtype=dtype)
        self.kernel = make(formula, tuple(c) if captured else None)
        read = (
            on.nodes.field("x", 2, dtype=dtype, layout=layout, data=data * x)[on.face_nodes],
            on.cells.field("q", dtype=dtype, data=data * q)[cells],
            on.faces.field("w", dtype=dtype, data=data * w),
        )
        given = () if captured else (ml.Global(c, "c", dtype=dtype),)
        self.arguments = (*read, *given, self.res[cells], self.total)

    def reset(self) -> None:
        self.res.fill(self.start_res)
        self.total.value = self.start_total

    def results(self, run: Callable[[], None]) -> tuple[np.ndarray, np.ndarray]:
        self.reset()
        run()
        return self.res.numpy(), np.asarray(self.total.value)

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        return self.results(lambda: self.kernel.python(self.faces, *self.arguments))

    def loop(self, schedule: Any = None) -> ml.Loop:
        return self.kernel.loop(self.faces, *self.arguments, schedule=schedule)


def assert_close(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], digits: float, what: str) -> None:
    """Relative to the largest result: a sum of the same terms in another order differs by no more."""
    (res, total), (res_found, total_found) = expected, found
    largest = np.abs(res[np.isfinite(res)]).max()
    assert 0.0 < largest < np.inf
    sums = largest * len(mesh().faces) ** 0.5
    np.testing.assert_allclose(res_found, res, rtol=0.0, atol=digits * largest, err_msg=what)
    np.testing.assert_allclose(total_found, total, rtol=0.0, atol=digits * sums, err_msg=what)


def scales_of(formula: Formula, dtype: type) -> tuple[float, ...]:
    """Those for which no intermediate result leaves the range."""
    if dtype is np.float64:
        return SCALES
    return tuple(s for s in (*SCALES, *MODERATE) if 1e-30 < s**formula.degree < 1e30)


PAIRS = [(1.0, 1.0), *((s, s) for s in SCALES), *((1.0, s) for s in SCALES)]  # of data and coefficients


@pytest.mark.parametrize("captured", [True, False], ids=["captured", "global"])
@every_formula
def test_choice_and_verdict_do_not_change_with_scale(formula: Formula, captured: bool) -> None:
    for backend in ("cpu", "emulated"):
        ml.use(backend)
        for mode in MODES:
            seen = set()
            for data, factor in PAIRS:
                loop = Case(formula, data, factor, captured=captured, mode=mode).loop()
                swapped = swapped_maps(loop.spec, 1)
                seen.add((str(loop.schedule), swapped if swapped is None else tuple(sorted(swapped))))
            assert len(seen) == 1, (backend, mode, seen)


@every_formula
def test_a_captured_coefficient_of_any_size_gives_the_same_digits(formula: Formula) -> None:
    """By itself and by ``owner``, whose code depends on symmetry; a constant is part of the compiled text."""
    for factor in SCALES[2:3]:  # every one is compiled anew: the slow test takes them all
        for backend, strategy in (("cpu", "auto"), ("emulated", "auto"), ("emulated", "owner")):
            ml.use(backend)
            for data in (1.0, factor):
                case = Case(formula, data, factor, captured=True)
                found = case.results(case.loop(strategy))
                assert_close(found, case.expected(), DIGITS[np.float64], f"{backend} {strategy} {data} {factor}")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@every_formula
def test_a_captured_coefficient_at_every_scale_under_every_strategy(formula: Formula, mode: str) -> None:
    """Every coefficient is compiled anew: strategies meet each on one of the back ends, which take turns."""
    for k, (data, factor) in enumerate(PAIRS):
        for n, form in enumerate(FORMS):
            backend = ("cpu", "emulated")[(k + n) % 2]
            ml.use(backend)
            case = Case(formula, data, factor, captured=True, mode=mode)
            loop = case.loop(form.having(block=32))
            if loop.applies:
                what = f"{backend} {form} {data} {factor}"
                assert_close(case.results(loop), case.expected(), DIGITS[np.float64], what)


def check_every_scale(formula: Formula, form: ml.Schedule, backend: str, dtype: type, layout: str, mode: str) -> int:
    """With coefficients in a Global one text serves all scales. Returns how many scales were compared."""
    compared = 0
    for scale in scales_of(formula, dtype):
        for data in (1.0, scale):
            case = Case(formula, data, scale, dtype=dtype, layout=layout, mode=mode)
            expected = _reference(formula, data, scale, dtype, mode)
            ml.use(backend)
            loop = case.loop(form.having(block=32))
            if loop.applies:
                what = f"{backend} {form} {layout} {data} {scale}"
                assert_close(case.results(loop), expected, DIGITS[dtype], what)
                compared += 1
    return compared


@cache
def _reference(formula: Formula, data: float, factor: float, dtype: type, mode: str) -> tuple[np.ndarray, np.ndarray]:
    return Case(formula, data, factor, dtype=dtype, mode=mode).expected()


@pytest.mark.parametrize("backend", ["cpu", pytest.param("emulated", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_strategy_at_every_scale(form: ml.Schedule, backend: str) -> None:
    """Each strategy with some of the formulas, layouts, precisions and modes in turn; the slow one runs them all."""
    turn = FORMS.index(form)
    compared = 0
    for k, formula in enumerate((FORMULAS[0], FORMULAS[1 + turn % (len(FORMULAS) - 1)])):
        dtype = (np.float64, np.float32)[(turn + k) % 2]
        mode = "inc" if k == 0 else tuple(MODES)[turn // 2 % 2]
        compared += check_every_scale(formula, form, backend, dtype, LAYOUTS[(turn + k) % 3], mode)
    assert compared or form.strategy in ("box",)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["double", "single"])
@every_formula
def test_everything_at_every_scale(formula: Formula, dtype: type, layout: str, mode: str, backend: str) -> None:
    compared = [check_every_scale(formula, form, backend, dtype, layout, mode) for form in FORMS]
    assert np.count_nonzero(compared) > 5


def test_plain_python_scales_by_powers_of_two_bit_for_bit() -> None:
    """The judge itself: without rounding, times 2^40 is times 2^40."""
    formula = FORMULAS[1]
    (one, _), (many, _) = (Case(formula, s, s).expected() for s in (1.0, 2.0**40))
    np.testing.assert_array_equal(many, one * 2.0**80)
