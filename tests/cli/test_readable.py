"""What is written can be read: whatever names and values a configuration has, its TOML means the same again."""

from __future__ import annotations

import csv
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshloom.cli.summary import listed
from meshloom.config import Setting, build, choices, flatten, option, parse_set, parse_settings, section, table, to_toml
from meshloom.errors import ConfigError, one_line
from meshloom.run.folder import RunFolder
from meshloom.solvers import cases
from meshloom.toml import statements, toml_key, toml_value
from tests.cli.harness import Command, files_below
from tests.letters import ENCODABLE
from tests.one_line import one_line_from

_any_text = st.text(st.characters(), max_size=12)  # half characters too, which no file can hold
_text = st.text(ENCODABLE, max_size=12)
_scalars = st.one_of(st.booleans(), st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False), _text)
_values = st.recursive(
    _scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_text, inner, max_size=3))
)


def read_again(config: Any, *, comments: bool) -> Any:
    text = to_toml(config, {"case": "so"}, comments=comments).encode().decode()
    assert tomllib.loads(text)["case"] == "so"
    return build(type(config), [one for one in parse_settings(text, "written") if one.key != ("case",)])


# --- every case ---------------------------------------------------------------------------------------------


def fitting(key: str, default: Any, words: dict[str, tuple[str, ...]]) -> st.SearchStrategy[Any]:
    """Values of which many are accepted."""
    if key in words:
        return st.sampled_from(words[key])
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.integers(-1, 300)
    if isinstance(default, float):
        return st.one_of(st.floats(0.01, 10.0), st.floats())
    if isinstance(default, str):
        return _any_text
    return st.lists(st.one_of(st.integers(1, 9), st.floats(0.0, 9.0), _any_text), min_size=1, max_size=4)


_ENTRIES: dict[str, st.SearchStrategy[Any]] = {
    "gauges": st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2),
    "schedule": st.sampled_from(["auto", {"strategy": "owner", "block": 64}, {"block": 7, "order": "rcm"}, {}]),
}


@st.composite
def changes(draw: st.DrawFn, cls: type) -> list[Setting]:
    """Settings of one case, most of them right, the first for certain."""
    known, words = flatten(cls()), choices(cls)
    found = [Setting(("output", "every"), draw(st.integers(0, 300)), "here")]
    for _ in range(draw(st.integers(4, 8))):
        key = draw(st.sampled_from([*known]))
        path: tuple[str, ...] = tuple(key.split("."))
        right = _ENTRIES[key] if key in _ENTRIES else fitting(key, known[key], words)
        path = (*path, draw(_any_text)) if key in _ENTRIES else path
        wrong = st.one_of(_scalars, st.lists(_scalars, max_size=2))
        found.append(Setting(path, draw(st.one_of(right, right, right, wrong)), "here"))
    return found


def check_that_it_is_read_as_it_was_written(name: str, examples: int) -> None:
    cls, accepted = cases()[name].Config, set()

    @settings(max_examples=examples, deadline=None)
    @given(changes(cls))
    def check(wanted: list[Setting]) -> None:
        config: Any = cls()
        for setting in wanted:
            try:
                config = build(cls, [setting], config)
                accepted.add(setting.key)
            except ConfigError as refusal:
                assert str(refusal).startswith("here: ") and str(refusal).isprintable() and len(str(refusal)) < 2000
        for comments in (True, False):
            assert read_again(config, comments=comments) == config

    check()
    # One of them is always right; by mere chance that is all only where few examples are made.
    assert ("output", "every") in accepted and (examples < 100 or len(accepted) > 5), "refusing all proves nothing"


@pytest.mark.parametrize("name", cases())
def test_every_configuration_is_read_as_it_was_written(name: str) -> None:
    check_that_it_is_read_as_it_was_written(name, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases())
def test_many_configurations_are_read_as_they_were_written(name: str) -> None:
    check_that_it_is_read_as_it_was_written(name, 100)


