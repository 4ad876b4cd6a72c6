"""What a person types, in words that can be copied."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def as_typed(path: str, encoding: str | None) -> str:
    """A path for a command line, in one line. What the terminal cannot show is spelled out, as shells read it."""
    try:
        path.encode(encoding or "ascii")
        if path.isprintable():
            return shlex.quote(path)
    except UnicodeError:
        pass
    letters = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in os.fsencode(path))
    return f"$'{''.join(letters)}'"


def restart_command(checkpoint: Path, encoding: str | None = "utf-8") -> str:
    """What a person types to go on from the checkpoint of a case's run."""
    return f"meshloom run --restart {as_typed(str(checkpoint), encoding)}"
