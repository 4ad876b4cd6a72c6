"""What every case offers to be set, works: schedules of all its loops by name, and every word of every choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.case import Case, loops_text
from meshloom.config import Setting, build, choices, parse_set, to_toml
from meshloom.errors import ConfigError
from meshloom.launch import Request, check, schedule_remark
from meshloom.solvers import cases
from meshloom.solvers.finite_volume.case import FiniteVolumeCase
from tests.cli.harness import files_below

ALL = tuple(cases())
#: Settings that bring other loops with them.
VARIANTS = {
    "vortex_outflow": ("flow.mach=0.5",),
    "taylor_green": ("scheme.form=divergence",),
    "advection1d": ("filter.order=8",),
    "tsunami": ("uplift.duration=0", "flow.scheme=v17"),
    "volna_lake": ("flow.scheme=v17",),
}
EVERY = [*((name, ()) for name in ALL), *VARIANTS.items()]


@pytest.fixture(autouse=True)
def on_numpy() -> None:
    ml.use("numpy")


@pytest.mark.parametrize("name", ALL)
def test_what_a_case_runs_on_is_a_section_of_its_settings(name: str) -> None:
    """A restart on another mesh or grid names that section."""
    assert hasattr(cases()[name].Config(), cases()[name].domain)


def settings(*changes: str) -> list[Setting]:
    return [parse_set(text) for text in changes]


def small(name: str, *changes: str, schedule: dict[str, Any] | None = None) -> Case:
    """A case with hardly any elements."""
    kind = cases()[name]
    wanted = [Setting(tuple(key.split(".")), value, "small") for key, value in kind.small.items()]
    wishes = [Setting(("schedule", key), value, "test") for key, value in (schedule or {}).items()]
    return kind(build(kind.Config, [*wanted, *settings(*changes), *wishes]))


def blocks(case: Case) -> dict[str, set[int | None]]:
    """The blocks of the loops, by name."""
    found: dict[str, set[int | None]] = {}
    for loop in case.program.loops:
        if loop.domain.visits_elements:
            found.setdefault(loop.name, set()).add(loop.schedule.block)
    return found


# --- [schedule] -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "changes"), EVERY)
def test_every_loop_can_be_scheduled_by_its_name(name: str, changes: tuple[str, ...]) -> None:
    plain = blocks(small(name, *changes))
    assert len(plain) >= 3, "a case has loops"
    wishes = {loop: {"block": 101 + k} for k, loop in enumerate(plain)}
    assert blocks(small(name, *changes, schedule=wishes)) == {loop: {wish["block"]} for loop, wish in wishes.items()}
    first, *others = plain
    of_default = blocks(small(name, *changes, schedule={"default": {"block": 99}, first: {"block": 98}}))
    assert of_default == {first: {98}} | {loop: {99} for loop in others}


@pytest.mark.parametrize(("name", "changes"), EVERY)
def test_every_other_name_is_refused(name: str, changes: tuple[str, ...]) -> None:
    plain = small(name, *changes)
    for wrong, right in ((f"{plain.loop_names[0]}x", f"did you mean '{plain.loop_names[0]}'?"), ("zzz", "allowed: ")):
        with pytest.raises(ConfigError, match="is no loop of this case") as caught:
            _ = small(name, *changes, schedule={wrong: "auto"}).program
        assert f"schedule.{wrong} " in str(caught.value) and right in str(caught.value)
    for lines in {loop.name for loop in plain.program.loops if loop.domain.along_lines}:
        with pytest.raises(ConfigError, match=f"schedule.{lines} is solved along lines"):
            _ = small(name, *changes, schedule={lines: "auto"}).program


@pytest.mark.parametrize(("name", "changes"), EVERY)
def test_show_lists_the_loops_that_there_are(name: str, changes: tuple[str, ...]) -> None:
    remark = schedule_remark(check(Request(name, tuple(settings("run.backend=numpy", *changes)))))
    assert remark == loops_text(small(name, *changes).loop_names)


def test_the_loops_of_the_inflow_are_those_of_the_stream() -> None:
    assert "held_inflow" in small("vortex_outflow").loop_names
    slow = small("vortex_outflow", "flow.mach=0.5")
    assert "subsonic_inflow" in slow.loop_names and "held_inflow" not in slow.loop_names


def test_a_strategy_gives_the_same_flow() -> None:
    ml.use("cpu", threads=1)
    usual, other = (small("airfoil", schedule=wish) for wish in ({}, {"res_calc": "color", "default": "fastest"}))
    found = [case.program.run(3, record=case.recorded) for case in (usual, other)]
    assert {loop.schedule.strategy for loop in other.program.loops if loop.name == "res_calc"} == {"color"}
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in ALL if issubclass(cases()[n], FiniteVolumeCase)])
def test_every_mesh_of_finite_volumes_lies_as_asked(name: str) -> None:
    ml.use("numpy")
    assert str(small(name, "mesh.order=random").mesh.arrangement) == "renumbered by random: asked for"


# --- words --------------------------------------------------------------------------------------------------


def has_sense(name: str, key: str, word: str) -> bool:
    """Words that some cases have with others: no axis out of the plane, no steady shock tube."""
    if name == "sod3d":
        return word != "steady"
    return (key, word) != ("stream.lift_axis", "z") or name == "onera_m6"


def words(name: str) -> Iterator[tuple[str, str]]:
    """(key, word) of everything that a case lets a person choose from; what is not here is left out."""
    for key, allowed in choices(cases()[name].Config).items():
        for word in allowed:
            here = key != "run.backend" or word == "auto" or _runs_here(word)
            if here and key != "run.partition" and has_sense(name, key, word):  # without ranks it does nothing
                yield key, word


def _runs_here(backend: str) -> bool:
    """Those of the package: other tests register some that compute nothing."""
    return ml.backends()[backend] is None and type(_BACKENDS[backend]).__module__.startswith("meshloom.")


def takes_long(name: str, key: str, word: str) -> bool:
    """Of the cases by finite volumes, ``fv`` tries the words that all of them have."""
    again = issubclass(cases()[name], FiniteVolumeCase) and name != "fv" and not key.startswith("mesh.")
    return key in ("run.backend", "mesh.order", "scheme.solver") or again


QUICK = [(n, k, w) for n in ALL for k, w in words(n) if not takes_long(n, k, w)]
REST = [(n, k, w) for n in ALL for k, w in words(n) if takes_long(n, k, w)]


#: What a gas with such a viscosity needs besides.
VISCOSITY = {
    "none": ["turbulence.model=none"],
    "constant": ["stream.reynolds=0", "gas.reference_viscosity=0.001"],
    "sutherland": ["stream.reynolds=0", "gas.reference_viscosity=0.001", "gas.sutherland_temperature=0.4"],
}


PARTITIONERS = {"metis": "pymetis", "kaminpar": "kaminpar"}  # words that need a package of their own


def runs_two_steps(name: str, key: str, word: str) -> None:
    more = ["mesh.points=32"] if word in ("cgs", "bicgstab") and name == "taylor_green" else []
    more = ["mesh.points=[32,32]"] if word in ("cgs", "bicgstab") and name == "vortex_outflow" else more
    if key == "turbulence.model" and word != "none":
        more = ["gas.viscosity=constant", *VISCOSITY["constant"]]
    more = [*VISCOSITY[word], *more] if key == "gas.viscosity" else more
    if (key, word, name) in (("gas.viscosity", "none", "cylinder"), ("gas.viscosity", "none", "flat_plate")):
        more = [*more, "boundary.wall.kind=slip"]  # nothing sticks to it any more
    more = [*more, "time.cfl=0.5"] if (key, word) == ("time.mode", "unsteady") else more  # as of explicit schemes
    if key == "run.backend":
        ml.use(word) if word != "auto" else ml.use("numpy")
    if (package := PARTITIONERS.get(word)) is not None:
        pytest.importorskip(package)
    case = small(name, *more, f"{key}={word}")
    rows = case.monitor_rows(case.program.run(2, record=case.recorded))
    assert rows.shape == (2, len(case.monitors)) and np.isfinite(rows).all(), (key, word)


def family(name: str) -> str:
    return cases()[name].__module__.split(".")[2]


def in_turn(rows: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Each word in one case of every family: cases of a family share what a word means, and take turns."""
    by_word: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
    for name, key, word in rows:
        by_word.setdefault((family(name), key, word), []).append((name, key, word))
    return [those[turn % len(those)] for turn, those in enumerate(by_word.values())]


