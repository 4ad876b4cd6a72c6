"""Settings that nobody would write, and configuration files that something has happened to."""

from __future__ import annotations

import io
import random
import signal
import string
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import meshloom as ml
from meshloom.cli.main import main
from meshloom.config import build, choices, flatten, parse_set, read_settings
from meshloom.errors import MeshloomError, one_line
from meshloom.io import checkpoint as checkpoints
from meshloom.launch import Request, check, load_case_file
from meshloom.solvers import cases
from meshloom.toml import toml_key, toml_value
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.damage import damaged

_SECONDS = 120  # for one command, also on a busy machine; a refusal takes some milliseconds
_RUNS = 0.5  # of the attempts that were accepted, those that are run
_NAMES = (
    "Station 12", "ü", "a,b", "", "a.b", "$x$", "$", "_hidden", "../../up", "a\nb", 'say "hi"', "\\", "'", "[red]", "=",
    "time, s", "\x00", "\x7f", "\x1b[31m", "日本", "\u2028", "\ud800", "x" * 300, " ", "{}", "%s", "-1", "time", "#",
    "\U0001f30a", "default",
)  # fmt: skip
_NUMBERS = (
    "0", "-0.0", "1", "-1", "5e-324", "-5e-324", "1e-300", "1e-100", "1e-30", "1e30", "1e100", "1.7e308", "1e400",
    "nan", "inf", "-inf", "9" * 5000, "0x" + "f" * 300, "2147483648", "9223372036854775807", "-9223372036854775809",
    "0.1", "1_000", "0o17", "1e1_0",
)  # fmt: skip
_WORDS = (
    "true", "''", '"\\u0000"', "[]", "{}", "[1, 2]", "[1, [2]]", "[" * 200 + "]" * 200, "[[[]]]", "1979-05-27", "auto",
    "{strategy = 'color', block = 7}", "{a = {b = 1}}", "[1, 2", "'''", "\n", "/", "~nobody/x", "x" * 5000, "07:32:00",
    '"/' + "y" * 400 + '"', "1,", "[nan, nan]", "[1e400, 0]", "[40e3, 30e3]", "[0.5, 0.5]", "[true, false]", "'single'",
    "= 3", "3 # so", "'''a\nb'''", "\udcff", "\x00",
)  # fmt: skip
_SCHEDULES = ("auto", "color", "owner", "{}", "{block = 32}", '{strategy = "atomic"}')


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    def refusal(self, *codes: int) -> str:
        """The one line of a refusal."""
        if self.code not in codes:
            raise Broken(f"exit code {self.code}: {self.err[:300]}")
        lines = self.err.splitlines()
        if len(lines) != 1 or not lines[0].startswith("meshloom: ") or not lines[0].isprintable():
            raise Broken(f"not one line: {self.err[:300]!r}")
        if len(lines[0]) > 2000:
            raise Broken(f"a line of {len(lines[0])} characters: {lines[0][:100]}")
        return lines[0]


def command(*arguments: str) -> Said:
    """``meshloom ...`` in this process; Broken where it takes too long, or ends in anything but an exit."""
    before, backend = sys.argv, (ml.backend(), ml.threads())
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["meshloom", *arguments]
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err), _limited(), warnings.catch_warnings():
            warnings.simplefilter("error")  # they go to people's screens
            main()
    except SystemExit as end:
        code = end.code
    except Exception as problem:
        said = " ".join(repr(word)[:200] for word in arguments)
        raise Broken(f"{type(problem).__name__}: {one_line(str(problem))[:300]}; meshloom {said}") from problem
    finally:
        sys.argv = before
        ml.use(backend[0], threads=backend[1])
    return Said(int(code or 0), out.getvalue(), err.getvalue())


@contextmanager
def _limited() -> Iterator[None]:
    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# --- settings -----------------------------------------------------------------------------------------------


def _name(dice: random.Random) -> str:
    if dice.random() < 0.5:
        return dice.choice(_NAMES)
    letters = string.printable + "äß€\u0301\u200b\ufeff\U0001f30a\x85"
    return "".join(dice.choice(letters) for _ in range(dice.randint(0, 8)))


def _key(dice: random.Random, case: str) -> str:
    """One that there is, one in a free table, or any."""
    known = list(flatten(cases()[case].Config()))
    tables = [key for key in ("gauges", "schedule") if key in known]
    kind = dice.random()
    if kind < 0.6:
        return dice.choice(known)
    if kind < 0.9:
        return toml_key((dice.choice(tables), _name(dice)))
    return dice.choice((_name(dice), toml_key((_name(dice), _name(dice))), "a" + ".b" * dice.choice((3, 300))))


