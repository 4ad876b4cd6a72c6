"""Which line of a person's own code an error comes from."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meshloom.errors import ConfigError, MeshloomError, UserError

_PACKAGE = Path(__file__).parents[1]


def is_own(file: str) -> bool:
    """Whether a file is a person's own, and not Meshloom's."""
    return _PACKAGE not in Path(file).parents


def class_line(kind: type) -> str:
    """``mine.py:12``: where a class begins."""
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):  # nobody can read it
        return kind.__qualname__


def place_of(error: BaseException, file: str) -> str:
    """``mine.py:12``: the innermost line of ``file`` on the way to the error, else the outermost one that is not
    Meshloom's; '' where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    outside = [frame for frame in frames if is_own(frame.filename)]
    found = own or outside[:1]
    return f"{found[-1].filename}:{found[-1].lineno}" if found else ""


@contextmanager
def one_line_for(file: str | None, kind: type[MeshloomError]) -> Iterator[None]:
    """An error of the code in ``file`` ends in one line with its place, as a ``kind`` or, where Meshloom has refused
    what it was given, a UserError; without a file, as with what Meshloom brings along, errors stay what they are."""
    try:
        yield
    except (ConfigError, MemoryError):  # which say all, or are said elsewhere
        raise
    except MeshloomError as error:
        place = place_of(error, file) if file is not None and isinstance(error, UserError) else ""
        if not place.startswith(f"{file}:") or f"{file}" in str(error):
            raise
        raise UserError(f"{place}: {error}") from error
    except Exception as error:
        if file is None:
            raise
        raise kind(f"{place_of(error, file) or file}: {type(error).__name__}: {error}") from error