def once_in_each_family() -> Iterator[Any]:
    """Each word runs in one case of every family of solvers in every run, in the others when slow: those of a family
    share what a word means."""
    tried = set()
    for name, key, word in QUICK:
        marks = (pytest.mark.slow,) if (family(name), key, word) in tried else ()
        tried.add((family(name), key, word))
        yield pytest.param(name, key, word, marks=marks)


@pytest.mark.parametrize(("name", "key", "word"), [*once_in_each_family()])
def test_every_word_that_is_offered_runs(name: str, key: str, word: str) -> None:
    runs_two_steps(name, key, word)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "key", "word"), in_turn(REST))
def test_every_word_that_is_offered_runs_slow(name: str, key: str, word: str) -> None:
    runs_two_steps(name, key, word)


def test_there_are_words_to_choose_from() -> None:
    assert {key for _, key, _ in QUICK} >= {"run.precision", "scheme.form", "flow.scheme"}
    assert len(QUICK) > 2 * len(ALL) and len(REST) > 10 * len(ALL)
    assert {name for name, _, _ in in_turn(REST)} >= {name for name in ALL if family(name) == "finite_volume"} - {"fv"}


# --- scheme.solver ------------------------------------------------------------------------------------------


def flow_after(name: str, points: str, solver: str, steps: int, *changes: str) -> np.ndarray:
    case = small(name, f"mesh.points={points}", f"scheme.solver={solver}", *changes)
    case.program.run(steps)
    values: np.ndarray = case.flow.q.numpy()  # type: ignore[attr-defined]
    return values


