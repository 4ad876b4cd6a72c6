"""What graphs that differ in few operations share when they are fused: it changes nothing but the time that takes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import meshloom as ml
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion import compose
from meshloom.operation.fusion import program as fused_program
from meshloom.operation.fusion.groups import Group
from meshloom.operation.fusion.memory import FusionCache, Memory
from meshloom.operation.operation import Operation
from tests import test_fusion, test_fusion_boxes
from tests.dataflow_programs import copy, on_a_grid, on_a_mesh
from tests.test_fusion_recompute import HERE, Case, always, laplace, step_of  # noqa: F401 the fixture is used by name


def described(program: fused_program.FusedProgram) -> tuple[object, ...]:
    """All that a fused program does, second buffers by their names."""
    steps = [(one.name, str(one.domain), *map(str, one.operands), one.graph.content, one.elements)
             for one in (*program.prologue, *program.operations)]  # fmt: skip
    constants = {one.name: repr(value) for one, value in program.constants.items()}
    return steps, len(program.prologue), constants, len(program.register_bound)


def operations_of(number: int) -> tuple[Operation, ...]:
    """A random program: with parts, boxes and lines, of stencils on boxes, or of gathers and temporary fields."""
    dice, kind = random.Random(number), number % 4
    if kind < 2:
        body, _ = (on_a_grid if kind else on_a_mesh)(dice)
    elif kind == 2:
        steps = [(dice.choice([*test_fusion_boxes.KERNELS, "fill"]), dice.randrange(2), tuple(dice.sample(range(4), 3)))
                 for _ in range(8)]  # fmt: skip
        body, _ = test_fusion_boxes.recorded(steps, around=dice.random() < 0.5, within=False)
    else:
        several = [(dice.choice(test_fusion.OPERATIONS), tuple(dice.sample(range(len(test_fusion.FIELDS)), 3)))
                   for _ in range(8)]  # fmt: skip
        clears = ("clear", (len(test_fusion.FIELDS) - 1, 0, 1))  # the last field is temporary
        body, _ = test_fusion.recorded(ml.generate.box((3, 2)), [clears, *several], False, True)
    return ml.program(body).loops


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("numbers", [range(8), pytest.param(range(8, 48), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("backend", HERE)
def test_what_is_kept_of_other_graphs_changes_nothing(backend: str, numbers: range) -> None:
    """Every beginning of random programs, fused with what is known of the others and by itself: what is live, constant,
    or in another buffer differs from one to the next, and so does what may be taken as it was."""
    ml.use(backend)
    taken = 0
    for number in numbers:
        operations, cache = operations_of(number), FusionCache()
        for end in [*range(1, len(operations) + 1), len(operations)]:
            graph = Dataflow(operations[:end])
            if all(one.domain.all_memory for one in graph.operations):
                continue
            before = len(cache.groups)
            found = described(fused_program._fused(graph, rotates=True, cache=cache))
            assert found == described(fused_program._fused(graph, rotates=True)), (number, end)
            taken += len(cache.groups) == before
    assert taken >= len(numbers), "of the second time at least"


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("backend", HERE)
def test_a_buffer_that_holds_a_copy_is_written_again_only_where_nobody_needs_that(backend: str) -> None:
    """A temporary field that is a copy of u is in u's buffer; only in the longer program somebody asks for it later."""
    ml.use(backend)
    grid = ml.Grid((11, 9), periodic=True)
    u, r, v, x = (grid.field(name) for name in "urvx")
    at, copied = grid.star(1), grid.field("copied", temporary=True)

    def body() -> None:
        copy(grid, u, copied)
        laplace(grid, u[at], r)
        laplace(grid, r[at], u)
        step_of(grid, r, u)
        laplace(grid, u[at], x)
        copy(grid, copied, v)

    operations, cache = ml.program(body).loops, FusionCache()
    for end in (len(operations) - 1, len(operations)):
        graph = Dataflow(operations[:end])
        one, other = (fused_program._fused(graph, rotates=True, cache=each) for each in (cache, None))
        assert described(one) == described(other)
        written = [s.name for step in one.operations for s in step.writes]
        assert ("u_2" in written) == (end == len(operations)), written


@pytest.mark.usefixtures("always")
def test_a_trial_puts_together_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten steps, each with fields of its own; a trial lets one of them compute again what it looks at."""
    composed, trials, original = list[str](), list[int](), compose._composed

    def counted(group: Group, memory: Memory) -> list[Operation]:
        composed.append("+".join(one.name for one in group.parts))
        return original(group, memory)

    def fuse(graph: Dataflow, **how: object) -> fused_program.FusedProgram:
        trials.append(len(graph.operations))
        return fused_once(graph, **how)

    fused_once = fused_program._fused
    monkeypatch.setattr(compose, "_composed", counted)
    monkeypatch.setattr(fused_program, "_fused", fuse)

    def steps(case: Case) -> Callable[[], None]:
        at = case.grid.star(1)
        fields = [[case.field(f"{name}{k}", k) for name in "uvwx"] for k in range(10)]

        def run() -> None:
            for u, v, w, x in fields:
                laplace(case.grid, u[at], v)
                step_of(case.grid, v, w)
                laplace(case.grid, v[at], x)

        return run

    Case("cpu", steps, periodic=True).program._fusion()
    assert len(trials) > 10 and 10 <= len(composed) <= 4 * len(trials), (trials, composed)
