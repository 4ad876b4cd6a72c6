"""Loops of a program that give through one map, each by slots of its own: fused or not, nothing is lost."""

from itertools import chain, combinations, product

import numpy as np
import pytest

import meshloom as ml


def some_of(arity: int) -> list[tuple[int, ...]]:
    """All choices of slots."""
    return list(chain.from_iterable(combinations(range(arity), n) for n in range(1, arity + 1)))


def giving(slots: tuple[int, ...], mode: type) -> ml.Kernel:
    """A kernel that gives something else through each of some slots."""

    def give(q: ml.Read, out: mode):  # type: ignore[valid-type]
        for slot in slots:
            if mode is ml.Inc:
                out[slot] += (slot + 1.0) * q
            else:
                out[slot] = (slot + 1.0) * q

    return ml.kernel(give)


def result(back_end: str, fuse: bool, arity: int, slots: list[tuple[int, ...]], mode: type) -> list[np.ndarray]:
    """What two loops give to fields of their own, and a third one makes of both."""
    ml.use(back_end, threads=2)
    mesh = ml.generate.box((40, 30), cells="quad")
    over, through = (mesh.faces, mesh.face_cells) if arity == 2 else (mesh.cells, mesh.cell_nodes)
    q = over.field("q", data=np.random.default_rng(1).integers(1, 100, len(over)).astype(float))
    fields = [through.target.field(name) for name in ("first", "second")]
    total = through.target.field("total")
    kernels = [giving(one, mode) for one in slots]

    @ml.kernel
    def add(a: ml.Read, b: ml.Read, out: ml.Write):
        out[...] = a + 2.0 * b

    @ml.program(fuse=fuse)
    def step() -> None:
        for kernel, field in zip(kernels, fields, strict=True):
            kernel(over, q, field[through])
        add(through.target, *fields, total)

    step.run(2)
    return [one.numpy().copy() for one in (*fields, total)]


@pytest.mark.parametrize("back_end", ["cpu", "emulated"])
@pytest.mark.parametrize("mode", [ml.Inc, ml.Max], ids=["Inc", "Max"])
@pytest.mark.parametrize(("first", "second"), product(some_of(2), repeat=2))
def test_fused_loops_give_what_they_give_alone(
    back_end: str, mode: type, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    expected = result("numpy", False, 2, [first, second], mode)
    for one, wanted in zip(result(back_end, True, 2, [first, second], mode), expected, strict=True):
        assert np.array_equal(one, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("back_end", ["cpu", "emulated"])
@pytest.mark.parametrize(("first", "second"), product(some_of(4), repeat=2))
def test_of_cells_with_four_corners_too(back_end: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    expected = result("numpy", False, 4, [first, second], ml.Inc)
    for one, wanted in zip(result(back_end, True, 4, [first, second], ml.Inc), expected, strict=True):
        assert np.array_equal(one, wanted)
