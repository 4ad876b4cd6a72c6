"""A case on a grid: files, pictures, restart, and a breakdown that names its point."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import meshloom as ml
from meshloom.case import GridCase, Limit, OutputOptions, Picture, RunOptions, registry, schedule_table
from meshloom.cli import summary
from meshloom.config import option, parse_set, section
from meshloom.errors import MeshError, RunError, UserError
from meshloom.io import checkpoint
from meshloom.launch import Request, check, folder_for, launch
from meshloom.run.folder import RunFolder
from meshloom.run.output import draw
from meshloom.run.report import Advance, RunReport
from tests.one_line import one_line_from


@dataclass(frozen=True)
class GridOptions:
    n: int = option(8, "points along each axis", low=3)
    rank: int = option(2, "axes", low=1, high=3)
    stretch: bool = option(False, "uneven along x")
    aligned: bool = option(False, "rows begin at cache lines")
    ghosts: int = option(0, "layers round the plate, which cool down", low=0, high=3)


@dataclass(frozen=True)
class HeatConfig:
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=12)
    grid: GridOptions = section(GridOptions, "The plate.")
    output: OutputOptions = section(OutputOptions, "What to write, and how often.")
    schedule: dict[str, Any] = schedule_table("spread")


class Heat(GridCase):
    """Heat spreads over a grid with closed ends of temperature 1."""

    name: ClassVar[str] = "heat"
    title: ClassVar[str] = "heat spreads"
    Config: ClassVar[type] = HeatConfig
    monitors: ClassVar[tuple[str, ...]] = ("heat",)
    pictured: ClassVar[str] = "t"
    domain: ClassVar[str] = "grid"  # its section
    limits: Mapping[str, Limit] = {"new": Limit(above=0.0, why="colder than cold"), "coldest": Limit(above=0.0)}

    def __init__(self, config: HeatConfig):
        self.config = config
        n, rank = config.grid.n, config.grid.rank
        x = np.linspace(0, 1, n) ** 2 if config.grid.stretch else None
        ghosts = config.grid.ghosts
        self.grid = ml.Grid((n,) * rank, coordinates=(x,) + (None,) * (rank - 1), aligned=config.grid.aligned,
                            ghosts=ghosts)  # fmt: skip
        hot = 1.0 + np.random.default_rng(0).random((n,) * rank)
        self.t, self.new = self.grid.field("t", data=hot), self.grid.field("new", data=hot)
        if ghosts:
            self.t.fill(1.5)
            self.t.assign(hot)
        self.heat, self.coldest = ml.Global(0.0, "heat"), ml.Global(0.0, "coldest")
        self.state, self.recorded = (self.t,), (self.heat, self.coldest)
        arms = self.grid.star(1).offsets

        @ml.kernel
        def spread(t: ml.Read, new: ml.Write, heat: ml.Sum):
            new[...] = t[arms[0]] + 0.1 * sum(t[o] - t[arms[0]] for o in arms[1:])
            heat += t[arms[0]]

        @ml.kernel
        def take(new: ml.Read, t: ml.Write, coldest: ml.Min):
            t[...] = new
            coldest[...] = new

        @ml.kernel
        def cool(t: ml.ReadWrite):
            t *= 0.95

        @ml.program
        def iteration() -> None:
            self.heat.value = 0.0
            self.coldest.value = np.inf
            inside = self.grid.interior(0 if ghosts else 1)
            spread(inside, self.t[self.grid.star(1)], self.new, self.heat)
            take(inside, self.new, self.t, self.coldest)
            if ghosts:
                cool(self.grid.ghost(0, "low"), self.t)

        self.program = iteration

    def monitor_rows(self, recorded: np.ndarray) -> np.ndarray:
        return recorded[:, :1]

    def grid_fields(self) -> dict[str, ml.Field]:
        return {"t": self.t}


registry.pop("heat")  # no case for other tests


@pytest.fixture(autouse=True)
def registered_on_numpy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry, "heat", Heat)
    before = ml.backend(), ml.threads()
    yield
    ml.use(before[0], threads=before[1])


def run(out: Path, *changes: str, restart: Path | None = None, report: RunReport | None = None) -> Any:
    settings = tuple(map(parse_set, ("run.backend=numpy", *changes)))
    request = Request("heat", settings, out=out, restart=restart)
    job = check(request)
    return launch(job, folder_for(request, job), report or RunReport(), 0.0)


@pytest.mark.parametrize(("changes", "suffix"), [
    (("grid.rank=1",), ".vti"), (("output.every=5",), ".vti"), (("grid.stretch=true", "grid.rank=3"), ".vtr"),
    (("grid.aligned=true",), ".vti"),
])  # fmt: skip
def test_a_run_leaves_fields_checkpoint_and_picture(tmp_path: Path, changes: tuple[str, ...], suffix: str) -> None:
    pytest.importorskip("matplotlib")
    case, outcome = run(tmp_path / "a", *changes)
    files = {path.name for path in (tmp_path / "a").iterdir()}
    assert {f"fields_0000012{suffix}", "fields.pvd", "checkpoint.h5", "picture.png", "monitors.csv"} <= files
    assert ("fields_0000005.vti" in files) == ("output.every=5" in changes)
    text = json.loads(summary.as_json(case, folder := RunFolder(tmp_path / "a"), outcome))
    assert text["sizes"]["points"] == case.elements and text["schedules"]["spread"].startswith("box")
    table = summary.table(case, folder, outcome)
    assert "M points/s" in table and "fields.pvd" in table and f"fields_0000012{suffix}" not in table


def test_a_picture_without_a_mesh_has_to_bring_its_points(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    case = Heat(HeatConfig())
    with one_line_from(MeshError, "there is no mesh to draw a Picture over: give its points and polygons"):
        draw(case, tmp_path / "picture.png", Picture(case.t.numpy(), "t", (0.0, 1.0, 0.0, 1.0)), "heat", {})


@pytest.mark.parametrize("ghosts", [0, 2])
def test_a_restart_goes_on_to_the_same_bits(tmp_path: Path, ghosts: int) -> None:
    quiet = ("output.plot=false", "output.vtu=false", f"grid.ghosts={ghosts}")
    whole, _ = run(tmp_path / "whole", *quiet)
    run(tmp_path / "first", *quiet, "run.iterations=5")
    going_on, _ = run(tmp_path / "rest", *quiet, "run.iterations=12", restart=tmp_path / "first" / "checkpoint.h5")
    assert whole.t.saved().tobytes() == going_on.t.saved().tobytes()
    assert checkpoint.load(tmp_path / "rest" / "checkpoint.h5").iteration == 12
    aligned = ("run.iterations=12", "grid.aligned=true")
    elsewhere, _ = run(tmp_path / "there", *quiet, *aligned, restart=tmp_path / "first" / "checkpoint.h5")
    assert elsewhere.grid.total > whole.grid.total and elsewhere.t.saved().tobytes() == whole.t.saved().tobytes()
    one, other = (checkpoint.load(tmp_path / where / "checkpoint.h5") for where in ("rest", "there"))
    assert one.state["t"].tobytes() == other.state["t"].tobytes() and one.mesh == other.mesh
    with pytest.raises(UserError, match=r"checkpoint of another grid .* same \[grid\] settings"):
        run(tmp_path / "other", *quiet, "grid.n=9", "run.iterations=12", restart=tmp_path / "first" / "checkpoint.h5")


def test_progress_counts_points(tmp_path: Path) -> None:
    seen: list[str] = []

    class Listener(RunReport):
        def message(self, text: str) -> None:
            seen.append(text)

        def advance(self, now: Advance) -> None:
            assert now.cells == 64 and now.element_name == "points"

    run(tmp_path / "a", "output.plot=false", report=Listener())
    assert "heat: 8 x 8 points; back end numpy" in seen[0]


@pytest.mark.parametrize("aligned", ["false", "true"])
@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (-9.0, r"-\d.* \(must be above 0: colder than cold\)")])
def test_a_breakdown_names_the_point_and_the_step(
    tmp_path, monkeypatch, value: float, words: str, aligned: str
) -> None:
    real = Heat.__init__

    def broken(self: Heat, config: HeatConfig) -> None:
        real(self, config)
        t = self.grid.shaped(self.t)
        t[3, 4] = value
        self.t.assign(t)

    monkeypatch.setattr(Heat, "__init__", broken)
    place = r"point \([234], [345]\) at \(0\.[0-9]+, 0\.[0-9]+\)"
    expected = rf"new is {words} in {place}.* after loop spread in iteration 1"
    with pytest.raises(RunError, match=expected):
        run(tmp_path / "a", "output.plot=false", f"grid.aligned={aligned}")


def test_a_limit_may_watch_one_component() -> None:
    values = np.array([[1.0, -5.0], [-1.0, 2.0], [np.nan, 1.0], [1.0, np.inf]])
    broken = Limit(above=0.0, component=0).broken(values)
    assert broken.tolist() == [[False, False], [True, False], [True, False], [False, True]]
