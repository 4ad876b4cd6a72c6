"""Arrays of numbers that a kernel reads by name, as tables: NumPy itself lets no symbol be an index.

While a kernel is traced, its function and the functions that it reads by name see such arrays through a view whose
entries can be looked up by a value that is known only at run time. Where none reads an array nothing is changed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meshloom.kernel import lookup
from meshloom.kernel.bytecode import reads_of
from meshloom.kernel.outside import homes_of, is_followed
from meshloom.kernel.sameness import IdentityDict
from meshloom.kernel.symbols import looked_up


class ConstantArray(np.ndarray):
    """Numbers that do not change while a kernel is traced; NumPy's own in all but this: symbols may index them."""

    def __getitem__(self, key: Any) -> Any:
        if lookup.is_symbolic(key):
            return looked_up(self.view(np.ndarray), key, "the table")
        return super().__getitem__(key)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """With symbols it is theirs to say what a function means, also where the table comes first."""
        if any(one is not ConstantArray and one is not np.ndarray for one in types):
            return NotImplemented
        return super().__array_function__(func, types, args, kwargs)


def as_table(value: Any) -> Any:
    """An array of numbers as one that symbols may index; anything else as it is."""
    return value.view(ConstantArray) if _is_numbers(value) else value


def _is_numbers(value: Any) -> bool:
    """Plain ones: a masked array, a matrix and their like mean something else by what they hold."""
    return type(value) in (np.ndarray, np.memmap) and value.dtype.kind in "biuf"


def seeing_tables(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or one of the same code that sees arrays as tables, where it reads any by name."""
    if not isinstance(function, types.FunctionType):
        return function
    reached: dict[types.FunctionType, dict[str, Any]] = {}
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached[one] = dict(_read(one))
            waiting += [value for value in reached[one].values() if _is_users(value)]
    if not any(_is_numbers(value) for found in reached.values() for value in found.values()):
        return function
    made = {one: _twin(one) for one in reached}
    tables: IdentityDict[Any] = IdentityDict()  # an array by two names is one table
    for one, twin in made.items():
        for name, value in reached[one].items():
            is_function = isinstance(value, types.FunctionType)
            new = made.get(value, value) if is_function else tables.setdefault((value,), as_table(value))
            if name in one.__code__.co_freevars:
                twin.__closure__[one.__code__.co_freevars.index(name)].cell_contents = new  # type: ignore[index]
            else:
                twin.__globals__[name] = new
    return made[function]


def _read(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names that a function reads, with what they mean now."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for one in reads_of(function.__code__):
        if one.kind == "global" and one.name in function.__globals__:
            yield one.name, function.__globals__[one.name]
        elif one.kind == "free" and one.name in cells:
            try:
                yield one.name, cells[one.name].cell_contents
            except ValueError:  # nothing there yet
                continue


def _is_users(value: Any) -> bool:
    return isinstance(value, types.FunctionType) and any(map(is_followed, homes_of(value)))


def _twin(function: types.FunctionType) -> types.FunctionType:
    """The same function with names of its own."""
    cells = tuple(_copied(cell) for cell in function.__closure__ or ())
    made = types.FunctionType(
        function.__code__, dict(function.__globals__), function.__name__, function.__defaults__, cells or None
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    made.__annotations__ = function.__annotations__
    made.__dict__.update(function.__dict__)
    return made


def _copied(cell: types.CellType) -> types.CellType:
    try:
        return types.CellType(cell.cell_contents)
    except ValueError:
        return types.CellType()
