"""One file adds a target: a GPU that nobody makes, with 16 lanes, little of everything and words of its own."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.target import Language, Target
from tests.schedule.forms import FORMS
from tests.schedule.test_matrix import Case, assert_same, everything, reference

TOY_TALK = Language(
    "Toy",
    words="""
template <class U> ML_FUNCTION U ml_peek(U* p) { return toy_look(p); }
ML_FUNCTION void ml_prefetch(const void*, int) {}
ML_FUNCTION unsigned char* ml_dynamic_shared() { return toy_desk(); }
""",
    lanes="""
template <class T> ML_FUNCTION T ml_lane(T value, int mask) { return toy_ask(value, toy_seat() ^ mask); }
template <class T> ML_FUNCTION T ml_from(T value, int lane) { return toy_ask(value, lane); }
""",
    emulation="""
#define TOY_CLASS(threads)
#define toy_look(p) __atomic_load_n(p, __ATOMIC_RELAXED)
inline unsigned char* toy_desk() { return ml_shared_start(); }
inline int toy_seat() { return (int)(threadIdx.x % ML_LANES); }
template <class T> inline T toy_ask(T value, int seat) { return ml_shown(value, seat); }
""",
    bounds=lambda threads, blocks, target: f"TOY_CLASS({threads})",
)
TOY = Target(
    lanes=16, multiprocessors=3, block_threads=256, resident_threads=512, registers=8192, shared=24_576,
    shared_unasked=24_576, cache_line=32, device="nvidia", speed=132 / 50, language=TOY_TALK,
)  # fmt: skip


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    reference("cells", np.float64)
    monkeypatch.setitem(_BACKENDS, "toy", EmulatedCuda(TOY, name="toy"))
    ml.use("toy")


@pytest.mark.parametrize("form", [one if one.strategy in ("warp_atomic", "tile") else
                                  pytest.param(one, marks=pytest.mark.slow) for one in FORMS], ids=str)  # fmt: skip
def test_every_strategy_agrees_with_numpy(form: ml.Schedule) -> None:
    case = Case("cells", np.float64, "aos")
    case.reset()
    loop = everything.loop(case.edges, *case.arguments, schedule=form.having(block=64))
    loop()
    assert loop.backend.target is TOY
    assert_same(case.results(), reference("cells", np.float64), np.float64)


def test_grids_and_lines() -> None:
    @ml.kernel
    def slope(u: ml.Read, d: ml.Write, total: ml.Sum):
        d[...] = u[0, 1] - u[0, -1]
        total += u[0, 1]

    grid, total = ml.Grid((5, 77), periodic=True), ml.Global(0.0, "total")
    values = np.random.default_rng(1).random((5, 77))
    u, d, solved = grid.field("u", data=values), grid.field("d"), grid.field("solved")
    slope(grid, u[grid.offsets((0, 1), (0, -1))], d, total)
    expected = np.roll(values, -1, 1) - np.roll(values, 1, 1)
    np.testing.assert_allclose(d.numpy(), expected, atol=1e-15)
    np.testing.assert_allclose(total.value, values.sum(), rtol=1e-14)
    operator = ml.linalg.LineOperator(
        ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True), ml.linalg.Stencil({0: 1.0}), 1.0
    )
    ml.linalg.line_loop(grid, 1, operator, d, solved)
    x = solved.numpy()
    np.testing.assert_allclose(x + 0.25 * (np.roll(x, 1, 1) + np.roll(x, -1, 1)), expected, atol=1e-14)
