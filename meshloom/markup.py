"""Small pieces of HTML for notebooks: tables, pictures and texts, complete in themselves, with every text escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from meshloom.errors import one_line

_CELL = "text-align:left;padding:1px 10px 1px 0;vertical-align:top"
_MOST = 400  # letters of one text: what is longer is cut


def escaped(text: object) -> str:
    """Any text as text: one line, nothing of it is markup."""
    flat = one_line(str(text))
    return _escaped(flat if len(flat) <= _MOST else f"{flat[: _MOST - 1]}…")


def _escaped(text: str) -> str:
    from html import escape  # here: its table of names takes time to import, and few processes need it

    return escape(text)


def table(title: str, rows: Iterable[tuple[object, object]], picture: str = "") -> str:
    """A headline over rows of two texts; ``picture`` is HTML that stands to their right."""
    listed = "".join(
        f'<tr><th style="{_CELL};font-weight:600">{escaped(name)}</th><td style="{_CELL}">{escaped(value)}</td></tr>'
        for name, value in rows
    )
    inner = f'<div><strong>{escaped(title)}</strong><table style="border:none;margin:2px 0">{listed}</table></div>'
    return f'<div style="display:flex;gap:24px;align-items:flex-start">{inner}{picture}</div>'


def png(data: bytes, alternative: str) -> str:
    """A picture within the page itself; nothing where there is none."""
    if not data:
        return ""
    return f'<img alt="{escaped(alternative)}" src="data:image/png;base64,{b64encode(data).decode("ascii")}">'


class Explanation(str):
    """A text of ``explain()``: a plain string that notebooks show as it would be printed, its headlines in bold."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """As IPython shows it in a terminal: its lines, not one with \\n in it."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        shown = (_escaped(line) for line in self.split("\n"))
        bold = (line if not line or line.startswith(" ") else f"<strong>{line}</strong>" for line in shown)
        text = "\n".join(bold)
        return f'<pre style="white-space:pre-wrap;line-height:1.3">{text}</pre>'
