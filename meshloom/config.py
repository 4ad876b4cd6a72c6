"""Typed configurations: frozen dataclasses filled from TOML files and ``--set key=value``, checked key by key.

A configuration is a dataclass whose fields are sections (again dataclasses), options (``option``) or free tables
(``table``). Every value arrives as a ``Setting`` that knows where it was written, so that each complaint names a file
and line, or the ``--set`` it came from, and says what would be right.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from meshloom.errors import ConfigError, nearest, shown
from meshloom.records import dataclass
from meshloom.toml import Key, check_depth, key_and_rest, statements, toml_key, toml_shown, toml_value, value_of

Config = TypeVar("Config")
Names = Sequence[str] | Callable[[], Iterable[str]]

_MAX_BYTES = 1_000_000  # a larger file is not a configuration
_COMMENT_WIDTH = 100
#: The size of numbers that are not 0. Beyond it a product of two or three is 0 or infinite: nothing can be computed.
SMALLEST, LARGEST = 1e-100, 1e100
_TOO_LARGE = 2**63  # TOML knows whole numbers of 64 bits


# --- defining a configuration -----------------------------------------------------------------------------
def option(
    default: Any,
    doc: str,
    *,
    allowed: Names = (),
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    path: bool | str = False,
    accepts: tuple[str, Callable[[Any], bool]] | None = None,
) -> Any:
    """A dataclass field for one value.

    ``allowed`` lists the words a string may be (or is a function that does); ``low`` <= value, ``above`` < value and
    value <= ``high`` bound a number; ``path`` marks a file name, taken relative to the file that says it, or is the
    ending of files that may stand in place of the words; ``accepts`` is any other condition, in words and as a test.
    """
    rule = {"doc": doc, "allowed": allowed, "low": low, "above": above, "high": high, "path": path,
            "accepts": accepts}  # fmt: skip
    return field(default=default, metadata=rule)


def section(cls: type, doc: str, **defaults: Any) -> Any:
    """A dataclass field for a section, itself a dataclass; ``defaults`` replace its own."""
    return field(default_factory=lambda: cls(**defaults), metadata={"doc": doc})


def table(doc: str, check: Callable[[str, Any], None], default: Mapping[str, Any] | None = None) -> Any:
    """A dataclass field for a table with free keys; ``check(key, value)`` raises ValueError with the reason.

    Settings add to the ``default`` entries, or replace them one by one.
    """
    return field(default_factory=lambda: dict(default or {}), metadata={"doc": doc, "check": check})


_TYPES = (int, float, bool, str)


def check_definition(cls: type) -> None:
    """ValueError, which goes on after the name of a class, unless every field of a configuration is a section, a table,
    or an option of a type that is known and with a default that it allows itself."""
    try:
        schema, values = _schema(cls), _flat(cls())
    except Exception as error:  # a default is missing, or an annotation means nothing
        raise ValueError(f"has settings that cannot be made: {type(error).__name__}: {error}") from None
    for key, entry in schema.items():
        name = toml_key(key)
        if "doc" not in entry.rule:
            raise ValueError(f"has the setting {name} without a word about it; write option(..., 'what it is')")
        if entry.is_section or entry.is_table:
            continue
        inner = [kind for kind in get_args(entry.type) if kind is not Ellipsis]
        if "allowed" not in entry.rule or not {*(inner or [entry.type])} <= {*_TYPES}:
            raise ValueError(f"has the setting {name} of type {entry.type}; an option is int, float, bool, str or a"
                             " tuple of these, a section a dataclass")  # fmt: skip
        try:
            _checked(Setting(key, values[key], "default"), entry)
        except ConfigError as problem:
            raise ValueError(f"has a wrong {problem}") from None


# --- where values come from -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One value for one key, and where it was written."""

    key: Key  # ("mesh", "i"); a part may hold anything, dots too
    value: Any
    where: str  # "case.toml:3" or "--set mesh.i=33"
    text: str | None = None  # what was typed, for values whose quotes were left out
    base: Path = Path()  # the directory that relative paths start from

    @property
    def name(self) -> str:
        """The key for a message: as it would be written, but not too long."""
        return _short(toml_key(self.key), 80)


