"""``ml.Random``: numbers by counter, the same for an element whoever computes them, and others at every call."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, MeshError, RunError
from meshloom.kernel.random import Draws, philox
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
RNG = np.random.default_rng(3)


@ml.kernel
def throw(v: ml.Write, r: ml.Random):
    v[...] = r.uniform(2)


@ml.kernel
def kick(v: ml.Write, r: ml.Random):
    v[...] = r.normal(2)


@ml.kernel
def spread(r: ml.Random, total: ml.Inc):
    flux = r.uniform()
    total[0] += flux
    total[1] -= flux


@ml.kernel
def roll(v: ml.Write, w: ml.Write, r: ml.Random):
    v[...] = r.uniform(dtype=np.float32)
    w[0] = r.integers(1, 7)
    w[1] = r.integers(-(2**31), 2**31)


def _words(*given: int) -> tuple[Any, ...]:
    return tuple(map(np.int64, given))


@pytest.mark.parametrize(("counter", "key", "answer"), [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])  # fmt: skip
def test_known_answers(counter: Any, key: Any, answer: Any) -> None:
    """Those of Random123's file kat_vectors, for philox4x32 with 10 rounds."""
    assert tuple(map(int, philox(_words(*counter), _words(*key)))) == answer


def test_a_number_is_that_of_its_seed_element_and_call() -> None:
    """The counter: the element, 64 bits; calls, 32 bits; more bits of calls and the block of the kernel."""
    dice, cells = ml.Random(seed=0x299F31D0A4093822), ml.Set(3, "cells")
    v = cells.field("v", 2)
    ml.use("numpy")
    throw(cells, v, dice)
    throw(cells, v, dice)
    a, b, c, d = map(int, philox(_words(2, 0, 1, 0), _words(0xA4093822, 0x299F31D0)))
    assert v.numpy()[2].tolist() == [((a << 21) | (b >> 11)) * 2.0**-53, ((c << 21) | (d >> 11)) * 2.0**-53]
    assert dice.calls == 2 and dice.seed == 0x299F31D0A4093822


def test_they_are_even_normal_and_independent() -> None:
    """Within five standard deviations of what is expected of 200,000 numbers."""
    element, n = np.arange(50_000), 200_000
    draws = Draws(np.array([7, 3]), element)
    u, z = (np.concatenate([draw() for _ in range(4)]) for draw in (draws.uniform, draws.normal))
    assert u.min() >= 0.0 and u.max() < 1.0 and len(np.unique(u)) == len(np.unique(z)) == n
    for found, mean, variance, fourth in ((u, 0.5, 1 / 12, 1 / 80), (z, 0.0, 1.0, 3.0)):
        assert abs(found.mean() - mean) < 5 * np.sqrt(variance / n)
        assert abs(found.var() - variance) < 5 * np.sqrt((fourth - variance**2) / n)
        for lag in (1, 2, 50_000):
            correlation = ((found - mean) * (np.roll(found, lag) - mean)).mean() / variance
            assert abs(correlation) < 5 / np.sqrt(n), lag
    counts = np.bincount((64 * u).astype(int), minlength=64)
    assert ((counts - n / 64) ** 2 / (n / 64)).sum() < 63 + 5 * np.sqrt(2 * 63)


def test_the_ends_of_the_interval() -> None:
    full = np.int64(0xFFFFFFFF)
    draws = Draws(np.array([0, 0]), np.int64(0))
    draws._block = lambda: (full, full, full, full)  # type: ignore[method-assign]
    assert draws.uniform() == 1 - 2.0**-53 and draws.uniform(dtype=np.float32) == np.float32(1 - 2.0**-24)
    assert np.isfinite(draws.normal(2)).all() and draws.integers(-3, 4) == 3
    draws._block = lambda: _words(0, 0, 0, 0)  # type: ignore[method-assign,assignment,return-value]
    assert draws.uniform() == 0.0 and draws.integers(-3, 4) == -3 and (draws.normal(2) == 0.0).all()


