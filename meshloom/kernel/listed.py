"""``np.array`` and ``np.asarray`` of lists of symbols, which NumPy does not let anyone say a word to.

Left to itself it makes arrays of objects, whose entries keep types of their own: np.array([a, 0.5]) of single precision
would go on in single precision, where NumPy goes on in double. So while a kernel is traced these two look for symbols
first; all other lists, and those of other threads, are NumPy's as ever. Arrays that ``np.asarray`` is given become
tables that symbols may index.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from meshloom.kernel.constants import as_table
from meshloom.kernel.symbols import SymbolArray
from meshloom.kernel.values import Value, fail, in_type, known_type, typed

_NAMES = ("array", "asarray")
_real: dict[str, Any] = {name: getattr(np, name) for name in _NAMES}
_lock, _tracing = threading.Lock(), threading.local()
_users = 0


def _looking(name: str) -> Any:
    def array(*args: Any, **kwargs: Any) -> Any:
        if getattr(_tracing, "on", False) and args and _symbolic(args[0]):
            return _array(name, *args, **kwargs)
        made = _real[name](*args, **kwargs)
        return as_table(made) if getattr(_tracing, "on", False) and name == "asarray" else made

    return array


def _symbolic(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_symbolic, value))
    return isinstance(value, Value | SymbolArray)


def _array(name: str, value: Any, dtype: Any = None, **others: Any) -> SymbolArray:
    if set(others) - {"copy"}:
        fail(f"np.{name} with {', '.join(others)} is not supported in a kernel")
    array = typed(value) if dtype is None else in_type(typed(value), known_type(dtype))
    return (array.copy() if name == "array" else array).view(SymbolArray)


_looked = {name: _looking(name) for name in _NAMES}


@contextmanager
def arrays_of_symbols() -> Iterator[None]:
    """Within it, and in this thread, ``np.array`` and ``np.asarray`` make arrays of symbols."""
    global _users
    before = getattr(_tracing, "on", False)
    with _lock:
        _users += 1
        _put(_looked)
    _tracing.on = True
    try:
        yield
    finally:
        _tracing.on = before
        with _lock:
            _users -= 1
            if not _users:
                _put(_real)


def _put(functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        setattr(np, name, function)
