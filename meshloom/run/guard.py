"""What a case has to show may be wrong: that costs a picture, never a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from meshloom.errors import RunError, UserError
from meshloom.run.place import class_line, is_mistake, is_own, mistake_text, place_of
from meshloom.run.report import RunReport
from meshloom.run.task import RunTask


class Guard:
    """Notes what goes wrong in the answers of a case that nothing else depends on; each of them once."""

    def __init__(self, task: RunTask, report: RunReport):
        self._task, self._report = task, report
        self._found: dict[str, str] = {}  # by the name of the method

    @property
    def failures(self) -> tuple[str, ...]:
        """One line each."""
        return tuple(self._found.values())

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the methods."""
        return tuple(self._found)

    @contextmanager
    def trying(self, method: str) -> Iterator[None]:
        """What the method of the case gives is used inside. Errors of Meshloom's own, as of a full disk, go through."""
        try:
            yield
        except (RunError, UserError):
            raise
        except BaseException as error:
            if not is_mistake(error):
                raise
            self.note(method, mistake_text(error), place_of(error, self._defined(method).rpartition(":")[0]))

    def note(self, method: str, problem: str, place: str = "") -> None:
        """The method is wrong."""
        if method not in self._found:
            at = place or self._defined(method)
            said = f"{method}() of case '{self._task.name}' failed: {' '.join(problem.split())} ({at})"
            self._found[method] = said
            self._report.message(f"{said}; the run is not affected")

    def _defined(self, method: str) -> str:
        code = getattr(getattr(type(self._task), method), "__code__", None)
        if code is None or not is_own(code.co_filename):  # what a person has not written themselves
            return class_line(type(self._task))
        return f"{code.co_filename}:{code.co_firstlineno}"