def _value(dice: random.Random) -> str:
    any_number = repr(dice.gauss(0.0, 1e3))
    return dice.choice((dice.choice(_NUMBERS), dice.choice(_WORDS), toml_value(_name(dice)), any_number))


def _change(dice: random.Random, case: str) -> str:
    """``key=value``: half of the values are such that the key may take them."""
    key = _key(dice, case)
    config = cases()[case].Config
    default = flatten(config()).get(key)
    if dice.random() < 0.5:
        return f"{key}={_value(dice)}"
    if key.startswith("gauges."):
        return f"{key}={dice.choice(('[40e3, 30e3]', '[1, 2.5]', '[]'))}"
    if key.startswith("schedule."):
        return f"{key}={dice.choice(_SCHEDULES)}"
    if key in (words := choices(config)):
        return f"{key}={dice.choice(words[key])}"
    if isinstance(default, float):
        sizes = (1e-100, 1e-60, 1e-12, 0.1, 0.9, 1.0, 1.1, 10.0, 1e12, 1e60, 1e100)
        return f"{key}={dice.choice((0.0, *((default or 1.0) * size for size in sizes), *sizes))!r}"
    if isinstance(default, tuple):
        return f"{key}={toml_value([part * 2 if isinstance(part, float) else part for part in default])}"
    return f"{key}={toml_value(not default if isinstance(default, bool) else 1 if default is None else default)}"


def attempt_settings(dice: random.Random, folder: Path) -> str:
    """Random values for random keys: accepted and read back as they are, or refused where they stand."""
    case = dice.choice([*cases()])
    changes = [_change(dice, case) for _ in range(dice.choice((1, 1, 2, 4)))]
    words = [word for change in changes for word in ("--set", change)]
    with chdir(folder):
        said = command("show", case, *words)
        if said.code:
            line = said.refusal(2)
            if "--set" not in line and not line.startswith("meshloom: argument "):
                raise Broken(f"no place is named: {line[:300]}")
            if [*folder.iterdir()]:
                raise Broken("a refused command left a file")
            return "refused"
        _read_back(folder, case, changes, said.out)
        return _run(folder, case, words) if dice.random() < _RUNS else "read back as they were"


def _read_back(folder: Path, case: str, changes: list[str], text: str) -> None:
    wanted = check(Request(case, tuple(map(parse_set, changes)))).config
    file = folder / "shown.toml"
    file.write_bytes(text.encode())
    found = check(Request(str(file))).config
    file.unlink()
    if found != wanted:
        raise Broken(f"not what was written: {changes}")


def _run(folder: Path, case: str, words: list[str]) -> str:
    """Two iterations of what was accepted, on a small mesh: they end well or in one line, and can be gone on from."""
    small = [word for key, value in cases()[case].small.items() for word in ("--set", f"{key}={toml_value(value)}")]
    common = [*words, *small, "--backend", "numpy", "--iterations", "2", "--threads", "1", "--quiet", "--out", "out"]
    said = command("run", case, *common, "--set", "output.plot=false")
    if said.code:
        said.refusal(1, 2)
        if said.code == 2 and [*folder.iterdir()]:
            raise Broken("a refused run left a file")
        return f"run ended with {said.code}"
    saved = folder / "out/checkpoint.h5"
    kind, settings = load_case_file(folder / "out/run.toml")
    wanted = build(kind.Config, settings)
    loaded = checkpoints.load(saved)
    again = folder / "again.toml"
    again.write_bytes(loaded.config.encode())
    if build(kind.Config, [s for s in read_settings(again) if s.key != ("case",)]) != wanted:
        raise Broken("run.toml and the checkpoint say different things")
    return "ran"


# --- files --------------------------------------------------------------------------------------------------


@cache
def _shown(case: str) -> str:
    return command("show", case).out


