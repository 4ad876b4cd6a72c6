"""Files of fitted numbers: Meshloom's own say what each number is, and one's own are used whole, or not at all."""

from __future__ import annotations

import os
import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshloom.target import CPU, H200, device_files
from meshloom.target.device_files import DEVICES, FOLDER, FORMAT, VARIABLE, numbers_of, own_file

CPU_TEXT, NVIDIA_TEXT = ((FOLDER / f"{name}.toml").read_text() for name in ("cpu", "nvidia"))


@pytest.fixture(autouse=True)
def read_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    numbers_of.cache_clear()
    yield
    numbers_of.cache_clear()


def written(folder: Path, text: str, name: str = "cpu") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def told(device: str = "cpu") -> str:
    """The one line that is said about a file which is not used."""
    with pytest.warns(UserWarning) as seen:
        assert numbers_of(device) == usual(device)
    (one,) = seen
    assert "\n" not in str(one.message)
    return str(one.message)


def usual(device: str) -> Any:
    return device_files._made(device_files._packaged(device))


# --- Meshloom's own -----------------------------------------------------------------------------------------------


def test_there_is_a_file_for_every_class() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(DEVICES)
    for name in DEVICES:
        assert (usual(name).device, tomllib.loads((FOLDER / f"{name}.toml").read_text())["format"]) == (name, FORMAT)


@pytest.mark.parametrize("name", DEVICES)
def test_every_number_has_a_unit_and_a_line_on_what_it_is(name: str) -> None:
    for line in (FOLDER / f"{name}.toml").read_text().splitlines():
        if re.match(r'[a-z_]+ = [^"]', line) and not line.startswith("format"):
            assert re.search(r"  # \S", line), line


def test_files_are_packaged() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert "target/devices/*.toml" in project["tool"]["setuptools"]["package-data"]["meshloom"]


def test_amd_has_nvidias_numbers_but_for_the_speed() -> None:
    amd, nvidia = usual("amd"), usual("nvidia")
    assert amd.rates == nvidia.rates and amd.lines == nvidia.lines and amd.speed != nvidia.speed


# --- one's own ----------------------------------------------------------------------------------------------------


def test_a_copy_with_another_number_is_used(tmp_path: Path) -> None:
    written(tmp_path, CPU_TEXT.replace("per_atomic = 7e-9", "per_atomic = 3").replace("many = 64", "many = 128"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CPU.rates.per_atomic == 3.0 and isinstance(CPU.rates.per_atomic, float)
        assert CPU.cpu.chunks.many == 128 and CPU.rates.per_byte == usual("cpu").rates.per_byte
        assert H200.numbers == usual("nvidia"), "another class has a file of its own"


def test_a_file_may_say_what_differs(tmp_path: Path) -> None:
    written(tmp_path, 'format = 1\ndevice = "amd"\nlike = "nvidia"\n[rates]\nper_round = 1.0\n', "amd")
    found = numbers_of("amd")
    assert found.rates.per_round == 1.0 and found.order == usual("amd").order and found.speed == usual("nvidia").speed


def test_rates_of_a_file_are_those_of_the_device_that_it_was_measured_on(tmp_path: Path) -> None:
    written(tmp_path, NVIDIA_TEXT.replace("speed = 132.0", "speed = 66.0"), "nvidia")
    assert H200.rates.per_byte == usual("nvidia").rates.per_byte / 2


def test_where_files_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = tmp_path / "config" / "meshloom" / "devices"
    there.mkdir(parents=True)
    mine = written(there, CPU_TEXT)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert own_file("cpu") == mine and own_file("nvidia") is None
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert own_file("cpu") is None
    (tmp_path / "config").rename(tmp_path / ".config")
    assert own_file("cpu") == tmp_path / ".config" / "meshloom" / "devices" / "cpu.toml"


WRONG = {
    "damaged": (CPU_TEXT[: CPU_TEXT.index("saturating_blocks") + 19], ("cpu.toml:", "not valid TOML")),
    "of another version": (CPU_TEXT.replace("format = 1", "format = 2"), ("cpu.toml:3: format must be 1, got 2",)),
    "without a version": (CPU_TEXT.replace("format = 1", ""), ("cpu.toml: format must be 1, got nothing",)),
    "of another class": (CPU_TEXT.replace('"cpu"', '"gpu"'), ('device must be "cpu", got "gpu"',)),
    "like nobody": (CPU_TEXT.replace("format = 1", 'format = 1\nlike = "gpu"'), ("unknown class", "cpu, nvidia, amd")),
    "misspelt": (CPU_TEXT.replace("per_flop", "per_flops"),
                 ("unknown name 'rates.per_flops'; did you mean 'rates.per_flop'",)),
    "unknown table": (CPU_TEXT + "\n[moon]\nphase = 1.0\n", ("unknown name 'moon.phase'",)),
    "missing": (CPU_TEXT.replace("per_flop", "# per_flop"), ("rates.per_flop is missing", 'like = "cpu"')),
    "a word": (CPU_TEXT.replace("1.25e-10", '"fast"'), ('rates.per_flop must be a number above 0', 'got "fast"')),
    "NaN": (CPU_TEXT.replace("1.25e-10", "nan"), ("rates.per_flop must be a number above 0", "got nan")),
    "endless": (CPU_TEXT.replace("1.25e-10", "inf"), ("rates.per_flop must be", "got inf")),
    "negative": (CPU_TEXT.replace("1.25e-10", "-1.25e-10"), ("rates.per_flop must be", "got -1.25e-10")),
    "nothing": (CPU_TEXT.replace("1.25e-10", "0.0"), ("rates.per_flop must be", "got 0.0")),
    "true": (CPU_TEXT.replace("1.25e-10", "true"), ("rates.per_flop must be", "got true")),
    "huge": (CPU_TEXT.replace("small_elements = 8192", f"small_elements = {10**400}"), ("small_elements must be",)),
    "half": (CPU_TEXT.replace("small_elements = 8192", "small_elements = 0.5"),
             ("a whole number from 1 to", "got 0.5")),
    "no list": (CPU_TEXT.replace("[8, 16, 32, 64]", "8"), ("lines.side_by_side must be", "in brackets, got 8")),
    "empty list": (CPU_TEXT.replace("[8, 16, 32, 64]", "[]"), ("lines.side_by_side must be", "got []")),
    "a table": (CPU_TEXT.replace("1.25e-10", "{a = 1}"), ("unknown name 'rates.per_flop.a'",)),
    "empty": ("", ("format must be 1, got nothing",)),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_file_that_is_not_right_is_left_alone_and_told_in_one_line(kind: str, tmp_path: Path) -> None:
    text, words = WRONG[kind]
    path = written(tmp_path, text)
    message = told()
    assert all(word in message for word in words), message
    assert str(path) in message and message.endswith("Meshloom's own numbers are used, and nothing is overwritten")
    assert path.read_text() == text and [one.name for one in tmp_path.iterdir()] == ["cpu.toml"]
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        numbers_of("cpu")


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "cpu.toml").mkdir()
    assert "a folder, not a file of numbers" in told()
    os.mkfifo(tmp_path / "nvidia.toml")
    assert "a pipe, not a file of numbers" in told("nvidia")
    (tmp_path / "amd.toml").symlink_to(tmp_path / "nowhere")
    assert "cannot be read" in told("amd")


def test_a_variable_that_names_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    assert f"{VARIABLE}={tmp_path}/nowhere: not a folder; name one with files such as cpu.toml" in told()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "cpu.toml").write_bytes(b"\xff\xfe" + CPU_TEXT.encode())
    assert "not a text file" in told()
