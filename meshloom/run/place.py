"""Which line of a person's own code an error comes from."""

from __future__ import annotations

import dis
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


def is_mistake(error: BaseException) -> bool:
    """Whether code of a person's own is to blame for what came out of it: for all but Ctrl-C, and a generator that is
    closed. To call ``sys.exit()``, or to raise KeyboardInterrupt, is a mistake as well: it would end a run unseen."""
    if isinstance(error, KeyboardInterrupt):
        return _raised_by_hand(error)
    return not isinstance(error, GeneratorExit)


def _raised_by_hand(error: BaseException) -> bool:
    """Whether a ``raise`` in a person's own file is where it comes from: signals come in between any two others."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    before = error.__context__
    if trace is None or (isinstance(before, KeyboardInterrupt) and not _raised_by_hand(before)):
        return False  # or raised once more, by who was stopped
    code = trace.tb_frame.f_code
    return is_own(code.co_filename) and dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def mistake_text(error: BaseException) -> str:
    """A mistake in words: ``ValueError: no such mode``."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    ends = isinstance(error, SystemExit | KeyboardInterrupt)
    return f"{text}, which would end Python; raise an error that says what is wrong instead" if ends else text


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
    except BaseException as error:
        if file is None or not is_mistake(error):
            raise
        raise kind(f"{place_of(error, file) or file}: {mistake_text(error)}") from error
