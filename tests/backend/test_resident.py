"""Kernels for more blocks at a time: what is compiled for that, and what is not printed or compiled again."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.compiling import CompilingBackend
from meshloom.backend.cuda import dialect
from meshloom.backend.cuda.kernels import GpuText, compiled_kernels
from meshloom.backend.lowering import Compiled, Lowered

BOUNDS = re.compile(r"__launch_bounds__\((\d+), (\d+)\) (\w+)\(")
REGISTERS = 65536  # of a multiprocessor


@ml.kernel
def add(u: ml.Read, v: ml.ReadWrite, total: ml.Sum):
    v += u
    total += u * v


def lowered() -> Lowered:
    """A loop that has a kernel for its pass, and one that finishes its sum."""
    ml.use("emulated")
    cells = ml.Set(1000, "cells")
    u, v = cells.field("u", data=np.arange(1000.0)), cells.field("v")
    loop = add.loop(cells, u, v, ml.Global(0.0, "total"))
    assert isinstance(loop.backend, CompilingBackend)
    return loop.backend.lowered(loop.policy.described(loop))


def compiler(texts: list[str], liked: int, spills: Callable[[int], int]) -> Callable[[GpuText], Compiled]:
    """One by which kernels take as many registers as they like, or as fit; ``spills``: bytes, with so many of them."""

    def compiled(text: GpuText) -> Compiled:
        texts.append(text.source)
        found = {name: min(liked, REGISTERS // (int(threads) * int(blocks)) // 8 * 8)
                 for threads, blocks, name in BOUNDS.findall(text.source)}  # fmt: skip
        return Compiled(None, {name: {"registers": n, "spills": spills(n)} for name, n in found.items()})

    return compiled


@pytest.mark.parametrize("liked", [40, 100, 250])
def test_only_what_differs_is_printed_and_nothing_is_compiled_twice(
    liked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, texts = lowered(), list[str]()
    options = one.options

    def whole(text: str) -> str:
        resident = [int(blocks) for _, blocks, name in BOUNDS.findall(text) if name.startswith("pass")]
        made = dialect.kernels(one.unit, options.block, options.threads, resident)
        return dialect.render(one.unit, made, wide_index=options.wide_index)

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "_kernel", None)  # the text of a pass is there
        found = compiled_kernels(one, compiler(texts, liked, lambda n: 0), "")
    assert found is not None and len(texts) > 1 and len(set(texts)) == len(texts)
    assert texts == [whole(text) for text in texts] and texts[0] == one.source
    assert found.source in texts[1:], "fewer registers do not spill here"


def test_a_kernel_that_spills_with_all_registers_is_compiled_once() -> None:
    one, texts = lowered(), list[str]()
    found = compiled_kernels(one, compiler(texts, 255, lambda n: 1000), "")
    assert found is not None and texts == [one.source] and found.source == one.source


def test_a_kernel_that_would_spill_keeps_what_it_likes() -> None:
    one, texts = lowered(), list[str]()
    found = compiled_kernels(one, compiler(texts, 100, lambda n: 0 if n == 100 else 1000), "")
    assert found is not None and len(texts) == 2 and found.source == one.source
