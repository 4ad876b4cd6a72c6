"""The account of a run as HTML. Every text passes through ``escape``: names and settings are people's own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from meshloom.errors import one_line
from meshloom.run.facts import FAILED, FINISHED, STOPPED, UNFINISHED, Monitors, RunFacts, RunPart
from meshloom.run.names import CHECKPOINT, CONFIG, FACTS, MONITORS, REPORT, SERIES
from meshloom.run.page.curves import MOST_CURVES, Curve, curves_of, data, drawing
from meshloom.run.page.numbers import number
from meshloom.run.report import duration
from meshloom.run.task import SettingRow
from meshloom.run.times import HEADINGS, LoopTime, TimeTable, cells, limit_text
from meshloom.run.typed import as_typed

MOST_BYTES = 3_000_000  # of a page
_PICTURE_BYTES = 1_300_000  # of all pictures in it, before they are written as text
_MANY_FILES = 12  # of one kind, from which they are one row
_MOST_ROWS = 300
_PLACE = re.compile(r"\{\{(\w+)\}\}")
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


@dataclass(frozen=True)
class FoundFile:
    """A file of a run: its name, and how many bytes it has."""

    path: Path
    size: int


def page(facts: RunFacts, monitors: Monitors, found: Sequence[FoundFile], folder: Path) -> str:
    """The page of the run in a folder that holds these files."""
    css, js = (files(__package__).joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    curves = curves_of(monitors)
    values = {
        "title": _text(f"{facts.name}: {_STATES.get(facts.state, facts.state)}"),
        "css": css,
        "css_hash": _hash(css),
        "js": js,
        "js_hash": _hash(js),
        "head": _head(facts),
        "sections": "\n".join(filter(None, _sections(facts, monitors, curves, found, folder))),
        "foot": _text("Made by Meshloom from this run alone; nothing is loaded from elsewhere."),
        "data": json.dumps(data(curves), separators=(",", ":")).replace("<", "\\u003c"),
    }
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda match: values[match[1]], template)


def _hash(text: str) -> str:
    """What the page's policy allows to run: this, and nothing that a name or a setting might bring."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(text: str) -> str:
    return escape(one_line(text), quote=True)


def _head(facts: RunFacts) -> str:
    ended = f", {facts.parts[-1].ended} UTC" if facts.parts else ""
    why = f"<strong>Why it ended:</strong> {_text(facts.reason)}"
    parts = [
        f"<h1>{_text(facts.name)}</h1>",
        f'<p class="soft">{_text(facts.title)}</p>' if facts.title else "",
        f'<p><span class="state {_text(facts.state)}">{_text(_STATES.get(facts.state, facts.state))}</span>'
        f" after {facts.iteration:,} iterations{_text(ended)}</p>",
        f'<p class="reason" role="alert">{why}</p>' if facts.reason else "",
        f"<p>{_text(verdict)}</p>" if (verdict := dict(facts.summary).get("verdict")) else "",
    ]
    return "\n".join(filter(None, parts))


def _sections(
    facts: RunFacts, monitors: Monitors, curves: Sequence[Curve], found: Sequence[FoundFile], folder: Path
) -> Iterator[str]:
    yield _section("Summary", _rows(facts.summary))
    yield _section("Monitors", _charts(monitors, curves))
    yield _section("Pictures", _pictures(found))
    yield _section("Time by loop", _times(facts.times))
    yield _section("Schedules", _schedules(facts))
    yield _section("Settings", _settings(facts.settings))
    yield _section("Files", _files(found))
    yield _section("How to go on", _going_on(facts, found, folder))
    yield _section("How it came about", _parts(facts.parts))
    yield _section("Machine", _rows(facts.machine))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_text(title)}</h2>\n{body}\n</section>" if body else ""


def _table(headings: Sequence[str], rows: Iterable[str], numbers: Sequence[int] = (), caption: str = "") -> str:
    """Rows are HTML; the columns ``numbers`` are aligned right."""
    body = "\n".join(rows)
    if not body:
        return ""
    heads = "".join(
        f'<th scope="col"{_aligned(k in numbers)}>{_text(heading)}</th>' for k, heading in enumerate(headings)
    )
    said = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{said}<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _aligned(right: bool) -> str:
    return ' class="number"' if right else ""


