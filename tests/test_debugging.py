"""ml.debug names the loop, the element and its inputs; loop.inspect shows one element; loop.source the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError, ProgramError, RunError, ScheduleError, UserError
from meshloom.operation.operation import Operation

BACKENDS = ("cpu", "numpy", "emulated")


@ml.kernel
def flux(u: ml.Read, w: ml.Inc):
    d = u[1] - u[0]
    r = np.sqrt(u[0] - 5.0)
    w[0] += d * r
    w[1] -= d


@ml.kernel
def squares(w: ml.Read, total: ml.Sum):
    total[...] += w * w


class Flow:
    """Cells whose value in cell k is 10 + k, but for one of 1, of which a root does not exist."""

    def __init__(self, broken: int | None = 3) -> None:
        self.mesh = ml.generate.box((3, 2), cells="triangle")
        cells = self.mesh.cells
        self.u, self.w, self.total = cells.field("u"), cells.field("w"), ml.Global(0.0, "total")
        values = 10.0 + np.arange(cells.size)
        if broken is not None:
            values[broken] = 1.0
        self.u.assign(values)
        self.broken = broken

    def loop(self) -> ml.Operation:
        at = self.mesh.face_cells
        return flux.loop(self.mesh.faces, self.u[at], self.w[at])

    def program(self) -> ml.Program:
        @ml.program
        def step() -> None:
            self.w.fill(0.0)
            flux(self.mesh.faces, self.u[self.mesh.face_cells], self.w[self.mesh.face_cells])
            self.total.value = 0.0
            squares(self.mesh.cells, self.w, self.total)

        return step

    def face(self) -> int:
        """The first face whose first cell is the broken one."""
        return int(np.flatnonzero(self.mesh.face_cells.indices[:, 0] == self.broken)[0])

    def check(self, message: str) -> None:
        """One line with loop, field, element, place, the line of the kernel, and what it reads."""
        face, (x, y) = self.face(), self.mesh.faces.points[self.face()]
        first, second = self.mesh.face_cells.indices[face]
        assert message.startswith(f"loop flux: w becomes NaN at faces element {face} at ({x:.4g}, {y:.4g}); ")
        assert "test_debugging.py:" in message and "r = np.sqrt(u[0] - 5.0)" in message and "\n" not in message
        assert f"it reads u[face_cells] of cells {first}, {second} = [1, {10 + second}]" in message


@pytest.mark.parametrize("back_end", BACKENDS)
def test_the_first_nan_is_named_by_loop_and_program(back_end: str) -> None:
    ml.use(back_end)
    flow = Flow()
    step, loop = flow.program(), flow.loop()
    calling = ml.program(lambda: (step(), ml.call(lambda: None)))
    for run in (loop, step, lambda: calling.run(2), lambda: step.run(3, record=(flow.total,))):
        flow.w.fill(0.0)
        with ml.debug(nan=True), pytest.raises(RunError) as caught:
            run()
        flow.check(str(caught.value))
        assert not flow.w.numpy().any(), "what the loop wrote is as before it"
    assert Operation.watched is None
    step.run(1)
    assert np.isnan(flow.total.value), "off, nobody looks"


@pytest.mark.parametrize("back_end", BACKENDS)
def test_a_program_that_was_made_ready_before_is_watched_too(back_end: str) -> None:
    ml.use(back_end)
    flow, values = Flow(broken=None), Flow().u.numpy()
    step = flow.program()
    step.run(2)
    flow.u.assign(values)
    flow.w.fill(0.0)
    flow.broken = 3
    for _ in range(2):
        with ml.debug(), pytest.raises(RunError) as caught:
            step()
        flow.check(str(caught.value))


def test_a_run_of_a_script_is_named_too(tmp_path: Path) -> None:
    ml.use("numpy")
    flow = Flow()
    with ml.debug(), pytest.raises(RunError, match="loop flux: w becomes NaN at faces element"):
        ml.march(flow.program(), steps=3, show=(flow.total,), out=tmp_path / "run")


@pytest.mark.parametrize("back_end", ("cpu", "numpy"))
def test_what_is_finite_gives_the_same_numbers(back_end: str) -> None:
    ml.use(back_end)
    flow = Flow(broken=None)
    step = flow.program()
    expected = step.run(3, record=(flow.total,))
    with ml.debug():
        np.testing.assert_allclose(step.run(3, record=(flow.total,)), expected, rtol=1e-13)
        times = step.repeat(until=flow.total > 0.0, at_most=5)
    assert times == 1


def test_what_was_not_finite_before_is_not_the_loops_fault() -> None:
    """A minimum starts from infinity; cells that a loop leaves alone may hold anything."""
    ml.use("numpy")
    cells = ml.Set(4, "cells")
    a, b, least = cells.field("a", data=[1.0, 2.0, 3.0, 4.0]), cells.field("b"), ml.Global(np.inf, "least")
    part = cells.subset([0, 1], "part")
    b.assign([0.0, 0.0, np.nan, 0.0])

    @ml.kernel
    def double(a: ml.Read, b: ml.Write, least: ml.Min):
        b[...] = 2.0 * a
        least[...] = a

    with ml.debug():
        double(part, a, b, least)
    assert least.value == 1.0 and np.isnan(b.numpy()[2]) and b.numpy()[1] == 4.0


@pytest.mark.parametrize("back_end", ("cpu", "numpy"))
def test_a_nan_that_came_in_says_so_and_globals_are_watched(back_end: str) -> None:
    ml.use(back_end)
    flow = Flow(broken=None)
    flow.w.assign(np.where(np.arange(flow.mesh.cells.size) == 2, np.nan, 1.0))
    with ml.debug(), pytest.raises(RunError, match=r"loop squares: total becomes NaN at cells element 2 .*came in"):
        squares(flow.mesh.cells, flow.w, flow.total)


def test_what_a_selection_leaves_out_is_no_cause() -> None:
    ml.use("numpy")
    cells = ml.Set(3, "cells")
    a, b = cells.field("a", data=[1.0, 0.0, 2.0]), cells.field("b")

    @ml.kernel
    def select(a: ml.Read, b: ml.Write):
        safe = np.where(a > 0.0, np.log(a), 0.0)
        b[...] = safe + 1.0 / a

    with ml.debug(), pytest.raises(RunError) as caught:
        select(cells, a, b)
    message = str(caught.value)
    assert "loop select: b becomes infinite at cells element 1; " in message and "b[...] = safe + 1.0 / a; " in message


def test_a_solve_along_lines_is_named_by_field_and_point() -> None:
    ml.use("cpu")
    grid = ml.Grid((8, 6))
    u, v = grid.field("u"), grid.field("v")
    values = np.ones((8, 6))
    values[4, 2] = np.nan
    u.assign(values)
    with ml.debug(), pytest.raises(RunError, match=r"becomes NaN at point \(\d, 2\) at \(0?\.?\d*, 0\.4\)") as caught:
        ml.compact.d(u, 0, out=v)
    assert "loop " in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", (1, "yes", None))
def test_wrong_switches_are_refused(wrong: Any) -> None:
    with pytest.raises(UserError, match=r"ml\.debug: nan must be True or False"):
        ml.debug(nan=wrong)
    assert Operation.watched is None


def test_the_switch_stays_until_it_is_turned_off() -> None:
    assert "True" in repr(ml.debug())
    try:
        assert Operation.watched is not None
    finally:
        ml.debug(nan=False)
    assert Operation.watched is None


# --- one element -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("back_end", BACKENDS)
def test_an_element_shows_what_it_reads_computes_and_writes(back_end: str) -> None:
    ml.use(back_end)
    flow = Flow()
    loop, face = flow.loop(), flow.face()
    first, second = (int(c) for c in flow.mesh.face_cells.indices[face])
    seen = loop.inspect(face)
    assert seen.inputs["u"].elements == (first, second) and seen.inputs["u"].values.tolist() == [1.0, 10.0 + second]
    assert [step.text for step in seen.steps[:2]] == ["d = u[1] - u[0]", "r = np.sqrt(u[0] - 5.0)"]
    assert seen.steps[0].values[0] == 9.0 + second and np.isnan(seen.steps[1].values[0])
    given = seen.outputs["w"].values
    assert np.isnan(given[0]) and given[1] == -(9.0 + second)
    text = repr(seen)
    assert text.startswith(f"loop flux at faces element {face} at (") and f"u[face_cells] of cells {first}" in text
    assert f"w[face_cells] of cells {first}, {second} += [nan," in text and "r = np.sqrt(u[0] - 5.0)  -> [nan]" in text
    assert not flow.w.numpy().any(), "nothing is changed"


@ml.kernel
def conduct(t: ml.Read, heat: ml.Inc, r: ml.Random):
    q = 2.0 * (t[0] - t[1])
    noise = r.uniform()
    heat[0] -= q
    heat[1] += noise
    heat[1] += q
    heat[1] -= 3.0


def test_a_line_that_combines_has_the_values_that_it_makes() -> None:
    """And no other line has them: not that of what it combines, nor one outside of the kernel."""
    ml.use("numpy")
    mesh = ml.generate.box((2, 2))
    t, heat, dice = mesh.cells.field("t", data=[1.0, 2.0, 4.0, 8.0]), mesh.cells.field("heat"), ml.Random(seed=1)
    step = ml.program(lambda: conduct(mesh.faces, t[mesh.face_cells], heat[mesh.face_cells], dice))
    seen = step.loops[0].inspect(1)
    q = 2.0 * (seen.inputs["t"].values[0] - seen.inputs["t"].values[1])
    by_line = {one.text: [float(value) for value in one.values] for one in seen.steps}
    noise = by_line["noise = r.uniform()"][-1]
    assert by_line["q = 2.0 * (t[0] - t[1])"] == [q] and by_line["heat[0] -= q"] == [-q]
    assert by_line["heat[1] += q"] == [noise + q] and by_line["heat[1] -= 3.0"] == [noise + q - 3.0]
    assert len(by_line) == 5, "the kernel's alone"


def test_a_point_of_a_grid_is_looked_at_by_its_index() -> None:
    ml.use("numpy")
    grid = ml.Grid((6, 5))
    a, b, factor = grid.field("a"), grid.field("b"), ml.Global(2.0, "factor")
    a.assign(np.arange(30.0).reshape(6, 5))

    @ml.kernel
    def mean(a: ml.Read, factor: ml.Read, b: ml.Write):
        b[...] = (a[1, 0] + a[-1, 0]) / factor

    loop = mean.loop(grid.interior(1), a[grid.offsets((1, 0), (-1, 0))], factor, b)
    seen = loop.inspect((2, 3))
    assert seen.inputs["a"].elements == ((3, 3), (1, 3)) and seen.inputs["a"].values.tolist() == [18.0, 8.0]
    assert seen.inputs["factor"].values == 2.0 and seen.outputs["b"].values == 13.0
    assert seen.outputs["b"].elements == ((2, 3),) and "loop mean at point (2, 3) at (0.4, 0.75)" in repr(seen)
    for wrong in (3, (2,), (0, 0), (2, 9), (1.5, 1), "here"):
        with pytest.raises(MeshError, match="loop mean: the element to look at"):
            loop.inspect(wrong)  # type: ignore[arg-type]


def test_meshes_that_lie_otherwise_in_memory_are_looked_at_by_the_users_numbers() -> None:
    ml.use("numpy")
    flow = Flow()
    before = flow.loop().inspect(flow.face())
    flow.mesh = flow.mesh.arranged("random")
    flow.u, flow.w = flow.mesh.cells.field("u", data=flow.u.numpy()), flow.mesh.cells.field("w")
    assert flow.mesh.cells.numbering is not None
    assert repr(flow.loop().inspect(flow.face())) == repr(before)


@pytest.mark.parametrize("wrong", (-1, 10**6, (1, 2), 1.5, "x", None))
def test_elements_that_are_none_are_refused(wrong: Any) -> None:
    ml.use("numpy")
    with pytest.raises(MeshError, match="loop flux: the element to look at") as caught:
        Flow().loop().inspect(wrong)
    assert "\n" not in str(caught.value)


def test_what_has_no_elements_is_refused() -> None:
    ml.use("cpu")
    flow = Flow()
    fill = flow.program().operations[0]
    with pytest.raises(MeshError, match="has no kernel of its own"):
        fill.inspect(0)
    with pytest.raises(ScheduleError, match="no text of its own"):
        fill.source  # noqa: B018

    @ml.program
    def looks() -> None:
        flow.loop().inspect(0)

    with pytest.raises(ProgramError, match="looking at loop flux"):
        looks.run(1)


# --- the text --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("back_end", "words"), [("cpu", 'extern "C" void ml_loop'), ("emulated", "__global__")])
def test_the_text_is_that_of_back_end_and_schedule(back_end: str, words: str) -> None:
    ml.use(back_end)
    flow = Flow(broken=None)
    at = flow.mesh.face_cells
    texts = {}
    for schedule in ("owner", "color"):
        loop = flux.loop(flow.mesh.faces, flow.u[at], flow.w[at], schedule=schedule)
        texts[schedule] = loop.source
        assert words in texts[schedule] and "// r = np.sqrt(u[0] - 5.0)" in texts[schedule]
        loop()
        assert loop.source == texts[schedule], "what was compiled"
    assert texts["owner"] != texts["color"]


def test_where_nothing_is_compiled_there_is_no_text() -> None:
    ml.use("numpy")
    with pytest.raises(ScheduleError, match="the back end numpy compiles nothing"):
        Flow().loop().source  # noqa: B018


@pytest.mark.parametrize(("mode", "sign"), [(ml.Max, 1.0), (ml.Min, -1.0)])
def test_an_extreme_that_a_loop_makes_infinite(mode: object, sign: float) -> None:
    """A maximum may start from minus infinity, but no loop may bring it to infinity."""
    cells = ml.Set(4, "cells")
    a, most = cells.field("a", data=[1.0, 2.0, 0.0, 4.0]), ml.Global(0.0, "most")

    def offer(a, most):
        most[...] = sign / a

    offer.__annotations__ = {"a": ml.Read, "most": mode}
    kernel = ml.kernel(offer)
    with ml.debug(nan=True):
        with pytest.raises(ml.errors.RunError, match="loop offer: most becomes infinite at cells element 2; "):
            kernel(cells, a, most)
        assert most.value == 0.0
        a.fill(-sign)
        most.value = -sign * np.inf  # where it starts from
        kernel(cells, a, most)
        assert most.value == -1.0
