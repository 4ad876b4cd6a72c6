"""CUDA emulated with warps of 64 threads: strategies that shuffle agree with NumPy, boxes and lines too. With the text
of HIP, ``test_hip.py`` has all of them."""

from collections.abc import Iterator

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ScheduleError
from tests.one_line import one_line_from
from tests.schedule.forms import FORMS
from tests.schedule.test_matrix import Case, assert_same, everything, reference


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = ml.backend()
    yield
    ml.use(before)


def residual(schedule: ml.Schedule) -> tuple[ml.Loop, Case]:
    case = Case("cells", np.float64, "aos")
    case.reset()
    return everything.loop(case.edges, *case.arguments, schedule=schedule), case


@pytest.mark.parametrize("form", [one if one.strategy in ("warp_atomic", "strip", "tile") else
                                  pytest.param(one, marks=pytest.mark.slow) for one in FORMS], ids=str)  # fmt: skip
def test_every_strategy_agrees_with_numpy_on_64_lanes(form: ml.Schedule) -> None:
    expected = reference("cells", np.float64)
    ml.use("emulated", lanes=64)
    loop, case = residual(form.having(block=128))
    loop()
    assert loop.backend.target.lanes == 64
    assert_same(case.results(), expected, np.float64)


def test_calls_are_made_again_for_other_lanes() -> None:
    """One kernel, the same fields: what was compiled for 32 lanes is not taken for 64, nor the other way round."""
    expected, case, schedule = reference("cells", np.float64), Case("cells", np.float64, "aos"), ml.Schedule("strip")
    for lanes in (32, 64, 32):
        ml.use("emulated", lanes=lanes)
        case.reset()
        everything(case.edges, *case.arguments, schedule=schedule)
        assert_same(case.results(), expected, np.float64)


def test_without_a_number_there_are_32() -> None:
    ml.use("emulated", lanes=64)
    ml.use("emulated")
    assert residual(ml.Schedule("owner"))[0].backend.target.lanes == 32


@ml.kernel
def around(u: ml.Read, out: ml.Write, total: ml.Sum):
    out[...] = u[0, 0] + 2.0 * u[0, 1] - u[1, 0]
    total += u[0, 0]


def smoothed(backend: str, **options: int) -> list[np.ndarray]:
    """A box loop with a sum, then a solve along each axis."""
    ml.use(backend, **options)
    grid = ml.Grid((40, 200), periodic=True)
    points = np.arange(8000.0).reshape(40, 200)
    u, out, solved, total = grid.field("u", data=np.cos(points)), grid.field("out"), grid.field("s"), ml.Global(0.0)
    around(grid, u[grid.offsets((0, 0), (0, 1), (1, 0))], out, total)
    found = [np.asarray(total.value), out.numpy().copy()]
    matrix = ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True)
    operator = ml.linalg.LineOperator(matrix, ml.linalg.LineStencil({0: 1.0}), 1.0)
    for axis in (0, 1):
        ml.linalg.line_loop(grid, axis, operator, out, solved)
        found.append(solved.numpy().copy())
    return found


def test_boxes_and_lines_agree_with_numpy_on_64_lanes() -> None:
    for mine, other in zip(smoothed("emulated", lanes=64), smoothed("numpy"), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name, lanes, said",
    [("cpu", 64, "lanes can be chosen on the back end 'emulated' only, not on 'cpu'"),
     ("emulated", 48, "lanes must be 32 or 64, got 48"), ("emulated", True, "lanes must be 32 or 64, got True"),
     ("emulated", "64", "lanes must be 32 or 64, got '64'")],
)  # fmt: skip
def test_what_lanes_cannot_be(name: str, lanes: object, said: str) -> None:
    ml.use("numpy", threads=2)
    with one_line_from(ScheduleError, said):
        ml.use(name, lanes=lanes, threads=1, strict=True)  # type: ignore[arg-type]
    assert ml.backend() == "numpy" and ml.threads() == 2, "nothing has changed"
