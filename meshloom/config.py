"""Typed configurations: frozen dataclasses filled from TOML files and ``--set key=value``, checked key by key.

A configuration is a dataclass whose fields are sections (again dataclasses), options (``option``) or free
tables (``table``). Every value arrives as a ``Setting`` that knows where it was written, so that each
complaint names a file and line, or the ``--set`` it came from, and says what would be right.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from meshloom.errors import ConfigError, nearest

Config = TypeVar("Config")
Names = Sequence[str] | Callable[[], Iterable[str]]

_MAX_BYTES = 1_000_000  # a larger file is not a configuration
_COMMENT_WIDTH = 100


# --- defining a configuration -----------------------------------------------------------------------------


def option(
    default: Any,
    doc: str,
    *,
    allowed: Names = (),
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    path: bool = False,
    accepts: tuple[str, Callable[[Any], bool]] | None = None,
) -> Any:
    """A dataclass field for one value.

    ``allowed`` lists the words a string may be (or is a function that does); ``low`` <= value, ``above`` <
    value and value <= ``high`` bound a number; ``path`` marks a file name, taken relative to the file that
    says it; ``accepts`` is any other condition, in words and as a test.
    """
    rule = {
        "doc": doc, "allowed": allowed, "low": low, "above": above, "high": high, "path": path, "accepts": accepts
    }  # fmt: skip
    return field(default=default, metadata=rule)


def section(cls: type, doc: str, **defaults: Any) -> Any:
    """A dataclass field for a section, itself a dataclass; ``defaults`` replace its own."""
    return field(default_factory=lambda: cls(**defaults), metadata={"doc": doc})


def table(doc: str, check: Callable[[str, Any], None], default: Mapping[str, Any] | None = None) -> Any:
    """A dataclass field for a table with free keys; ``check(key, value)`` raises ValueError with the reason.

    Settings add to the ``default`` entries, or replace them one by one.
    """
    return field(default_factory=lambda: dict(default or {}), metadata={"doc": doc, "check": check})


# --- where values come from -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One value for one dotted key, and where it was written."""

    key: str
    value: Any
    where: str  # "case.toml:3" or "--set mesh.i=33"
    text: str | None = None  # what was typed, for values whose quotes were left out
    base: Path = Path()  # the directory that relative paths start from


def read_settings(path: Path) -> list[Setting]:
    """All settings of a TOML file, in order; ConfigError with file and line when it is not TOML."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes, so not a configuration file")
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file (byte {error.start} is not UTF-8); expected TOML") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_settings(text, str(path), path.parent)


def parse_settings(text: str, name: str, base: Path = Path()) -> list[Setting]:
    """All settings of a TOML text that is called ``name`` in messages."""
    text = text.replace("\r\n", "\n")
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _line_of(error, text)
        raise ConfigError(f"{name}:{line}: not valid TOML: {message}") from None
    return [Setting(".".join(keys), value, f"{name}:{line}", base=base) for keys, value, line in _statements(text)]


def parse_set(text: str) -> Setting:
    """``mesh.i=33`` as a Setting. Values are written as in TOML; the quotes of a word may be left out."""
    where = f"--set {' '.join(text.split())}"
    key, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key, re.ASCII):
        raise ConfigError(f"{where}: expected key=value with a dotted key, such as --set mesh.i=33")
    try:
        parsed = tomllib.loads(f"value = {written}")
        value = parsed["value"] if parsed.keys() == {"value"} else written
    except tomllib.TOMLDecodeError:
        value = written
    return Setting(key, value, where, text=written)


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int]:
    """The parser's message without its position, and the line as a number."""
    message, _, position = str(error).partition(" (at ")
    found = re.match(r"line (\d+)", position)
    return message, int(found[1]) if found else text.count("\n") + 1


