"""The tsunami and the running of water cases: sources, gauges, run-up, files, bad states, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import parse_set
from meshloom.errors import ConfigError, MeshError, RunError
from meshloom.io import checkpoint
from meshloom.launch import Request, check, launch
from meshloom.run.folder import claim
from meshloom.run.report import RunReport
from meshloom.run.runner import Outcome, Runner
from meshloom.solvers.volna.gauges import cell_at
from tests.solvers.water import run, state_of, to_the_end, water

SMALL = ("mesh.nx=40", "mesh.ny=24", "flow.scheme=v17")


@pytest.fixture(autouse=True)
def one_thread_and_the_same_backend_afterwards() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    ml.use(before[0], threads=1)
    yield
    ml.use(before[0], threads=before[1])


def finished(name: str, folder: Path, *changes: str) -> Outcome:
    claimed = claim(name, folder)
    try:
        return Runner(water(name, *changes), claimed, RunReport()).run()
    finally:
        claimed.release()


def columns(path: Path) -> dict[str, np.ndarray]:
    import csv

    with open(path, encoding="ascii", newline="") as file:
        rows = list(csv.reader(file))
    return dict(zip(rows[0], np.array(rows[1:], dtype=np.float64).T, strict=True))


# --- the source ---------------------------------------------------------------------------------------------------


def test_a_rise_at_once_lifts_the_water_by_its_own_shape():
    case = water("tsunami", *SMALL, "uplift.duration=0", "run.precision=double")
    x, y = case.mesh.cells.points.T
    w = state_of(case)
    deep = w[:, 0] > 100.0
    np.testing.assert_allclose((w[:, 0] + w[:, 3])[deep], case.uplift(x, y)[deep], atol=1e-9)
    assert case.uplift(np.array([25e3]), np.array([30e3]))[0] == 5.0


@pytest.mark.slow
def test_a_slow_rise_moves_the_floor_as_far():
    slow, quick = (water("tsunami", *SMALL, f"uplift.duration={d}", "run.precision=double") for d in (40.0, 0.0))
    first = run(slow, 1)
    risen = first[0, 0] / 40.0
    x, y = slow.mesh.cells.points.T
    np.testing.assert_allclose(state_of(slow)[:, 3], slow.bed(x, y) + risen * slow.uplift(x, y), atol=1e-9)
    to_time = run(slow, 30)
    assert to_time[-1, 0] > 40.0
    np.testing.assert_allclose(state_of(slow)[:, 3], state_of(quick)[:, 3], rtol=1e-12)
    assert to_time[:, 2] == pytest.approx(first[0, 2], rel=1e-9), "a floor that moves makes no water"


def test_nothing_happens_without_a_source():
    case = water("tsunami", *SMALL, "uplift.height=0")
    run(case, 20)
    w = state_of(case)
    deep = w[:, 0] > 1.0
    assert np.abs(w[deep, 1:3]).max() < 1e-3, "beside dry land the shore's own film of water runs down"
    assert np.abs((w[:, 0] + w[:, 3])[deep]).max() < 1e-2


# --- gauges and run-up --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_wave_arrives_when_it_should():
    """Over a flat floor the crest moves with sqrt(g h): 99 m/s over 1000 m of water."""
    case = water("tsunami", "mesh.nx=120", "mesh.ny=4", "sea.width=4000", "time.end=500", "uplift.length=1e9",
                 "uplift.duration=0", "island.y=-60e3", "uplift.width=4e3", "uplift.height=1",
                 "gauges.front=[]", "gauges.behind=[]", "gauges.shelf=[]", "gauges.deep=[40e3,2e3]",
                 "gauges.far=[55e3,2e3]")  # fmt: skip
    assert case.gauges.names == ("deep", "far") and case.monitors[-2:] == ("deep", "far")
    recorded = run(case, 345)
    times, deep, far = recorded[:, 0], *case.monitor_rows(recorded)[:, -2:].T
    assert times[-1] > 400.0
    arrival = times[np.argmax(far)] - times[np.argmax(deep)]
    assert arrival == pytest.approx(15e3 / np.sqrt(9.81 * 1000.0), rel=0.03)
    assert 0.3 < deep.max() < 0.51, "half of the hump goes either way"


def test_a_gauge_shows_its_cell():
    case = water("tsunami", *SMALL)
    run(case, 25)
    for name, level in zip(case.gauges.names, case.gauges.levels.value, strict=True):
        place = np.array(case.config.gauges[name])
        nearest = np.argmin(np.hypot(*(case.mesh.cells.points - place).T))
        around = state_of(case)[cell_at(case.mesh, name, place)]
        assert level == pytest.approx(around[0] + around[3], abs=1e-6)
        assert np.hypot(*(case.mesh.cells.points[nearest] - place)) < 2500.0


def test_a_sea_without_gauges(tmp_path: Path):
    names = water("tsunami", *SMALL).gauges.names
    none = [f"gauges.{name}=[]" for name in names]
    for folder, changes in (("with", []), ("without", none)):
        finished("tsunami", tmp_path / folder, *SMALL, "run.iterations=3", "output.plot=false", *changes)
    there, rest = columns(tmp_path / "with" / "monitors.csv"), columns(tmp_path / "without" / "monitors.csv")
    assert len(names) == 4 and [*there] == [*rest, *names]
    assert all((there[name] == rest[name]).all() for name in rest)
    assert not [*(tmp_path / "without").glob("chart_*")] and [*(tmp_path / "with").glob("chart_*")]


@pytest.mark.slow
def test_gauges_and_run_up_do_not_depend_on_the_numbering():
    given, moved = (water("tsunami", *SMALL, f"mesh.order={order}", "run.precision=double") for order in
                    ("given", "random"))  # fmt: skip
    a, b = (case.monitor_rows(run(case, 60)) for case in (given, moved))
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    for name, values in given.cell_fields().items():
        np.testing.assert_allclose(moved.cell_fields()[name], values, rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.slow
def test_water_runs_up_the_island_and_is_remembered():
    case = water("tsunami", "mesh.nx=50", "mesh.ny=30", "flow.scheme=v17", "uplift.height=12", "time.end=700")
    highest = np.full(len(case.mesh.cells), -np.inf)
    while case.steps_left(case.recorded_now()) > 0:
        run(case, 1)
        highest = np.maximum(highest, state_of(case)[:, 0])
    fields = case.cell_fields()
    land = case.bed(*case.mesh.cells.points.T) > 0.0
    flooded = fields["inundation"] > 0.01
    assert flooded.sum() > 5 and not (flooded & ~land).any()
    np.testing.assert_allclose(fields["inundation"][land], highest[land], rtol=1e-6)
    assert (fields["highest_surface"] >= fields["surface"] - 1e-4).all()
    on_island = np.hypot(*(case.mesh.cells.points - [60e3, 30e3]).T) < 5e3
    assert (flooded & on_island).any()
    window = case.maps()["runup"].window
    assert window[0] > 40e3 and window[1] > window[0]


@pytest.mark.slow
def test_the_files_of_a_run(tmp_path: Path):
    outcome = finished("tsunami", tmp_path / "a", *SMALL, "time.end=100")
    assert outcome.finished and outcome.monitors["time"] == 100.0
    gauges, monitors = columns(tmp_path / "a" / "chart_gauges.csv"), columns(tmp_path / "a" / "monitors.csv")
    assert list(gauges) == ["time, s", "deep", "front", "behind", "shelf"]
    assert len(gauges["deep"]) == outcome.iteration
    np.testing.assert_array_equal(gauges["time, s"], monitors["time"])
    np.testing.assert_array_equal(gauges["front"], monitors["front"])
    for name in ("picture.png", "map_runup.png", "map_highest.png", "chart_gauges.png"):
        assert (tmp_path / "a" / name).read_bytes().startswith(b"\x89PNG"), name
    again = claim("tsunami", tmp_path / "a", overwrite=True)
    again.begin()
    again.keep()
    assert [path.name for path in (tmp_path / "a").iterdir()] == [], "an overwritten run leaves nothing behind"


def test_a_restart_equals_an_uninterrupted_run(tmp_path: Path):
    """The highest water, the floor that still rises and the gauges' past go on too."""
    ml.use("cpu", threads=1)
    settings = (*SMALL, "uplift.duration=60", "time.end=120", "output.plot=false", "run.threads=1", "run.backend=cpu")
    whole = finished("tsunami", tmp_path / "whole", *settings)
    part = finished("tsunami", tmp_path / "part", *settings, "run.iterations=12")
    assert 12 == part.iteration < whole.iteration
    request = Request(None, (parse_set("run.iterations=100000"),), restart=tmp_path / "part" / "checkpoint.h5")
    launch(check(request), claim("tsunami", tmp_path / "part", goes_on=True), RunReport(), 0.0)
    a, b = (checkpoint.load(tmp_path / name / "checkpoint.h5") for name in ("whole", "part"))
    assert a.iteration == b.iteration and set(a.state) == {"w", "time", "pace", "peak"}
    for name, values in a.state.items():
        np.testing.assert_array_equal(b.state[name], values, err_msg=name)
    texts = [(tmp_path / name / "chart_gauges.csv").read_text() for name in ("whole", "part")]
    assert texts[0] == texts[1]


