"""Layouts that a program chooses, and what a schedule may ask of a GPU's memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ScheduleError
from meshloom.operation import tape
from meshloom.schedule.choice.layouts import ranked_layouts
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, AirfoilMeshOptions
from meshloom.target import H200


def test_every_strategy_has_a_preference_and_its_better_layout_is_one() -> None:
    assert H200.gpu.layouts.keys() == {"any", "direct", *ml.strategies()}
    assert all(min(times.values()) == 1.0 for times in H200.gpu.layouts.values())


def test_the_sum_decides() -> None:
    times = H200.gpu.layouts
    even = (times["atomic"]["aos"] - 1.0) / (times["owner"]["soa"] - 1.0)  # seconds that make it a draw
    assert ranked_layouts([("atomic", 1.0), ("owner", 0.99 * even)], H200)[0].what == "soa"
    assert ranked_layouts([("atomic", 1.0), ("owner", 1.01 * even)], H200)[0].what == "aos"
    assert ranked_layouts([("direct", 1.0)], H200)[0].what == "aos"


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
            assert layouts["res"] == "soa" and str(case.q.layout) == layouts.get("q", "aos")
            assert "layout of res: soa" in case.program.explain()
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
