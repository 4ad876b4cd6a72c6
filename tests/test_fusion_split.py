"""Loops over boxes that differ by layers: one loop where both are, the layers by themselves, and the same values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.operation.fusion import split_boxes as splitting
from meshloom.operation.fusion.fused_program import FusedProgram
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges
from meshloom.solvers.fractional_step.operators import kernels
from tests.fitted import changed

HERE = ["numpy", "cpu", "emulated"]
SHAPE = (7, 6)
Ends = tuple[tuple[int, int], tuple[int, int]]
Steps = list[tuple[str, int, int, int]]


@ml.kernel(strict=True)
def look(a: ml.Read, b: ml.Write) -> None:
    b[...] = 0.3 * a[0, 1] - 0.7 * a[0, 0] + a[-1, 0] / 3.0


@ml.kernel(strict=True)
def add(a: ml.Read, b: ml.ReadWrite) -> None:
    b[...] = 0.1 * b + a


@ml.kernel(strict=True)
def sum_up(a: ml.Read, b: ml.Write, total: ml.Sum) -> None:
    b[...] = 3.0 * a
    total += a


def program_of(boxes: list[Ends], steps: Steps, fuse: bool) -> tuple[ml.Program, list[ml.Field]]:
    """``steps``: what is done, over which box, with which two fields."""
    grid, rng = ml.Grid(SHAPE, ghosts=1, name="plane"), np.random.default_rng(5)
    on = [grid.box(*zip(*ends, strict=True)) for ends in boxes]
    f = [grid.field(name, data=rng.random(SHAPE)) for name in "pqrs"]
    at = grid.offsets((0, 0), (0, 1), (-1, 0))

    @ml.program(fuse=fuse)
    def step() -> None:
        for name, box, a, b in steps:
            if name == "look":
                look(on[box], f[a][at], f[b])
            else:
                add(on[box], f[a], f[b])

    return step, f


def fusion_of(program: ml.Program) -> FusedProgram:
    return program._tape().fusion()[0]


@st.composite
def several_boxes(draw: st.DrawFn) -> list[Ends]:
    """Of which loops can look one point down and one to the right."""
    ends = [st.tuples(st.integers(0, 1), st.integers(SHAPE[0] - 1, SHAPE[0] + 1)),
            st.tuples(st.integers(-1, 1), st.integers(SHAPE[1] - 1, SHAPE[1]))]  # fmt: skip
    return [(draw(ends[0]), draw(ends[1])) for _ in range(3)]


@st.composite
def several_steps(draw: st.DrawFn) -> Steps:
    pairs = st.permutations(range(4)).map(lambda order: order[:2])
    count = draw(st.integers(2, 5))
    return [(draw(st.sampled_from(("look", "add"))), draw(st.integers(0, 2)), *draw(pairs)) for _ in range(count)]


def compare(boxes: list[Ends], steps: Steps) -> None:
    with pytest.MonkeyPatch.context() as patch:
        changed(patch, fusion={"worth": np.inf})
        patch.setattr(splitting._Cut, "pays", lambda _: True)
        for backend in HERE:
            ml.use(backend)
            left = []
            for fuse in (False, True):
                program, fields = program_of(boxes, steps, fuse)
                program.run(2)
                left.append([one.unpacked().tobytes() for one in fields])
            assert left[0] == left[1], backend


@given(boxes=several_boxes(), steps=several_steps())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_boxes_have_the_same_bits_as_loop_by_loop(boxes: list[Ends], steps: Steps) -> None:
    compare(boxes, steps)


@pytest.mark.slow
@given(boxes=several_boxes(), steps=several_steps())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_sixty_times_random_boxes_have_the_same_bits(boxes: list[Ends], steps: Steps) -> None:
    compare(boxes, steps)


@pytest.mark.parametrize("later", [False, True])
def test_what_both_visit_is_one_loop_and_the_layers_stay(later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger box goes first, or behind: its layers then run before what is common, or after it."""
    boxes: list[Ends] = [((0, 8), (0, 6)), ((0, 7), (0, 6))]
    order = (1, 0) if later else (0, 1)
    steps: Steps = [("look", order[0], 0, 1), ("add", order[1], 1, 2)]
    monkeypatch.setattr(splitting._Cut, "pays", lambda _: True)
    ml.use("emulated")
    program, _ = program_of(boxes, steps, True)
    found = splitting.split_boxes(program.dataflow)
    said = [f"{one.name} {one.over}" for one in found.operations]
    common, layer = [f"{name} plane[0:7, 0:6]" for name in ("look", "add")], "plane[7:8, 0:6]"
    assert said == ([*common, f"add {layer}"] if later else [f"look {layer}", *common])
    assert [one.composed for one in found.operations] == [
        () if one in program.dataflow.operations else (program.dataflow.operations[later],) for one in found.operations
    ]
    compare(boxes, steps)


@pytest.mark.parametrize("why", ["a sum would be taken in another order", "few points are common", "all of the memory"])
def test_what_is_not_cut(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting._Cut, "pays", lambda _: True)
    ml.use("emulated")
    grid = ml.Grid(SHAPE, ghosts=1, name="plane")
    u, v, w = (grid.field(name) for name in "uvw")
    total = ml.Global(0.0, "total")
    small, large = grid.interior(1), grid.box(0, SHAPE)
    bodies: dict[str, Callable[[], object]] = {
        "a sum would be taken in another order": lambda: sum_up(large, u, v, total),
        "few points are common": lambda: add(grid.box(0, (7, 2)), u, v),
        "all of the memory": lambda: add(grid.everything, u, v),
    }

    def step() -> None:
        bodies[why]()
        add(small, v, w)

    graph = ml.program(step).dataflow
    assert splitting.split_boxes(graph).operations == graph.operations


@pytest.mark.parametrize(("n", "cut"), [(8, False), (256, True)])
def test_faces_and_cells_of_a_cube_are_one_loop_where_that_is_faster(n: int, cut: bool) -> None:
    """Of the lid-driven flow in a cube, on a GPU: velocities at faces with the divergence of cells, which computes its
    last faces again; and the two projections, which look at the same pressure. Nothing runs: decisions alone."""
    ml.use("emulated")
    cells = CellGrid([even_edges(n, 0.0, 1.0)] * 3, [False] * 3)
    grid, do = cells.grid, kernels(cells.even, "central")
    u, faces, b, p = grid.field("u", 3), grid.field("faces", 3), grid.field("b"), grid.field("p")
    dt, widths = ml.Global(1.0, "dt"), cells.widths

    def to_faces() -> None:
        do.to_faces[0](cells.with_last_faces, cells.before(u), dt, 0.0, 1.0, 0.0, faces, *widths)
        do.outflow_of_cells(grid, cells.both_faces(faces), dt, 1.0, b, *widths)

    def project() -> None:
        do.project_faces_in_place(cells.with_last_faces, cells.before(p), dt, 1.0, faces, *widths)
        do.project_in_place(grid, cells.cross(p), dt, u, *widths)

    for body, first, then in (
        (to_faces, "to_faces", "outflow_of_cells"),
        (project, "project_faces_in_place", "project_in_place"),
    ):
        found = fusion_of(ml.program(body))
        names = [step.name for step in found.operations]
        assert names == ([first] * 3 + [f"{first}+{then}"] if cut else [first, then])
        rates = found.operations[0].backend.target.rates
        apart = FusedProgram(ml.program(body).dataflow.operations)
        assert found.seconds(rates) <= apart.seconds(rates)
