"""Fused programs leave all memory as loops by themselves do: ghosts, too, which ``numpy()`` does not show. Random ones:
``tests/attacks/programs.py``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshloom as ml
from tests.dataflow_programs import Made


@ml.kernel
def shift(a: ml.Read, b: ml.Write):
    b[...] = a[1, 0]


@ml.kernel
def keep(a: ml.Read, b: ml.Write):
    b[...] = a


def line_between(grid: ml.Grid, source: ml.Field, target: ml.Field) -> Callable[[], None]:
    return ml.linalg.LineLoop(grid, 1, ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25)), source, target)


def lines_after_a_second_buffer() -> Made:
    """Ghosts are in a second buffer when lines write the rest."""
    grid = ml.Grid((8, 6), ghosts=(0, 1), periodic=(True, False))
    u, t, r = grid.field("u"), grid.field("t", temporary=True), grid.field("r")
    u.storage[...] = np.arange(64.0)
    line = line_between(grid, r, u)

    def step() -> None:
        shift(grid.everything, u[grid.offsets((1, 0))], t)
        keep(grid.everything, t, u)
        line()

    return step, [u, r]


def ghosts_after_lines() -> Made:
    """A loop over everything follows one along lines, which have no ghosts."""
    grid = ml.Grid((8, 6), ghosts=1)
    u, v, r = (grid.field(name, data=1.0) for name in "uvr")
    u.storage[...] = 1.0
    line = line_between(grid, r, u)

    def step() -> None:
        line()
        keep(grid.everything, u, v)

    return step, [u, v, r]


def memory_after(backend: str, make: Callable[[], Made], *, fuse: bool, runs: int = 2) -> list[np.ndarray]:
    ml.use(backend)
    step, looked_at = make()
    ml.program(fuse=fuse)(step).run(runs)
    return [np.array(one.storage[: one.set.total] if isinstance(one, ml.Field) else one.storage) for one in looked_at]


def check(make: Callable[[], Made], backends: tuple[str, ...]) -> None:
    expected = memory_after("numpy", make, fuse=False)
    for backend in backends:
        for found, wanted in zip(memory_after(backend, make, fuse=True), expected, strict=True):
            rounding = 1e-12 * np.abs(wanted).max(initial=0.0)
            np.testing.assert_allclose(found, wanted, rtol=0.0, atol=rounding, err_msg=backend)


@pytest.mark.parametrize("make", [lines_after_a_second_buffer, ghosts_after_lines])
def test_ghosts_are_as_without_fusion(make: Callable[[], Made]) -> None:
    check(make, ("cpu", "emulated"))