@pytest.mark.parametrize("span", [1, 2, 3, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32])
def test_integers_take_all_bits_of_a_word(span: int) -> None:
    """The upper half of word times span, by Python's long integers: with fewer bits some numbers would never come."""
    words = [0, 1, 2, 3, 5, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1, *map(int, RNG.integers(0, 2**32, 50))]
    for word in words:
        draws = Draws(np.array([0, 0]), np.int64(0))
        draws._block = lambda word=word: _words(word, word, word, word)  # type: ignore[method-assign,misc]
        assert int(draws.integers(-7, span - 7)) == (word * span >> 32) - 7


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_draws_the_same(backend: str) -> None:
    def drawn(name: str) -> list[np.ndarray]:
        ml.use(name)
        cells, dice = ml.Set(50, "cells"), ml.Random(seed=5)
        v, single, whole = cells.field("v", 2), cells.field("s", dtype=np.float32), cells.field("w", 2, dtype=np.int32)
        found = []
        for kernel, fields in ((throw, (v,)), (kick, (v,)), (roll, (single, whole))):
            kernel(cells, *fields, dice)
            found += [one.numpy() for one in fields]
        return found

    even, normal, *others = drawn(backend)
    reference = drawn("numpy")
    assert np.array_equal(even, reference[0]) and all(map(np.array_equal, others, reference[2:]))
    np.testing.assert_allclose(normal, reference[1], rtol=1e-12, atol=1e-12)
    assert set(others[1][:, 0].tolist()) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("backend", ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_strategy_gives_an_element_the_same_numbers(backend: str) -> None:
    """Owner and tile compute an element more than once."""
    ml.use(backend)
    mesh = ml.generate.box((5, 4), cells="triangle")
    expected = None
    for strategy in ("atomic", "owner", "tile", "color"):
        total = mesh.cells.field("total", data=0.0)
        spread(mesh.faces, ml.Random(seed=3), total[mesh.face_cells], schedule=strategy)
        if expected is None:
            with ml.using("numpy"):
                plain = mesh.cells.field("plain", data=0.0)
                spread.python(mesh.faces, ml.Random(seed=3), plain[mesh.face_cells])
                expected = plain.numpy()
        np.testing.assert_allclose(total.numpy(), expected, rtol=0, atol=8 * np.finfo(float).eps)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_layout_and_order_in_memory_gives_an_element_the_same_numbers(backend: str) -> None:
    """Directly, and through a map: what cells get from their faces; a program may choose the layout, too."""
    ml.use(backend)
    mesh = ml.generate.box((5, 4), cells="triangle")
    found = []
    for there in (mesh, *(mesh.arranged(order, seed=2) for order in ("random", "hilbert"))):
        for layout in (None, "aos", "soa"):
            v, total = there.cells.field("v", 2, layout=layout), there.cells.field("total", 2, layout=layout)
            dice = ml.Random(seed=3)
            step = ml.program(lambda v=v, total=total, dice=dice, there=there: _drawn(there, v, total, dice))
            step.run(2)
            found.append((v.numpy(), total.numpy()))
    for v, total in found[1:]:
        assert np.array_equal(v, found[0][0])
        np.testing.assert_allclose(total, found[0][1], rtol=0, atol=16 * np.finfo(float).eps)


def _drawn(mesh: ml.Mesh, v: ml.Field, total: ml.Field, dice: ml.Random) -> None:
    throw(mesh.cells, v, dice)
    spread(mesh.faces, dice, total[mesh.face_cells])


def test_a_reordered_mesh_gives_a_number_what_it_had() -> None:
    """With new numbers the draws stay with the numbers: they do not go along with the cells."""
    ml.use("numpy")
    mesh, drawn = ml.generate.box((5, 4)), []
    for there in (mesh, mesh.reordered("random", seed=2), mesh.reordered("random", seed=2).arranged("hilbert")):
        v = there.cells.field("v", 2)
        throw(there.cells, v, ml.Random(seed=3))
        drawn.append(v.numpy())
    assert np.array_equal(drawn[0], drawn[1]) and np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
                                     pytest.param("cuda", marks=pytest.mark.gpu)])  # fmt: skip