def _lines_moved(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    dice.shuffle(lines)
    return "\n".join(lines)


def _line_doubled(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    k = dice.randrange(len(lines))
    return "\n".join((*lines[: k + 1], *lines[k:]))


def _header_changed(dice: random.Random, text: str) -> str:
    """A header that is a name, a list of tables, deeper, or something else."""
    headers = [line for line in text.split("\n") if line.startswith("[")]
    one = dice.choice(headers or ["[mesh]"])
    name = one.strip("[]")
    any_name = toml_key((_name(dice),)).encode(errors="replace").decode()
    other = dice.choice((f"[[{name}]]", f"[{name}.{name}]", f"{name} = 3", f'["{name}"]', f"[{'.'.join([name] * 300)}]",
                         "[]", f"[ {name} ]", f"[{any_name}]"))  # fmt: skip
    return text.replace(one, other, 1)


def _value_changed(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    places = [k for k, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    k = dice.choice(places or [0])
    key = lines[k].partition(" = ")[0]
    lines[k] = f"{key} = {_value(dice)}".encode(errors="replace").decode()
    return "\n".join(lines)


def _inline(dice: random.Random, text: str) -> str:
    """The same content in one line of braces for each section; what is nested too deep for that stays as it is."""
    try:
        return "".join(f"{toml_key((key,))} = {toml_value(value)}\n" for key, value in tomllib.loads(text).items())
    except RecursionError:
        return text


def _dotted(dice: random.Random, text: str) -> str:
    """The same content without any header; what is nested too deep for that stays as it is."""
    settings = [(key, value) for key, value in tomllib.loads(text).items()]
    flat = [((key, name), inner) for key, value in settings if isinstance(value, dict) for name, inner in value.items()]
    flat += [((key,), value) for key, value in settings if not isinstance(value, dict)]
    dice.shuffle(flat)
    try:
        return "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in flat)
    except RecursionError:
        return text


def _deep(dice: random.Random, text: str) -> str:
    many = dice.choice((10, 70, 3000, 100_000))
    return text + dice.choice(("\nx = " + "[" * many, "\nx = " + "{a=" * many, "\n" + "a." * many + "b = 1",
                               "\nx = [\n" + "1,\n" * many + "]", "\nx = " + '"""\\"' * many))  # fmt: skip


_STRUCTURE: tuple[Callable[[random.Random, str], str], ...] = (
    _lines_moved, _line_doubled, _header_changed, _value_changed, _inline, _dotted, _deep
)  # fmt: skip


def attempt_toml(dice: random.Random, folder: Path) -> str:
    """A file that is damaged or written otherwise: refused where it is wrong, or it means what tomllib reads in it."""
    text = _shown(dice.choice([*cases()]))
    if dice.random() < 0.5:
        data = damaged(dice, text.encode())
    else:
        for _ in range(dice.choice((1, 1, 2))):
            text = dice.choice(_STRUCTURE)(dice, text) if _is_toml(text) else text
        data = text.encode()
    file = folder / "case.toml"
    file.write_bytes(data)
    try:
        with _limited():
            job = check(Request(str(file)))
    except MeshloomError as refusal:
        line = str(refusal)
        if not line.isprintable() or not line.startswith(str(file)) or len(line) > 2000:
            raise Broken(f"not one line that names the file: {line[:300]!r}") from None
        return "refused"
    _means_the_same(job.case.name, flatten(job.config), tomllib.loads(data.decode()))
    return "accepted"


def _is_toml(text: str) -> bool:
    try:
        with _limited():
            return len(text) < 100_000 and bool(tomllib.loads(text))
    except (ValueError, RecursionError):
        return False


def _means_the_same(case: str, found: dict[str, Any], said: dict[str, Any]) -> None:
    """What the file says is in the configuration, and the rest is as by default."""
    wanted = flatten(cases()[case].Config())
    if said.pop("case") != case:
        raise Broken("another case")
    waiting = [*said.items()]
    for section, value in waiting:  # which grows: tables hold tables, as run.stop
        if not isinstance(value, dict):
            wanted[section] = value
        elif section in wanted:
            wanted[section] = wanted[section] | value
        else:
            waiting += [(f"{section}.{name}", inner) for name, inner in value.items()]
    for key, value in found.items():
        alike = tuple(wanted[key]) if isinstance(value, tuple) and isinstance(wanted[key], list) else wanted[key]
        if isinstance(value, float) and type(alike) is int:
            alike = float(alike)  # the nearest: beyond 2**53 there is not one for each
        if value != alike and not (isinstance(value, str) and value.endswith(str(alike))) and value != (alike,):
            raise Broken(f"{key} is {value!r}, and the file says {alike!r}")


CAMPAIGNS = (
    Campaign("settings", "hostile values for settings and names, on the command line",
             "read back as they were and run to the end or to one line; or refused in one line, and no file made",
             attempt_settings, few=8, many=300, seconds=15.0),
    Campaign("toml", "configuration files damaged, rearranged, nested, with lines and values replaced",
             "refused in one line that names the file, or understood as TOML means it",
             attempt_toml, few=8, many=500, seconds=15.0),
)  # fmt: skip
