"""The coloring benchmark on a small box: the paper's algorithms are what they say, and shown beside the paper."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench import coloring, coloring_forms, coloring_mesh, coloring_paper, coloring_program, coloring_report, record
from bench.coloring_forms import ALGORITHMS, Forms, Values
from bench.coloring_mesh import (
    CELLS,
    Faces,
    Groups,
    along_curve,
    box,
    by_color,
    colored,
    colored_by_lists,
    face_pairs,
    for_largest_color,
    in_blocks,
)
from bench.layouts import Hasty
from bench.peers import colored as kernels
from bench.race_loop import TOLERANCE
from tests.bench.devices import Emulated


@pytest.fixture(scope="module")
def faces() -> Faces:
    return box(400, 0.3, "small")


@pytest.fixture(scope="module")
def shuffled(faces: Faces) -> Faces:
    """The same in no order, which takes more colors."""
    rng = np.random.default_rng(3)
    return Faces("shuffled", np.ascontiguousarray(faces.pairs[rng.permutation(faces.n)]), faces.centres)


# --- meshes and numberings --------------------------------------------------------------------------------------------


def test_a_box_of_prisms_and_tetrahedra(faces: Faces) -> None:
    assert faces.cells == pytest.approx(400, rel=0.4) and (faces.pairs[:, 0] < faces.pairs[:, 1]).all()
    assert len(np.unique(faces.pairs, axis=0)) == faces.n
    n = 4
    prisms = faces.cells - 6 * n**3
    layers = prisms // (2 * n * n)
    assert prisms == 2 * n * n * layers > 0
    met = np.bincount(faces.pairs.ravel(), minlength=faces.cells)
    assert met[:prisms].max() == 5 and met[prisms:].max() == 4, "sides of a prism and of a tetrahedron"
    upward = (faces.pairs[:, 0] < prisms) & (faces.pairs[:, 1] >= prisms)
    assert upward.sum() == 2 * n * n, "every triangle between prisms and tetrahedra has one of each"
    assert len(np.unique(faces.pairs[upward])) == 4 * n * n
    near = np.linalg.norm(np.diff(faces.centres[faces.pairs], axis=1)[:, 0], axis=1)
    assert near.max() < 1.0, "cells that meet lie beside each other"
    closed = 4 * (faces.cells - prisms) + 5 * prisms - 2 * faces.n
    assert closed == 2 * n * n * 2 + 4 * n * layers + 4 * 2 * n * n, "what has no neighbor is on the outside"


def test_meshes_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CELLS, 1, 300)
    first = face_pairs("box", 1, tmp_path)
    (file,) = tmp_path.iterdir()
    monkeypatch.setattr("bench.coloring_mesh.box", None)
    again = face_pairs("box", 1, tmp_path)
    np.testing.assert_array_equal(first.pairs, again.pairs)
    np.testing.assert_array_equal(first.centres, again.centres)
    assert file.suffix == ".npz" and again.pairs.dtype == np.int32


@pytest.mark.parametrize("which", ["faces", "shuffled"])
def test_greedy_coloring_is_the_papers(which: str, request: pytest.FixtureRequest) -> None:
    """Against algorithms 3 and 4 once more, face by face."""
    mesh: Faces = request.getfixturevalue(which)
    groups, seconds = colored(mesh)
    at_cell: list[set[int]] = [set() for _ in range(mesh.cells)]
    for face, (own, ngb) in enumerate(mesh.pairs.tolist()):
        taken = at_cell[own] | at_cell[ngb]
        color = next(c for c in range(99) if c not in taken)
        assert groups.colors[face] == color
        at_cell[own].add(color)
        at_cell[ngb].add(color)
    by_lists, longer = colored_by_lists(mesh)
    np.testing.assert_array_equal(by_lists, groups.colors)
    assert seconds > 0 and longer > 0 and 5 <= len(groups.sizes) <= 8


def test_compiling_is_not_timed(faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is slow the first time, as what has to be compiled is."""
    called: list[int] = []

    def slow_at_first(pairs: list[np.ndarray], sizes: list[int]) -> np.ndarray:
        called.append(len(pairs[0]))
        if len(called) == 1:
            time.sleep(0.3)
        return np.zeros(len(pairs[0]), np.int32)

    monkeypatch.setattr(coloring_mesh, "color_elements", slow_at_first)
    assert colored(faces)[1] < 0.3 and called[-1] == faces.n


