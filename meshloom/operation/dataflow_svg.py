"""A program's data-flow graph as a picture: operations as boxes in their order, versions of fields as arrows from who
makes them to who reads them; those of the next replay go back on the left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshloom.markup import escaped

if TYPE_CHECKING:
    from meshloom.operation.dataflow import Dataflow, Dependence
    from meshloom.operation.operation import Operation

_LETTER, _LINE = 7, 16  # of the text, in pixels: about one letter, and from line to line
_BOX, _GAP, _LANE, _EDGE = 40, 26, 18, 12  # height of a box, between two, between two arrows, around everything
_STYLE = "font:12px sans-serif"
_INK, _SOFT, _FILL, _FRAME = "#1b1f24", "#57606a", "#eef2f7", "#8a5a00"


def svg(graph: Dataflow, groups: Sequence[Sequence[Operation]] = ()) -> str:
    """The picture as text that a browser shows. ``groups``: operations that run as one loop get a frame."""
    flows = [one for one in graph.dependences() if one.kind == "flow"]
    here, back = ([one for one in flows if one.replays == k] for k in (0, 1))
    places = {one: k for k, one in enumerate(graph.operations)}
    names = [one.name for one in graph.operations]
    over = [f"over {one.over}" for one in graph.operations]
    wide = 20 + _LETTER * max([len(text) for text in (*names, *over)] or [1])
    left = _EDGE + _room(back)
    height = 2 * _EDGE + len(names) * (_BOX + _GAP)
    parts = [_frame(group, places, left, wide) for group in groups if len(group) > 1]
    for k, name in enumerate(names):
        top = _top(k)
        parts.append(f'<rect x="{left}" y="{top}" width="{wide}" height="{_BOX}" rx="4" fill="{_FILL}"'
                     f' stroke="{_SOFT}"/>' + _text(left + wide / 2, top + _LINE, name, _INK, "middle")
                     + _text(left + wide / 2, top + 2 * _LINE, over[k], _SOFT, "middle"))  # fmt: skip
    parts += _arrows(here, places, left + wide, 1) + _arrows(back, places, left, -1)
    total = left + wide + _room(here) + _EDGE
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}" viewBox="0 0 {total} {height}"'
            f' style="{_STYLE}" role="img"><title>Data flow of a program: {len(names)} operations</title>'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{_SOFT}"/></marker></defs>{"".join(parts)}</svg>')  # fmt: skip


def _top(position: int) -> int:
    return _EDGE + position * (_BOX + _GAP)


def _label(one: Dependence) -> str:
    return one.field.name if one.distance == "same element" else f"{one.field.name} ({one.distance})"


def _room(edges: Sequence[Dependence]) -> int:
    """How wide arrows and their labels are."""
    return 30 + _LANE * len(edges) + _LETTER * max([len(_label(one)) for one in edges] or [0])


def _arrows(edges: Sequence[Dependence], places: dict[Operation, int], x: float, side: int) -> list[str]:
    """Arrows on one side of the boxes (1: right, -1: left), each in a lane of its own, the short ones inside."""
    parts = []
    ordered = sorted(edges, key=lambda one: abs(places[one.consumer] - places[one.producer]))
    for lane, one in enumerate(ordered):
        begin, end = (_top(places[o]) + _BOX / 2 for o in (one.producer, one.consumer))
        begin, end = begin + 6, end - 6
        reach = x + side * (24 + _LANE * lane)
        dash = ' stroke-dasharray="4 3"' if side < 0 else ""
        curve = f"M{x} {begin}C{reach} {begin} {reach} {end} {x + side * 2} {end}"
        parts.append(f'<path d="{curve}" fill="none" stroke="{_SOFT}" marker-end="url(#tip)"{dash}/>')
        x_of, y_of = x + 0.75 * (reach - x) + side * 4, (begin + end) / 2 + 4 + (lane % 2) * 10
        parts.append(_text(x_of, y_of, _label(one), _INK, "start" if side > 0 else "end"))
    return parts


def _frame(group: Sequence[Operation], places: dict[Operation, int], left: float, wide: float) -> str:
    rows = [places[one] for one in group if one in places]
    if not rows:
        return ""
    top, bottom = _top(min(rows)) - 6, _top(max(rows)) + _BOX + 6
    return (f'<rect x="{left - 6}" y="{top}" width="{wide + 12}" height="{bottom - top}" rx="6" fill="none"'
            f' stroke="{_FRAME}" stroke-width="1.5"/>')  # fmt: skip


def _text(x: float, y: float, words: str, color: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{color}" text-anchor="{anchor}">{escaped(words)}</text>'