def _statements(text: str) -> Iterator[tuple[tuple[str, ...], Any, int]]:
    """(key path, value, line) for every key and table header of a valid TOML text.

    tomllib does not say on which line a key stands. But a statement of TOML is a run of whole lines, and
    the shortest run that parses by itself is a statement: no unfinished string, array or table does.
    """
    prefix: tuple[str, ...] = ()
    pending, start = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        if not pending:
            start = number
        pending += line + "\n"
        try:
            parsed = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        header = pending.lstrip().startswith("[")
        for keys, value in _leaves(parsed):
            if header:
                prefix = keys
                yield prefix, value, start
            else:
                yield prefix + keys, value, start
        pending = ""


def _leaves(tree: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(key path, value) of everything in nested tables that is not itself a filled table."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


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


def _schema(cls: type, prefix: str = "") -> dict[str, _Entry]:
    """Every dotted key of a configuration class, sections before their contents."""
    found: dict[str, _Entry] = {}
    hints = get_type_hints(cls)
    for f in fields(cls):
        entry = found[prefix + f.name] = _Entry(hints[f.name], f.metadata)
        if entry.is_section:
            found |= _schema(entry.type, f"{prefix}{f.name}.")
    return found


def build(cls: type[Config], settings: Iterable[Setting], start: Config | None = None) -> Config:
    """A ``cls`` from ``start`` (or the defaults) with the settings applied in order, each one checked."""
    schema = _schema(cls)
    values = flatten(cls() if start is None else start)
    for setting in settings:
        key = _known_part(setting.key, schema)
        entry = schema.get(key)
        if entry is None or (key != setting.key and not entry.is_table):
            raise ConfigError(f"{setting.where}: unknown key '{setting.key}'{_hint(setting.key, schema)}")
        if entry.is_section:
            _check_header(setting, schema)
        elif entry.is_table:
            values[key] = _table_with(values[key], setting, key, entry)
        else:
            values[key] = _checked(setting, entry)
    return _assemble(cls, values)


def choices(cls: type) -> dict[str, tuple[str, ...]]:
    """The words to choose from, of every dotted key that takes one of some words."""
    rules = {key: entry.rule for key, entry in _schema(cls).items() if not (entry.is_section or entry.is_table)}
    return {key: words for key, rule in rules.items() if (words := _names(rule))}


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """{dotted key: value} of a configuration; tables stay whole."""
    values: dict[str, Any] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        values |= flatten(value, f"{prefix}{f.name}.") if is_dataclass(value) else {prefix + f.name: value}
    return values


def _assemble(cls: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """The inverse of ``flatten``."""
    hints = get_type_hints(cls)
    parts = {}
    for f in fields(cls):  # type: ignore[arg-type]
        key, kind = prefix + f.name, hints[f.name]
        is_section = isinstance(kind, type) and is_dataclass(kind)
        parts[f.name] = _assemble(kind, values, f"{key}.") if is_section else values[key]
    return cls(**parts)


def _known_part(key: str, schema: Mapping[str, _Entry]) -> str:
    """The longest leading part of a dotted key that the schema knows; '' when there is none."""
    while key and key not in schema:
        key = key.rpartition(".")[0]
    return key


def _hint(key: str, schema: Mapping[str, _Entry]) -> str:
    """What was probably meant: the same name in another section, a similar key, or the section's keys."""
    section_of, _, name = key.rpartition(".")
    elsewhere = [known for known in schema if known.rpartition(".")[2] == name]
    if elsewhere:
        return f"; did you mean '{elsewhere[0]}'?"
    hint = nearest(key, [known for known, entry in schema.items() if "." not in key or not entry.is_section])
    if "did you mean" in hint:
        return hint
    return nearest(key, [known for known in schema if known.rpartition(".")[0] == section_of] or _top(schema))


def _top(schema: Mapping[str, _Entry]) -> list[str]:
    return [known for known in schema if "." not in known]


def _check_header(setting: Setting, schema: Mapping[str, _Entry]) -> None:
    """A section's name may stand alone as a header, but not be given a value."""
    if setting.value != {}:
        inside = ", ".join(known for known in schema if known.startswith(f"{setting.key}."))
        raise ConfigError(f"{setting.where}: {setting.key} is a section, not a value; its keys: {inside}")


def _table_with(current: dict[str, Any], setting: Setting, key: str, entry: _Entry) -> dict[str, Any]:
    """The free table ``current`` with one (possibly nested) entry replaced, checked."""
    below = setting.key[len(key) + 1 :].split(".") if setting.key != key else []
    if not below:
        if setting.value == {}:
            return current
        raise ConfigError(f"{setting.where}: {key} is a table, not a value; {entry.rule['doc']}")
    value = setting.value
    for name in reversed(below[1:]):
        value = {name: value}
    before = current.get(below[0])
    if isinstance(before, dict) and len(below) > 1:
        value = before | value
    try:
        entry.rule["check"](below[0], value)
    except ValueError as problem:
        raise ConfigError(f"{setting.where}: {key}.{below[0]} {problem}") from None
    return current | {below[0]: value}


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
        raise ConfigError(f"{setting.where}: {setting.key} must be {_expected(entry)}, got {toml_value(value)}{guess}")
    if entry.rule["path"] and converted:
        return str((setting.base / Path(converted).expanduser()).absolute())
    return converted


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
        return float(value) if abs(value) < 1e308 else None  # also refuses nan and inf
    return value if type(value) is kind else None


def _within(value: Any, rule: Mapping[str, Any]) -> bool:
    allowed = _names(rule)
    if (allowed and value not in allowed) or (rule["accepts"] and not rule["accepts"][1](value)):
        return False
    parts = value if isinstance(value, tuple) else (value,)
    low, above, high = rule["low"], rule["above"], rule["high"]
    return all(
        (low is None or low <= part) and (above is None or above < part) and (high is None or part <= high)
        for part in parts
    )


def _names(rule: Mapping[str, Any]) -> tuple[str, ...]:
    allowed = rule.get("allowed", ())
    return tuple(allowed() if callable(allowed) else allowed)


def _expected(entry: _Entry) -> str:
    """In words: ``a whole number from 1 to 10``, ``one of double, single``, ``4 numbers``."""
    allowed, rule = _names(entry.rule), entry.rule
    if allowed:
        return f"one of {', '.join(allowed)}"
    if get_origin(entry.type) is tuple:
        inner = get_args(entry.type)
        words = "strings in brackets" if inner[0] is str else f"{len(inner)} numbers in brackets"
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
    schema = _schema(type(config))
    lines = [f"{key} = {toml_value(value)}" for key, value in head.items()]
    # TOML gives every line after a header to that header, so options without a section come first.
    sections = [f for f in fields(config) if schema[f.name].is_section or schema[f.name].is_table]
    for f in fields(config):
        if f not in sections:
            lines += _option_lines(f.name, getattr(config, f.name), schema[f.name], comments)
    for f in sections:
        value = getattr(config, f.name)
        doc = " ".join(filter(None, [f.metadata["doc"], (remarks or {}).get(f.name)]))
        lines += ["", *(_comment(doc) if comments else ()), f"[{f.name}]"]
        entries = value if isinstance(value, dict) else {g.name: getattr(value, g.name) for g in fields(value)}
        for name, inner in entries.items():
            lines += _option_lines(name, inner, schema.get(f"{f.name}.{name}"), comments)
    return "\n".join(lines) + "\n"


def _option_lines(name: str, value: Any, entry: _Entry | None, comments: bool) -> list[str]:
    """One option, below what it means."""
    above = _comment(f"{entry.rule['doc']} ({_expected(entry)})") if comments and entry is not None else []
    return [*above, f"{name} = {toml_value(value)}"]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ")


def toml_value(value: Any) -> str:
    """One value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(part) for part in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(part)}" for key, part in value.items()) + "}"
    return str(value)