# --- any table, any name ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    size: float = option(1.0, "of it")
    free: dict[str, Any] = table("Anything.", lambda key, value: None)


@dataclass(frozen=True)
class Outer:
    label: str = option("", "in front of all sections")
    inner: Inner = section(Inner, "A section with a table in it.")
    anything: dict[str, Any] = table("Anything.", lambda key, value: None)


@settings(max_examples=60, deadline=None)
@given(_text, st.dictionaries(_text, _values, max_size=4), st.dictionaries(_text, _values, max_size=3))
@example("", {"a.b": 1, "a": {"b": 2}, "Station 12": [1, 2], "": "", "\x7f": {"\x00": {"'": '"'}}}, {})
@example("\r\n", {"x": {"y": {"p": 1, "q": 2}, "z": {}}}, {"\\": "\\", "\u2028": "'''"})
def test_any_table_is_read_as_it_was_written(label: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    config = Outer(label, Inner(2.0, other), one)
    assert read_again(config, comments=True) == config == read_again(config, comments=False)


@settings(max_examples=40, deadline=None)
@given(st.lists(_text, min_size=1, max_size=4), _values)
def test_set_takes_the_same_keys_and_values(parts: list[str], value: Any) -> None:
    found = parse_set(f"{toml_key(tuple(parts))} = {toml_value(value)}")
    assert (found.key, found.value) == (tuple(parts), value)


def test_a_dot_in_quotes_is_no_step() -> None:
    config = build(Outer, [parse_set('anything."a.b"=1'), parse_set("anything.a.b=2"), parse_set("anything.'c d'.e=3")])
    assert config.anything == {"a.b": 1, "a": {"b": 2}, "c d": {"e": 3}}
    for text in ('"inner.size" = 3', '"inner"."size.x" = 3', '["inner.size"]'):
        with one_line_from(ConfigError, r"f:1: unknown key .*\""):
            build(Outer, parse_settings(text, "f"))


def test_an_entry_is_judged_when_it_is_whole() -> None:
    """The order of its lines does not matter, and a wrong one is named."""
    right = '[schedule.res_calc]\nvariant = "indices"\nblock = 32\nstrategy = "color"\n'
    cls = cases()["airfoil"].Config
    found = build(cls, parse_settings(right, "f")).schedule
    assert found == {"res_calc": {"variant": "indices", "block": 32, "strategy": "color"}}
    with one_line_from(ConfigError, "^f:3: schedule.res_calc has the unknown key 'blok'"):
        build(cls, parse_settings(right.replace("block", "blok"), "f"))


@pytest.mark.parametrize("value", ["\udcff", ["a", "\ud800"], {"\udfff": 1}, {"a": "\ud800"}])
def test_half_characters_are_refused(value: Any) -> None:
    with one_line_from(ConfigError, "^here: anything.x is not text"):
        build(Outer, [Setting(("anything", "x"), value, "here")])
    with one_line_from(ConfigError, "is not text"):
        build(Outer, [Setting(("anything", "\ud800"), 1, "here")])


# --- lines --------------------------------------------------------------------------------------------------


_PIECES = st.sampled_from([
    '"""', "'''", '"', "'", "\n", "[", "]", "{", "}", "=", ",", ".", "#", "a", "b = 1\n", "1", " ", "\\", '\\"', "x = ",
    '"q"', "'w'", "[t]\n", "[[u]]\n", "-3.5", "\r\n", "é", "true", "\t",
])  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(_PIECES, max_size=25).map("".join))
@example('a = """x\n"""""\nb = \'\'\'\n#\'\'\'\'\nc = ["#", # ]\n"""]""",\n]\nd = 1\n')
def test_the_scanner_and_tomllib_see_the_same(text: str) -> None:
    """What is TOML and what is not, and each statement on its own line: without the lines after it, it is not there."""
    try:
        whole: dict[str, Any] | None = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        whole = None
    try:
        found = statements(text, "f")
    except ConfigError as error:
        assert whole is None, error
        return
    assert whole is not None
    lines = text.replace("\r\n", "\n").split("\n")
    ends = [*(one.line - 1 for one in found[1:]), len(lines)]
    for one, end in zip(found, ends if found else [], strict=True):
        inside = "\n".join(lines[one.line - 1 : end])
        assert str(one.value) in (str(_at(tomllib.loads(inside), one.key)), "{}", "[{}]"), (one, inside)
    assert bool(found) == bool(whole)