def test_a_march_that_broke_off_draws_on(backend: str, tmp_path: Path) -> None:
    """From its last checkpoint: after an error, and on ``numpy`` after a kill. Whatever seed the script now has."""
    ml.use(backend)
    cells = ml.Set(20, "cells")

    def march(out: str, seed: int = 4, stop: Callable[[], bool] = lambda: False) -> tuple[np.ndarray, list[int]]:
        v, walk, dice = cells.field("v", 2), cells.field("walk", 2), ml.Random(seed=seed, name="dice")

        @ml.program
        def step() -> None:
            throw(cells, v, dice)
            stroll(cells, v, walk)

        ml.march(step, steps=7, out=tmp_path / out, checkpoint_every=2, restart=(tmp_path / out).exists(), stop=stop)
        return walk.numpy(), dice.numpy().tolist()

    def after(looks: int, what: Callable[[], None]) -> Callable[[], bool]:
        """Before the first step it is asked once."""
        counted = iter(range(looks))
        return lambda: next(counted, None) is None and what() is not None

    def fail() -> None:
        raise RuntimeError("as a bug would")

    expected, state = march("whole")
    with pytest.raises(RuntimeError, match="as a bug would"):
        march("failed", stop=after(5, fail))
    broken = ["failed"]
    if backend == "numpy" and hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            march("killed", stop=after(5, lambda: os.kill(os.getpid(), signal.SIGKILL)))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        broken.append("killed")
    for out in broken:
        walk, dice = march(out, seed=5)
        assert np.array_equal(walk, expected) and dice == state == [4, 7], out


@ml.kernel
def rarely_none(v: ml.ReadWrite, r: ml.Random):
    v += np.sqrt(0.98 - r.uniform())


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_breakdown_is_found_where_its_random_numbers_made_it(backend: str) -> None:
    """The second of two loops that draw from one source breaks down at one element, by the number of one call alone."""
    ml.use(backend)
    cells = ml.Set(5, "cells")
    u, v = cells.field("u", 2), cells.field("v")

    def step(dice: ml.Random) -> None:
        throw(cells, u, dice)
        rarely_none(cells, v, dice)

    plain, iteration = ml.Random(seed=2), 0
    with np.errstate(invalid="ignore"):
        while np.isfinite(v.numpy()).all():
            step(plain)
            iteration += 1
    element = int(np.argmax(np.isnan(v.numpy())))
    assert iteration > 2, "else any count of calls would do"
    v.fill(0.0)
    dice = ml.Random(seed=2)
    where = f"v is NaN in cells element {element} after loop rarely_none in iteration {iteration};"
    with one_line_from(RunError, f"the solution broke down: {where}"):
        ml.march(ml.program(lambda: step(dice)), steps=100)


def test_a_loop_that_draws_shows_what_the_next_call_draws() -> None:
    """By itself it cannot be called, but looked at: the same source is left as it was."""
    ml.use("numpy")
    cells = ml.Set(5, "cells")
    v, dice = cells.field("v", 2), ml.Random(seed=2)
    step = ml.program(lambda: throw(cells, v, dice))
    step.run(3)
    drawn = step.loops[0].inspect(2).outputs["v"].values
    assert dice.calls == 3
    step.run(1)
    assert np.array_equal(drawn, v.numpy()[2])


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_what_counts_draws_has_a_name_and_no_figures(backend: str) -> None:
    ml.use(backend)
    cells = ml.Set(5, "cells")
    v, dice = cells.field("v", 2), ml.Random(seed=2, name="dice")
    step = ml.program(lambda: throw(cells, v, dice))
    step.run(2)
    assert "count_draws over once, reads dice" in str(step.dataflow)
    texts = [str(step.explain()), str(step.dataflow), repr(step), step.dataflow.svg()]
    assert not [text for text in texts if "_count_call" in text or "inf" in text]
    assert "throw over cells: 5 elements" in texts[0] and "over once:" not in texts[0]


@ml.kernel
def stroll(v: ml.Read, walk: ml.ReadWrite):
    walk += v - 0.5