def _row(head: str, texts: Iterable[str], numbers: Sequence[int] = (), attributes: str = "") -> str:
    rest = "".join(f"<td{_aligned(k in numbers)}>{_text(text)}</td>" for k, text in enumerate(texts, start=1))
    return f'<tr{attributes}><th scope="row">{_text(head)}</th>{rest}</tr>'


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return _table(("what", "value"), (_row(label, (text,)) for label, text in list(rows)[:_MOST_ROWS]))


# ----- the sections -----------------------------------------------------------------------------------------------
def _charts(monitors: Monitors, curves: Sequence[Curve]) -> str:
    if not curves or not len(monitors.values):
        return ""
    notes = [f"After every one of {len(monitors.values):,} iterations; the exact values are in {MONITORS}."]
    if any(one.thinned for one in curves):
        kept = max(len(one.x) for one in curves)
        notes.append(f"Thinned out: curves have at most {kept:,} points, and keep the smallest and largest values.")
    if len(monitors.names) > MOST_CURVES:
        left_out = ", ".join(monitors.names[MOST_CURVES : MOST_CURVES + 20])
        notes.append(f"Only the first {MOST_CURVES} of {len(monitors.names)} are drawn; not {left_out}.")
    how = "Point at a curve for its values, drag to zoom in, double-click for all of it; arrow keys move the mark."
    figures = "\n".join(_chart(place, one) for place, one in enumerate(curves))
    return (f'<p class="soft">{_text(" ".join(notes))}</p><div class="controls" id="controls" hidden>'
            f'<span class="soft">{_text(how)}</span></div><div class="charts">\n{figures}\n</div>')  # fmt: skip


def _chart(place: int, curve: Curve) -> str:
    last = f"{number(curve.y[-1])} after iteration {curve.x[-1]}" if len(curve.y) else ""
    return (f'<figure class="chart" data-curve="{place}"><figcaption>{_text(curve.name)} <span class="value">'
            f"{_text(last)}</span></figcaption>{drawing(curve)}</figure>")  # fmt: skip


def _pictures(found: Sequence[FoundFile]) -> str:
    """As many as there is room for; others are named."""
    room, shown, named = _PICTURE_BYTES, [], []
    for one in found:
        if one.path.suffix != ".png":
            continue
        if one.size > room:
            named.append(one.path.name)
            continue
        room -= one.size
        inline = base64.b64encode(one.path.read_bytes()).decode()
        name = _text(one.path.name)
        shown.append(f'<figure><img alt="{name}" src="data:image/png;base64,{inline}">'
                     f'<figcaption class="soft">{_link(one.path.name)}</figcaption></figure>')  # fmt: skip
    rest = ", ".join(map(_link, named))
    note = f'<p class="soft">Too large for this page, but next to it: {rest}</p>' if named else ""
    return f'<div class="pictures">{"".join(shown)}</div>{note}' if shown or named else ""


def _link(name: str) -> str:
    return f'<a href="{escape(quote(name, errors="replace"), quote=True)}">{_text(name)}</a>'


def _times(table: TimeTable | None) -> str:
    if table is None or not table.rows:
        return ""
    numbers = range(1, len(HEADINGS))
    body = (_time_row(table, row) for row in table.rows[:_MOST_ROWS])
    caption = f"{duration(table.seconds)} of iterations; bytes are compulsory ones, each datum once, as counted"
    return (f"{_table(HEADINGS, body, numbers, caption)}"
            f'<p class="soft">{_text(table.unit)} {_text(limit_text(table))}</p>')  # fmt: skip


def _time_row(table: TimeTable, row: LoopTime) -> str:
    _, seconds, share, *texts = cells(table, row)
    part = min(1.0, max(0.0, table.share(row)))
    bar = (f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
           f'<rect width="{100.0 * part:.1f}" height="10"/></svg>')  # fmt: skip
    name = _text(row.name).replace("+", "+<wbr>")
    head = f'<th scope="row">{name}<br><span class="soft">{_text(row.what)}</span></th>'
    told = [_text(seconds), f"{_text(share)} {bar}", *map(_text, texts)]
    rest = "".join(f'<td class="number">{one}</td>' for one in told)
    return f"<tr>{head}{rest}</tr>"


