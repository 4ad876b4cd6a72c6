"""Configurations: what is accepted, and that every complaint names place, key and remedy."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshloom.config import (
    Setting,
    build,
    flatten,
    option,
    parse_set,
    parse_settings,
    read_settings,
    section,
    table,
    to_toml,
)
from meshloom.errors import ConfigError
from meshloom.toml import toml_value
from tests.letters import ENCODABLE


def _check_color(key: str, value: Any) -> None:
    if value not in ("red", "green") and not isinstance(value, dict):
        raise ValueError(f"is {value!r}; allowed: red, green")


@dataclass(frozen=True)
class Box:
    width: int = option(3, "cells across", low=1, high=10)
    depth: float = option(0.5, "how deep", above=0.0)
    kind: str = option("oak", "which wood", allowed=("oak", "pine"))
    open: bool = option(False, "without a lid")
    corner: tuple[float, float] = option((0.0, 1.0), "where it stands")
    labels: tuple[str, ...] = option(("a",), "what is written on it")
    plan: str = option("", "a drawing", path=True)


@dataclass(frozen=True)
class Shelf:
    box: Box = section(Box, "The box.")
    spare: Box = section(Box, "Another box.", width=7)
    colors: dict[str, Any] = table("Colors by name.", _check_color)


def made(text: str, *changes: str) -> Shelf:
    return build(Shelf, [*parse_settings(text, "shelf.toml"), *map(parse_set, changes)])


def complaint(text: str, *changes: str) -> str:
    with pytest.raises(ConfigError) as caught:
        made(text, *changes)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_mark_in_front_of_the_text_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbf[run]\niterations = 3\n")
    assert [one.value for one in read_settings(tmp_path / "a.toml")][-1] == 3


def test_defaults_and_values():
    assert made("") == Shelf()
    shelf = made('[box]\nwidth = 4\ndepth = 2\ncorner = [1, 2.5]\nlabels = "one"\n[colors]\nlid = "red"\n')
    assert (shelf.box.width, shelf.box.depth, shelf.box.corner) == (4, 2.0, (1.0, 2.5))
    assert isinstance(shelf.box.depth, float) and shelf.box.labels == ("one",)
    assert shelf.colors == {"lid": "red"} and shelf.spare.width == 7


def test_later_settings_win():
    assert made("box.width = 4", "box.width=5", "box.width=6").box.width == 6


def test_set_takes_bare_words_and_toml_values():
    assert made("", "box.kind=pine").box.kind == "pine"
    assert made("", 'box.kind="pine"').box.kind == "pine"
    assert made("", "box.corner=[3, 4]").box.corner == (3.0, 4.0)
    assert made("", "box.open=true").box.open is True
    assert made("", "box.plan=2024").box.plan.endswith("2024")
    assert made("", "colors.lid={a = 1}").colors == {"lid": {"a": 1}}
    assert made("", "colors.lid.a=1", "colors.lid.b=2").colors == {"lid": {"a": 1, "b": 2}}


def test_paths_start_from_the_file_that_names_them(tmp_path: Path):
    file = tmp_path / "shelf.toml"
    file.write_text('[box]\nplan = "box.svg"\n')
    assert build(Shelf, read_settings(file)).box.plan == str(tmp_path / "box.svg")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("\n[box]\n\nwidht = 3", ["shelf.toml:4:", "unknown key 'box.widht'", "did you mean 'box.width'"]),
        ("[box]\nwidth = 3\n\n[boxx]\n", ["shelf.toml:4:", "'boxx'", "did you mean 'box'"]),
        ("width = 3", ["shelf.toml:1:", "did you mean 'box.width'"]),
        ("[box]\nzzz = 1", ["'box.zzz'", "allowed: box.width, box.depth"]),
        ("[box]\nwidth.inner = 1", ["unknown key 'box.width.inner'"]),
        ("[[box]]\nwidth = 1", ["shelf.toml:1:", "box is a section"]),
        ("box = 3", ["box is a section", "box.width"]),
        ("colors = 3", ["colors is a table"]),
        ("[box]\nwidth = 11", ["shelf.toml:2: box.width must be a whole number from 1 up to 10, got 11"]),
        ("[box]\nwidth = 3.0", ["a whole number", "got 3.0"]),
        ("[box]\nwidth = true", ["a whole number", "got true"]),
        ("[box]\ndepth = 0", ["a number above 0.0, got 0"]),
        ("[box]\ndepth = nan", ["a number above 0.0, got nan"]),
        ("[box]\ndepth = inf", ["got inf"]),
        ("[box]\ndepth = 'deep'", ['got "deep"']),
        ("[box]\nkind = 'pime'", ["one of oak, pine", "did you mean 'pine'"]),
        ("[box]\nkind = 3", ["one of oak, pine, got 3"]),
        ("[box]\nopen = 1", ["true or false, got 1"]),
        ("[box]\ncorner = [1, 2, 3]", ["2 numbers in brackets, got [1, 2, 3]"]),
        ("[box]\ncorner = [1, 'a']", ["2 numbers in brackets"]),
        ("[box]\nlabels = [1]", ["strings in brackets"]),
        ("[box]\nlabels = [\n 'a',\n 'b',\n]\n# so\nwidth = 0", ["shelf.toml:7:"]),
        ("[colors]\nlid = 'blue'", ["shelf.toml:2: colors.lid is 'blue'; allowed: red, green"]),
        ("[box]\nwidth = ", ["shelf.toml:2: not valid TOML"]),
        ("[box]\nwidth = 1\nwidth = 2", ["shelf.toml:3: not valid TOML"]),
        ("[box\n", ["shelf.toml:1: not valid TOML"]),
    ],
)
def test_complaints_name_line_key_and_remedy(text: str, parts: list[str]):
    message = complaint(text)
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("box.width=many", ["--set box.width=many: box.width must be a whole number"]),
        ("box.widht=3", ["--set box.widht=3", "did you mean 'box.width'"]),
        ("box.width", ["--set box.width: expected key=value"]),
        ("=3", ["expected key=value"]),
        ("box..width=3", ["expected key=value"]),
        ("box.width=1\nbox.depth=3", ["a whole number"]),
    ],
)
def test_complaints_about_set(change: str, parts: list[str]):
    message = " ".join(complaint("", change).split("\n"))
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a" * 1_000_001])
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes):
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml: "):
        read_settings(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "missing.toml")


def test_written_toml_is_read_back_and_explains_every_option():
    shelf = made("[box]\nwidth = 9\nkind = 'pine'\nlabels = ['x', 'y \"z\"']\n[colors]\nlid = {a = 1}\n")
    text = to_toml(shelf, {"case": "shelf"})
    settings = [s for s in parse_settings(text, "written") if s.key != ("case",)]
    assert build(Shelf, settings) == shelf
    for words in ("cells across", "from 1 up to 10", "one of oak, pine", "The box."):
        assert words in text
    assert tomllib.loads(to_toml(shelf, {}, comments=False)) == tomllib.loads(to_toml(shelf, {}))


@dataclass(frozen=True)
class Room:
    shelf: Box = section(Box, "A shelf.")
    windows: int = option(2, "how many let light in", low=0)
    heated: bool = option(True, "with a radiator")


def test_options_without_a_section_are_written_before_all_sections():
    room = build(Room, map(parse_set, ("windows=5", "heated=false", "shelf.width=4")))
    text = to_toml(room, {"case": "room"})
    assert "# how many let light in (a whole number from 0)\nwindows = 5\n" in text
    assert text.index("windows = 5") < text.index("[shelf]")
    assert build(Room, [s for s in parse_settings(text, "written") if s.key != ("case",)]) == room
    with pytest.raises(ConfigError, match=r"--set windows=-1: windows must be a whole number from 0, got -1"):
        build(Room, [parse_set("windows=-1")])


def test_a_table_may_come_with_entries():
    @dataclass(frozen=True)
    class Garden:
        colors: dict[str, Any] = table("Colors by name.", lambda key, value: None, {"rose": "red", "lily": "white"})

    assert build(Garden, []).colors == {"rose": "red", "lily": "white"}
    changed = build(Garden, map(parse_set, ("colors.rose=pink", "colors.iris=blue")))
    assert changed.colors == {"rose": "pink", "lily": "white", "iris": "blue"}
    assert build(Garden, []).colors["rose"] == "red", "the default is not touched"
    assert build(Garden, parse_settings(to_toml(changed, {}), "written")) == changed


def test_flatten_lists_every_key_once():
    assert flatten(Shelf())["spare.width"] == 7
    assert len(flatten(Shelf())) == 2 * 7 + 1


_plain = st.one_of(
    st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(ENCODABLE), st.lists(st.integers())
)


@given(_plain)
def test_any_value_survives_writing(value: Any):
    assert tomllib.loads(f"v = {toml_value(value)}")["v"] == value


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), _plain, max_size=5))
def test_every_key_of_a_file_is_found_on_its_line(values: dict[str, Any]):
    text = "".join(f"# about {key}\n{key} = {toml_value(value)}\n\n" for key, value in values.items())
    expected = [Setting((key,), value, f"f:{3 * n + 2}") for n, (key, value) in enumerate(values.items())]
    assert parse_settings(text, "f") == expected
