"""What a program is given when its function has parameters: fields, globals, and what they live on, checked."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from meshloom.errors import ProgramError, UserError, one_line
from meshloom.kernel.sameness import Distinct
from meshloom.mesh.buffer import Buffered
from meshloom.mesh.copies import ItsOwnCopy

Known = Buffered | ItsOwnCopy  # what is known by being itself: fields, globals; sets, maps, grids, boxes, offsets
_GATHERED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def name_of(function: Callable[..., None]) -> str:
    """What messages call a function: its name, that of the one behind a ``functools.partial``, or what it is."""
    if isinstance(function, partial):
        return name_of(function.func)
    return str(getattr(function, "__name__", None) or getattr(function, "name", type(function).__name__))


class Given(NamedTuple):
    """Arguments as the function is called with them."""

    values: tuple[Known, ...]
    named: dict[str, Known]

    @property
    def key(self) -> tuple[Any, ...]:
        """By their names and serial numbers: it keeps none of them. None is what no program takes."""
        names = sorted(self.named)
        listed = (*self.values, *map(self.named.__getitem__, names))
        return (*names, *[one.serial if isinstance(one, Distinct) else None for one in listed])

    @property
    def parts(self) -> tuple[Known, ...]:
        return (*self.values, *self.named.values())


class Parameters:
    """The parameters of a program's function. ``names`` are those that a call has to fill."""

    def __init__(self, function: Callable[..., None]):
        self.function, self.program = function, name_of(function)
        try:
            self._signature = inspect.signature(function)
        except ValueError:  # of something that was not written in Python
            self._signature = inspect.Signature()
        listed = self._signature.parameters
        self.any = bool(listed)
        self.names = [n for n, p in listed.items() if p.default is p.empty and p.kind not in _GATHERED]

    @property
    def place(self) -> str:
        """``file:line: `` of the function, where it has one."""
        code = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""

    def given(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Given:
        """The arguments, checked; ProgramError names the program's line."""
        try:
            filled = self._signature.bind(*arguments, **named)
        except TypeError as problem:
            raise ProgramError(f"{self.place}program {self.program} {self._wrong(arguments, named, problem)}") from None
        for name, value in filled.arguments.items():
            gathered = self._signature.parameters[name].kind
            several = value.values() if gathered is _GATHERED[1] else value if gathered is _GATHERED[0] else (value,)
            for one in several:
                if not isinstance(one, Known):
                    raise ProgramError(f"{self.place}program {self.program}, parameter {name}: {_unsuitable(one)}")
        return Given(filled.args, filled.kwargs)

    def _wrong(self, arguments: tuple[Any, ...], named: dict[str, Any], problem: TypeError) -> str:
        takes = f"takes {len(self.names)} arguments ({', '.join(self.names)})" if self.any else "takes no arguments"
        names = f", among them {', '.join(named)}" if named else ""
        return f"{takes}, got {len(arguments) + len(named)}{names}: {problem}"

    def at_its_line(self, error: UserError, given: Given) -> UserError:
        """An error while it was recorded, with the line of the function that it comes from and the arguments."""
        code = getattr(self.function, "__code__", None)
        line_numbers = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code is code]
        if code is None or not line_numbers:
            return error
        named = [getattr(one, "name", type(one).__name__) for one in given.parts]
        where = f"{code.co_filename}:{line_numbers[-1]}"
        return type(error)(f"{where}: program {self.program} with {', '.join(named)}: {error}")


def _unsuitable(value: object) -> str:
    hint = ""
    if isinstance(value, int | float | np.generic):
        hint = f"; a number goes in as ml.Global({one_line(str(value))})"
    elif isinstance(value, np.ndarray):
        hint = "; an array goes in as set.field(name, data=array)"
    return f"expected a field, a Global, or a set or map, got {type(value).__name__}{hint}"
