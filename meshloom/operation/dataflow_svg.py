"""A program's data-flow graph as a picture: operations as boxes in their order, versions of fields as arrows from who
makes them to who reads them; those that the next replay reads go back on the left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from meshloom.markup import escaped

_LETTER, _LINE = 7, 16  # of the text, in pixels: about one letter, and from line to line
_BOX, _GAP, _LANE, _EDGE = 40, 26, 20, 12  # height of a box, between two, between two arrows, around everything
_INK, _SOFT, _FILL, _FRAME = "#1b1f24", "#57606a", "#eef2f7", "#8a5a00"


class Arrow(NamedTuple):
    """A version of a field: the position of who makes it, that of who reads it, and what is written next to it."""

    first: int
    then: int
    label: str


def svg(texts: Sequence[tuple[str, str]], arrows: Sequence[Arrow], groups: Sequence[Sequence[int]]) -> str:
    """The picture as text that a browser shows: two lines in each box, arrows between them, the short ones next to the
    boxes. ``groups``: the positions of boxes that get a frame together."""
    short = sorted(arrows, key=lambda one: abs(one.then - one.first))
    here, back = ([one for one in short if (one.first < one.then) == forward] for forward in (True, False))
    width = 20 + _LETTER * max([len(text) for both in texts for text in both] or [1])
    left = _EDGE + _room(back)
    total, height = left + width + _room(here) + _EDGE, 2 * _EDGE + len(texts) * (_BOX + _GAP) - _GAP
    parts = [_frame(members, left, width) for members in groups if len(members) > 1]
    for k, (name, over) in enumerate(texts):
        parts.append(_rectangle(left, _top(k), width, _BOX, f'fill="{_FILL}" stroke="{_SOFT}"'))
        parts.append(_text(left + width / 2, _top(k) + _LINE, name, _INK, "middle"))
        parts.append(_text(left + width / 2, _top(k) + 2 * _LINE, over, _SOFT, "middle"))
    parts += [*_drawn(here, left + width, 1), *_drawn(back, left, -1)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}" viewBox="0 0 {total} {height}"'
            ' style="font:12px sans-serif" role="img">'
            f"<title>Data flow of a program of {len(texts)} operations</title>"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{_SOFT}"/></marker></defs>{"".join(parts)}</svg>\n')  # fmt: skip


def _top(position: int) -> int:
    return _EDGE + position * (_BOX + _GAP)


def _room(arrows: Sequence[Arrow]) -> int:
    """How wide arrows and what is written next to them are."""
    return 30 + _LANE * len(arrows) + _LETTER * max([len(one.label) for one in arrows]) if arrows else 8


def _drawn(arrows: Sequence[Arrow], x: float, side: int) -> list[str]:
    """Arrows on one side of the boxes (1: right, -1: left), each in a lane of its own."""
    parts = []
    for lane, one in enumerate(arrows):
        begin, end = _top(one.first) + _BOX - 8 - 3 * (lane % 4), _top(one.then) + 8 + 3 * (lane % 4)
        reach = x + side * (30 + _LANE * lane)
        dash = ' stroke-dasharray="4 3"' if side < 0 else ""
        curve = f"M{x} {begin}C{reach} {begin} {reach} {end} {x + side * 2} {end}"
        parts.append(f'<path d="{curve}" fill="none" stroke="{_SOFT}" marker-end="url(#tip)"{dash}/>')
    for lane, one in enumerate(arrows):  # above all lines
        y = (_top(one.first) + _BOX + _top(one.then)) / 2 + 4
        parts.append(_text(x + side * (28 + 0.75 * _LANE * lane), y, one.label, _INK, "start" if side > 0 else "end"))
    return parts


def _frame(rows: Sequence[int], left: float, width: float) -> str:
    top, bottom = _top(min(rows)) - 6, _top(max(rows)) + _BOX + 6
    return _rectangle(left - 6, top, width + 12, bottom - top, f'fill="none" stroke="{_FRAME}" stroke-width="1.5"')


def _rectangle(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" {style}/>'


def _text(x: float, y: float, words: str, color: str, anchor: str) -> str:
    """Next to lines with a white rim, drawn first: not everything that shows pictures knows an order of painting."""
    place, text = f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"', escaped(words)
    rim = f'{place} stroke="#fff" stroke-width="3" aria-hidden="true">{text}</text>' if anchor != "middle" else ""
    return f'{rim}{place} fill="{color}">{text}</text>'