def read_settings(path: Path) -> list[Setting]:
    """All settings of a TOML file, in order; ConfigError with file and line when it is not TOML."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes, so not a configuration file")
        text = path.read_bytes().decode("utf-8-sig")  # some editors put a mark in front
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file (byte {error.start} is not UTF-8); expected TOML") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a NUL in the name
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse_settings(text, str(path), path.parent)


def parse_settings(text: str, name: str, base: Path = Path()) -> list[Setting]:
    """All settings of a TOML text that is called ``name`` in messages."""
    return [Setting(one.key, one.value, f"{name}:{one.line}", base=base) for one in statements(text, name)]


def parse_set(text: str) -> Setting:
    """``mesh.i=33`` as a Setting. Values are written as in TOML; the quotes of a word may be left out."""
    where = f"--set {_short(' '.join(text.split()), 80)}"
    check_depth(text, where)
    found = key_and_rest(text)
    if found is None:
        raise ConfigError(f"{where}: expected key=value with a dotted key, such as --set mesh.i=33;"
                          """ a name with other characters stands in quotes: 'gauges."Pier 3"=[1, 2]'"""
                          + (", where a backslash is written twice" if "\\" in text else ""))  # fmt: skip
    key, written = found
    try:
        value = value_of(written)
    except ValueError:
        value = written
    return Setting(key, value, where, text=written)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


# --- building and checking --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """What may stand under one dotted key."""

    type: Any  # a dataclass for a section, dict for a table, else the type of the value
    rule: Mapping[str, Any]

    @property
    def is_section(self) -> bool:
        return is_dataclass(self.type)

    @property
    def is_table(self) -> bool:
        return "check" in self.rule


def _schema(cls: type, prefix: Key = ()) -> Mapping[Key, _Entry]:
    """Every key of a configuration class, sections before their contents."""
    found: dict[Key, _Entry] = {}
    hints = get_type_hints(cls)
    for f in fields(cls):
        entry = found[*prefix, f.name] = _Entry(hints[f.name], f.metadata)
        if entry.is_section:
            found |= _schema(entry.type, (*prefix, f.name))
    return found


def build(cls: type[Config], settings: Iterable[Setting], start: Config | None = None, *, old: bool = False) -> Config:
    """A ``cls`` from ``start`` (or the defaults) with the settings applied in order, each one checked.

    What a section names as ``retired`` (name -> why) is ignored, with a warning unless the settings are of an ``old``
    run, whose owner did not write them now. Those are all that there were then: what is missing among them, and a
    section has in ``before_it_was_a_setting``, has the value from there.
    """
    schema = _schema(cls)
    values = _flat(cls() if start is None else start)
    if old:
        values |= {(*key, name): value for key, entry in schema.items() if entry.is_section
                   for name, value in getattr(entry.type, "before_it_was_a_setting", {}).items()}  # fmt: skip
    tables = {key: _Table(key, entry, values[key]) for key, entry in schema.items() if entry.is_table}
    ignored: set[Key] = set()
    for setting in settings:
        for one in _opened(setting, schema):
            key = _known_part(one.key, schema)
            entry = schema.get(key)
            if key != one.key and (why := _retired(entry, one.key[len(key)])):
                if not old and one.key[: len(key) + 1] not in ignored:
                    ignored.add(one.key[: len(key) + 1])
                    name = toml_key(one.key[: len(key) + 1])
                    warnings.warn(f"{one.where}: {name} is no longer a setting, and is ignored: {why}", stacklevel=2)
                continue
            if entry is None or (key != one.key and not entry.is_table):
                raise ConfigError(f"{one.where}: unknown key '{one.name}'{_hint(one.key, schema)}")
            _check_text(one)
            if entry.is_section:
                _check_header(one, schema)
            elif entry.is_table:
                tables[key].put(one)
            else:
                values[key] = _checked(one, entry)
    return _assemble(cls, values | {key: one.checked() for key, one in tables.items()})


def checked_section(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """A section made of an entry of a free table; ValueError with what is wrong, for the table's ``check``."""
    schema, parts = _schema(cls), {}
    for name, value in values.items():
        if (name,) not in schema:
            raise ValueError(f"has the unknown key {shown(name)}{nearest(name, [key[0] for key in schema])}")
        try:
            parts[name] = _checked(Setting((name,), value, ""), schema[name,])
        except ConfigError as error:
            raise ValueError(f"has a wrong entry{error}") from None
    return cls(**parts)


