"""Lines of a kernel stand in generated text as comments: those of the kernel alone, whoever calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cpu import CpuBackend
from meshloom.library.reductions import add_up
from meshloom.operation.loop import Kernel, count_draws


def asked_first(kernel: Kernel, *given: Any) -> str:
    """Its text, by a line that makes the kernel known; then it runs."""
    loop = kernel.loop(*given)
    text = loop.source
    loop()
    return text


def run_first(kernel: Kernel, *given: Any) -> str:
    kernel(*given)
    return kernel.loop(*given).source


def test_a_kernel_of_a_room_that_calls_kernels_has_one_text_for_all_who_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or every line that calls one would make a compiler do the same work again. Its own lines are not told from those
    of the tracer, so that there is no comment."""
    monkeypatch.setitem(_BACKENDS, "cpu", CpuBackend())  # which has nothing loaded
    ml.use("cpu", threads=1)
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    once, texts, built = ml.Set(1, "once"), [], []
    state = once.field("state", 2, dtype=np.int64)
    for calling in (asked_first, run_first):
        texts.append(calling(Kernel(count_draws), once, state))  # a new one, which nobody has traced
        built.append({one.name for one in tmp_path.rglob("*.so")})
    assert texts[0] == texts[1] and len(built[0]) == 1 and built[0] == built[1]


def test_other_kernels_show_their_own_lines() -> None:
    ml.use("cpu", threads=1)
    cells = ml.Set(3, "cells")

    @ml.kernel
    def twice(u: ml.Read, total: ml.Sum):
        total += 2.0 * u[1]

    of_the_package = (Kernel(add_up.function), "total += np.sum(np.float64(1.0) * u)")
    for kernel, line in ((twice, "total += 2.0 * u[1]"), of_the_package):
        text = kernel.loop(cells, cells.field("u", 2), ml.Global(0.0, "total")).source
        *_, comment = (one.strip() for one in text.splitlines() if one.strip().startswith("//"))
        assert comment == f"// {line}"