OTHERS = tuple(m for m in ml.linalg.tridiagonal.methods() if m != "segmented")
BY_ALL = [
    ("vortex_outflow", "[32,33]", ("filter.order=8",)),
    ("taylor_green", "16", ()),
    ("taylor_green", "16", ("scheme.form=divergence",)),
]


def agrees(name: str, points: str, solver: str, *changes: str, close: float = 1e-12) -> None:
    expected, found = (flow_after(name, points, one, 3, *changes) for one in ("segmented", solver))
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=close * np.abs(expected).max())
    assert not np.array_equal(found, expected), "another way of solving leaves its traces: it was really taken"


@pytest.mark.parametrize("solver", [pytest.param("thomas", marks=pytest.mark.slow), "pcr"])
@pytest.mark.slow
def test_other_solvers_give_the_same_flow(solver: str) -> None:
    ml.use("cpu", threads=1)
    agrees("vortex_outflow", "[32,33]", solver, "filter.order=8")


@pytest.mark.slow
@pytest.mark.parametrize("solver", OTHERS)
@pytest.mark.parametrize(("name", "points", "changes"), BY_ALL)
def test_every_solver_gives_the_same_flow(name: str, points: str, changes: tuple[str, ...], solver: str) -> None:
    ml.use("cpu", threads=1)
    agrees(name, points, solver, *changes)


SMALL = (("vortex_outflow", "[32,33]"), ("taylor_green", "8"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "points", "precision", "solver"),
    [  # whatever two of case, precision and solver meet in one row
        (name, points, ("double", "single")[(row + column) % 2], solver)
        for row, (name, points) in enumerate(SMALL)
        for column, solver in enumerate(OTHERS)
    ],
)
def test_every_solver_gives_the_same_flow_as_a_gpu(name: str, points: str, precision: str, solver: str) -> None:
    ml.use("emulated")
    close = 1e-12 if precision == "double" else 1e-5
    agrees(name, points, solver, f"run.precision={precision}", close=close)


# --- on the command line ------------------------------------------------------------------------------------


def test_a_wrong_loop_overwrites_nothing(tmp_path: Path) -> None:
    from meshloom.launch import folder_for, launch
    from meshloom.run.report import RunReport

    text = 'case = "vortex_outflow"\n[mesh]\npoints = [16, 16]\n[schedule]\ninflow = "auto"\n'
    (tmp_path / "case.toml").write_text(text)
    common = parse_set("run.backend=numpy"), parse_set("output.plot=false"), parse_set("run.iterations=1")
    good = Request("vortex_outflow", (parse_set("mesh.points=[16,16]"), *common), tmp_path / "out")
    launch(check(good), folder_for(good, check(good)), RunReport(), 0.0)
    before = files_below(tmp_path)
    wrong = Request(str(tmp_path / "case.toml"), common, tmp_path / "out", overwrite=True)
    with pytest.raises(ConfigError, match=r"case.toml:5: schedule.inflow is no loop of this case; did you mean 'h"):
        launch(check(wrong), folder_for(wrong, check(wrong)), RunReport(), 0.0)
    assert files_below(tmp_path) == before


# --- what is said about settings --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_remark_has_a_subject(name: str):
    """A remark is read above its setting, which it must not need to make sense: 'x of its middle', not 'of its'."""
    lines = to_toml(cases()[name].Config(), {"case": name}).splitlines()
    first = [line for above, line in pairwise(lines) if line.startswith("#") and not above.startswith("#")]
    assert first and not [line for line in first if re.match(r"# (of|from|to|in|at|by|on|with|for|along) ", line)]