def _retired(entry: _Entry | None, name: str) -> str:
    """Why a section has no such setting any more; '' where it never had."""
    return str(getattr(entry.type, "retired", {}).get(name, "")) if entry is not None and entry.is_section else ""


def _opened(setting: Setting, schema: Mapping[Key, _Entry]) -> Iterator[Setting]:
    """A section or free table in braces as settings of what is in it, however deep; anything else as it is."""
    entry = schema.get(setting.key)
    if entry is None or not (entry.is_section or entry.is_table) or not isinstance(setting.value, dict):
        yield setting
        return
    yield replace(setting, value={})
    for part, value in setting.value.items():
        yield from _opened(replace(setting, key=(*setting.key, part), value=value), schema)


def _check_text(setting: Setting) -> None:
    """Half characters, which is what bytes that are no text become in arguments, cannot be written to any file."""
    try:
        f"{toml_key(setting.key)}{_strings(setting.value)}".encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{setting.where}: {setting.name} is not text: a byte in it is not UTF-8") from None


def _strings(value: Any) -> str:
    """All the text in a value."""
    if isinstance(value, dict):
        return "".join(map(_strings, (*value, *value.values())))
    return "".join(map(_strings, value)) if isinstance(value, list | tuple) else value if isinstance(value, str) else ""


def choices(cls: type) -> dict[str, tuple[str, ...]]:
    """The words to choose from, of every dotted key that takes one of some words."""
    rules = {key: entry.rule for key, entry in _schema(cls).items() if not (entry.is_section or entry.is_table)}
    return {toml_key(key): words for key, rule in rules.items() if (words := _names(rule))}


def flatten(config: Any) -> dict[str, Any]:
    """{dotted key: value} of a configuration; tables stay whole."""
    return {toml_key(key): value for key, value in _flat(config).items()}


def described(config: Any) -> list[tuple[str, Any, Any, str]]:
    """(dotted key, value, the default, what it means) of everything in a configuration; tables stay whole."""
    schema, usual = _schema(type(config)), _flat(type(config)())
    return [(toml_key(key), value, usual[key], schema[key].rule["doc"]) for key, value in _flat(config).items()]


def _flat(config: Any, prefix: Key = ()) -> dict[Key, Any]:
    values: dict[Key, Any] = {}
    for f in fields(config):
        value, key = getattr(config, f.name), (*prefix, f.name)
        values |= _flat(value, key) if is_dataclass(value) else {key: value}
    return values


def _assemble(cls: type[Config], values: Mapping[Key, Any], prefix: Key = ()) -> Config:
    """The inverse of ``_flat``."""
    hints = get_type_hints(cls)
    parts = {}
    for f in fields(cls):  # type: ignore[arg-type]
        key, kind = (*prefix, f.name), hints[f.name]
        is_section = isinstance(kind, type) and is_dataclass(kind)
        parts[f.name] = _assemble(kind, values, key) if is_section else values[key]
    return cls(**parts)


def _known_part(key: Key, schema: Mapping[Key, _Entry]) -> Key:
    """The longest leading part of a key that the schema knows; () when there is none."""
    while key and key not in schema:
        key = key[:-1]
    return key


def _hint(key: Key, schema: Mapping[Key, _Entry]) -> str:
    """What was probably meant: the same name in another section, a similar key, or the section's keys."""
    elsewhere = [known for known in schema if known[-1:] == key[-1:]]
    if elsewhere:
        return f"; did you mean '{toml_key(elsewhere[0])}'?"
    name = _short(toml_key(key), 200)
    hint = nearest(name, [toml_key(known) for known, entry in schema.items() if len(key) == 1 or not entry.is_section])
    if "did you mean" in hint:
        return hint
    siblings = [known for known in schema if known[:-1] == key[:-1]] or [known for known in schema if len(known) == 1]
    return nearest(name, map(toml_key, siblings))


