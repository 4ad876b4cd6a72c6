"""What the data-flow graph knows of calls, and solvers that are calls."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, MeshError, ProgramError
from meshloom.operation.call import functions_of
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.in_turn import calls_only_ours
from tests.called_work import Work, double
from tests.docs.test_rooms import files, parsed


@pytest.fixture(params=["numpy", "cpu"], autouse=True)
def back_end(request: pytest.FixtureRequest) -> None:
    ml.use(request.param)


def test_its_loops_are_those_of_now() -> None:
    """A program that has recorded again has other ones."""
    ml.use("numpy")
    work, setting = Work(), {"times": 1}

    @ml.program
    def several() -> None:
        for _ in range(setting["times"]):
            double(work.cells, work.u)

    def step() -> None:
        ml.call(lambda: None)
        several()

    program = ml.program(step)
    for times in (1, 3, 1):
        setting["times"] = times
        assert [one.name for one in program.loops] == ["double"] * times
        program.run(1)
        assert program.loops == several.loops
    shown = ml.program(lambda: ml.call(several))
    assert shown.loops == several.loops, "those of what is called, where it has some"


# --- what the data-flow graph knows of calls --------------------------------------------------------------------------


def flow_of(**said: Any) -> tuple[Work, Dataflow]:
    """u is written, then a function is called, then u is read; v is another field, which the rest leaves alone."""
    work = Work()
    v = work.cells.field("v", data=0.0)

    def step() -> None:
        work.before()
        double(work.cells, v)
        ml.call(work.square, **{name: [getattr(work, one) for one in those] for name, those in said.items()})
        double(work.cells, v)
        work.behind()

    return work, ml.program(step).dataflow


def test_nothing_moves_past_a_call_that_says_nothing() -> None:
    work, graph = flow_of()
    assert [one.name for one in graph.operations][3] == "square"
    for other in (1, 2, 4, 5):
        assert not graph.may_swap(other, 3), other
    assert graph.is_live(work.u, 3) and graph.changed_by(work.u, 2, 4) is graph.operations[3]
    assert {one.distance for one in graph.between("add_one", "square")} == {"whole"}
    assert {1, 2} <= graph.waits()[3] and 3 in graph.waits()[4] and 3 in graph.waits()[5]


def test_what_a_call_leaves_alone_moves_past_it() -> None:
    _, graph = flow_of(reads=["u"], writes=["u"])
    assert graph.may_swap(2, 3) and graph.may_swap(3, 4), "v is none of its business"
    assert not graph.may_swap(1, 3) and not graph.may_swap(3, 5)
    _, graph = flow_of(reads=["u"], writes=[])
    assert [one.kind for one in graph.between("add_one", "square") if one.field.name == "u"] == ["flow"]
    assert [one.kind for one in graph.between("square", 5) if one.replays == 0] == ["anti"]


def test_a_fill_that_a_call_may_read_is_no_dead_store() -> None:
    work = Work()

    def step(**said: Any) -> list[str]:
        def filled() -> None:
            work.u.fill(1.0)
            ml.call(work.square, **said)
            work.u.fill(2.0)

        return [one.name for one in ml.program(filled)._tape().loops]

    assert step() == step(reads=(work.u,), writes=()) == ["u = 1", "square", "u = 2"]
    assert step(reads=(work.total,), writes=(work.total,)) == ["square", "u = 2"]


@ml.kernel
def to(a: ml.Read, b: ml.Write):
    b[...] = a


@pytest.mark.parametrize("said", [True, False])
def test_a_temporary_field_lives_across_calls_that_leave_it_alone(said: bool) -> None:
    work, seen = Work(), list[float]()
    room, out = work.cells.field("room", temporary=True), work.cells.field("out")

    def step() -> None:
        double(work.cells, work.u)
        to(work.cells, work.u, room)
        if said:
            ml.call(work.square, reads=(work.u,), writes=(work.u,))
            ml.call(lambda: seen.append(float(room.numpy()[0])), reads=(room,), writes=())
        else:
            ml.call(work.square)
        double(work.cells, room)
        to(work.cells, room, out)

    program = ml.program(step)
    work.u.assign(8.0)
    if not said:
        with pytest.raises(KernelError, match="field room is temporary, and has no values behind the call of square"):
            program.run(1)
        return
    program.run(2)
    assert work.u.numpy()[0] == np.sqrt(8.0) and out.numpy()[0] == 16.0 and seen == [16.0, 8.0]
    with pytest.raises(ProgramError, match="room is temporary and has no values"):
        room.numpy()


@pytest.mark.parametrize("back_end", ["cpu", "emulated"], indirect=True)
def test_what_lives_across_a_call_is_stored_by_fused_loops(back_end: None) -> None:
    """And what does not is not."""
    cells, seen = ml.Set(1000, "cells"), list[float]()
    u, out = cells.field("u", data=np.arange(1000.0)), cells.field("out")
    room, spare = cells.field("room", temporary=True), cells.field("spare", temporary=True)

    def look() -> None:
        seen.append(float(room.numpy()[3]))

    def step() -> None:
        double(cells, u)
        to(cells, u, spare)
        to(cells, spare, room)
        ml.call(look, reads=(room,), writes=())
        double(cells, room)
        to(cells, room, out)

    program = ml.program(step)
    program.run(2)
    assert np.array_equal(out.numpy(), 8.0 * np.arange(1000.0)) and seen == [6.0, 12.0]
    stored = {step.spec.name: {p.name for p in step.spec.params if p.mode.writes} for step in program.fused_steps}
    assert stored == {"double+to+to": {"u", "room"}, "double+to": {"out"}}


def test_a_temporary_field_is_free_again_behind_a_call_that_says_nothing() -> None:
    work = Work()
    room = work.cells.field("room", temporary=True)

    def step() -> None:
        to(work.cells, work.u, room)
        to(work.cells, room, work.u)
        ml.call(work.square)
        to(work.cells, work.u, room)
        to(work.cells, room, work.u)

    work.u.assign(16.0)
    ml.program(step).run(2)
    assert work.u.numpy()[0] == 2.0


# --- solvers ----------------------------------------------------------------------------------------------------------


def solvers() -> dict[str, tuple[Any, ml.Set]]:
    grid = ml.Grid((8, 8), name="cells")
    poisson = ml.linalg.Poisson(grid)
    cells = ml.Set(6, "rows")
    matrix = ml.Matrix(cells, through=ml.Map(cells, cells, np.arange(6), "itself"), name="m")
    matrix.assign(np.full(len(matrix.entries), 4.0))
    made: dict[str, tuple[Any, ml.Set]] = {
        "fast_poisson": (ml.linalg.FastPoisson(poisson), grid), "multigrid": (ml.linalg.Multigrid(poisson), grid),
        "piccg": (ml.linalg.PICCG(poisson), grid), "cg": (ml.linalg.ConjugateGradients(matrix), cells),
        "gmres": (ml.linalg.GMRES(matrix), cells),
    }  # fmt: skip
    return made


@pytest.mark.parametrize("name", ["fast_poisson", "multigrid", "piccg", "cg", "gmres"])
def test_a_solve_inside_a_program_is_a_call(name: str) -> None:
    """With what it reads and writes, so that others may move past it; and it gives what it gives by itself."""
    ml.use("numpy")
    solver, on = solvers()[name]
    x, b, alone, v = (on.field(one, data=0.0) for one in ("x", "b", "alone", "v"))
    values = np.random.default_rng(1).normal(size=b.shape)
    values -= values.mean()
    b.assign(values)

    @ml.program
    def step() -> None:
        double(on, b)
        double(on, v)
        solver.solve(x, b)
        double(on, x)

    step.run(1)
    b.assign(2.0 * values)
    solver.solve(alone, b)
    assert np.array_equal(x.numpy(), 2.0 * alone.numpy()) and np.abs(x.numpy()).max() > 0.0
    graph = step.dataflow
    assert [one.name for one in graph.operations] == ["double", "double", f"{name}.solve", "double"]
    assert graph.may_swap(1, 2) and not graph.may_swap(0, 2) and not graph.may_swap(2, 3)
    assert f"reads x, b{', m' if on.name == 'rows' else ''} and writes x" in step.explain()
    assert calls_only_ours(*functions_of(step.operations))
    with pytest.raises(ProgramError, match=f"what {name} reports is known at every replay") as error:
        ml.program(lambda: print(solver.solve(x, b).converged)).run()
    assert "\n" not in str(error.value)


def test_a_solver_that_was_given_a_function_may_read_anything() -> None:
    ml.use("numpy")
    cells = ml.Set(4, "cells")
    x, b, weight = cells.field("x"), cells.field("b", data=np.ones(4)), cells.field("weight", data=np.full(4, 2.0))

    @ml.kernel
    def weighted(weight: ml.Read, x: ml.Read, y: ml.Write):
        y[...] = weight * x

    solver = ml.linalg.ConjugateGradients(lambda x, y: weighted(cells, weight, x, y))

    @ml.program
    def step() -> None:
        double(cells, weight)
        solver.solve(x, b)

    step.run(2)
    assert np.allclose(x.numpy(), 1.0 / 8.0) and not step.dataflow.may_swap(0, 1)
    assert "reads everything and writes x" in step.explain()


def test_a_wrong_field_for_a_solve_inside_a_program_is_one_line() -> None:
    ml.use("numpy")
    for name, (solver, on) in solvers().items():
        with pytest.raises(MeshError, match=f"{name}: x must be a Field, got int") as error:
            ml.program(lambda solver=solver, on=on: solver.solve(3, on.field("b"))).run()
        assert "\n" not in str(error.value)


# --- there is nothing else that runs operations -----------------------------------------------------------------------


def test_nothing_but_a_program_holds_operations_and_runs_them() -> None:
    """No public class but Program has ``run`` and ``operations``, and those are all operations."""
    assert "Sequence" not in ml.__all__ and not hasattr(ml, "Sequence") and "call" in ml.__all__
    classes = {one for name in ml.__all__ if isinstance(one := getattr(ml, name), type)}
    assert {one for one in classes if hasattr(one, "run")} == {ml.Program}
    runners = {
        node.name
        for path, _ in files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and {"run", "repeat", "explain"} <= {
            one.name for one in node.body if isinstance(one, ast.FunctionDef)
        }
    }  # fmt: skip
    assert runners == {"Program"}
    work = Work()
    assert {type(one) for one in work.program.operations} == {ml.Operation}


def test_a_tape_holds_operations_and_nothing_else() -> None:
    """A program that is inlined, one that is repeated, a call, and what is between these: each is an operation, which
    runs as others do, and what differs is its body."""
    work = Work()
    inner = ml.program(work.before)

    @ml.program
    def step() -> None:
        inner.run(2)
        ml.call(work.square)
        inner.repeat(until=work.total > 1.0, at_most=3)
        work.behind()

    step.run(2)
    tape = step._tape()
    listed = [*vars(tape).values(), tape.steps, step.loops, step.operations]
    holding = [those for those in listed if isinstance(those, tuple | list) and ml.Operation in map(type, those)]
    assert len(holding) >= 7 and {type(one) for those in holding for one in those} == {ml.Operation}
    assert any(those is tape.pieces for those in holding)
    assert [len(one.composed) for one in tape.pieces] == [4, 0, 0, 1]
    first, *_, last = tape.pieces
    assert set(first.writes) == {work.u, work.total} and last.writes == last.reads == (work.u,)
    assert first.prepare().launches and [one.composed for one in tape.pieces if one.composed] == [
        one.loops for one in tape.segments
    ]
