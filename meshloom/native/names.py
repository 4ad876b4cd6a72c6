"""Names that a person gives, as generated source and the names of files may have them: the one place."""

from __future__ import annotations

import re

MOST_LETTERS = 60
_ODD = re.compile(r"[^A-Za-z0-9_]+")


def safe_name(name: str) -> str:
    """The name as a word of C: letters, digits and underscores of ASCII, not too long, never empty."""
    word = _ODD.sub("_", name)[:MOST_LETTERS]
    return word if re.match(r"[A-Za-z_]", word) else f"_{word}"[:MOST_LETTERS]