def _schedules(facts: RunFacts) -> str:
    rows = facts.schedules
    if not rows:
        return ""
    body = (_row(one.loop, (one.over, one.schedule, one.why)) for one in rows[:_MOST_ROWS])
    caption = "How every loop would run by itself; which ones became one loop, the time by loop shows"
    text = escape("\n".join(map(one_line, facts.explained.splitlines())))
    full = f"<details><summary>All that the loops say of themselves</summary><pre>{text}</pre></details>"
    return _table(("loop", "over", "schedule", "why"), body, caption=caption) + (full if text else "")


def _settings(rows: Sequence[SettingRow]) -> str:
    """Those that differ from the defaults, marked; the others can be unfolded."""
    if not rows:
        return ""
    changed = [row for row in rows if row.value != row.default]
    same = [row for row in rows if row.value == row.default]
    headings = ("setting", "value", "default", "meaning")
    marked = (
        _row(f"{row.key} (changed)", (row.value, row.default, row.meaning), attributes=' class="changed"')
        for row in changed
    )
    told = _table(headings, marked, caption="Different from the defaults") or "<p>All settings are the defaults.</p>"
    plain = _table(headings[:2] + headings[3:], (_row(row.key, (row.value, row.meaning)) for row in same))
    folded = f"<details><summary>{len(same)} settings as they are by default</summary>{plain}</details>" if same else ""
    return told + folded


def _files(found: Sequence[FoundFile]) -> str:
    kinds: dict[str, list[FoundFile]] = {}
    for one in found:
        kinds.setdefault(re.sub(r"\d+", "*", one.path.name), []).append(one)
    rows = []
    for kind, those in kinds.items():
        if len(those) > _MANY_FILES:
            rows.append(_file_row(f"{_text(kind)}: {len(those):,} files", sum(one.size for one in those), ""))
        else:
            rows += [_file_row(_link(one.path.name), one.size, _PURPOSES.get(one.path.name, "")) for one in those]
    return _table(("file", "size", "what it is"), rows, numbers=(1,))


def _file_row(head: str, size: int, what: str) -> str:
    return f'<tr><th scope="row">{head}</th><td class="number">{_amount(size)}</td><td>{_text(what)}</td></tr>'


def _amount(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000.0 or unit == "GB":
            break
        size /= 1000.0
    return f"{number(size, 3)} {unit}"


def _going_on(facts: RunFacts, found: Sequence[FoundFile], folder: Path) -> str:
    names = {one.path.name for one in found}
    at = as_typed(str(folder), "utf-8")
    rows = [
        ("Let the run go on", facts.going_on if CHECKPOINT in names else ""),
        ("Look at the fields", f"paraview {as_typed(str(folder / SERIES), 'utf-8')}" if SERIES in names else ""),
        ("Read the monitors in Python", _reading(folder) if MONITORS in names else ""),
        ("Make this page again", f"meshloom report {at}"),
        ("The command that made it", facts.parts[-1].command if facts.parts else ""),
    ]
    body = "".join(f"<dt>{_text(what)}</dt><dd><code>{_text(typed)}</code></dd>" for what, typed in rows if typed)
    return f"<dl>{body}</dl>"


def _reading(folder: Path) -> str:
    return f'np.genfromtxt({str(folder / MONITORS)!r}, delimiter=",", names=True)'


def _parts(parts: Sequence[RunPart]) -> str:
    if not parts:
        return ""
    headings = ("iterations", "ended (UTC)", "how", "wall time", "command")
    body = (
        _row(f"{one.first:,} to {one.last:,}", (one.ended, one.how, duration(one.seconds), one.command))
        for one in parts
    )
    return _table(headings, body)


def found_files(paths: Iterable[Path]) -> list[FoundFile]:
    """Those that are there, but for the page itself; what a link leads to is not the run's."""
    there = [path for path in paths if path.is_file() and not path.is_symlink() and path.name != REPORT]
    return [FoundFile(path, path.stat().st_size) for path in there]
