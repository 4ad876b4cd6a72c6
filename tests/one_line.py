"""What a wrong input must raise: an error of ours, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from meshloom.errors import MeshloomError


@contextmanager
def one_line_from(kind: type[MeshloomError], pattern: str = "") -> Iterator[None]:
    """The block must raise ``kind``, and its message be one line that matches ``pattern``."""
    with pytest.raises(kind) as caught:
        yield
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and text.isprintable(), repr(text)
    assert re.search(pattern, text), text
