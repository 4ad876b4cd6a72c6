"""The account of a run as HTML, in its folder: what ``page.html`` shows, and how values are written there."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from meshloom.errors import UserError, one_line
from meshloom.io.files import write_atomically
from meshloom.records import dataclass
from meshloom.run.facts import FAILED, FINISHED, STOPPED, UNFINISHED, Monitors, RunFacts
from meshloom.run.folder import RunFolder
from meshloom.run.names import CHECKPOINT, CONFIG, FACTS, MONITORS, REPORT, SERIES, as_typed
from meshloom.run.page import curves as of_curves
from meshloom.run.page.curves import MOST_CURVES, Curve, curves_of, data, drawing
from meshloom.run.page.numbers import number
from meshloom.run.rank_table import EXPLAINED, MESSAGE_HEADINGS, message_rows, rank_headings, rank_rows
from meshloom.run.report import duration
from meshloom.run.times import cells, headings, limit_text

if TYPE_CHECKING:
    from jinja2 import Template

MOST_BYTES = 3_000_000  # of a page
_PICTURE_BYTES = 1_300_000  # of all pictures in it, before they are written as text
_STATES = {
    FINISHED: "finished",
    STOPPED: "stopped; it can go on",
    FAILED: "failed",
    UNFINISHED: "not at its end",
}
_PURPOSES = {
    SERIES: "the fields: open in ParaView",
    MONITORS: "the monitors after every iteration",
    CHECKPOINT: "all that is needed to go on",
    CONFIG: "the settings, as a file that meshloom run accepts",
    FACTS: "what this page was made of besides the other files",
}
_CONSTANTS = {
    "MESSAGE_HEADINGS": MESSAGE_HEADINGS,
    "RANKS_EXPLAINED": EXPLAINED,
    "MANY_FILES": 12,  # of one kind, from which they are one row
    "MOST_ROWS": 300,
    "PURPOSES": _PURPOSES,
    **{name: getattr(of_curves, name) for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM", "LABEL_ROOM")},
}


@dataclass(frozen=True)
class FoundFile:
    """A file of a run: its name, and how many bytes it has."""

    path: Path
    size: int


def write_page(folder: RunFolder, facts: RunFacts, monitors: Monitors) -> None:
    """``report.json`` and ``report.html``, each in one step."""
    write_atomically(folder.facts, facts.to_json().encode(errors="replace"))
    text = page(facts, monitors, found_files(folder.files()), folder.path)
    write_atomically(folder.report, text.encode(errors="replace"))


def page(facts: RunFacts, monitors: Monitors, found: Sequence[FoundFile], folder: Path) -> str:
    """The page of the run in a folder that holds these files."""
    curves = curves_of(monitors) if len(monitors.values) else []
    pictures, too_large = _pictures(found)
    return _template().render(
        facts=facts,
        state=_STATES.get(facts.state, facts.state),
        verdict=dict(facts.summary).get("verdict"),
        curves=curves,
        notes=_notes(monitors, curves),
        pictures=pictures,
        too_large=too_large,
        explained=facts.explained.splitlines(),
        changed=[row for row in facts.settings if row.value != row.default],
        same=[row for row in facts.settings if row.value == row.default],
        kinds=_kinds(found),
        going_on=_going_on(facts, {one.path.name for one in found}, folder),
    )


@cache
def _template() -> Template:
    """``page.html``, into which nothing comes but text of one line, escaped, and what is marked as safe: our own.
    UserError where jinja2 is missing."""
    try:
        import jinja2
    except ImportError:
        raise UserError(f"{REPORT} is written by jinja2, which is not installed: pip install 'jinja2>=3.1'") from None
    html, css, js = (files(__package__).joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    environment = jinja2.Environment(autoescape=True, finalize=_in_one_line, undefined=jinja2.StrictUndefined,
                                     trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    written = (amount, cells, data, drawing, duration, headings, limit_text, message_rows, number, rank_headings,
               rank_rows)  # fmt: skip
    environment.filters |= {one.__name__: one for one in written}
    environment.filters |= {"quoted": partial(quote, errors="replace"), "sha256": _sha256}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.from_string(html, {**_CONSTANTS, "css": css, "js": js})


def _in_one_line(value: Any) -> Any:
    return one_line(value) if type(value) is str else value


def _sha256(text: str) -> str:
    """What the page's policy allows to run: this, and nothing that a name or a setting might bring."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _notes(monitors: Monitors, curves: Sequence[Curve]) -> list[str]:
    """What is to be known about the curves."""
    notes = [f"After every one of {len(monitors.values):,} iterations; the exact values are in {MONITORS}."]
    if any(one.thinned for one in curves):
        kept = max(len(one.x) for one in curves)
        notes.append(f"Thinned out: curves have at most {kept:,} points, and keep the smallest and largest values.")
    if len(monitors.names) > MOST_CURVES:
        left_out = ", ".join(monitors.names[MOST_CURVES : MOST_CURVES + 20])
        notes.append(f"Only the first {MOST_CURVES} of {len(monitors.names)} are drawn; not {left_out}.")
    return notes


def _pictures(found: Sequence[FoundFile]) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and contents of as many as there is room for, and the names of the others."""
    room, shown, named = _PICTURE_BYTES, list[tuple[str, str]](), list[str]()
    for one in found:
        if one.path.suffix != ".png":
            continue
        if one.size > room:
            named.append(one.path.name)
            continue
        room -= one.size
        shown.append((one.path.name, base64.b64encode(one.path.read_bytes()).decode()))
    return shown, named


def _kinds(found: Sequence[FoundFile]) -> dict[str, list[FoundFile]]:
    """Files whose names differ in numbers alone are of one kind."""
    kinds: dict[str, list[FoundFile]] = {}
    for one in found:
        kinds.setdefault(re.sub(r"\d+", "*", one.path.name), []).append(one)
    return kinds


def amount(size: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000.0 or unit == "GB":
            break
        size /= 1000.0
    return f"{number(size, 3)} {unit}"


def _going_on(facts: RunFacts, names: set[str], folder: Path) -> list[tuple[str, str]]:
    """What a person may want, and what is typed for it; '' where there is nothing of the kind."""
    reading = f'np.genfromtxt({str(folder / MONITORS)!r}, delimiter=",", names=True)'
    return [
        ("Let the run go on", facts.going_on if CHECKPOINT in names else ""),
        ("Look at the fields", f"paraview {as_typed(str(folder / SERIES), 'utf-8')}" if SERIES in names else ""),
        ("Read the monitors in Python", reading if MONITORS in names else ""),
        ("Make this page again", f"meshloom report {as_typed(str(folder), 'utf-8')}"),
        ("The command that made it", facts.parts[-1].command if facts.parts else ""),
    ]


def found_files(paths: Iterable[Path]) -> list[FoundFile]:
    """Those that are there, but for the page itself; what a link leads to is not the run's."""
    there = [path for path in paths if path.is_file() and not path.is_symlink() and path.name != REPORT]
    return [FoundFile(path, path.stat().st_size) for path in there]
