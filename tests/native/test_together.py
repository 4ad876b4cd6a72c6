"""Loops of a program are compiled at the same time; what goes wrong ends the others and leaves nothing half-made."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.compiling import compiled_meanwhile
from meshloom.backend.cpu import CpuBackend
from meshloom.errors import CompilerError
from meshloom.native import compiler, ffi, together
from meshloom.process.children import NobodyWaits, run_apart, stopping
from tests.called_work import Work, expected


def source(number: int) -> str:
    return f'extern "C" int answer() {{ return {number}; }}\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(together, "cpu_count", lambda: 2)
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


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Loops that are begun, and loaded, in turn; those of a back end that has nothing loaded."""
    monkeypatch.setattr(together, "cpu_count", lambda: 2)
    monkeypatch.setitem(_BACKENDS, "cpu", CpuBackend())
    ml.use("cpu")
    found: list[str] = []
    start, load = together.start, compiler.load

    def note(word: str, name: str) -> None:
        found.extend([f"{word} {name}"] if name != "runtime" else [])

    monkeypatch.setattr(together, "start", lambda k, n, **m: (note("begin", n), start(k, n, **m)))
    monkeypatch.setattr(compiler, "load", lambda s, n, **m: (note("load", n), load(s, n, **m))[1])
    return found


def test_loops_of_a_program_are_begun_before_the_first_is_waited_for(cache: Path, order: list[str]) -> None:
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
    assert order == ["begin one_more", "begin doubled", "load one_more", "load doubled"]
    assert not a.numpy().any(), "made ready, not run"


def test_what_is_behind_a_call_is_begun_before_what_is_before_it_is_waited_for(order: list[str]) -> None:
    work = Work()
    work.program.run(0)
    assert order[:2] == ["begin add_one", "begin double"], "all are begun before the first is waited for"
    assert {word for word in order[2:] if word.startswith("load")} == {"load add_one", "load double"}
    assert not work.squared, "and none has run"
    work.program.run(2)
    np.testing.assert_allclose(work.u.numpy(), expected(2)[-1], rtol=1e-14)


def test_what_a_solver_runs_first_is_begun_before_it_waits(order: list[str]) -> None:
    """Its start and its iterations are programs of their own; the second solution finds both."""
    matrix = ml.Matrix.from_scipy(sparse.diags_array([np.full(9, -1.0), np.full(10, 3.0), np.full(9, -1.0)],
                                                     offsets=[-1, 0, 1]).tocsr())  # fmt: skip
    x, b = matrix.rows.field("x"), matrix.rows.field("b", data=np.arange(10.0))
    solver = ml.linalg.ConjugateGradients(matrix)
    order.clear()
    first = solver.solve(x, b, tol=1e-10)
    waits = [k for k, word in enumerate(order) if word in ("load subtract_from", "load cg_step")]
    assert first.converged and {"begin subtract_from", "begin cg_step"} <= set(order[: waits[0]])
    order.clear()
    x.fill(0.0)
    again = solver.solve(x, b, tol=1e-10)
    assert np.array_equal(first.history, again.history) and not order


def test_what_a_solver_has_begun_goes_with_an_error(order: list[str]) -> None:
    """Nothing holds x and b where a solution does not get as far as its iterations."""

    def applied(x: ml.Field, y: ml.Field) -> None:
        twice(x.set, x, y)

    rows = ml.Set(10, "rows")
    x, b = rows.field("x"), rows.field("b", data=1.0)
    solver = ml.linalg.ConjugateGradients(applied)
    made = solver._iteration(x, 10)
    made.start.run = None  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        made.solve(x, b, 1e-6, 10)
    assert "begin cg_step" in order and not made.start._begun and not made.iterate._begun


@ml.kernel
def twice(x: ml.Read, y: ml.Write):
    y[...] = 2.0 * x


@pytest.mark.parametrize("cores", ["one", "a few", "one for each"])
def test_libraries_are_begun_early_where_cores_are_idle(monkeypatch: pytest.MonkeyPatch, cores: str) -> None:
    names, built, build = ffi.libraries(), list[tuple[str, bool]](), compiler.build
    assert names and "runtime" not in names

    def noted(text: str, name: str, **more: tuple[str, ...]) -> Path:
        built.append((name, threading.current_thread() is threading.main_thread()))
        return build(text, name, **more)

    monkeypatch.setattr(compiler, "build", noted)
    monkeypatch.setattr(together, "cpu_count", lambda: {"one": 1, "a few": 2, "one for each": len(names) + 1}[cores])
    monkeypatch.setattr(ffi, "library", functools.cache(ffi.library.__wrapped__))
    for _ in range(2):  # what is loaded is not begun again
        with compiled_meanwhile():
            assert len({ffi.library(name) for name in names}) == len(names)
    assert [name for name, here in built if here] == names
    begun = {"one": [], "a few": ["incidence", "tiles"], "one for each": names}[cores]
    assert sorted(name for name, here in built if not here) == begun


def test_what_plans_need_first_is_short(cache: Path) -> None:
    """A library is compiled whole by whoever needs one function of it: most plans need the incidence, many tiles."""
    library = ffi.library.__wrapped__("incidence")
    assert hasattr(library, "incidence32_i32") and not hasattr(library, "color_elements_i32")
    assert not hasattr(library, "grow_blocks_i32")
    library = ffi.library.__wrapped__("tiles")
    assert hasattr(library, "tiles_i32") and not hasattr(library, "sums_i32")


def test_a_process_that_was_forked_waits_for_no_thread(cache: Path) -> None:
    with together.together(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork next to threads, which is what is tried here
        together.begin(source(11), "answer11")
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # which ends a process that waits
            os._exit(together.load(source(11), "answer11").answer())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11


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