def test_groups_are_faces_by_color(shuffled: Faces) -> None:
    groups = colored(shuffled)[0]
    assert groups.sizes.sum() == shuffled.n and sorted(groups.faces) == list(range(shuffled.n))
    for color, (first, size) in enumerate(zip(groups.starts, groups.sizes, strict=True)):
        members = groups.faces[first : first + size]
        assert (groups.colors[members] == color).all() and (np.diff(members) > 0).all()
        assert len(np.unique(shuffled.pairs[members])) == 2 * size, "no cell twice"
    assert [len(np.unique(one)) for one in Groups.of(np.zeros(0, np.int32)).starts] == []


@pytest.mark.slow
def test_numberings_are_the_same_faces(shuffled: Faces) -> None:
    groups = colored(shuffled)[0]
    largest = for_largest_color(shuffled, groups)
    for one in (along_curve(shuffled), in_blocks(shuffled), by_color(shuffled), largest):
        np.testing.assert_array_equal(one.old_cells[one.faces.pairs], shuffled.pairs[one.old_faces])
        np.testing.assert_array_equal(one.faces.centres, shuffled.centres[one.old_cells])
    m = groups.sizes.max()
    np.testing.assert_array_equal(largest.faces.pairs[:m], np.arange(m)[:, None] + [0, m])
    assert (np.diff(largest.old_faces[m:]) > 0).all(), "all others follow in their old order"
    np.testing.assert_array_equal(colored(largest.faces)[0].colors, groups.renumbered(largest.old_faces).colors)
    curve = along_curve(shuffled).faces
    assert (np.diff(curve.pairs.min(axis=1)) >= 0).all()
    step, before = (np.linalg.norm(np.diff(one.centres, axis=0), axis=1).max() for one in (curve, shuffled))
    assert step < 2.0 < before, "cells along the curve lie near each other"


# --- the paper's algorithms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "components"), [("float64", 1), ("float32", 5)])
def test_every_algorithm_is_right(shuffled: Faces, precision: str, components: int) -> None:
    forms, values = Forms(shuffled, colored(shuffled)[0]), Values(shuffled, components)
    made = kernels.OnCores(precision, components, 64)
    for algorithm in ALGORITHMS.values():
        ready = forms.ready(algorithm, values, made)
        assert 0.0 <= ready.error() <= TOLERANCE[precision]
        ready.starts, ready.sizes = ready.starts[1:], ready.sizes[1:]
        assert ready.error() > 1e-3, "a group that is left out is seen"


def test_values_are_what_the_loops_mean(faces: Faces) -> None:
    values = Values(faces, 2)
    sums, most = np.zeros((faces.cells, 2)), np.zeros((faces.cells, 2))
    for face, (own, ngb) in enumerate(faces.pairs):
        sums[own] += values.flux[face]
        sums[ngb] -= values.flux[face]
        most[own], most[ngb] = np.maximum(most[own], values.ps[ngb]), np.maximum(most[ngb], values.ps[own])
    assert values.error("flux_sum", sums) < 1e-15 and values.error("local_maximum", most) == 0.0


def test_kernels_compile_for_a_gpu_and_use_shared_memory() -> None:
    nvrtc = pytest.importorskip("meshloom.backend.cuda.nvrtc")
    try:
        nvrtc.library()
    except ml.errors.CompilerError as missing:
        pytest.skip(str(missing))
    source = kernels.text("float64", 5)
    used = nvrtc.resources(nvrtc.build(source, "colored", "sm_90")[1])
    assert {one.kernel for one in ALGORITHMS.values()} | {"in_color_order"} == set(used)
    assert all(one["spills"] == 0 for one in used.values())
    entries = nvrtc.assembly(source, "colored", "sm_90").split(".entry ")[1:]
    through = {one.split("(")[0] for one in entries if "st.volatile.shared" in one and "ld.volatile.shared" in one}
    assert through == {"shared_sum", "shared_max"}


