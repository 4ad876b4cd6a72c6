"""``ml.march`` measures what a script asks for, by the code that cases use: probes, lines, integrals, surfaces."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import UserError
from meshloom.io.vtk import Series
from meshloom.run.sampler import Sampler
from meshloom.run.samples import Integral, Probe, Sampled, Wishes
from meshloom.run.script import Script
from tests.cli.harness import table
from tests.one_line import one_line_from


@ml.kernel
def fade(u: ml.ReadWrite):
    u *= 0.5


class Plate:
    """Values on cells and nodes that halve at every step; at the nodes they are linear in x and y."""

    def __init__(self) -> None:
        ml.use("numpy")
        box = ml.generate.box((4, 3), cells="triangle")
        sides = {name: box.boundary_nodes.indices[box.group(name)] for name in box.groups}
        left = np.flatnonzero(box.cell_centroids[:, 0] < 0.5)
        self.mesh = mesh = ml.Mesh.from_cells(box.coordinates.numpy(), box.cell_nodes.indices, "triangle", sides,
                                              cell_groups={"left": left})  # fmt: skip
        x = mesh.coordinates.numpy()
        self.c = mesh.cells.field("c", data=1.0 + np.arange(len(mesh.cells)))
        self.n = mesh.nodes.field("n", data=1.0 + 2.0 * x[:, 0] + 4.0 * x[:, 1])

        @ml.program
        def step() -> None:
            fade(mesh.cells, self.c)
            fade(mesh.nodes, self.n)

        self.step = step

    def march(self, steps: int, **wishes: Any) -> ml.Done:
        return ml.march(self.step, steps=steps, fields={"c": self.c, "n": self.n}, **wishes)


def test_what_is_measured(tmp_path: Path) -> None:
    one = Plate()
    one.march(
        6,
        out=tmp_path / "a",
        every=3,
        probe_every=2,
        probes={"p": (0.3, 0.6), "q": {"at": [1.0, 1.0], "fields": ["n"]}},
        integrals={"all": "c", "half": {"of": "n", "over": "left"}, "side": {"of": "n", "over": "xmax"}},
        lines={"up": {"from": (0.5, 0.0), "to": (0.5, 1.0), "points": 5, "fields": "n"}},
        surface=["xmin"],
    )
    share = 0.5 ** np.array([2, 4, 6])
    probes, integrals = table(tmp_path / "a/probes.csv"), table(tmp_path / "a/integrals.csv")
    np.testing.assert_allclose(probes["p.n"], (1 + 0.6 + 2.4) * share, rtol=1e-13)
    np.testing.assert_allclose(probes["q.n"], 7 * share, rtol=1e-13)
    assert list(probes) == ["iteration", "p.c", "p.n", "q.n"] and (probes["p.c"] / share % 1.0 == 0.0).all()
    np.testing.assert_allclose(integrals["all"], 12.5 * share, rtol=1e-13)  # cells are alike, and count from 1 to 24
    np.testing.assert_allclose(integrals["half"], 0.5 * (1 + 0.5 + 2) * share, rtol=1e-13)
    np.testing.assert_allclose(integrals["side"], 5 * share, rtol=1e-13)
    up = table(tmp_path / "a/chart_up.csv")
    np.testing.assert_allclose(up["n"], (2.0 + 4.0 * up["distance"]) / 64, rtol=1e-13)
    assert (tmp_path / "a/chart_up.png").read_bytes().startswith(b"\x89PNG")  # as in cases
    page = (tmp_path / "a/report.html").read_text(encoding="utf-8")
    assert all(f">{said}</td>" in page for said in ("p, q", "up", "all, half, side", "xmin"))  # what was asked for
    assert [time for time, _ in Series.resume(tmp_path / "a/surface.pvd").entries] == [3, 6]


def test_a_script_that_goes_on_adds_rows(tmp_path: Path) -> None:
    wishes: dict[str, Any] = {"probes": {"p": (0.3, 0.6)}, "probe_every": 2, "restart": True}
    Plate().march(4, out=tmp_path / "a", **wishes)
    Plate().march(8, out=tmp_path / "a", **wishes)
    Plate().march(8, out=tmp_path / "b", **wishes)
    assert (tmp_path / "a/probes.csv").read_bytes() == (tmp_path / "b/probes.csv").read_bytes()


def test_other_integrals_are_refused_before_any_row_goes(tmp_path: Path) -> None:
    """Rows that a run wrote after its checkpoint stay, too, until it really goes on."""
    wishes: dict[str, Any] = {"probes": {"p": (0.3, 0.6)}, "integrals": {"sum": "c"}, "probe_every": 1}
    Plate().march(4, out=tmp_path / "a", **wishes)
    with (tmp_path / "a/probes.csv").open("a") as file:
        file.write("5,1.0,1.0\n")
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    with one_line_from(UserError, r"has other columns \(all, sum\)"):
        Plate().march(8, out=tmp_path / "a", **wishes | {"integrals": {"all": "c"}}, restart=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before


@pytest.mark.parametrize("more", [b"\n", b"x,1.0,1.0\n"])
def test_rows_that_somebody_spoilt(more: bytes, tmp_path: Path) -> None:
    wishes: dict[str, Any] = {"probes": {"p": (0.3, 0.6)}, "probe_every": 1, "out": tmp_path / "a"}
    Plate().march(4, **wishes)
    rows = tmp_path / "a/probes.csv"
    rows.write_bytes(rows.read_bytes() + more)
    with one_line_from(UserError, "probes.csv: a row does not begin with its iteration; put that file elsewhere"):
        Plate().march(8, **wishes, restart=True)
    rows.write_bytes(b"\xff\xfe")
    with one_line_from(UserError, "has other columns"):
        Plate().march(8, **wishes, restart=True)


def test_fields_are_read_once_for_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, real = list[int](), Script.sampled
    monkeypatch.setattr(Script, "sampled", lambda task: (read.append(1), real(task))[1])
    found = list[int]()
    for steps in (2, 7):
        read.clear()
        out = tmp_path / str(steps)
        Plate().march(steps, out=out, probes={"p": (0.3, 0.6)}, integrals={"sum": "c"}, probe_every=1)
        found.append(len(read))
    assert found[1] - found[0] == 5  # one for each row; those before the first are checks


@ml.kernel
def stretch(x: ml.ReadWrite):
    x[0] *= 2.0


def test_a_mesh_whose_nodes_a_script_moves(tmp_path: Path) -> None:
    """Places stay where they are and see other cells pass by; areas are those of now."""
    one = Plate()
    mesh, x = one.mesh, one.mesh.coordinates.numpy()
    own, area = mesh.nodes.field("own", data=x[:, 0]), mesh.cells.field("area", data=np.ones(len(mesh.cells)))

    @ml.program
    def step() -> None:
        stretch(mesh.nodes, mesh.coordinates)

    integrals = {"area": "area", "side": {"of": "own", "over": "ymin"}}
    ml.march(step, steps=3, out=tmp_path / "a", fields={"own": own, "area": area}, probe_every=1,
             probes={"p": {"at": (0.5, 0.5), "fields": "own"}}, integrals=integrals)  # fmt: skip
    longer = 2.0 ** np.arange(1, 4)
    found = table(tmp_path / "a/integrals.csv")
    np.testing.assert_allclose(found["area"], longer, rtol=1e-13)
    np.testing.assert_allclose(found["side"], 0.5 * longer, rtol=1e-13)
    np.testing.assert_allclose(table(tmp_path / "a/probes.csv")["p.own"], 0.5 / longer, rtol=1e-13)


def test_nodes_that_move_in_one_array() -> None:
    """A case of one's own may hand out the array in which it keeps them."""
    mesh = ml.generate.box((4, 3))
    x, values = mesh.coordinates.numpy(), np.ones(len(mesh.cells))
    task = SimpleNamespace(
        name="own", wishes=Wishes(probes={"p": Probe((0.1, 0.1))}, integrals={"area": Integral("c")}),
        coefficients=dict, sampled=lambda: Sampled(mesh, {"c": values}, positions=x),
    )  # fmt: skip
    sampler = Sampler(task)  # type: ignore[arg-type]
    np.testing.assert_allclose(np.concatenate(sampler.rows()), [1.0, 1.0])
    x += 1.0
    x[:, 0] *= 3.0
    probed, integrated = sampler.rows()
    assert np.isnan(probed).all(), "the mesh has left the place"
    np.testing.assert_allclose(integrated, 3.0)


