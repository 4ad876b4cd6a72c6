"""Layouts that a program chooses, and what a schedule may ask of a GPU's memory."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError, ScheduleError
from meshloom.operation import tape
from meshloom.schedule.choice.layouts import LAYOUTS, Vote, ranked_layouts
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, AirfoilMeshOptions
from meshloom.target import H200


def test_every_strategy_has_a_preference_and_its_better_layout_is_one() -> None:
    rows = {"long_rows", "parts_of_rows"}
    assert H200.gpu.layouts.keys() == {"any", "direct", *ml.strategies(), *rows}
    for name in H200.gpu.layouts.keys() - {"long_rows"}:
        assert H200.gpu.layouts[name].keys() == set(LAYOUTS) and min(H200.gpu.layouts[name].values()) == 1.0


def test_the_sum_decides() -> None:
    times = H200.gpu.layouts
    even = (times["atomic"]["aos"] - 1.0) / (times["owner"]["soa"] - 1.0)  # seconds that make it a draw
    assert ranked_layouts([Vote("atomic", 1.0, 32), Vote("owner", 0.99 * even, 32)], H200)[0].what == "aosoa32"
    assert ranked_layouts([Vote("atomic", 1.0, 32), Vote("owner", 1.01 * even, 32)], H200)[0].what == "aos"
    assert ranked_layouts([Vote("direct", 1.0, 32)], H200)[0].what == "aos"


@pytest.mark.parametrize("name", ["direct", *ml.strategies()])
def test_long_rows_lie_apart_but_where_targets_take_parts_of_them(name: str) -> None:
    """A row is long where it does not fit into a piece of a cache line."""
    short, long = (ranked_layouts([Vote(name, 1.0, size)], H200)[0].what for size in (32, 33))
    assert long == "aosoa32" and short in ("aos", "aosoa32")
    assert ranked_layouts([Vote(name, 1.0, 128, in_parts=True)], H200)[0].what == "aos"


def airfoil(backend: str, strategy: str) -> Airfoil:
    ml.use(backend)
    return Airfoil(replace(AirfoilConfig(), mesh=AirfoilMeshOptions(i=12, j=9), schedule={"res_calc": strategy}))


def test_a_program_changes_free_layouts_once_and_gives_the_same() -> None:
    results = []
    for backend, strategy in (("numpy", "auto"), ("emulated", "atomic"), ("emulated", "owner")):
        case = airfoil(backend, strategy)
        case.program.run(2)
        results.append(case.q.numpy())
        layouts = {one.name: layout for one, layout in case.program.layouts.items()}
        if strategy == "atomic":
            assert layouts["res"] == "aosoa32" and str(case.q.layout) == layouts.get("q", "aos")
            assert "layout of res: aosoa32" in case.program.explain()
        else:
            assert layouts == {}
        np.testing.assert_allclose(results[-1], results[0], rtol=0, atol=1e-12)


def programs_that_differ() -> tuple[ml.Mesh, ml.Field, list[ml.Program]]:
    """Two programs that read one field: one likes its components together, the other apart."""
    mesh = ml.generate.box((16, 15))
    q = mesh.cells.field("q", 4, data=np.random.default_rng(3).random((len(mesh.cells), 4)))
    sums = [mesh.cells.field(name, 4) for name in ("first", "second")]

    @ml.kernel
    def exchange(q: ml.Read, total: ml.Inc):
        total[0] += q[1]
        total[1] += q[0]

    def using(total: ml.Field, strategy: str) -> ml.Program:
        def add() -> None:
            exchange.loop(mesh.faces, q[mesh.face_cells], total[mesh.face_cells], schedule=strategy)()

        return ml.Program(add)

    return mesh, q, [using(sums[0], "atomic"), using(sums[1], "owner")]


def in_turn(programs: list[ml.Program]) -> ml.Program:
    """Both, with a call between them."""

    def both() -> None:
        programs[0]()
        ml.call(lambda: None)
        programs[1]()

    return ml.Program(both)


@pytest.mark.parametrize("together", [False, True])
def test_programs_that_differ_about_a_layout_do_not_change_it_to_and_fro(together: bool) -> None:
    with ml.using("emulated"):
        _, q, programs = programs_that_differ()
        both = in_turn(programs)
        layouts, buffers = [], []
        for _ in range(3):
            if together:
                both.run(2)
            else:
                for one in programs:
                    one()
            layouts.append(str(q.layout))
            buffers.append(q.storage)
        assert len(set(layouts)) == 1 and all(one is buffers[0] for one in buffers)


def test_programs_that_are_given_a_field_again_and_again_do_not_change_it_to_and_fro() -> None:
    with ml.using("emulated"):
        mesh, q, _ = programs_that_differ()
        total = mesh.cells.field("total", 4)

        @ml.kernel
        def exchange(q: ml.Read, total: ml.Inc):
            total[0] += q[1]
            total[1] += q[0]

        def using(strategy: str) -> ml.Program:
            def add(q: ml.Field) -> None:
                exchange.loop(mesh.faces, q[mesh.face_cells], total[mesh.face_cells], schedule=strategy)()

            return ml.Program(add)

        programs, buffers = [using("atomic"), using("owner")], []
        for _ in range(3):
            for one in programs:
                one(q)
            buffers.append(q.storage)
        assert all(one is buffers[0] for one in buffers)
        found = [one.explain(q) for one in programs]
        assert not any(f"layout of q: {other}" in text for text in found for other in {"aos", "soa"} - {str(q.layout)})


def test_what_is_between_calls_votes_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with ml.using("emulated"):
        _, q, programs = programs_that_differ()
        asked: list[int] = []
        votes = tape.layouts_by_votes
        monkeypatch.setattr(tape, "layouts_by_votes", lambda loops: (asked.append(len(loops)), votes(loops))[1])
        both = in_turn(programs)
        both.run(1)
        assert asked == [3]
        kept = q.storage
        both.run(2)
        assert q.storage is kept and asked == [3]


def test_a_layout_that_somebody_asked_for_stays() -> None:
    case = airfoil("emulated", "atomic")
    case.q.relayout("aosoa8")
    case.program.run(1)
    assert str(case.q.layout) == "aosoa8" and case.q not in case.program.layouts


def test_narrow_loads_and_a_limit_of_shared_memory() -> None:
    ml.use("emulated")
    mesh = ml.generate.box((12, 11))

    @ml.kernel
    def exchange(q: ml.Read, res: ml.Inc):
        res[0] += q[1] - q[0]
        res[1] += q[0] - q[1]

    q, res = mesh.cells.field("q", 4, data=np.random.default_rng(0).random((132, 4))), mesh.cells.field("res", 4)
    found = []
    for schedule in (ml.Schedule("tile"), ml.Schedule("tile", vector=8), ml.Schedule("owner", vector=8)):
        res.fill(0.0)
        exchange(mesh.faces, q[mesh.face_cells], res[mesh.face_cells], schedule=schedule)
        found.append(res.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-13, atol=1e-14)
    words = r"loop exchange: a block of 'tile .*shared=100' needs [\d,]+ bytes of shared"
    with pytest.raises(ScheduleError, match=words):
        exchange(mesh.faces, q[mesh.face_cells], res[mesh.face_cells], schedule=ml.Schedule("tile", shared=100))
    for wrong in ({"vector": 12}, {"shared": -1}):
        with pytest.raises(ScheduleError, match="schedule: "):
            ml.Schedule("tile", **wrong)


def test_fused_is_no_strategy_to_ask_for() -> None:
    ml.use("emulated")
    cells = ml.Set(4, "cells")

    @ml.kernel
    def double(a: ml.ReadWrite):
        a[...] = 2.0 * a

    with pytest.raises(ScheduleError, match="unknown strategy 'fused'"):
        double.loop(cells, cells.field("a"), schedule="fused").prepare()


# --- loops by themselves --------------------------------------------------------------------------------------------


def spread_rows(dim: int, layout: str | None = None) -> tuple[ml.Field, ml.Field, Any]:
    """Two fields with rows of so many values, and what makes a loop that gathers one and adds to the other."""
    mesh = ml.generate.box((7, 6))
    q = mesh.cells.field("q", dim, data=np.random.default_rng(4).random((len(mesh.cells), dim)), layout=layout)
    total = mesh.cells.field("total", dim)

    @ml.kernel
    def exchange(q: ml.Read, total: ml.Inc):
        total[0] += q[1] - q[0]
        total[1] += q[0] - q[1]

    def loop(strategy: str = "auto") -> ml.Operation:
        return exchange.loop(mesh.faces, q[mesh.face_cells], total[mesh.face_cells], schedule=strategy)

    return q, total, loop


@pytest.mark.parametrize(("backend", "dim", "chosen"), [("emulated", 5, "aosoa32"), ("emulated", 4, "aos"),
                                                        ("cpu", 5, "aos"), ("numpy", 5, "aos")])  # fmt: skip
def test_a_loop_by_itself_chooses_for_long_rows_on_a_gpu_and_gives_the_same(
    backend: str, dim: int, chosen: str
) -> None:
    with ml.using("numpy"):
        _, expected, loop = spread_rows(dim)
        loop()()
    with ml.using(backend):
        q, total, loop = spread_rows(dim)
        one = loop("owner")
        one()
        assert (str(q.layout), str(total.layout)) == (chosen, chosen) and q.layout_is_free
        np.testing.assert_allclose(total.numpy(), expected.numpy(), rtol=0, atol=1e-14)


def test_a_second_loop_changes_no_layout_that_a_first_one_has_chosen() -> None:
    with ml.using("emulated"):
        q, _, loop = spread_rows(4)
        loop("owner")()
        kept = q.storage
        loop("atomic")()
        assert str(q.layout) == "aos" and q.storage is kept
        q, _, loop = spread_rows(4)
        loop("atomic")()
        assert str(q.layout) == "aosoa32"
        program = ml.Program(lambda: loop("owner")())
        assert program.layouts[q] == "aos"
        program.run(1)  # which votes for itself, once
        assert str(q.layout) == "aos"
        kept = q.storage
        loop("atomic")()
        assert q.storage is kept


def test_a_question_to_a_program_does_not_decide_what_it_changes_later() -> None:
    with ml.using("emulated"):
        q, _, loop = spread_rows(4)
        program = ml.Program(lambda: loop("owner")())
        assert program.layouts == {} and "layout of" not in program.explain()
        loop("atomic")()
        assert str(q.layout) == "aosoa32"
        program.run(1)
        assert str(q.layout) == "aos"


def test_a_loop_to_which_layouts_are_alike_leaves_them_to_the_next() -> None:
    """As one that sets fields, or a sum; a program on a CPU chooses none either."""
    with ml.using("emulated"):
        q, total, loop = spread_rows(4)

        @ml.kernel
        def set_to(q: ml.Write):
            for k in range(4):
                q[k] = 1.0 + k

        set_to(q.set, q)
        assert q.norm() > 0 and str(q.layout) == "aos" and not q.layout_is_chosen
        with ml.using("cpu"):
            ml.Program(lambda: loop("owner")()).run(1)
        loop("atomic")()
        assert (str(q.layout), str(total.layout)) == ("aosoa32", "aosoa32")
        assert q.copy().layout_is_chosen and q.like("scratch").layout_is_chosen


@pytest.mark.parametrize("how", ["said", "lent", "asked of the loop"])
@pytest.mark.parametrize("alone", [True, False])
def test_layouts_that_somebody_relies_on_stay(how: str, alone: bool) -> None:
    with ml.using("emulated"):
        q, _, loop = spread_rows(5, "aos" if how == "said" else None)
        seen = q.memory() if how == "lent" else None
        one = loop(ml.Schedule("owner", layout="aosoa3") if how == "asked of the loop" else "owner")
        (one if alone else ml.Program(lambda: one()).run)()
        assert str(q.layout) == ("aosoa3" if how == "asked of the loop" else "aos")
        assert seen is None or np.shares_memory(seen, q.memory())


def test_who_only_looks_at_a_field_sees_its_values_while_another_thread_chooses_its_layout() -> None:
    """Rows of 64 elements fill groups of 32, so that a wrong layout would give wrong numbers, no error."""
    with ml.using("emulated"):
        before = sys.getswitchinterval()
        field = ml.Set(64, "rows").field("q", 7, data=np.random.default_rng(5).random((64, 7)))
        expected, done = field.numpy(), Event()

        def change() -> None:
            for k in range(300):
                field.relayout(("aosoa32", "aos")[k % 2], free=True)
            done.set()

        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(1) as pool:
                changed, looks = pool.submit(change), 0
                while not done.is_set() or looks < 100:
                    np.testing.assert_array_equal(field.numpy(), expected)
                    looks += 1
                changed.result()
        finally:
            sys.setswitchinterval(before)


@pytest.mark.gpu
def test_groups_are_shared_on_the_device_that_they_are_on() -> None:
    cupy = pytest.importorskip("cupy")
    with ml.using("cuda"):
        q, _, loop = spread_rows(5)
        expected = q.numpy()
        loop("owner")()
        assert str(q.layout) == "aosoa32"
        assert isinstance(q.memory(), cupy.ndarray) and str(q.layout) == "soa"
        np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(q)), expected)
        loop("owner")()


def test_groups_that_nobody_asked_for_can_be_shared() -> None:
    with ml.using("emulated"):
        q, _, loop = spread_rows(5)
        expected = q.numpy()
        loop("owner")()
        assert str(q.layout) == "aosoa32"
        np.testing.assert_array_equal(np.from_dlpack(q), expected)
        assert str(q.layout) == "soa" and not q.layout_is_free
        q.relayout("aosoa4")
        with pytest.raises(MeshError, match="layout aosoa4 cannot be shared as one array"):
            q.memory()
