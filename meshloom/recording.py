"""While a program is being recorded: what is called is handed to a recorder, or refused in one line.

What a program replays is a list of operations on fields and globals. Anything else that a function does happens once,
when it is recorded; so what would then differ from calling the function is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from meshloom.errors import ProgramError

P = ParamSpec("P")
T = TypeVar("T")


class Recorder(Protocol):
    """Whoever records a program. Fields and globals know no operations, so they say what they are set to."""

    made: dict[Any, None]  # fields and globals, in the order in which they were made

    def __call__(self, operation: Any) -> None:
        """An operation was called."""

    def make(self, target: Any) -> None:
        """A field or global was made."""

    def forget_made(self, count: int) -> set[Any]:
        """Those that were made since there were so many: nobody else has them."""

    def own_loop(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """A loop that is given plain numbers: one of the recording's own, made where there is none of this key."""

    def fill(self, target: Any, value: float | int) -> None:
        """Every value of a field or global is set to one number."""


#: While a program is being recorded, operations are handed to this recorder instead of being carried out.
recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)

READ_LATER = "read it after program.run(), keep it with run(record=...), or use it in a kernel"
MAKE_BEFORE = "make it before, and use it inside"


def refuse_in_program(what: str, instead: str) -> None:
    """ProgramError while a program is being recorded: ``what`` would happen once; ``instead`` says what to do."""
    if recorder.get() is not None:
        raise ProgramError(
            f"{what} inside a program would happen once, when it is recorded, and not at every replay; {instead}"
        )


def not_in_program(what: str, instead: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: refused while a program is recorded. ``{}`` in ``what`` is the name of the first argument."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            if recorder.get() is not None:
                refuse_in_program(what.format(getattr(args[0], "name", "") if args else ""), instead)
            return function(*args, **kwargs)

        return guarded

    return decorate


@contextmanager
def outside_program() -> Iterator[None]:
    """For constants that are made once, whoever asks first: what is done inside is done now, and not recorded."""
    token = recorder.set(None)
    try:
        yield
    finally:
        recorder.reset(token)
