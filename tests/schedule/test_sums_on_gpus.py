"""Sums to Globals under ``reproducible`` on a GPU, emulated: what threads, warps and blocks do of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.target.cuda import H200
from tests.schedule.test_reproducible import add, bits, exact, put_back, spread

__all__ = ["put_back"]  # a fixture for every test


@pytest.mark.parametrize("vector", [None, 16, pytest.param(64, marks=pytest.mark.slow)])
def test_several_elements_for_each_thread_of_a_gpu(vector: int | None) -> None:
    ml.use("emulated", reproducible=True)
    u, total = spread(np.random.default_rng(1), 3001), ml.Global(0.25, "total")
    cells = ml.Set(len(u), "cells")
    add(cells, cells.field("u", data=u), total, schedule=ml.Schedule(vector=vector))
    assert bits(total.value) == bits(exact([0.25, *u]))


@pytest.mark.parametrize("elements", [0, 1, 511, 512, 513, 3001])
def test_threads_of_a_gpu_go_on_with_other_elements(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more blocks are launched than run at a time: here 4 of 128 threads."""
    small = EmulatedCuda(replace(H200, multiprocessors=1, resident_threads=512), "small")
    monkeypatch.setitem(_BACKENDS, "small", small)
    ml.use("small", reproducible=True)
    u, total = spread(np.random.default_rng(1), elements), ml.Global(0.25, "total")
    cells = ml.Set(elements, "cells")
    loop = add.loop(cells, cells.field("u", data=u), total, schedule=ml.Schedule(block=128))
    loop()
    assert bits(total.value) == bits(exact([0.25, *u]))
    assert max(one.grid for one in loop.ready().steps) == max(1, min(4, -(-elements // 128)))


@pytest.mark.parametrize("on", [True, False])
def test_warps_of_a_gpu_are_merged_in_pairs(on: bool) -> None:
    """Merging bins is long, and one thread would do it for 31 others: here it is a chain of 5. Within a warp they are
    not merged two by two: once the largest is known, whole numbers are added."""
    with ml.using("emulated", reproducible=on):
        cells, total = ml.Set(4, "cells"), ml.Global(0.0, "total")
        text = add.loop(cells, cells.field("u"), total).source.split("// loop ")[1]
        finish = text[text.index("ml_finish(") :]
    assert ("for (unsigned left = 32, half; left > 1; left = half) {" in finish) is on
    assert ("for (int w = 1; w < 32; ++w)" in finish) is not on
    assert text.count("left = half") == text.count("ml_merged_lanes<32>") == 2 * on, "in blocks, and over them"
