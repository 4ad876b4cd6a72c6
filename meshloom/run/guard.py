"""What a case has to show may be wrong: that costs a picture, never a run."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meshloom.errors import RunError, UserError
from meshloom.run.report import RunReport
from meshloom.run.task import RunTask

_PACKAGE = Path(__file__).parents[1]


class Guard:
    """Notes what goes wrong in the answers of a case that nothing else depends on; each of them once."""

    def __init__(self, task: RunTask, report: RunReport):
        self._task, self._report = task, report
        self._found: dict[str, str] = {}  # by the name of the method

    @property
    def failures(self) -> tuple[str, ...]:
        """One line each."""
        return tuple(self._found.values())

    @contextmanager
    def trying(self, method: str) -> Iterator[None]:
        """What the method of the case gives is used inside. Errors of Meshloom's own, as of a full disk, go through."""
        try:
            yield
        except (RunError, UserError):
            raise
        except Exception as error:
            self.note(method, f"{type(error).__name__}: {error}", self._place(method, error))

    def note(self, method: str, problem: str, place: str = "") -> None:
        """The method is wrong."""
        if method not in self._found:
            at = place or self._defined(method)
            said = f"{method}() of case '{self._task.name}' failed: {' '.join(problem.split())} ({at})"
            self._found[method] = said
            self._report.message(f"{said}; the run is not affected")

    def _place(self, method: str, error: Exception) -> str:
        """The innermost line that is not Meshloom's, nor below one of Meshloom's that the case did not call."""
        frames = traceback.extract_tb(error.__traceback__)
        defined = self._defined(method).rpartition(":")[0]
        own = [frame for frame in frames if frame.filename == defined]
        outside = [frame for frame in frames if _PACKAGE not in Path(frame.filename).parents]
        found = own or outside[:1]
        return f"{found[-1].filename}:{found[-1].lineno}" if found else ""

    def _defined(self, method: str) -> str:
        code = getattr(getattr(type(self._task), method), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else type(self._task).__qualname__
