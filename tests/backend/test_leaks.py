"""Programs, fields, globals and loops that are dropped give their memory back, on the host and on a device."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom import compact
from meshloom.errors import ProgramError

EVERY = 10  # rounds between two looks
COUNTED = (ml.Field, ml.Global, ml.Set, ml.Map, ml.Kernel, ml.Loop, ml.Program)


@ml.kernel
def spread(v: ml.Read, out: ml.Inc):
    out[0] += v
    out[1] -= v


@ml.kernel
def advance(out: ml.ReadWrite, u: ml.ReadWrite, total: ml.Sum):
    u[...] = u + 0.1 * out
    out[...] = 0.0 * out
    total += u


def mesh_program() -> tuple[Any, ...]:
    """A program of loops over faces and cells, replayed, with a global that is recorded; on a GPU it is fused and a
    graph."""
    ring = 96
    faces, cells = ml.Set(ring, "faces"), ml.Set(ring, "cells")
    sides = ml.Map(faces, cells, np.stack([np.arange(ring), (np.arange(ring) + 1) % ring], axis=1), "sides")
    v, out, u = faces.field("v", data=np.ones(ring)), cells.field("out"), cells.field("u", data=np.ones(ring))
    total = ml.Global(0.0, "total")

    @ml.program
    def step() -> None:
        total.value = 0.0
        spread(faces, v, out[sides])
        advance(cells, out, u, total)

    history = step.run(3, record=(total,))
    assert history[-1, 0] == pytest.approx(ring)
    return step, v, out, u, total, faces, cells, sides


def line_program() -> tuple[Any, ...]:
    """A program of line loops: derivatives along both axes of a grid."""
    grid = ml.Grid((12, 12), periodic=True)
    f, d = grid.field("f", data=np.ones(144)), grid.field("d")

    @ml.program
    def slopes() -> None:
        for axis in (0, 1):
            compact.d(f, axis, d)

    slopes.run(2)
    assert np.abs(d.numpy()).max() < 1e-13
    return slopes, f, d, grid


def eager_calls() -> tuple[Any, ...]:
    """Loops by calling kernels, with fields and a global of their own."""
    cells = ml.Set(64, "cells")
    out, u, total = cells.field("out", data=np.ones(64)), cells.field("u"), ml.Global(0.0, "total")
    advance(cells, out, u, total)
    assert u.numpy()[0] == pytest.approx(0.1)
    return cells, out, u, total


def own_kernel() -> tuple[Any, ...]:
    """A kernel that goes with its sets, so that what was compiled for it goes, too."""
    cells = ml.Set(64, "cells")
    u, out = cells.field("u", data=np.ones(64)), cells.field("out")

    @ml.kernel
    def doubled(u: ml.Read, out: ml.Write) -> None:
        out[...] = 2.0 * u

    doubled(cells, u, out)
    assert out.numpy()[0] == 2.0
    return doubled, cells, u, out


def failed_recording() -> tuple[Any, ...]:
    """A program whose recording ends half-way, after a loop and an inner program."""
    cells = ml.Set(64, "cells")
    out, u, total = cells.field("out", data=np.ones(64)), cells.field("u"), ml.Global(0.0, "total")
    inner = ml.program(lambda: advance(cells, out, u, total))
    inner.run(1)

    @ml.program
    def step() -> None:
        inner()
        total.value = 0.0
        u.numpy()

    with pytest.raises(ProgramError):
        step.run(2)
    return inner, step, cells, out, u, total


def moving_fields() -> tuple[Any, ...]:
    """Fields that change their place and layout between calls, and a copy of one."""
    cells = ml.Set(64, "cells")
    out, u, total = cells.field("out", 2, data=np.ones((64, 2))), cells.field("u", 2), ml.Global([0.0, 0.0], "total")
    for layout in ("soa", "aos"):
        advance(cells, out, u, total)
        u.relayout(layout)
    other = copy.copy(u)
    advance(cells, out, other, total)
    assert other.numpy()[0, 0] == u.numpy()[0, 0] == pytest.approx(0.1)
    return cells, out, u, other, total


KINDS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "mesh_program": mesh_program,
    "line_program": line_program,
    "eager_calls": eager_calls,
    "own_kernel": own_kernel,
    "failed_recording": failed_recording,
    "moving_fields": moving_fields,
}


def counted() -> Counter[str]:
    """How many objects of the package are alive."""
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, COUNTED))


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def rounds(make: Callable[[], tuple[Any, ...]], number: int) -> None:
    """Make and drop everything so often; what it made must be gone afterwards, by itself or by the collector."""
    for k in range(number):
        kept = [weakref.ref(one) for one in make()]
        if k % EVERY == EVERY - 1:
            gc.collect()
            assert [ref for ref in kept if ref() is not None] == [], "somebody holds on to it"


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_dropped_is_gone(kind: str, backend: str) -> None:
    ml.use(backend)
    rounds(KINDS[kind], EVERY)  # compiles, and fills the caches that are meant to stay
    before = counted()
    rounds(KINDS[kind], 3 * EVERY)
    assert counted() == before


def test_memory_of_the_process_is_flat() -> None:
    """Fields of 8 MB, so that one that stays is seen: 40 of them would be 320 MB."""
    ml.use("cpu")

    def large() -> None:
        cells = ml.Set(1_000_000, "cells")
        u, v = (cells.field(name, data=np.ones(1_000_000)) for name in "uv")
        total = ml.Global(0.0, "total")

        @ml.program
        def step() -> None:
            advance(cells, u, v, total)

        step.run(1)

    for _ in range(3):
        large()
    gc.collect()
    before = resident()
    for _ in range(20):
        large()
    gc.collect()
    assert resident() - before < 60e6


@pytest.mark.gpu
def test_device_memory_is_flat() -> None:
    """3,000 rounds: bytes that the pool of CuPy hands out, and those that it has taken from the device, whatever others
    do on it meanwhile."""
    import cupy

    ml.use("cuda")
    pool = cupy.get_default_memory_pool()

    def used() -> tuple[int, int]:
        """Bytes handed out by the pool, and taken from the device when the pool holds nothing spare."""
        gc.collect()
        cupy.cuda.Device().synchronize()
        handed_out = pool.used_bytes()
        pool.free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        return handed_out, pool.total_bytes()

    for make in KINDS.values():
        rounds(make, 40)
    objects, (handed_out, taken) = counted(), used()
    for kind, number in (("mesh_program", 900), ("line_program", 400), ("eager_calls", 700), ("own_kernel", 400),
                         ("failed_recording", 300), ("moving_fields", 300)):  # fmt: skip
        rounds(KINDS[kind], number)
    assert counted() == objects
    later, at_the_end = used()
    assert later - handed_out < 64 * 1024, f"{later - handed_out} bytes more than before"
    assert at_the_end - taken < 32 * 2**20, f"{(at_the_end - taken) / 2**20:.0f} MiB more than before"
