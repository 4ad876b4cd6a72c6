"""The files of fitted numbers: those that Meshloom comes with, and one's own.

Meshloom's say what each number is; they are also the list of the names that a file of one's own must have, and of their
types. Such a file (``own_file``) replaces the one of its class as a whole: numbers of a cost model are fitted together.
One that is not right is left as it is, one line says why, and Meshloom's own numbers are used.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args, get_type_hints

from meshloom.config import LARGEST, SMALLEST, Setting, read_settings
from meshloom.errors import ConfigError, known_name, nearest, other_than_file
from meshloom.target.numbers import CpuNumbers, GpuNumbers, Numbers
from meshloom.toml import Key, toml_key, toml_shown

FORMAT = 1  # of the files: with another one nobody knows what the names mean
VARIABLE = "MESHLOOM_DEVICES"
DEVICES = ("cpu", "nvidia", "amd")  # classes, each with a file
FOLDER = Path(__file__).with_name("devices")
_LARGEST = 2**31 - 1  # of whole numbers
_FORMAT, _DEVICE, _LIKE = ("format",), ("device",), ("like",)
Values = dict[Key, Any]  # {("rates", "per_byte"): 2.5e-13}


@cache
def numbers_of(device: str) -> Numbers:
    """The numbers of a class of devices, by its file's name: one's own where there are some, else Meshloom's."""
    usual = _packaged(device)
    try:
        own = own_file(device)
        return _made(usual if own is None else _read(own, device, usual))
    except ConfigError as problem:
        warnings.warn(f"{problem}; Meshloom's own numbers are used, and nothing is overwritten", stacklevel=2)
    return _made(usual)


def own_file(device: str) -> Path | None:
    """The file of one's own, where there is one: in the folder ``$MESHLOOM_DEVICES``, else in
    ``$XDG_CONFIG_HOME/meshloom/devices``, else in ``~/.config/meshloom/devices``."""
    asked, config = (os.environ.get(name, "") for name in (VARIABLE, "XDG_CONFIG_HOME"))
    usual = os.path.join(config if os.path.isabs(config) else "~/.config", "meshloom", "devices")
    folder = os.path.expanduser(asked or usual)
    if asked and not os.path.isdir(folder):
        raise ConfigError(f"{VARIABLE}={asked}: not a folder; name one with files such as {device}.toml, or unset it")
    path = Path(folder, f"{device}.toml")
    return path if not folder.startswith("~") and os.path.lexists(path) else None


def _packaged(device: str) -> Values:
    """What the file of the package says, with what it takes from the class that it is like."""
    said = {key: one.value for key, one in _settings(FOLDER / f"{device}.toml").items()}
    return _packaged(said[_LIKE]) | said if _LIKE in said else said


def _settings(path: Path) -> dict[Key, Setting]:
    """Every value of a file, with its place, by its whole key."""
    if what := other_than_file(path):
        raise ConfigError(f"{path}: {what}, not a file of numbers")
    return {one.key: one for setting in read_settings(path) for one in _opened(setting)}


def _opened(setting: Setting) -> Iterator[Setting]:
    """Tables in braces are opened, however deep."""
    if not isinstance(setting.value, dict):
        yield setting
    else:
        for part, value in setting.value.items():
            yield from _opened(replace(setting, key=(*setting.key, part), value=value))


def _read(path: Path, device: str, usual: Values) -> Values:
    """What a file of one's own says; ConfigError with the place unless it has the names and types of ``usual``."""
    said = _settings(path)
    required: Values = {_FORMAT: FORMAT, _DEVICE: device}
    for key, right in required.items():
        found = said.get(key)
        if found is None and _LIKE in said:
            continue
        if found is None or type(found.value) is not type(right) or found.value != right:
            where, got = (found.where, toml_shown(found.value)) if found else (path, "nothing")
            raise ConfigError(f"{where}: {toml_key(key)} must be {toml_shown(right)}, got {got}")
    base: Values = {}
    if _LIKE in said:
        known_name(f"class of devices at {said[_LIKE].where}:", said[_LIKE].value, DEVICES, error=ConfigError)
        base = {key: value for key, value in _packaged(said[_LIKE].value).items() if key in usual}
    for one in said.values():
        _check(one, {_LIKE: "cpu"} | usual)
    values = base | {key: one.value for key, one in said.items()}
    missing = [toml_key(key) for key in usual if key not in values and key != _LIKE]
    if missing:
        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise ConfigError(f'{path}: {missing[0]}{others} is missing; with like = "{device}" it is as Meshloom has it')
    return values


def _check(one: Setting, usual: Values) -> None:
    """ConfigError unless one of the usual names has a value of its type, and of a size that can be used."""
    if one.key not in usual and _of_own_strategy(one.key, usual):
        if not _suits(one.value, 1.0):
            raise ConfigError(f"{one.where}: {one.name} must be {_in_words(1.0)}, got {toml_shown(one.value)}")
        return
    if one.key not in usual:
        siblings = [key for key in usual if key[:-1] == one.key[:-1]] or [key[:1] for key in usual]
        names = dict.fromkeys(map(toml_key, siblings))
        raise ConfigError(f"{one.where}: unknown name '{one.name}'{nearest(one.name, names)}")
    if not _suits(one.value, usual[one.key]):
        raise ConfigError(f"{one.where}: {one.name} must be {_in_words(usual[one.key])}, got {toml_shown(one.value)}")


def _of_own_strategy(key: Key, usual: Values) -> bool:
    """Is it a number of a strategy that Meshloom does not have?"""
    tables, others = ("strategies", "layouts"), {one[:2] for one in usual}
    return len(key) == 3 and key[0] in tables and key[:1] in {one[:1] for one in usual} and key[:2] not in others


def _suits(value: Any, usual: Any) -> bool:
    """Has a value the type of the usual one, no NaN, and not below 0? Only what is usually 0 may be 0."""
    if isinstance(usual, list):
        return isinstance(value, list) and len(value) > 0 and all(_suits(one, usual[0]) for one in value)
    if isinstance(usual, str):
        return isinstance(value, str) and bool(value)
    if isinstance(usual, int):
        return type(value) is int and 1 <= value <= _LARGEST
    return type(value) in (int, float) and (SMALLEST <= value <= LARGEST or (value == 0 == usual))


def _in_words(usual: Any) -> str:
    if isinstance(usual, list):
        return f"{_in_words(usual[0])}, or several, in brackets"
    if isinstance(usual, str):
        return "a string in quotes"
    if isinstance(usual, int):
        return f"a whole number from 1 to {_LARGEST}"
    return "a number, 0 or larger" if usual == 0 else f"a number above 0 (from {SMALLEST} to {LARGEST})"


def _made(values: Values) -> Numbers:
    """The numbers as an object."""
    tree: dict[str, Any] = {}
    for (*above, last), value in values.items():
        inner = tree
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    made: Numbers = _built(CpuNumbers if tree["device"] == "cpu" else GpuNumbers, tree)
    return made


def _built(kind: Any, value: Any) -> Any:
    """A value of a file in the type that its field has."""
    if is_dataclass(kind):
        hints, make = get_type_hints(kind), cast(Any, kind)
        kept = {name: inner for name, inner in value.items() if (name,) not in (_FORMAT, _LIKE)}
        return make(**{name: _built(hints[name], inner) for name, inner in kept.items()})
    if isinstance(value, dict):
        return MappingProxyType({name: _built(get_args(kind)[1], inner) for name, inner in value.items()})
    return tuple(value) if isinstance(value, list) else float(value) if kind is float else value