def test_on_a_gpu_arguments_come_in_order(shuffled: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy in the place of CuPy, and the text on the cores in that of its kernels."""
    launched: list[tuple[str, int, int]] = []
    monkeypatch.setitem(sys.modules, "cupy", stand_in(launched))
    made, values = kernels.OnGpu("float64", 2, 64), Values(shuffled, 2)
    forms = Forms(shuffled, colored(shuffled)[0])
    sizes = forms.groups.sizes.tolist()
    for algorithm in ALGORITHMS.values():
        launched.clear()
        assert forms.ready(algorithm, values, made).error() <= TOLERANCE["float64"]
        assert [threads for name, threads, _ in launched if name == algorithm.kernel] == [
            -(-n // 64) * 64 for n in sizes
        ]
        shared = {7: 2 * 64 * 8, 8: 2 * 2 * 64 * 8}.get(algorithm.number, 0)
        assert {room for name, _, room in launched if name == algorithm.kernel} == {shared}
        assert ("in_color_order" in {name for name, _, _ in launched}) == (algorithm.number == 11)


def stand_in(launched: list[tuple[str, int, int]]) -> Any:
    """What ``OnGpu`` needs of CuPy; launches are noted as (kernel, threads, bytes of shared memory)."""

    class OnHost(np.ndarray):
        def get(self) -> np.ndarray:
            return np.array(self)

    class RawModule:
        def __init__(self, code: str, options: tuple[str, ...]):
            assert code == kernels.text("float64", 2) and options == ("--std=c++17",)
            self.cores = kernels.OnCores("float64", 2, 64)

        def get_function(self, name: str) -> Any:
            def launch(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], shared_mem: int) -> None:
                launched.append((name, grid[0] * block[0], shared_mem))
                assert all(type(one) is np.int32 for one in arguments[5:]) and len(arguments) == 9
                self.cores.launch(name)(arguments[:5], arguments[5:])

            return launch

    made = ModuleType("cupy")
    made.RawModule = RawModule  # type: ignore[attr-defined]
    made.asarray = lambda array: np.array(array).view(OnHost)  # type: ignore[attr-defined]
    return made


def test_a_wrong_algorithm_is_found(faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = coloring_forms.Algorithm(7, "flux_sum", "ordered_sum", "reads what is not there")
    monkeypatch.setitem(ALGORITHMS, "alg7", wrong)
    made, forms = kernels.OnCores("float64", 1, 64), Forms(faces, colored(faces)[0])
    (row,) = coloring_forms.rows_of(forms, ["alg7"], Values(faces, 1), made, lambda run: 1.0)
    assert row["wrong"] > 0.1 and "s_per_1000" not in row


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_on_emulated_cuda(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "coloring.json"
    arguments = ["--cells", "150", "--precisions", "float64", "--components", "1", "--parts", "algorithms",
                 "strategies", "--strategies", "auto", "owner", "color", "--json", str(file),
                 "--plot", str(tmp_path / "ratios.png")]  # fmt: skip
    assert coloring.main(arguments, Emulated(), Hasty) == 0
    rows = record.load(file)["rows"]
    assert [row["part"] for row in rows].count("groups") == 1 and not [row for row in rows if "declined" in row]
    given = [row["algorithm"] for row in rows if row["part"] == "algorithms" and row["order"] == "given"]
    assert given == list(ALGORITHMS)
    forms = {(row["wish"], row["order"]) for row in rows if row["part"] == "strategies"}
    assert forms == {("auto", "given"), ("auto", "hilbert"), ("owner", "hilbert")} | {
        ("color" + more, order) for more in ("", " variant=indices")
        for order in ("hilbert", "faces by color", "for the largest color")}  # fmt: skip
    assert (tmp_path / "ratios.png").stat().st_size > 10_000
    out = capsys.readouterr().out
    assert "renumbering for the largest color" in out and "too few cells to tell" in out and "not measured" in out
    assert "hold |" not in out and "**does not hold**" not in out, "no verdict from a hundred cells"
    assert coloring.main(["--again", str(file)]) == 0 and "| group 1 |" in capsys.readouterr().out


class OnNumpy(Emulated):
    """Nothing to compile."""

    backend = "numpy"


def test_a_program_on_the_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.json"
    arguments = ["--device", "cpu", "--parts", "program", "--settings", "mesh.cells=[4,4,4]", "--json", str(file)]
    assert coloring.main(arguments, OnNumpy()) == 0
    (row,) = record.load(file)["rows"]
    kinds = {one["loop"]: one["races"] for one in row["loops"]}
    assert kinds["face_flux"] == "sum" and kinds["limit"] == "minimum" and kinds["advance"] == ""
    assert sum(one["share"] for one in row["loops"]) == pytest.approx(1.0) and row["cells"] == 64
    assert all(a["ms"] >= b["ms"] for a, b in pairwise(row["loops"])) and "cores_ms" not in row
    assert "Loops with races take" in capsys.readouterr().out


def test_shares_put_back_what_loops_change() -> None:
    ml.use("numpy")
    cells = ml.Set(50, "cells")
    u = cells.field("u", data=np.arange(50.0))

    @ml.kernel
    def grow(u: ml.ReadWrite):
        u[...] = 2.0 * u

    program = ml.Program(lambda: grow(cells, u), fuse=False)
    (row,) = coloring_program.loop_shares(program, Emulated())
    assert row["loop"] == "grow" and row["share"] == 1.0
    np.testing.assert_array_equal(u.numpy(), np.arange(50.0))


@pytest.mark.parametrize(("arguments", "said"), [
    (["--cells", "3"], "--cells must be at least 20, got 3"), (["--block", "8"], "--block must be from 32 to 1024"),
    (["--components", "0"], "--components must be at least 1"),
    (["--variants", "alg4"], "invalid choice: 'alg4'")])  # fmt: skip
def test_wrong_options_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        coloring.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if ml.backends()["cuda"] is None:
        pytest.skip("there is a device")
    assert coloring.main([]) == 2
    assert capsys.readouterr().err.startswith("bench.coloring cannot use cuda: ")


# --- on paper ---------------------------------------------------------------------------------------------------------


def test_the_papers_figures_fit_together() -> None:
    assert [sum(one) for one in coloring_paper.GROUPS.values()] == [1046864, 1908916, 4044699, 8020032, 20280047]
    for (gpu, precision), times in coloring_paper.TIMES.items():
        assert sorted(times) == sorted(ALGORITHMS) and all(len(one) == 5 for one in times.values())
        assert all(a < b for one in times.values() for a, b in pairwise(one)), (gpu, precision)
    ratios = coloring_report.printed_ratios("V100", "alg11", "float64")
    assert min(ratios.values()) == pytest.approx(0.73, abs=5e-3) and max(ratios.values()) == pytest.approx(
        0.78, abs=6e-3
    )
    assert sum(coloring_paper.BY_GROUP["alg5"]) == pytest.approx(2.599)
    assert coloring_paper.best("V100", "float64", ("alg5", "alg7", "alg9", "alg11"), 5) == 4.691


def as_printed(**changed: Any) -> dict[str, Any]:
    """A result that says what the paper says of a V100; ``changed``: factors of algorithms."""
    rows: list[dict[str, Any]] = [
        {"part": "groups", "level": level, "sizes": list(sizes), "cells": 1, "faces": sum(sizes), "seconds": 1.0,
         "seconds_by_lists": 2.0} for level, sizes in coloring_paper.GROUPS.items()]  # fmt: skip
    for precision in coloring_report.PRECISIONS:
        for name, times in coloring_paper.TIMES["V100", precision].items():
            rows += [{"part": "algorithms", "level": level, "order": "given", "algorithm": name, "components": 1,
                      "precision": precision, "s_per_1000": took * changed.get(name, 1.0)}
                     for level, took in enumerate(times, 1)]  # fmt: skip
            if (precision, name) in (("float32", "alg5"), ("float32", "alg9")):
                rows[-2]["groups_s_per_1000"] = list(coloring_paper.BY_GROUP[name])
    for loop, took, share in (("flux_sum", 0.3, 0.9), ("local_maximum", 0.5, 0.8)):
        rows += [{"part": "strategies", "level": 5, "order": "hilbert", "loop": loop, "precision": "float64",
                  "components": 1, "wish": wish, "schedule": f"{wish} block=64", "s_per_1000": factor * took,
                  "share_of_copy": share / factor} for wish, factor in (("owner", 1.0), ("atomic", 5.0))]  # fmt: skip
    return {"rows": rows, "machine": {"cores": 16}}


def test_the_papers_own_figures_bear_out_its_conclusions() -> None:
    said = {one.text.split(" (")[0]: one.holds for one in coloring_report.conclusions(as_printed())}
    assert list(said.values())[:4] == [True] * 4
    said = {one.text.split(":")[0]: one for one in coloring_report.conclusions(as_printed())}
    assert said["flux summation"].holds and said["flux summation"].found == "3.13 to 3.13"
    for name, which in (("alg7", 0), ("alg11", 2), ("alg10", 3)):
        broken = list(coloring_report.conclusions(as_printed(**{name: 0.6 if name != "alg11" else 1.4})))
        assert broken[which].holds is False, name
    program = {"part": "program", "case": "onera_m6", "cells": 8, "ms": 1.0, "cores_ms": 12.0, "loops": []}
    printed = as_printed()
    whole = list(coloring_report.conclusions(printed | {"rows": [*printed["rows"], program]}))[-1]
    assert whole.text.startswith("the whole program is 19 times") and whole.word() == "**does not hold**"


def test_goals_are_computed_from_mesh_5() -> None:
    found = coloring_report.goals(as_printed())
    assert [(goal.met, round(goal.value, 2)) for goal in found] == [
        (True, 0.9), (True, 15.64), (False, 0.8), (False, 12.18), (True, 1.0), (True, 8)]  # fmt: skip
    small = as_printed()
    small["rows"] = [row for row in small["rows"] if row["level"] < 5]
    assert len(coloring_report.goals(small)) == 1


def test_tables_stand_beside_the_papers() -> None:
    result = as_printed()
    groups = coloring_report.group_lines(result)
    assert groups[0].count("(paper)") == 5 and groups[4].startswith("| group 1 | 224,836 | 224,836 |")
    times = coloring_report.time_lines(result)
    assert "| 11 | flux summation, face data in color order | 0.172 / 0.172 / 0.959 |" in "\n".join(times)
    by_group = coloring_report.by_group_lines(result)
    assert by_group[2].startswith("| mesh 4, single | 5 | 0.6400 (0.640) |") and len(by_group) == 4
    strategies = "\n".join(coloring_report.strategy_lines(result))
    assert "| `owner` | 0.3000, 0.90 |" in strategies and strategies.index("`owner`") < strategies.index("`atomic`")
    program = {"part": "program", "case": "x", "cells": 10, "ms": 1.0, "cores_ms": 25.0,
               "loops": [{"loop": "a", "races": "sum", "ms": 3.0, "share": 0.75},
                         {"loop": "b", "races": "", "ms": 1.0, "share": 0.25}]}  # fmt: skip
    lines_of = coloring_report.program_lines({"rows": [program], "machine": {"cores": 16}})
    assert "Loops with races take 75 % of the loops' time; in the paper's program 59 %." in lines_of
    assert any("25 times as long" in one for one in lines_of)