def _check_header(setting: Setting, schema: Mapping[Key, _Entry]) -> None:
    """A section's name may stand alone as a header, but not be given a value."""
    if setting.value != {}:
        inside = ", ".join(toml_key(known) for known in schema if known[:-1] == setting.key)
        raise ConfigError(f"{setting.where}: {setting.name} is a section, not a value; its keys: {inside}")


class _Table:
    """A free table while settings are put into it. An entry that is put together from several settings is judged when
    all of them are there; the place that is named is where what is wrong in the end first was."""

    def __init__(self, key: Key, entry: _Entry, start: dict[str, Any]):
        self.key, self.entry, self.content = key, entry, dict(start)
        self.problems: dict[str, tuple[str, str]] = {}  # of an entry: what, where

    def put(self, setting: Setting) -> None:
        """One entry, or a part of one, replaced."""
        below = setting.key[len(self.key) :]
        if not below:
            if setting.value != {}:
                raise ConfigError(f"{setting.where}: {setting.name} is a table, not a value; {self.entry.rule['doc']}")
            return
        name = below[0]
        self.content[name] = _replaced(self.content.get(name), below[1:], setting.value)
        try:
            self.entry.rule["check"](name, self.content[name])
            self.problems.pop(name, None)
        except ValueError as problem:
            if self.problems.get(name, ("", ""))[0] != str(problem):
                self.problems[name] = str(problem), setting.where

    def checked(self) -> dict[str, Any]:
        """What it holds; ConfigError where an entry is wrong."""
        for name, (problem, where) in self.problems.items():
            raise ConfigError(f"{where}: {_short(toml_key((*self.key, name)), 80)} {problem}")
        return self.content


def _replaced(before: Any, path: Key, value: Any) -> Any:
    """``before`` with what is at the end of a path through its tables replaced."""
    if not path:
        return value
    tables = before if isinstance(before, dict) else {}
    return tables | {path[0]: _replaced(tables.get(path[0]), path[1:], value)}


def _checked(setting: Setting, entry: _Entry) -> Any:
    """The setting's value in the entry's type, or ConfigError that names what is allowed."""
    value = setting.value
    if entry.type is str and not isinstance(value, str) and setting.text is not None:
        value = setting.text  # --set mesh.file=2024 means the word
    converted = _converted(entry.type, value)
    if converted is None or not _within(converted, entry.rule):
        allowed = _names(entry.rule)
        similar = nearest(value, allowed) if allowed and isinstance(value, str) else ""
        guess = similar if "did you mean" in similar else ""
        must = f"{setting.where}: {setting.name} must be {_expected(entry)}{_size_text(entry.type, value)}"
        raise ConfigError(f"{must}, got {toml_shown(value)}{guess}")
    is_file = entry.rule["path"] and converted and converted not in _names(entry.rule)
    return _absolute(setting, converted) if is_file else converted


def _absolute(setting: Setting, path: str) -> str:
    """The path of a file from the root; ConfigError where no file can have that name, or no file can hold it."""
    try:
        if "\0" in path:
            raise ValueError("no file name has a NUL in it")
        found = str((setting.base / Path(path).expanduser()).absolute())
        found.encode()
    except UnicodeEncodeError:
        reason = "the name of a folder above it is not UTF-8"
    except (ValueError, RuntimeError, OSError) as error:  # no home to expand ~ to, no folder that we are in
        reason = str(error)
    else:
        return found
    raise ConfigError(f"{setting.where}: {setting.name} cannot be {toml_shown(path)}: {reason}") from None


def _size_text(kind: Any, value: Any) -> str:
    """What to add where a number has no size that can be computed with."""
    parts = value if isinstance(value, list | tuple) else (value,)
    odd = [v for v in parts if isinstance(v, int | float) and (0 < abs(v) < SMALLEST or LARGEST < abs(v) < math.inf)]
    return f" (numbers are 0, or {SMALLEST} to {LARGEST} in size)" if odd and float in (kind, *get_args(kind)) else ""