def _at(tree: Any, key: tuple[str, ...]) -> Any:
    """The value at the end of a key, of which a header may have had the first parts."""
    for start in range(len(key)):
        inner = tree
        for part in key[start:]:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if inner is not None:
            return inner
    return None


@pytest.mark.parametrize(("text", "line"), [
    ("x = " + "[" * 100_000, 3), ("x = " + "{a = " * 3000, 3), ("a." * 200_000 + "b = 1", 3),
    ("[" + "a." * 3000 + "b]", 3), ("\n[t]\nx = " + "9" * 5000, 5), ("x = [\n" + "[\n" * 70, 67),
])  # fmt: skip
def test_what_is_too_deep_or_too_long_is_refused_on_its_line(text: str, line: int) -> None:
    with one_line_from(ConfigError, f"^f:{line}: (nested more than|a number with too many)"):
        parse_settings(f"# so\ny = 1\n{text}", "f")


@pytest.mark.slow
def test_long_texts_take_no_longer_than_they_must() -> None:
    rows, names = "1,\n" * 20_000, "".join(f"g{k} = [1, 2]\n" for k in range(20_000))
    quotes = 'y = """' + '\\"""' * 50_000
    began = time.process_time()
    found = parse_settings(f"first = [\n{rows}]\nlast = 3\n[anything]\n{names}", "f")
    assert found[1].where == "f:20003" and len(build(Outer, found[2:]).anything) == 20_000
    with one_line_from(ConfigError, "f:1: not valid TOML"):
        parse_settings(quotes, "f")
    assert time.process_time() - began < 6.0  # about 1; when every line was parsed again, 4,000 of them took 37 s


# --- names in files and pictures ----------------------------------------------------------------------------


_NAMES = ("Station 12", "ü", "a,b", "", "a.b", "$x$", "$", "_hidden", "../../up", "a\nb", 'say "hi"', "[red]", "日本",
          "x" * 99)  # fmt: skip


@pytest.mark.slow
def test_a_gauge_may_have_any_name(meshloom: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    gauges = [word for name in _NAMES for word in ("--set", f"gauges.{toml_key((name,))}=[40e3, 30e3]")]
    small = ("--set", "mesh.nx=6", "--set", "mesh.ny=4", "--backend", "numpy", "--quiet")
    result = meshloom("run", "tsunami", *gauges, *small, "--iterations", "2", "--out", "a")
    assert (result.code, result.err) == (0, "")
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / "a"}
    for file, first in (("monitors.csv", 5), ("chart_gauges.csv", 1)):
        with open(tmp_path / "a" / file, encoding="utf-8", newline="") as opened:
            header, *rows = csv.reader(opened)
        assert header[first + 4 :] == [one_line(name) for name in _NAMES] and len(rows) == 2
        assert all(len(row) == len(header) for row in rows)
    for again in (("--restart", "a/checkpoint.h5"), ("a/run.toml", "--out", "b")):
        result = meshloom("run", *again, "--iterations", "3", "--quiet", "--set", "output.plot=false")
        assert (result.code, result.err) == (0, "")
    assert (tmp_path / "a/monitors.csv").read_bytes() == (tmp_path / "b/monitors.csv").read_bytes()


