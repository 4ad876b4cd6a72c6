"""TOML as configurations need it: tomllib is the judge of what is TOML; here is what it does not say and does not do.

It does not say on which line a statement stands, it has no limit for brackets in brackets, which end in Python's own
recursion limit, and it writes nothing. A scanner of strings, comments, brackets and ends of lines knows the first two.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from meshloom.errors import ConfigError, shown
from meshloom.records import dataclass

Key = tuple[str, ...]  # ("gauges", "a.b"): the parts of a dotted key

_DEEPEST = 64  # brackets in brackets, and parts of a key: no configuration comes near
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = "|".join((
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"{3,5}''', r"""'''(?:[^']|'(?!''))*+'{3,5}""",
    r'''"(?!"")(?:[^"\\\n]|\\.)*+"''', r"""'(?!'')[^'\n]*+'""",
))  # fmt: skip
_TOKEN = re.compile(
    rf"(?P<string>{_STRINGS})|(?P<comment>\#[^\n]*+)|(?P<line>\n)|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<dot>\.)"
    r"|(?P<apart>[=,])|[^\"'#\n\[\]{}.=,]++",
    re.DOTALL,
)
_PART = rf"(?:{_BARE.pattern}|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+')"
_KEY = re.compile(rf"\s*{_PART}(?:\s*\.\s*{_PART})*+\s*")


@dataclass(frozen=True)
class TomlStatement:
    """One key with its value, or the header of a table, whose value is {}; ``line`` counts from 1."""

    key: Key
    value: Any
    line: int


# --- reading ----------------------------------------------------------------------------------------------


def statements(text: str, name: str) -> list[TomlStatement]:
    """Everything that a TOML text says, in order; ConfigError with ``name`` and line where it is not TOML.

    The value of a key is whole: tables in braces stay tables.
    """
    text = text.replace("\r\n", "\n")
    pieces = list(_pieces(text, lambda line: f"{name}:{line}"))
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _line_of(error, text)
        raise ConfigError(f"{name}:{line}: not valid TOML: {message}") from None
    except ValueError:  # Python converts no more than some thousand digits
        raise ConfigError(f"{name}:{_line_of_long_number(pieces)}: a number with too many digits") from None
    return list(_statements(pieces))


def key_and_rest(text: str) -> tuple[Key, str] | None:
    """``a."b.c" = rest`` in its two parts; None where no key and equals sign stand in front."""
    found = _KEY.match(text)
    if found is None or not text.startswith("=", found.end()):
        return None
    try:
        tree = tomllib.loads(f"{found[0].strip()} = 0")
    except tomllib.TOMLDecodeError:  # such as a wrong escape in quotes, or a line break between the parts
        return None
    return _descended(tree)[0], text[found.end() + 1 :].strip()


def value_of(text: str) -> Any:
    """One value as TOML writes it; ValueError where the text is something else."""
    parsed = tomllib.loads(f"value = {text}")
    if parsed.keys() != {"value"}:
        raise ValueError("more than a value")
    return parsed["value"]


def check_depth(text: str, where: str) -> None:
    """ConfigError where tomllib had better not be asked about a text."""
    for _ in _pieces(text, lambda line: where):
        pass


def _pieces(text: str, place: Callable[[int], str]) -> Iterator[tuple[str, int]]:
    """(text, line) of what a valid TOML text is made of, each a run of whole lines with one statement at most.

    Of other texts, those up to the first string that never ends, and the rest. ConfigError where it is too deep.
    """
    begin = position = depth = dots = 0
    line = first = 1
    for token in _TOKEN.finditer(text):
        if token.start() > position:  # nothing fits in between: a quote without its partner
            break
        kind, position = token.lastgroup, token.end()
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        dots = dots + 1 if kind == "dot" else 0 if kind in ("open", "close", "apart", "line") else dots
        if max(depth, dots) > _DEEPEST:
            raise ConfigError(f"{place(line)}: nested more than {_DEEPEST} levels deep")
        if kind in ("line", "string"):
            line += token[0].count("\n")
        if kind == "line" and depth == 0:
            yield text[begin:position], first
            begin, first = position, line
    if begin < len(text):
        yield text[begin:], first


def _statements(pieces: list[tuple[str, int]]) -> Iterator[TomlStatement]:
    prefix: Key = ()
    for text, line in pieces:
        parsed = tomllib.loads(text)
        if not parsed:  # an empty line or a comment
            continue
        if text.lstrip().startswith("["):
            prefix, value = _descended(parsed)
            yield TomlStatement(prefix, value, line)
        else:
            key, _ = key_and_rest(text) or ((), "")
            yield TomlStatement(prefix + key, _descended(parsed, len(key))[1], line)


def _descended(tree: dict[str, Any], levels: int = _DEEPEST + 1) -> tuple[Key, Any]:
    """The path through so many tables of one entry, or to the first value that is not such a table; and the value."""
    key: Key = ()
    inner: Any = tree
    while isinstance(inner, dict) and inner and len(key) < levels:
        [(part, inner)] = inner.items()
        key += (part,)
    return key, inner


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int]:
    """The parser's message without its position, and the line as a number."""
    message, _, position = str(error).partition(" (at ")
    found = re.match(r"line (\d+)", position)
    return message, int(found[1]) if found else text.count("\n") + 1


def _line_of_long_number(pieces: list[tuple[str, int]]) -> int:
    for text, line in pieces:
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            continue
        except ValueError:
            return line
    return 1


# --- writing ----------------------------------------------------------------------------------------------


def toml_key(key: Key) -> str:
    """A key as TOML writes it: parts with dots between them, in quotes where they need them."""
    return ".".join(part if _BARE.fullmatch(part) else toml_value(part) for part in key)


def toml_value(value: Any) -> str:
    """One value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(part) for part in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key((key,))} = {toml_value(part)}" for key, part in value.items()) + "}"
    return str(value)


def toml_shown(value: Any, most: int = 60) -> str:
    """A value for a message: as TOML writes it, but not too long."""
    try:
        text = toml_value(value)
    except (ValueError, RecursionError):  # more digits than Python prints
        return shown(value, most)
    return text if len(text) <= most else f"{text[: most - 3]}..."
