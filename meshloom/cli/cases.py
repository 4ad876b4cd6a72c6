"""What ``meshloom cases`` tells: which cases there are, and which of them do not run on several ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator

from meshloom.catalogue import listed
from meshloom.errors import one_line

_MARK = "; one process"


def text_lines(as_json: bool) -> Iterator[str]:
    """One line of JSON, or a line for every case."""
    found = [*listed()]
    if as_json:
        yield json.dumps([{"case": one.name, "title": one.title, "ranks": not one.not_on_ranks,
                           "not_on_ranks": one.not_on_ranks} for one in found])  # fmt: skip
        return
    width = max(len(one.name) for one in found)
    for one in found:
        yield f"{one.name:{width}}  {one_line(one.title)}{_MARK if one.not_on_ranks else ''}"
