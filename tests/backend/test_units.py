"""Loops that differ in their rows alone share what is printed for them; loops whose plans differ in anything do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.unit import make_unit
from meshloom.operation.operation import Operation
from meshloom.schedule.plan.plan import leaves


@ml.kernel
def double(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u


@ml.kernel
def smooth(u: ml.Read, v: ml.Write):
    v[...] = u[-1] + u[1]


def loop_over_part(numbers: slice) -> Operation:
    cells = ml.Set(12, "cells")
    u, v = cells.field("u", data=np.arange(12.0)), cells.field("v")
    return double.loop(cells.subset(np.arange(12)[numbers]), u, v)


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_parts_share_a_unit(backend: str) -> None:
    ml.use(backend)
    first, second = loop_over_part(slice(5)), loop_over_part(slice(5, None))
    assert make_unit(first.spec, first.plan) is make_unit(second.spec, second.plan)
    for loop, size in ((first, 5), (second, 7)):
        loop()
        assert np.count_nonzero(loop.writes[0].numpy()) == size - (size == 5), "0 stays 0"


def test_another_number_of_a_plan_is_another_unit() -> None:
    """Generated text may look at any of them: none is left out of what tells units apart."""
    ml.use("cpu")
    grid = ml.Grid((40,), periodic=True)
    u, v = grid.field("u", data=np.arange(40.0)), grid.field("v")
    loop = smooth.loop(grid, u[grid.offsets(-1, 1)], v)
    names = [path[0] for path, one in leaves(loop.plan) if len(path) == 1 and not isinstance(one, np.ndarray)]
    assert names and make_unit(loop.spec, loop.plan) is make_unit(loop.spec, loop.plan)
    for name in names:
        other = replace(loop.plan, **{str(name): getattr(loop.plan, str(name)) + 1})
        assert make_unit(loop.spec, other) is not make_unit(loop.spec, loop.plan), name