def test_a_restart_to_a_later_time_goes_on_with_the_pace_before_the_trimmed_step(tmp_path: Path):
    ml.use("cpu", threads=1)
    short = ("output.plot=false", "run.threads=1", "run.backend=cpu", "mesh.nx=8", "mesh.ny=8", "time.trim=true",
             "flow.scheme=v17")  # fmt: skip
    finished("volna_lake", tmp_path / "a", *short, "time.end=0.268")
    request = Request(None, (parse_set("time.end=0.6"),), restart=tmp_path / "a" / "checkpoint.h5")
    _, outcome = launch(check(request), claim("volna_lake", tmp_path / "a", goes_on=True), RunReport(), 0.0)
    steps = np.diff(columns(tmp_path / "a" / "monitors.csv")["time"])
    assert outcome.monitors["time"] == 0.6
    trimmed = np.argmin(steps[:-1])
    assert steps[trimmed] < 0.5 * steps[0] and steps[trimmed + 1] == pytest.approx(steps[0])


@pytest.mark.slow
def test_the_whole_step_on_an_emulated_gpu():
    """Loops fused, clock and gauges on the device, more cells than one block holds."""
    found = []
    for backend in ("numpy", "emulated"):
        ml.use(backend)
        case = water("tsunami", "mesh.nx=14", "mesh.ny=10", "flow.scheme=v17", "run.precision=double")
        found.append((case.monitor_rows(run(case, 12)), state_of(case), case.peak.numpy()))
    for there, here in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-10, atol=1e-10)


