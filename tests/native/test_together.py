"""Loops of a program are compiled at the same time; what goes wrong ends the others and leaves nothing half-made."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cpu import CpuBackend
from meshloom.errors import CompilerError
from meshloom.native import compiler, together
from meshloom.process.children import NobodyWaits, run_apart, stopping


def source(number: int) -> str:
    return f'extern "C" int answer() {{ return {number}; }}\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(together, "_cores", lambda: 2)
    compiler.host_compiler()
    return tmp_path / "cache"


def test_compilers_run_at_the_same_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until the other one has begun: one after the other they would wait for ever."""
    both, build = threading.Barrier(2, timeout=60), compiler.build

    def meeting(*given: str, **more: tuple[str, ...]) -> Path:
        if threading.current_thread() is not threading.main_thread():
            both.wait()
        return build(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "build", meeting)
    with together.together():
        for number in (1, 2):
            together.begin(source(number), f"answer{number}")
            together.begin(source(number), f"answer{number}")  # begun already
        found = [together.load(source(number), f"answer{number}").answer() for number in (1, 2)]
    assert found == [1, 2] and both.n_waiting == 0
    assert compiler.known(source(1), "answer1") is not None and compiler.known(source(3), "answer3") is None


def test_without_a_block_nothing_is_begun(cache: Path) -> None:
    together.begin(source(5), "answer5")
    assert compiler.known(source(5), "answer5") is None and together.load(source(5), "answer5").answer() == 5


def test_an_error_is_told_where_it_is_waited_for(cache: Path) -> None:
    with pytest.raises(CompilerError, match=r"broken: the C\+\+ code did not compile"), together.together():
        together.begin("nonsense", "broken")
        together.begin(source(7), "answer7")
        together.load("nonsense", "broken")
    assert not list(cache.rglob("*.tmp")), "nothing half-made"
    assert together.load(source(7), "answer7").answer() == 7


def test_what_nobody_waits_for_is_ended(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *answer9*) exec sleep 60;; esac\nexec {compiler.host_compiler().path} "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    compiler.host_compiler()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), together.together():
        together.begin(source(9), "answer9")
        time.sleep(0.3)
        raise KeyboardInterrupt
    assert time.monotonic() - start < 30.0
    assert compiler.known(source(9), "answer9") is None and not list(cache.rglob("*.tmp"))


def test_a_program_that_nobody_waits_for_is_ended() -> None:
    wanted = threading.Event()
    threading.Timer(0.2, wanted.set).start()
    start = time.monotonic()
    with stopping(wanted), pytest.raises(NobodyWaits):
        run_apart(["sleep", "60"], 100.0)
    assert time.monotonic() - start < 30.0
    assert run_apart(["echo", "word"]).stdout == "word\n"


def test_loops_of_a_program_are_begun_before_the_first_is_waited_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_BACKENDS, "cpu", CpuBackend())  # which has nothing loaded
    ml.use("cpu")
    order: list[str] = []
    start, load = together.start, compiler.load
    monkeypatch.setattr(together, "start", lambda k, n, **m: (order.append(f"begin {n}"), start(k, n, **m)))
    monkeypatch.setattr(compiler, "load", lambda s, n, **m: (order.append(f"load {n}"), load(s, n, **m))[1])
    cells = ml.Set(10, "cells")
    a, b = cells.field("a"), cells.field("b")

    @ml.kernel
    def one_more(a: ml.ReadWrite):
        a[...] = a + 1.0

    @ml.kernel
    def doubled(a: ml.Read, b: ml.Write):
        b[...] = 2.0 * a

    @ml.program(fuse=False)
    def step() -> None:
        one_more(cells, a)
        doubled(cells, a, b)

    step.run(0)
    of_loops = [word for word in order if "runtime" not in word]
    assert of_loops == ["begin one_more", "begin doubled", "load one_more", "load doubled"]
    assert not a.numpy().any(), "made ready, not run"
    step.run(3)
    np.testing.assert_array_equal(b.numpy(), 6.0)
    assert [word for word in order if "runtime" not in word] == of_loops, "and not again"


@pytest.mark.parametrize(
    ("words", "gnu"),
    [
        ("g++ (Debian 12.2.0-14) 12.2.0", True),
        ("c++ (GCC) 13.2.1 20230728", True),
        ("Debian clang version 14.0.6", False),
        ("Apple clang version 15.0.0 (clang-1500.1.0.2.5)", False),
        ("Intel(R) oneAPI DPC++/C++ Compiler 2023.0.0 (x)", False),
    ],
)
def test_gcc_is_known_by_its_first_line(words: str, gnu: bool) -> None:
    assert compiler.Compiler("c++", words, ()).is_gnu is gnu


def test_threads_compile_programs_of_their_own(cache: Path) -> None:
    """What one thread has begun is not ended by another one that is ready."""
    found: list[int] = []
    inside, ready = threading.Event(), threading.Event()

    def other() -> None:
        with together.together():
            together.begin(source(21), "answer21")
            inside.set()
            ready.wait(60)
            found.append(together.load(source(21), "answer21").answer())

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    with together.together():
        together.begin(source(22), "answer22")
        found.append(together.load(source(22), "answer22").answer())
    ready.set()
    thread.join(60)
    assert found == [22, 21]
