"""Every error Meshloom raises on purpose, in one place.

``UserError`` means "what you gave me is wrong" (exit code 2 on the command line); ``RunError`` means
"the run itself failed" (exit code 1). The message is one line: what, where, what would be right. ``whole_number``
is the check that every room needs: a whole number within bounds.
"""

from __future__ import annotations

import difflib
import operator
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_PACKAGE = Path(__file__).parent
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
          stat.S_IFSOCK: "a socket"}  # fmt: skip


class MeshloomError(Exception):
    """Root of all deliberate errors. Whatever names a message repeats, it is one line."""

    exit_code = 1

    def __init__(self, message: object = ""):
        super().__init__(one_line(str(message)))


class UserError(MeshloomError, ValueError):
    """Wrong input: the message says what, where and what would be right."""

    exit_code = 2


class MeshError(UserError):
    """Sets, maps, fields or mesh files that do not fit together."""


class KernelError(UserError):
    """A kernel that breaks its access modes or the rules of tracing; names the user's file and line."""


class ProgramError(UserError):
    """What a program cannot record, or cannot run with."""


class ScheduleError(UserError):
    """A schedule that cannot be used for this loop, or an unknown strategy, layout or ordering."""


class SchemeError(UserError):
    """A compact scheme that is not consistent or not solvable, or does not fit the field it is used on."""


class ConfigError(UserError):
    """A configuration key or value that is not allowed; names file and line."""


class PartitionError(UserError):
    """A partitioner that there is not, or a partition that does not fit a mesh, or its ranks."""


class RankError(UserError):
    """Ranks that make different calls, or were given different things; names both."""


class CompilerError(MeshloomError):
    """No usable compiler, or generated code that did not compile."""


class PlanError(MeshloomError):
    """A plan that the verifier rejects: a wrong color, a missing element, an index out of bounds."""


class SolveError(MeshloomError):
    """A system of equations that was not solved: the message says how far it came. ``replays``: whole turns before."""

    replays: int = 0


class RunError(MeshloomError):
    """The run failed: NaN in the solution, disk full, checkpoint that could not be written."""


def interrupted(message: str, **known: Any) -> KeyboardInterrupt:
    """Ctrl-C, with what is known about where it stopped as attributes. Not a class of its own: Python ends a process
    by the signal, as shells expect it, after KeyboardInterrupt itself alone."""
    stop = KeyboardInterrupt(message)
    vars(stop).update(known)
    return stop


def nearest(name: str, allowed: Iterable[str], *, listed: str = "allowed:", none: str = "none is allowed") -> str:
    """A hint for a misspelt name: ``"; did you mean 'mach'?"`` or the list of allowed names, with words before it."""
    names = [str(a) for a in allowed]
    # Two letters of three are no likeness: gpu is not a misspelt cpu.
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.67)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; {listed} {', '.join(names)}" if names else f"; {none}"


def one_line(text: str) -> str:
    """The text with everything that is not printable (line breaks, control characters, half characters) escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def is_text(text: str) -> bool:
    """Whether files and their names can hold it: no NUL, no half characters, which bytes that are no text become."""
    return _NO_TEXT.search(text) is None


def shown(value: object, most: int = 60) -> str:
    """A value for a message: one line, not too long, whatever it is."""
    try:
        text = one_line(repr(value))
    except Exception:  # such as a whole number with more digits than Python prints
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def whole_number(what: str, value: object, low: int, high: int, *, error: type[UserError] = UserError) -> int:
    """``value`` as an int if it is a whole number (Python's or NumPy's, no bool) from ``low`` to ``high``.

    For everything that becomes an integer of C. ``what`` begins the message: "set cells: size".
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        raise error(f"{what} must be a whole number from {low} to {high}, got {shown(value)}")
    return number


def instance(what: str, value: Any, kind: type[T], *, error: type[UserError] = UserError) -> T:
    """``value`` if it is one of a class. ``what`` begins the message: "map ends: source"."""
    if not isinstance(value, kind):
        raise error(f"{what} must be a {kind.__name__}, got {type(value).__name__}")
    return value


def known_name(what: str, name: object, allowed: Iterable[str], *, error: type[UserError] = UserError) -> str:
    """``name`` if it is one of those allowed; else the error has the nearest. ``what`` it names: "cell kind"."""
    names = list(allowed)
    if not isinstance(name, str) or name not in names:
        hint = nearest(name if isinstance(name, str) else shown(name), names) if names else "; there is none"
        raise error(f"unknown {what} {shown(name)}{hint}")
    return name


def yes_or_no(what: str, value: object, *, error: type[UserError] = UserError) -> bool:
    """``value`` if it is True or False, Python's or NumPy's. ``what`` begins the message: "field u: temporary"."""
    if type(value).__name__ not in ("bool", "bool_"):  # of NumPy, which messages alone need not import
        raise error(f"{what} must be True or False, got {shown(value)}")
    return bool(value)


def file_path(what: str, value: Any, *, error: type[UserError] = UserError) -> Path:
    """``value`` as a path that a file system can have: a string or an os.PathLike of one, without NUL and half
    characters (bytes of names that are no text apart). ``what`` begins the message: "ml.read: the path"."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    try:
        if isinstance(text, str) and "\0" not in text and os.fsencode(text):
            return Path(text)
    except UnicodeError:
        pass
    raise error(f"{what} must be the name of a file, a string or an os.PathLike, got {shown(value)}")


def other_than_file(path: str | os.PathLike[str]) -> str:
    """What there is in the place of a file, such as "a pipe", which whoever opens it would wait for; '' for a file, and
    where there is nothing."""
    try:
        return kind_of_file(os.stat(path).st_mode)
    except (OSError, ValueError):  # which whoever opens it is told
        return ""


def kind_of_file(mode: int) -> str:
    """What something in a file system is in words, by its mode; '' for a file."""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "something else")


def install(extra: str) -> str:
    """What a person types to get an extra, where Meshloom was installed from: its folder, or a wheel."""
    if _is_of_a_folder():
        return f"pip install '.[{extra}]' in the folder of Meshloom"
    return f"pip install 'meshloom[{extra}]'"


def _is_of_a_folder() -> bool:
    """Does this package lie in the folder that it is made from, or has pip copied it from there?"""
    if (_PACKAGE.parent / "pyproject.toml").is_file():
        return True
    from importlib import metadata  # nobody needs it before something is missing

    try:
        url = metadata.distribution("meshloom").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return True
    return "dir_info" in (url or "")
