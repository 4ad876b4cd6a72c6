"""Files that are written next to their place and renamed: a reader sees the old one, the new one or none."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from meshloom.process.signals import undone_if_stopped

HALF_WRITTEN = re.compile(r"\.(?P<name>.+)\.\d+\.[0-9a-f]{32}\.tmp")  # what a writer that was killed leaves


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A unique temporary path next to ``path`` to write to; renamed to ``path`` at the end, removed on any error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}.tmp")
    with undone_if_stopped(temporary.unlink):
        try:
            yield temporary
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