def test_parts_of_a_set_draw_by_the_numbers_of_the_whole() -> None:
    ml.use("numpy")
    cells = ml.Set(20, "cells")
    part = cells.subset(np.arange(20) % 3 == 0)
    v, w = cells.field("v", 2), cells.field("w", 2)
    throw(cells, v, ml.Random(seed=1))
    throw(part, w, ml.Random(seed=1))
    chosen = np.arange(20) % 3 == 0
    assert np.array_equal(v.numpy()[chosen], w.numpy()[chosen]) and not w.numpy()[~chosen].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_replays_draw_as_calls_do(backend: str, tmp_path: Path) -> None:
    """Also from a state that was saved, and fused with what comes behind."""
    ml.use(backend)
    cells = ml.Set(30, "cells")
    u, v, w, sums = (cells.field(n, 2) for n in "uvws")
    called, replayed = ml.Random(seed=9, name="dice"), ml.Random(seed=9, name="dice")

    @ml.kernel
    def gather(v: ml.Read, w: ml.Read, total: ml.ReadWrite):
        total += v + 2 * w

    def step(dice: ml.Random, total: ml.Field) -> None:
        throw(cells, v, dice)
        throw(cells, w, dice)
        gather(cells, v, w, total)

    program = ml.program(lambda: step(replayed, sums))
    for _ in range(4):
        step(called, u)
    program.run(2)
    ml.save(tmp_path / "state.h5", replayed)
    half = sums.numpy()
    program.run(2)
    assert np.array_equal(sums.numpy(), u.numpy()) and replayed.calls == 8
    program.run(1)
    ml.load(tmp_path / "state.h5", replayed)
    sums.assign(half)
    program.run(2)
    assert np.array_equal(sums.numpy(), u.numpy())


WRONG: dict[str, Callable[[], float]] = {
    "np.random": lambda: np.random.rand(),
    "a new Generator": lambda: np.random.default_rng(3).random(),
    "a Generator": lambda: RNG.normal(),
    "random": lambda: random.random(),
    "a helper": lambda: helper(),
    "in a table": lambda: TABLE["rng"].random(),
}
TABLE: dict[str, Any] = {"rng": RNG}


def helper() -> float:
    return float(RNG.normal())


@pytest.mark.parametrize("way", WRONG)
def test_other_random_numbers_are_refused(way: str) -> None:
    draw, cells = WRONG[way], ml.Set(3, "cells")

    @ml.kernel
    def wrong(v: ml.Write):
        v[...] = draw()

    with one_line_from(KernelError, f"{__file__}:.*draws random numbers.*ml.Random"):
        wrong(cells, cells.field("w"))


class Model:
    """Has a generator, which only some of its methods use."""

    def __init__(self) -> None:
        self.rng, self.slope = np.random.default_rng(3), 2.0

    def smooth(self, v: Any) -> Any:
        return self.slope * v

    def rough(self, v: Any) -> Any:
        return v + self.rng.random()

    def new(self, v: Any) -> Any:
        return v + np.random.default_rng().random()

    def fixed(self, v: Any) -> Any:
        return v + np.random.default_rng(3).random()


MODEL = Model()


def smooth(model: Model, v: Any) -> Any:
    return model.smooth(v)


def test_what_an_object_could_draw_is_refused_only_where_it_does() -> None:
    """An object that is passed on may have generators that the kernel never comes to."""
    cells, model = ml.Set(3, "cells"), MODEL
    v = cells.field("v", data=1.0)

    @ml.kernel
    def right(v: ml.ReadWrite):
        v[...] = smooth(model, v)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is not traced at every call either
        right(cells, v)
        model.slope = 3.0
        right(cells, v)
    assert np.array_equal(v.numpy(), [6.0, 6.0, 6.0])

    def made_by(helper: Callable[[Model, Any], Any]) -> ml.Kernel:
        @ml.kernel
        def wrong(v: ml.ReadWrite):
            v[...] = helper(model, v)

        return wrong

    for helper in (lambda model, v: model.rough(v), lambda model, v: model.new(v)):
        with one_line_from(KernelError, f"{__file__}:.*draws random numbers.*ml.Random"):
            made_by(helper)(cells, v)
    made_by(lambda model, v: model.fixed(v))(cells, v)  # the same at every call, so it is a constant
    assert np.array_equal(v.numpy(), np.full(3, 6.0) + np.random.default_rng(3).random())


def test_wrong_sources_are_refused() -> None:
    cells = ml.Set(3, "cells")
    v = cells.field("v", 2)

    @ml.kernel
    def two(v: ml.Write, r: ml.Random, q: ml.Random):
        v[...] = r.uniform(2) + q.uniform(2)

    dice = ml.Random(seed=1)
    with one_line_from(KernelError, "passed twice"):
        two(cells, v, dice, dice)
    with one_line_from(KernelError, r"expected ml.Random\(seed=...\)"):
        throw(cells, v, 7)
    with one_line_from(KernelError, "call the kernel"):
        throw.loop(cells, v, dice)
    with one_line_from(MeshError, "seed"):
        ml.Random(seed=-1)