# --- bad input and bad states -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("tsunami", "gauges.x=3", "gauges.x must be a place such as"),
        ("tsunami", "gauges.x=[1,2,3]", "gauges.x must be a place such as"),
        ("volna_dambreak", "dam.left=-1", "dam.left must be a number from 0.0, got -1"),
        ("volna_dambreak", "flow.scheme=v16", "must be one of v17, v18"),
        ("volna_hump", "time.growth=1", "time.growth must be a number above 1.0"),
    ],
)
def test_wrong_settings_are_named(case: str, change: str, message: str):
    with pytest.raises(ConfigError, match=message):
        water(case, change)


def test_a_gauge_on_the_moon():
    with pytest.raises(MeshError, match=r"gauge moon at \(1e\+09, 0\) is outside the mesh, which reaches from"):
        water("tsunami", *SMALL, "gauges.moon=[1e9,0]")


def test_a_cell_that_is_asked_for_more_water_than_it_has_is_named(tmp_path: Path):
    with pytest.raises(RunError) as raised:
        finished("volna_thacker", tmp_path / "a", "flow.cfl=3", "output.checkpoint_every=1", "flow.scheme=v17",
                 "mesh.nx=20", "mesh.ny=20", "output.vtu=false")  # fmt: skip
    message = str(raised.value)
    assert message.startswith("the solution broke down: depth is -")
    assert "(must be above -0.01: the depth is negative) in cell " in message
    iteration = int(message.split(" after loop correct in iteration ")[1].split(" (time ")[0])
    assert "; flow.cfl = 3 is longer than what is known to be stable, which is 1; the last good" in message
    assert message.endswith(f"checkpoint.h5 (iteration {iteration - 1})")
    saved = checkpoint.load(tmp_path / "a" / "checkpoint.h5")
    assert saved.iteration == iteration - 1 and np.isfinite(saved.state["w"]).all()


def test_a_time_step_that_collapses_is_named(tmp_path: Path):
    """One cell gets a current that crosses it in no time."""
    case = water("volna_lake", "mesh.nx=6", "mesh.ny=6", "flow.scheme=v17", "output.vtu=false")
    w = case.flow.w.numpy()
    w[17, 1] = 1e12
    case.flow.w.assign(w)
    claimed = claim("volna_lake", tmp_path / "a")
    with pytest.raises(RunError, match=r"^the solution broke down: longest_step is .* \(must be above 2\.22222e-09: the"
                       r" time step collapses\) in"
                       r" cell \d+ at \(.*\).* after loop time_limit in iteration 1 \(time 0\);"
                       r" a smaller time.least lets it go on; .* may help; no checkpoint"):  # fmt: skip
        Runner(case, claimed, RunReport()).run()
    claimed.release()


def test_to_the_end_and_not_a_step_further():
    case = water("volna_lake", "mesh.nx=6", "mesh.ny=6", "flow.scheme=v17", "time.end=0.4")
    steps, last = to_the_end(case)
    assert last[0] >= 0.4 > last[0] - last[1] and steps > 3
