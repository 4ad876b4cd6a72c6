"""Ctrl-C at every moment of a call leaves nothing locked and nothing half-set: the next call works."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom import exclusion
from meshloom.native.compiler import host_compiler
from meshloom.recording import recorder

Interrupted = Callable[[int, Callable[[], Any]], bool]
FEW = 8  # moments of calls that record and make ready, which have thousands


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interrupted]:
    """A function: has an action been interrupted behind so many events, or was it over before?"""
    source, library = Path(__file__).with_name("interrupts.cpp"), tmp_path_factory.mktemp("made") / "interrupts.so"
    subprocess.run([host_compiler().path, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    loaded = ctypes.PyDLL(str(library))

    def behind(events: int, action: Callable[[], Any]) -> bool:
        try:
            loaded.interrupt_behind(ctypes.c_long(events))
            action()
            return bool(loaded.stop() < 0)
        except KeyboardInterrupt:
            loaded.stop()
            return True

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield behind
    signal.signal(signal.SIGINT, before)


def nothing_is_left() -> None:
    assert not [one.name for one in exclusion._mutexes if one._is_owned()]
    assert exclusion.owner() is None and recorder.get() is None and not any(exclusion._waiting.values())


@ml.kernel
def add_one(u: ml.ReadWrite):
    u += 1.0


@ml.kernel
def draw(a: ml.Write, r: ml.Random):
    a[...] = r.uniform()


def calls() -> dict[str, Callable[[], Any]]:
    """Calls that have been made before, by name; each adds one to ``u``, or leaves it."""
    cells = ml.Set(8, "cells")
    u, a, source = cells.field("u"), cells.field("a"), ml.Random(seed=1)
    made = cells.field("between", temporary=True)

    @ml.kernel
    def through(u: ml.Read, between: ml.Write):
        between[...] = u

    @ml.program
    def alone() -> None:
        add_one(cells, u)

    @ml.program
    def given(v: Any) -> None:
        through(cells, v, made)
        add_one(cells, v)

    found: dict[str, Callable[[], Any]] = {
        "kernel": lambda: add_one(cells, u), "loop": add_one.loop(cells, u), "program": alone,
        "program with arguments": lambda: given(u), "sum": u.sum, "random numbers": lambda: draw(cells, a, source),
    }  # fmt: skip
    for one in found.values():
        one()
    return found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may come where nobody can raise
@pytest.mark.parametrize("backend", ["numpy", pytest.param("cpu", marks=pytest.mark.slow)])
def test_ctrl_c_at_any_moment_leaves_nothing_locked(backend: str, interrupted: Interrupted) -> None:
    """With a lock that was marked as held behind taking it, one interrupt in 15 left it locked for ever."""
    ml.use(backend)
    counted = {}
    for name, call in calls().items():
        moments, step = 0, 1 if backend != "numpy" or name in ("kernel", "loop") else 5
        while interrupted(moments, call):
            nothing_is_left()
            moments += step
        call()
        counted[name] = moments
    assert min(counted.values()) > 20, counted


def test_ctrl_c_while_a_program_is_recorded_leaves_it_to_be_recorded(interrupted: Interrupted) -> None:
    ml.use("numpy")
    cells = ml.Set(8, "cells")

    def new() -> tuple[ml.Field, ml.Program]:
        u = cells.field("u")
        return u, ml.program(lambda: add_one(cells, u))

    moments = 1
    while interrupted(moments, new()[1]):
        moments *= 2
    for moment in range(0, moments, moments // FEW // 2):
        u, program = new()
        interrupted(moment, program)
        nothing_is_left()
        before = u.numpy()
        program()
        assert np.array_equal(u.numpy(), before + 1.0)
