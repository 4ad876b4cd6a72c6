"""Which objects exclude each other's users, what belongs to which of them, and what it costs to ask."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import meshloom as ml
from meshloom import exclusion
from meshloom.exclusion import Mutex, holding, made_for, mutex_of
from meshloom.mesh.random import element_numbers
from tests.at_once import THREADS, at_once
from tests.counted import python_calls

N = 6
LIMIT = 20.0  # seconds that a thread may wait: one that waits for ever fails, and does not keep the tests from ending


@ml.kernel
def halve(u: ml.Read, t: ml.Write):
    t[...] = 0.5 * u


# --- the mutexes themselves -------------------------------------------------------------------------------------------


def test_threads_that_wait_for_each_other_are_told_so_and_go_on() -> None:
    one, other = Mutex("one"), Mutex("other")
    both_hold, said = threading.Barrier(2), []

    def take(first: Mutex, second: Mutex) -> None:
        try:
            with first:
                both_hold.wait(LIMIT)
                with second:
                    pass
        except ml.errors.ProgramError as error:
            said.append(str(error))

    threads = [threading.Thread(target=take, args=pair, daemon=True) for pair in ((one, other), (other, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert said and all("another thread uses it" in text and "\n" not in text for text in said)
    assert holding((one, other, one), made_for, other, exclusion.owner) is other
    assert exclusion.owner() is None and not one._owner and not other._owner
    assert not exclusion._waiting, "threads that have gone are not remembered"


def test_threads_that_wait_for_each_other_only_one_after_the_other_are_told_nothing() -> None:
    one, other = Mutex("one"), Mutex("other")

    def inside() -> None:
        with other, one:
            pass

    def in_turn() -> None:
        with one:
            pass
        with other:
            pass

    found = at_once(lambda k: inside() if k == 0 else in_turn(), 500)
    assert [len(turns) for turns in found] == [500] * THREADS


def test_who_waited_is_not_remembered() -> None:
    """As many threads as a server starts leave nothing behind, whether they got what they waited for or not."""
    shared, held = Mutex("shared"), threading.Event()

    def wait_for_it() -> None:
        held.set()
        with shared:
            pass

    for _ in range(5):
        held.clear()
        thread = threading.Thread(target=wait_for_it, daemon=True)
        with shared:
            thread.start()
            assert held.wait(LIMIT)
            until = time.monotonic() + LIMIT
            while thread.ident not in exclusion._waiting and time.monotonic() < until:
                time.sleep(1e-4)
            assert exclusion._waiting == {thread.ident: shared}
        thread.join(LIMIT)
        assert not thread.is_alive() and not exclusion._waiting


# --- what belongs to whom ---------------------------------------------------------------------------------------------


def kept_for_all() -> dict[str, Callable[[], ml.Field]]:
    """What sets, meshes, maps and grids keep, made when it is first asked for."""
    mesh, cells = ml.generate.box((3, 3)), ml.Set(5, "cells")
    grid = ml.Grid((N, N), periodic=False, coordinates=[np.linspace(0.0, 1.0, N) ** 1.2, np.linspace(0.0, 1.0, N)])
    some = mesh.cells.subset([0, 1])
    return {
        "element numbers": lambda: element_numbers(cells), "numbers": lambda: cells.numbers,
        "counts": lambda: mesh.node_cells.counts, "volume": lambda: some.volume, "centre": lambda: some.centre,
        "metric": lambda: ml.compact.metric(grid, 0),
        "diagonal": lambda: ml.linalg.Poisson(grid, "dirichlet", "dirichlet").diagonal,
    }  # fmt: skip


def test_what_is_kept_for_all_belongs_to_nobody_whoever_asks_first() -> None:
    asked = {name: made_for(Mutex("who asks"), ask) for name, ask in kept_for_all().items()}
    assert not [name for name, one in asked.items() if one.mutex is not None]
    assert made_for(Mutex("who asks"), ml.Set(3, "cells").field, "own").mutex is not None


def test_what_is_first_used_inside_another_object_does_not_belong_to_it() -> None:
    cells, other = ml.Set(5, "cells"), Mutex("other")
    u, v = cells.field("u"), cells.field("v")
    before, inside = ml.program(lambda: halve(cells, u, v)), list[ml.Program]()
    made_for(other, before.run)
    made_for(other, lambda: inside.append(ml.program(lambda: halve(cells, u, v))))
    assert mutex_of(before) is not other and mutex_of(inside[0]) is other


def test_a_reduction_does_not_wait_for_a_program_that_calls_one_on_the_same_set() -> None:
    """Globals that the set keeps for reductions were the program's that reduced first: others waited for all of it."""
    ml.use("numpy")
    cells = ml.Set(20, "cells")
    u, v = (cells.field(name, data=np.full(20, value)) for name, value in (("u", 1.0), ("v", 2.0)))
    found: list[float] = []

    def meanwhile() -> None:
        u.sum()
        if not found:
            thread = threading.Thread(target=lambda: found.append(float(v.sum())), daemon=True)
            thread.start()
            thread.join(LIMIT)
            assert not thread.is_alive(), "it waits for the program"

    ml.program(lambda: ml.call(meanwhile)).run(2)
    assert found == [40.0]


def test_two_programs_with_calls_on_fields_of_their_own_run_at_once() -> None:
    ml.use("numpy")
    cells = ml.Set(20, "cells")
    fields = [cells.field("u", data=np.full(20, float(k))) for k in range(THREADS)]
    sums: list[list[float]] = [[] for _ in fields]
    looks = [lambda k=k: sums[k].append(float(fields[k].sum())) for k in range(THREADS)]
    steps = [ml.program(lambda k=k: ml.call(looks[k])) for k in range(THREADS)]
    at_once(lambda k: steps[k].run(20), 1)
    assert sums == [[20.0 * k] * 20 for k in range(THREADS)]


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_exclusion_costs_few_calls_of_python() -> None:
    """Upper bounds of calls of Python's functions; with generators as context managers they were 23, 138, 92 and 82."""
    ml.use("cpu")
    cells = ml.Set(8, "cells")
    u, v = cells.field("u"), cells.field("v")
    alone, given = ml.program(lambda: halve(cells, u, v)), ml.program(lambda u, v: halve(cells, u, v))
    counted = [python_calls(one) for one in (halve.loop(cells, u, v), alone, lambda: given(u, v), u.sum)]
    assert all(one <= most for one, most in zip(counted, (14, 78, 75, 70), strict=True)), counted


@pytest.mark.parametrize(("fuse", "most"), [(False, 7), (True, 3)])
def test_a_program_that_runs_again_asks_little_of_each_loop(fuse: bool, most: int) -> None:
    """Calls of Python's functions for one loop more; they were 36 and 14 where every run looked at all of it."""
    ml.use("cpu")
    cells = ml.Set(8, "cells")
    pairs = [(cells.field(f"u{k}"), cells.field(f"v{k}")) for k in range(20)]

    def calls(loops: int) -> int:
        return python_calls(ml.Program(lambda: [halve(cells, *pair) for pair in pairs[:loops]] and None, fuse=fuse))

    assert calls(20) - calls(10) <= 10 * most


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_wait_for_threads_that_are_not_there() -> None:
    shared, release, held = Mutex("shared"), threading.Event(), threading.Event()

    def hold() -> None:
        with shared:
            held.set()
            release.wait(LIMIT)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(LIMIT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(int(LIMIT))  # which ends a process that waits
        with shared:
            os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    release.set()
    thread.join(LIMIT)
    assert status == 7 and not thread.is_alive()