def test_names_are_one_line_where_a_person_reads_them(meshloom: Command) -> None:
    """Neither the end of a run nor its lines pass on what a terminal would obey."""
    gauges = [f"gauges.{toml_key((name,))}=[40e3, 30e3]" for name in ("a\nb", "\x1b[31mred", "\x9b2J\r")]
    small = ("mesh.nx=6", "mesh.ny=4", "output.plot=false", *gauges)
    result = meshloom("run", "tsunami", *(word for change in small for word in ("--set", change)),
                      "--backend", "numpy", "--iterations", "2", "--out", "a")  # fmt: skip
    assert result.code == 0, result.err
    summary = result.out[result.out.index("  iterations") :]
    assert all(line.isprintable() for line in result.out.split("\n"))
    assert all(line.startswith("  ") for line in summary.splitlines()) and r"  a\nb" in summary
    assert result.out.count(r"\x1b[31mred") == 1


@pytest.mark.parametrize("name", ["time", "energy", "iteration"])
def test_a_gauge_cannot_take_the_place_of_a_monitor(meshloom: Command, tmp_path: Path, name: str) -> None:
    small = ("--set", "mesh.nx=6", "--set", "mesh.ny=4", "--backend", "numpy", "--iterations", "1")
    result = meshloom("run", "tsunami", *small, "--set", f"gauges.{name}=[40e3, 30e3]")
    result.refused(2, f"gauges.{name} has a name that")
    assert not files_below(tmp_path)


def test_a_restart_with_another_gauge_is_refused(meshloom: Command, tmp_path: Path) -> None:
    small = ("--set", "mesh.nx=6", "--set", "mesh.ny=4", "--backend", "numpy", "--quiet", "--set", "output.plot=false")
    assert meshloom("run", "tsunami", *small, "--iterations", "2", "--out", "a").code == 0
    before = files_below(tmp_path)
    again = meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "3", "--set", "gauges.pier=[1, 2]")
    again.refused(2, "a/checkpoint.h5: the checkpoint has other monitors: not in it: pier; run anew")
    again = meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "3",
                     "--set", "gauges.deep=[]", "--set", 'gauges."Pier 3"=[1, 2]')  # fmt: skip
    again.refused(2, 'other monitors: not in it: "Pier 3"; not in this run: deep; run anew')
    moved = meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "3", "--set", "gauges.deep=[1, 2]")
    moved.refused(2, "a gauge cannot move at a restart (deep from [45000.0, 30000.0] to [1, 2])", "another name")
    assert files_below(tmp_path) == before
    same = ("--set", "gauges.deep=[45000, 30e3]", "--quiet")
    assert meshloom("run", "--restart", "a/checkpoint.h5", "--iterations", "3", *same).code == 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=300), unique=True, min_size=2, max_size=2))
@example(["../../up", "..%2F..%2Fup"])
@example(["a" * 300, "a" * 299])
def test_charts_and_maps_stay_in_their_folder_under_names_of_their_own(names: list[str]) -> None:
    folder = RunFolder(Path("/runs/one"))
    paths = [make(name) for name in names for make in (folder.map, lambda name: folder.chart(name, "csv"))]
    assert {path.parent for path in paths} == {folder.path} and len({*paths}) == 4
    assert all(len(path.name.encode()) < 256 and path.name.isprintable() for path in paths)


def test_files_are_named_in_the_order_to_look_at_them():
    """Pictures first, charts as they are numbered with their tables unnamed, a table without a drawing by itself."""
    names = ("run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd", "picture.png", "chart_a_1.csv", "chart_a_2.csv",
             "chart_b.csv", "chart_a_1.png", "chart_a_2.png", "map_c.png", "fields_0000012.vtu")  # fmt: skip
    assert [path.name for path in listed([Path(name) for name in names])] == [
        "picture.png", "chart_a_1.png", "chart_a_2.png", "map_c.png", "chart_b.csv", "fields.pvd", "checkpoint.h5",
        "monitors.csv", "run.toml",
    ]  # fmt: skip
