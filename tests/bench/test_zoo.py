"""The zoo of loops on meshes too small to measure anything: what its kernels compute, schedules, files that resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench import record
from bench.zoo import __main__ as zoo
from bench.zoo.design import LAYOUTS, Setting, blocks_of, settings
from bench.zoo.elements import STORED
from bench.zoo.loops import LOOPS, Contest
from bench.zoo.programs import PROGRAMS, Timed, scene_of
from bench.zoo.report import summary, text_lines
from bench.zoo.scene import ORDERS, families, graph, mesh_of
from tests.bench.devices import Emulated

LINEAR = [name for name in LOOPS if name[:2] in ("p1", "q1") and name != "p1_mass"]


def applied(name: str, family: str, size: int, **fields: Any) -> ml.Operation:
    """A loop of the zoo that has run once, some of its fields given as functions of points."""
    ml.use("numpy")
    scene = LOOPS[name].scene(family, size, "shuffled")
    kernel, visited, arguments = LOOPS[name].make(scene)
    loop = kernel.loop(visited, *arguments)
    for field in loop.storages:
        if field.name in fields:
            field.assign(fields[field.name](scene.mesh.coordinates.numpy()))
    loop()
    return loop


def written(loop: ml.Operation) -> np.ndarray:
    (field,) = loop.writes
    found: np.ndarray = field.numpy()
    return found


@pytest.mark.parametrize("name", LINEAR)
def test_the_laplacian_of_a_linear_function_is_none_inside_and_its_energy_is_exact(name: str) -> None:
    """Nodes inside get nothing; u times what all get is the integral of the gradient squared."""
    slope = np.array([0.7, -0.4, 0.2])
    loop = applied(name, "box", 400, u=lambda x: x @ slope[: x.shape[1]])
    residual, x = written(loop), loop.storages[0].numpy()
    inside = ((x > 1e-9) & (x < 1 - 1e-9)).all(axis=1)
    assert inside.any() and np.abs(residual[inside]).max() < 1e-12 < np.abs(residual[~inside]).max()
    expected = float((slope[: x.shape[1]] ** 2).sum())
    assert x @ slope[: x.shape[1]] @ residual == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("name", "dim"), [("p2_triangle", 2), ("p2_tetrahedron", 3)])
def test_quadratic_elements_have_the_energy_of_a_quadratic_function(name: str, dim: int) -> None:
    """Of u = x^2 + x y, on elements whose corners lie anywhere."""
    ml.use("numpy")
    scene = LOOPS[name].scene("delaunay", 300, "good")
    mesh = scene.mesh
    mesh_points = mesh.coordinates.numpy()

    def u(x: np.ndarray) -> np.ndarray:
        return np.asarray(x[:, 0] ** 2 + x[:, 0] * x[:, 1])

    scene.values["u"], scene.values["v"] = u(mesh_points), u(mesh_points[mesh.edge_nodes.indices].mean(axis=1))
    kernel, visited, arguments = LOOPS[name].make(scene)
    loop = kernel.loop(visited, *arguments)
    loop()
    at_nodes, on_edges = (one.numpy() for one in loop.writes)
    x, volumes = mesh_points[mesh.cell_nodes.indices], mesh.cell_volumes
    # exact for a square of linear functions on a simplex: (sum over pairs of corners) / ((d + 1) (d + 2))
    corners = [np.stack([2 * x[:, k, 0] + x[:, k, 1], x[:, k, 0]], axis=1) for k in range(dim + 1)]
    total = sum(corners)
    squares = (sum((one**2).sum(axis=1) for one in corners) + (total**2).sum(axis=1)) / ((dim + 1) * (dim + 2))
    energy = scene.values["u"] @ at_nodes + scene.values["v"] @ on_edges
    assert energy == pytest.approx(float((squares * volumes).sum()), rel=1e-10)


@pytest.mark.parametrize("name", ["elastic_tetrahedron", "elastic_hexahedron"])
def test_a_body_that_is_moved_and_turned_a_little_has_no_forces(name: str) -> None:
    turn = np.array([[0.0, -0.3, 0.1], [0.3, 0.0, -0.2], [-0.1, 0.2, 0.0]])
    assert np.abs(written(applied(name, "box", 100, d=lambda x: 1.5 + x @ turn.T))).max() < 1e-12
    assert np.abs(written(applied(name, "box", 100, d=lambda x: 0.1 * x))).max() > 1e-3


def test_the_mass_of_one_is_the_volume() -> None:
    assert written(applied("p1_mass", "delaunay", 300, u=lambda x: np.ones(len(x)))).sum() == pytest.approx(
        float(LOOPS["p1_mass"].scene("delaunay", 300, "given").mesh.cell_volumes.sum()), rel=1e-12
    )


@pytest.mark.parametrize("name", ["edge_flux", "green_gauss", "dg_face"])
def test_what_one_side_gets_the_other_side_loses(name: str) -> None:
    found = written(applied(name, "delaunay", 300)).reshape(-1, *([3] if name == "green_gauss" else []))
    if name == "dg_face":
        found = found.reshape(-1, 4)[:, 0]  # the constant function
    assert np.abs(found).max() > 0.01 and abs(found.sum()) < 1e-10


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetrahedron", "hexahedron", "graph"])
@pytest.mark.parametrize("order", ORDERS)
def test_meshes_are_as_large_as_asked_for_in_any_order(kind: str, order: str) -> None:
    for family in families(kind):
        if kind == "graph":
            links = graph(family, 800, order)
            assert links.links.size == 800 and links.vertices.size == 100
            continue
        size = 3000 if family == "mixed" else 1000
        mesh = mesh_of(family, kind, size, order)
        assert 0.5 * size < mesh.cells.size < 2.0 * size and mesh.dim == (2 if kind in ("triangle", "quad") else 3)
        mesh.check()


def test_a_design_meets_every_two_and_has_every_schedule_at_one_size() -> None:
    found = list(settings([*LOOPS], 1000))
    full, rest = [one for one in found if one.complete], [one for one in found if not one.complete]
    assert {(one.loop, one.family) for one in full} == {(n, f) for n, loop in LOOPS.items() for f in loop.families}
    for name in ("order", "precision", "size"):
        met = {(one.loop, one.family, getattr(one, name)) for one in found}
        assert len(met) == len(full) * len({getattr(one, name) for one in rest})
    wishes = [wish for layout in LAYOUTS for wish in full[0].wishes(blocks_of("cuda", "all"), layout)]
    assert {wish.strategy for wish in wishes} == set(ml.strategies()) and len({w.block for w in wishes}) == 4
    assert len({one.key for one in found}) == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_every_schedule_gives_what_numpy_gives(name: str) -> None:
    loop, device = LOOPS[name], Emulated()
    for family in loop.families:
        if family == "mixed":
            continue
        contest = Contest(loop, loop.scene(family, 60, "good"), "float64", device)
        for layout in (None, "aosoa8"):
            rows = contest.rows(layout, [ml.Schedule(one) for one in ("auto", *ml.strategies())], 1e9)
            assert not [row for row in rows if "wrong" in row] and any("ms" in row for row in rows)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("fuse", [True, False])
def test_programs_give_what_numpy_gives(name: str, fuse: bool) -> None:
    timed = Timed(name, scene_of("delaunay", 40, "good"))
    row = timed.row("float64", "auto", fuse, timed.expected(), Emulated())
    assert row["ms"] > 0 and row["error"] < 1e-12


class Interrupted(Emulated):
    """Somebody presses Ctrl-C when so many variants have been timed."""

    def __init__(self, left: int):
        self.left = left

    def seconds(self, run: Callable[[], Any]) -> float:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().seconds(run)


def test_a_run_that_is_stopped_goes_on_and_says_what_is_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two = [Setting("exchanged_over_links", "random", order, "float64", 40, False) for order in ("good", "shuffled")]
    monkeypatch.setattr(zoo, "tasks_of", lambda *_: two)
    monkeypatch.setattr(ml, "strategies", lambda: ("owner", "atomic"))
    asked = ["--only", "exchanged_over_links", "--size", "40", "--json", str(tmp_path / "zoo.json")]
    assert zoo.main(asked, Interrupted(6)) == 0
    stopped = record.load(tmp_path / "zoo.json")
    assert stopped["done"] == [two[0].key] and "go on with --resume" in capsys.readouterr().err
    assert zoo.main([*asked, "--resume", "--size", "60"], Emulated()) == 2
    assert "holds loops of 40 cells or links; go on with --size 40" in capsys.readouterr().err
    assert zoo.main([*asked, "--resume"], Emulated()) == 0
    found = record.load(tmp_path / "zoo.json")
    assert found["done"] == [one.key for one in two] and len(found["resumed"]) == 1
    assert found["rows"][: len(stopped["rows"])] == stopped["rows"] and len(found["rows"]) == 2 * len(stopped["rows"])
    assert all(row["error"] < 1e-12 for row in found["rows"])
    for one in summary(found["rows"]):
        assert one["auto_share"] > 0 and one["fastest_by_best"] >= 1.0 <= one["deterministic_by_best"]


def test_processes_give_what_one_gives_and_are_held_against_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is chosen alone, with the schedules of a run of all."""
    two = [Setting("exchanged_over_links", one, "good", "float64", 40, True) for one in ("random", "power_law")]
    monkeypatch.setattr(zoo, "tasks_of", lambda *_: two)
    files = {name: tmp_path / f"{name}.json" for name in ("all", "alone", "together", "late")}
    asked = ["--only", "exchanged_over_links", "--size", "40", "--json"]
    assert zoo.main([*asked, str(files["all"]), "--blocks", "own"], Emulated()) == 0
    chosen = ["--blocks", "none", "--against", str(files["all"])]
    for name, more in (("alone", []), ("together", ["--processes", "2"])):
        assert zoo.main([*asked, str(files[name]), *chosen, *more], Emulated()) == 0
    found = {name: record.load(files[name]) for name in ("all", "alone", "together")}
    kept = ("loop", "family", "strategy", "schedule", "layout", "error")
    rows = {name: sorted(tuple(row[word] for word in kept) for row in one["rows"] if "ms" in row)
            for name, one in found.items()}  # fmt: skip
    assert rows["alone"] == rows["together"] and len(rows["alone"]) == 4 < len(rows["all"])
    assert found["together"]["against"] == "all.json"
    assert len(summary(found["all"]["rows"])) == 2 and not summary(found["together"]["rows"])
    one_by_one = ["--blocks", "none", "--against", str(files["together"])]
    assert zoo.main([*asked, str(files["late"]), *one_by_one], Emulated()) == 0
    for name, others in (("together", "`all.json`"), ("late", "`together.json` and `all.json`")):
        said = text_lines(record.load(files[name]), tmp_path)[-1]
        assert "of 2, and that at most" in said and f"with the schedules of {others}" in said
    files["late"].unlink()
    late = [*asked, str(files["late"]), *chosen, "--processes", "2", "--seconds", "0"]
    assert zoo.main(late, Emulated()) == 0 and record.load(files["late"])["done"] == []
    capsys.readouterr()
    assert zoo.main([*asked, str(files["late"]), "--against", str(tmp_path / "none.json")], Emulated()) == 2
    assert capsys.readouterr().err.startswith(f"bench.zoo: {tmp_path / 'none.json'}: no result of the zoo")


def test_stored_matrices_are_of_the_size_of_their_elements() -> None:
    for name, kind in STORED.items():
        kernel, _, (matrix, *_) = LOOPS[name].make(LOOPS[name].scene("box", 50, "given"))
        assert matrix.shape[1:] == ((4, 4) if kind == "tetrahedron" else (8, 8)) and kernel.name == "stored_stiffness"