def test_over_what_is_empty(tmp_path: Path) -> None:
    ml.use("numpy")
    box = ml.generate.box((2, 2))
    mesh = ml.Mesh.from_cells(box.coordinates.numpy(), box.cell_nodes.indices, "quad", {"hole": np.zeros((0, 2), int)},
                              cell_groups={"none": []})  # fmt: skip
    c, n = mesh.cells.field("c", data=1.0), mesh.nodes.field("n", data=1.0)

    @ml.program
    def step() -> None:
        fade(mesh.cells, c)

    names = {f"{of} {over}": {"of": of, "over": over} for of in ("c", "n") for over in ("none", "hole")}
    ml.march(step, steps=1, fields=(c, n), out=tmp_path / "a", integrals=names)
    found = table(tmp_path / "a/integrals.csv")
    assert [found[name].tolist() for name in names] == [[0.0]] * 4


def test_a_grid(tmp_path: Path) -> None:
    ml.use("numpy")
    grid = ml.Grid((5, 5), ghosts=1)
    x, y = grid.meshgrid()
    u = grid.field("u", data=x + 10.0 * y)

    @ml.program
    def step() -> None:
        fade(grid, u)

    ml.march(step, steps=1, fields={"u": u}, out=tmp_path / "a", probes={"p": (0.1, 0.9)}, integrals={"sum": "u"})
    assert table(tmp_path / "a/probes.csv")["p.u"] == pytest.approx(0.5 * 9.1)
    assert table(tmp_path / "a/integrals.csv")["sum"] == pytest.approx(0.5 * 5.5)