def _converted(kind: Any, value: Any) -> Any:
    """``value`` as ``kind``; None when it is something else (a bool is no number, 3.0 no whole number)."""
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        parts = value if isinstance(value, list | tuple) else (value,)
        if inner[-1] is Ellipsis:  # any number of them; one may stand without brackets
            inner = inner[:1] * len(parts)
        converted = tuple(_converted(k, v) for k, v in zip(inner, parts, strict=False))
        return converted if len(parts) == len(inner) and None not in converted else None
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if value == 0 or SMALLEST <= abs(value) <= LARGEST else None  # no nan, no inf
    if kind is int and type(value) is int and abs(value) >= _TOO_LARGE:
        return None
    return value if type(value) is kind else None


def _within(value: Any, rule: Mapping[str, Any]) -> bool:
    allowed = _names(rule)
    if allowed and value not in allowed and not (rule["path"] and value.endswith(rule["path"])):
        return False
    if rule["accepts"] and not rule["accepts"][1](value):
        return False
    parts = value if isinstance(value, tuple) else (value,)
    low, above, high = rule["low"], rule["above"], rule["high"]
    return all((low is None or low <= part) and (above is None or above < part) and (high is None or part <= high)
               for part in parts)  # fmt: skip


def _names(rule: Mapping[str, Any]) -> tuple[str, ...]:
    allowed = rule.get("allowed", ())
    return tuple(allowed() if callable(allowed) else allowed)


def _expected(entry: _Entry) -> str:
    """In words: ``a whole number from 1 to 10``, ``one of double, single``, ``4 numbers``."""
    allowed, rule = _names(entry.rule), entry.rule
    if allowed:
        return f"one of {', '.join(allowed)}" + (f", or a {rule['path']} file" if rule["path"] else "")
    if get_origin(entry.type) is tuple:
        inner = get_args(entry.type)
        many = "" if inner[-1] is Ellipsis else f"{len(inner)} "
        words = "strings in brackets" if inner[0] is str else f"{many}numbers in brackets"
    else:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[entry.type]
    bounds = [
        f"from {rule['low']}" if rule["low"] is not None else "",
        f"above {rule['above']}" if rule["above"] is not None else "",
        f"up to {rule['high']}" if rule["high"] is not None else "",
    ]
    return " ".join([words, *(bound for bound in bounds if bound), *(rule["accepts"] or ())[:1]])


# --- writing ----------------------------------------------------------------------------------------------


def to_toml(
    config: Any, head: Mapping[str, Any], *, comments: bool = True, remarks: Mapping[str, str] | None = None
) -> str:
    """The whole configuration as TOML that ``build`` accepts; ``head`` are keys to put at the top.

    With ``comments``, the documentation of every section and option stands above it; ``remarks`` by the name of a
    section are what is to be added to its own.
    """
    text_lines = [f"{toml_key((key,))} = {toml_value(value)}" for key, value in head.items()]
    return "\n".join([*text_lines, *_section_lines(config, (), comments, remarks or {})]) + "\n"


def _section_lines(config: Any, prefix: Key, comments: bool, remarks: Mapping[str, str]) -> Iterator[str]:
    """What is in a section, or in the whole configuration."""
    schema = _schema(type(config))
    # TOML gives every line after a header to that header, so options without a section come first.
    sections = [f for f in fields(config) if schema[f.name,].is_section or schema[f.name,].is_table]
    for f in fields(config):
        if f not in sections:
            yield from _option_lines(f.name, getattr(config, f.name), schema[f.name,], comments)
    for f in sections:
        value, key = getattr(config, f.name), (*prefix, f.name)
        doc = " ".join(filter(None, [f.metadata["doc"], "" if prefix else remarks.get(f.name)]))
        yield from ("", *(_comment(doc) if comments else ()), f"[{toml_key(key)}]")
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from _option_lines(name, inner, None, comments)
        else:
            yield from _section_lines(value, key, comments, remarks)


def _option_lines(name: str, value: Any, entry: _Entry | None, comments: bool) -> list[str]:
    """One option, below what it means."""
    above = _comment(f"{entry.rule['doc']} ({_expected(entry)})") if comments and entry is not None else []
    return [*above, f"{toml_key((name,))} = {toml_value(value)}"]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ")
