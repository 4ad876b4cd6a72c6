"""The data-flow graph of a program: what it says of orders holds for random programs; its parts are as in theory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.backend.branches import reduced
from meshloom.errors import KernelError, ProgramError
from meshloom.operation.dataflow import DISTANCES, Dataflow
from meshloom.operation.operation import Operation
from tests import test_fusion, test_fusion_boxes
from tests.dataflow_programs import copy, element_dependences, on_a_grid, on_a_mesh, touched
from tests.one_line import one_line_from

MOST = {"mesh": 12, "boxes": 12}  # examples of a quick run


@ml.kernel
def difference(u: ml.Read, flux: ml.Write):
    flux[...] = u[1] - u[0]


@ml.kernel
def gather(flux: ml.Read, rate: ml.Inc):
    rate[0] += flux
    rate[1] -= flux


@ml.kernel
def move(rate: ml.Read, u: ml.ReadWrite, total: ml.Sum):
    u += 0.1 * rate
    total += u


def diffusion() -> tuple[ml.Program, dict[str, ml.Field | ml.Global]]:
    mesh = ml.generate.box((4, 3), cells="triangle")
    u, flux, rate = mesh.cells.field("u", data=1.0), mesh.faces.field("flux"), mesh.cells.field("rate")
    total = ml.Global(0.0, "total")

    @ml.program
    def step() -> None:
        rate.fill(0.0)
        difference(mesh.faces, u[mesh.face_cells], flux)
        gather(mesh.faces, flux, rate[mesh.face_cells])
        move(mesh.cells, rate, u, total)

    return step, {"u": u, "flux": flux, "rate": rate, "total": total}


def found(graph: Dataflow, first: str | int, then: str | int) -> set[tuple[str, str, str, int]]:
    return {(one.kind, one.field.name, one.distance, one.replays) for one in graph.dependences(first, then)}


def test_a_step_of_diffusion() -> None:
    step, named = diffusion()
    graph = step.dataflow
    fill = graph.operations[0].name
    assert found(graph, "difference", "gather") == {("flow", "flux", "same element", 0)}
    assert found(graph, "move", "difference") == {("flow", "u", "map", 1)}
    assert found(graph, "difference", "move") == {("anti", "u", "map", 0)}
    assert found(graph, fill, "gather") == {("flow", "rate", "map", 0), ("output", "rate", "map", 0)}
    assert found(graph, "gather", "move") == {("flow", "rate", "map", 0)}
    assert found(graph, "move", fill) == {("anti", "rate", "same element", 1)}
    of_total = {(kind, "total", "whole", 1) for kind in ("flow", "anti", "output")}
    of_u = {(kind, "u", "same element", 1) for kind in ("flow", "anti", "output")}
    assert found(graph, "move", "move") == of_total | of_u
    assert not graph.may_swap(1, 2) and graph.may_swap(0, 1)
    assert [str(one) for one in graph.versions if one.storage is named["rate"]] == ["rate.0", "rate.1", "rate.2"]
    read = {str(one): one.read_at for one in graph.versions}
    assert read["rate.0"] == () and read["rate.1"] == (2,) and read["rate.2"] == (3,)
    assert read["u.0"] == read["u.1"] == (1, 3), "in the first replay what is there, later that of the replay before"


def test_boxes_that_do_not_overlap_have_nothing_to_do_with_each_other() -> None:
    grid = ml.Grid((8,), ghosts=2)
    u, v = grid.field("u", data=1.0), grid.field("v")

    @ml.kernel
    def copy(a: ml.Read, b: ml.Write):
        b[...] = a

    @ml.kernel
    def slope(a: ml.Read, b: ml.Write):
        b[...] = a[1] - a[0]

    @ml.program
    def step() -> None:
        copy(grid.box(0, 2), u, v)
        copy(grid.box(4, 8), u, v)
        slope(grid.box(2, 4), v[grid.offsets(-1, 0)], u)
        copy(grid, u, v)

    graph = step.dataflow
    assert found(graph, 0, 1) == set() and graph.may_swap(0, 1)
    assert found(graph, 0, 2) == {("flow", "v", "offsets", 0)} and found(graph, 1, 2) == set()
    assert ("output", "v", "same element", 0) in found(graph, 1, 3)
    assert found(graph, 3, 2) == {("flow", "v", "offsets", 1), ("anti", "u", "same element", 1)}


def test_lines_halos_and_fields_that_are_read_twice() -> None:
    grid = ml.Grid((6, 5), name="grid")
    u, v = grid.field("u"), grid.field("v")
    line = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25))
    lines = ml.program(lambda: (copy(grid, u, v), ml.linalg.LineLoop(grid, 1, line, v, u)(), copy(grid, u, v))).dataflow
    assert found(lines, 0, 1) == {("flow", "v", "line", 0), ("anti", "u", "same element", 0)}
    assert ("flow", "u", "same element", 0) in found(lines, 1, 2)

    cells = ml.Set(4, "cells", halo=2)
    a, b = cells.field("a"), cells.field("b")
    ends = ml.Map(cells, cells, [[1], [2], [5], [4], [0], [0]], "ends")

    @ml.kernel
    def both(far: ml.Read, near: ml.Read, out: ml.Write):
        out[...] = near + far[0]

    graph = ml.program(lambda: (a.fill(1.0), copy(cells, b, a), both(cells, a[ends], a, b))).dataflow
    assert found(graph, 0, 2) == {("flow", "a", "map", 0)}, "copies of another rank's elements are those of the fill"
    assert found(graph, 1, 2) == {("flow", "a", "map", 0), ("anti", "b", "same element", 0)}


def test_what_is_asked_for_must_be_there() -> None:
    graph = diffusion()[0].dataflow
    assert len(graph.dependences(graph.operations[1], 2)) == 1
    with one_line_from(ProgramError, "operation moves is not in this program; there are rate = 0, difference, gather"):
        graph.dependences("moves")
    with one_line_from(ProgramError, "operation 9 is not in this program"):
        graph.dependences(9, None)
    with pytest.raises(ProgramError, match="is not in this program"):
        graph.dependences(diffusion()[0].operations[0])


def test_neighbours_are_asked_for_by_name_position_or_as_themselves() -> None:
    """Every way says the same, whichever of the two comes first, and all calls of a name count."""
    graph = diffusion()[0].dataflow
    for a, b in itertools.product(range(4), repeat=2):
        ways = [(k, graph.operations[k].name, graph.operations[k]) for k in (a, b)]
        for first, then in itertools.product(*ways):
            assert graph.between(first, then) == graph.dependences(a, b)
            assert graph.may_swap(first, then) == (a == b or {a, b} == {0, 1})
    again = Dataflow([graph.operations[k] for k in (1, 0, 1, 2)])
    flows = [d for d in again.between("difference", "gather") if d.kind == "flow"]
    assert {(d.producer_at, d.consumer_at) for d in flows} == {(2, 3)}
    assert not again.may_swap("difference", "gather") and again.may_swap(0, "rate = 0")


@pytest.mark.parametrize("wrong", [
    -1, 4, 99, 1.5, None, True, False, "", "moves", b"gather", (0, 1), [1], {}, np.arange(2), np.float64(1.0), object,
    "a\nb",
])  # fmt: skip
def test_what_is_no_operation_is_refused_by_every_question(wrong: Any) -> None:
    graph = diffusion()[0].dataflow
    for ask in (graph.between, graph.may_swap, *([graph.dependences] if wrong is not None else [])):
        for pair in ((wrong, 0), (0, wrong)):
            with one_line_from(ProgramError, "is not in this program; there are rate = 0, difference, gather, move"):
                ask(*pair)


def test_it_prints_and_draws() -> None:
    step, named = diffusion()
    graph = step.dataflow
    lines = str(graph).splitlines()
    assert len(lines) == 4 and lines[3] == (
        "3  move over cells, reads rate.2, u.0, u.1 (of the replay before), total.0, total.1 (of the replay before),"
        " makes u.1, total.1"
    )
    named["u"].name = "<u & v>"
    tree = ElementTree.fromstring(graph.svg([graph.operations[1:3]]))
    words = ["".join(one.itertext()) for one in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"difference", "over faces", "<u & v>.1 (map)", "flux.1"} <= set(words)
    boxes = tree.findall("{http://www.w3.org/2000/svg}rect")
    assert len(boxes) == 5, "one for each operation, and a frame"
    width = float(tree.attrib["width"])
    assert all(0 <= float(one.attrib["x"]) <= width - float(one.attrib["width"]) for one in boxes)
    assert set(DISTANCES) >= {one.distance for one in graph.dependences()}


# ----- random programs --------------------------------------------------------------------------------------------
def swapped(operations: Sequence[Operation], dice: random.Random) -> list[Operation]:
    """In another order, by neighbours that change places where the graph says that they may."""
    order = list(operations)
    for _ in range(4 * len(order)):
        k = dice.randrange(len(order) - 1) if len(order) > 1 else 0
        if len(order) > 1 and Dataflow(order).may_swap(k, k + 1):
            order[k], order[k + 1] = order[k + 1], order[k]
    return order


def test_other_orders_are_found() -> None:
    operations = list(diffusion()[0].operations)
    orders = {tuple(operations.index(one) for one in swapped(operations, random.Random(k))) for k in range(9)}
    assert orders == {(0, 1, 2, 3), (1, 0, 2, 3)}


def check_orders(make: Callable[[], tuple[Callable[[], None], dict[str, ml.Field | ml.Global]]], seed: int) -> None:
    """Every order that the graph allows gives the same bits, replay after replay."""
    ml.use("numpy")
    results, orders = [], []
    for other in (False, True):
        body, changed = make()
        operations = list(ml.program(body).operations)
        order = swapped(operations, random.Random(seed)) if other else operations
        orders.append([operations.index(one) for one in order])
        assert Dataflow(order).svg().count("<rect") == len(order) == len(str(Dataflow(order)).splitlines())
        for _ in range(2):
            for one in order:
                one._run_counted() if one._draws else one()
        results.append({name: np.array(one.saved()) for name, one in changed.items()})  # with ghosts
    for name, expected in results[0].items():
        np.testing.assert_array_equal(results[1][name], expected, err_msg=f"{name} in order {orders[1]}")


def check_mesh(steps: list[tuple[str, tuple[int, ...]]], seed: int) -> None:
    check_orders(lambda: test_fusion.recorded(ml.generate.box((3, 2)), steps, False, False), seed)


def check_boxes(steps: test_fusion_boxes.Steps, around: bool, seed: int) -> None:
    check_orders(lambda: test_fusion_boxes.recorded(steps, around, False), seed)


@given(steps=test_fusion.programs(), seed=st.integers(0, 9))
@settings(max_examples=MOST["mesh"])
def test_operations_without_a_dependence_may_change_places(steps: list[tuple[str, tuple[int, ...]]], seed: int) -> None:
    check_mesh(steps, seed)


@given(steps=test_fusion_boxes.programs(), around=st.booleans(), seed=st.integers(0, 9))
@settings(max_examples=MOST["boxes"])
def test_so_may_those_on_boxes(steps: test_fusion_boxes.Steps, around: bool, seed: int) -> None:
    check_boxes(steps, around, seed)


@pytest.mark.slow
@given(steps=test_fusion.programs(), boxes=test_fusion_boxes.programs(), around=st.booleans(), seed=st.integers(0, 999))
@settings(max_examples=300)
def test_in_hundreds_of_programs(steps: list[tuple[str, tuple[int, ...]]], boxes: test_fusion_boxes.Steps,
                                 around: bool, seed: int) -> None:  # fmt: skip
    check_mesh(steps, seed)
    check_boxes(boxes, around, seed)


# ----- element by element -----------------------------------------------------------------------------------------
def check_elements(number: int) -> Dataflow:
    """No dependence between single elements is missed, and where operations touch no common element there is none."""
    ml.use("numpy")
    dice = random.Random(number)
    body, _ = (on_a_grid if number % 2 else on_a_mesh)(dice)
    graph = ml.program(body).dataflow
    operations = graph.operations
    said = {(d.kind, d.producer_at, d.consumer_at, d.field.name, d.replays) for d in graph.dependences()}
    missed = element_dependences(operations) - said
    assert not missed, (number, missed, str(graph))
    common = {
        (a, b, one.storage.name)
        for a, first in enumerate(operations) for one in first.operands
        for b, then in enumerate(operations) for other in then.operands
        if one.storage is other.storage and touched(first, one) & touched(then, other)
    }  # fmt: skip
    rough = [bool(one.maps) or (one.box is not None and any(one.box.grid.wraps)) for one in operations]
    exact = {(a, b, name) for _, a, b, name, _ in said if not rough[a] and not rough[b]}
    assert exact <= common, (number, exact - common, str(graph))
    check_versions(graph)
    check_waits(graph)
    check_queries(graph)
    return graph


def check_waits(graph: Dataflow) -> None:
    """Whoever waits for those it is told to wait for has waited for all that it depends on."""
    every = [{earlier.position for _, earlier, _ in graph.into(k)} for k in range(len(graph.operations))]
    assert reduced(graph.waits()) == reduced(every), str(graph)


def test_who_waits_is_found_in_one_look_back() -> None:
    """Hundreds of loops over parts of one field, as a solver by colors has them: each waits for the one before."""
    cells = ml.Set(4, "cells")
    u = cells.field("u")
    half = cells.subset([0, 1])
    graph = ml.program(lambda: [reset(half if k % 2 else cells, u) for k in range(60)] and None).dataflow
    part_of_all = sum(len(one) for one in graph.waits())
    assert part_of_all <= 2 * 60
    check_waits(graph)


def check_queries(graph: Dataflow) -> None:
    """What versions answer is what a walk through the operations finds."""
    operations, end = graph.operations, len(graph.operations)
    looked_at, written = list[ml.Field | ml.Global](), set[ml.Field | ml.Global]()
    for operation in operations:
        looked_at += [one for one in operation.storages if one not in written and operation.needs(one)]
        written |= set(operation.writes)
    assert list(dict.fromkeys(one for _, one in graph.exposed_uses())) == list(dict.fromkeys(looked_at)), str(graph)
    assert set(graph.written) == written and set(graph.storages) == {s for one in operations for s in one.storages}
    assert set(graph.read) == {s for one in operations for s in one.reads}
    for one in graph.storages:
        for first, last in itertools.combinations(range(end + 1), 2):
            writers = [k for k in range(first, last) if one in operations[k].writes]
            assert graph.definitions(one, first, last) == writers
            assert graph.changed_by(one, first, last) is (operations[writers[0]] if writers else None)
        for k in graph.definitions(one, 0, end):
            region = graph.written_region(one, k, k + 1)
            same = (j for j in graph.consumers(one, k + 1, region) if graph.changed_by(one, k + 1, j) is None)
            assert graph.uses(one, k) == [j for j in same if operations[j].needs(one)], str(graph)


def check_versions(graph: Dataflow) -> None:
    """Every flow within a replay goes along versions, from one to the next where only a part is written."""
    after: dict[tuple[int, str], set[int]] = {}
    for one in graph.versions:
        if one.defined_at is not None:
            after[one.defined_at, one.storage.name] = {k for k in one.read_at if k > one.defined_at}
    for flow in graph.dependences():
        if flow.kind == "flow" and not flow.replays:
            reached, name = {flow.producer_at}, flow.field.name
            for k in range(flow.producer_at, flow.consumer_at):
                reached |= after.get((k, name), set()) if k in reached else set()
            assert flow.consumer_at in reached, (str(flow), str(graph))


@pytest.mark.parametrize("first", [0, 40, 80])
def test_no_dependence_of_an_element_is_missed(first: int) -> None:
    assert all(len(check_elements(number).operations) > 1 for number in range(first, first + 40))


@pytest.mark.slow
def test_in_two_thousand_programs() -> None:
    kinds = {d.kind for number in range(2000) for d in check_elements(number).dependences()}
    assert kinds == {"flow", "anti", "output"}


@pytest.mark.parametrize("number", range(0, 24, 3))
def test_orders_of_such_programs(number: int) -> None:
    check_orders(lambda: _named((on_a_grid if number % 2 else on_a_mesh)(random.Random(number))), number)


def _named(made: tuple[Callable[[], None], list[ml.Field | ml.Global]]) -> tuple[Callable[[], None], dict[str, Any]]:
    return made[0], {one.name: one for one in made[1]}


@pytest.mark.slow
def test_orders_of_a_thousand() -> None:
    for number in range(1000):
        test_orders_of_such_programs(number)
    assert ml.backend() == "numpy"


# ----- ghosts and temporary fields --------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_ghosts_that_are_read_later_are_stored(backend: str) -> None:
    """What a stencil recomputes is not dead where its ghosts are read after its inner points were set anew."""
    ml.use(backend)
    grid = ml.Grid((6, 24), ghosts=1)
    u, v, w = (grid.field(name, data=2.0) for name in "uvw")
    temporary, at = grid.field("t", temporary=True), grid.offsets((0, 1), (0, -1))
    u.fill(2.0)

    @ml.kernel
    def square(a: ml.Read, b: ml.Write):
        b[...] = a * a + 1.0

    @ml.kernel
    def sides(a: ml.Read, b: ml.Write):
        b[...] = a[0, 1] + a[0, -1]

    @ml.program
    def step() -> None:
        square(grid.everything, u, temporary)
        sides(grid, temporary[at], v)
        copy(grid, v, temporary)
        sides(grid, temporary[at], w)

    step.run(2)
    assert w.numpy()[0, :3].tolist() == [15.0, 20.0, 20.0]
    assert {d.distance for d in step.dataflow.dependences(0, 3) if d.kind == "flow"} == {"offsets"}


def test_a_part_that_nothing_has_written_is_not_read() -> None:
    grid = ml.Grid((8,))
    u, w, t = grid.field("u", data=5.0), grid.field("w"), grid.field("t", temporary=True)

    def program(*boxes: ml.Box) -> ml.Program:
        @ml.program
        def step() -> None:
            for box in boxes:
                copy(box, u, t)
            copy(grid, t, w)

        return step

    program(grid.box(0, 2), grid.box(2, 8)).run()
    assert w.numpy().tolist() == [5.0] * 8
    with one_line_from(KernelError, "field t is temporary, but a program reads it before it is written"):
        program(grid.box(0, 2), grid.box(3, 8)).run()


def test_fields_in_one_memory_are_refused_by_the_graph_as_by_a_run() -> None:
    cells, array = ml.Set(4, "cells"), np.zeros(4)
    u, v, w = cells.field("u", wrap=array), cells.field("v", wrap=array), cells.field("w")
    step = ml.program(lambda: (copy(cells, w, u), copy(cells, v, w)))
    with one_line_from(ProgramError, "u and v lie in the same memory, and one of them is written"):
        _ = step.dataflow


@ml.kernel
def reset(u: ml.Write):
    u[...] = -0.0


def check_uniform(number: int) -> int:
    """What a graph says to be one number at the end is that, bit for bit, whatever was there before; how many those
    are."""
    ml.use("numpy")
    step, stored = (on_a_grid if number % 2 else on_a_mesh)(random.Random(number))
    program = ml.Program(step, fuse=False)
    uniform, rng = program.dataflow.uniform_at_end(), np.random.default_rng(number)
    for one in stored:
        if isinstance(one, ml.Field) and not one.temporary:
            one.assign(rng.random(one.shape) + 1.0)
    program.run(1)
    for one, value in uniform.items():
        everything = one.unpacked()
        assert everything.tobytes() == np.full_like(everything, value).tobytes(), (one.name, value, number)
    return len(uniform)


@pytest.mark.parametrize("first", [0, 60])
def test_what_is_said_to_be_one_number_is_that(first: int) -> None:
    assert sum(check_uniform(number) for number in range(first, first + 60)) > 0


def test_which_fields_are_one_number_when_a_replay_ends() -> None:
    """The last write decides: all of the field, to a number, whose sign counts; not through a map, a part or a sum."""
    step, _ = diffusion()
    assert step.dataflow.uniform_at_end() == {}, "what a fill sets is added to"
    grid = ml.Grid((4, 3))
    a, b, c, d = (grid.field(name) for name in "abcd")
    temporary = grid.field("t", temporary=True)

    @ml.program
    def sets() -> None:
        for one in (a, b, c, temporary):
            reset(grid, one)
        copy(grid, a, b)
        reset(grid.interior(1), c)
        d.fill(3.0)

    uniform = sets.dataflow.uniform_at_end()
    assert {one.name: str(value) for one, value in uniform.items()} == {"a": "-0.0", "d": "3.0"}


def test_dependences_show_themselves_in_a_line_each() -> None:
    assert repr(diffusion()[0].dataflow.dependences("difference", "gather")) == (
        "(Dependence(difference -> gather: flow of flux, same element),)"
    )