MISUSE: list[tuple[dict[str, Any], str]] = [
    ({"probes": {"p": (1.5, 0.5)}}, r"probes.p at \(1.5, 0.5\) lies in no cell; the nearest one"),
    ({"probes": {"p": {"at": (0.5, 0.5), "fields": ["m"]}}}, "probes.p names the field 'm'.*c, n"),
    ({"probes": {"p": "here"}}, "march: probes 'p' is 'here'; a place is"),
    ({"probes": (0.5, 0.5)}, "march: probes takes names and what they stand for"),
    ({"integrals": {"i": {"of": "c", "over": "right"}}}, "integrals.i is over 'right'.*left"),
    ({"lines": {"l": (0, 1)}}, "march: lines 'l' takes {from ="),
    ({"surface": "hole"}, "^surface names 'hole', which is no boundary group"),
    ({"surface": 3}, "march: surface takes names of boundary groups, got 3"),
    ({"surface": [3]}, r"march: surface takes names of boundary groups, got \[3\]"),
    ({"probes": {"p": (0.5, 0.5)}, "probe_every": -1}, "march: probe_every"),
    ({"probes": {"p": (0.5, 0.5)}, "fields": {}}, "has no fields on a mesh or grid"),
    ({"probes": {"p": (0.5, 0.5)}, "out": None}, "what is measured goes into files; give a folder"),
]


@pytest.mark.parametrize(("wishes", "words"), MISUSE)
def test_misuse_is_refused_before_anything_runs(wishes: dict[str, Any], words: str, tmp_path: Path) -> None:
    one = Plate()
    before = one.c.numpy()
    given = {"steps": 3, "fields": {"c": one.c, "n": one.n}, "out": tmp_path / "a"} | wishes
    with one_line_from(UserError, words):
        ml.march(one.step, **given)
    assert not (tmp_path / "a").exists() and (one.c.numpy() == before).all()
