"""What NumPy's functions of arrays get: arguments that are arrays as arrays of symbols, each in its one type."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.kernel.expr import FLOAT64
from meshloom.kernel.values import in_type, objects, type_of, typed

#: How many arguments of a function are arrays, where it is not one; the others are axes, shapes and the like.
_COUNTS: dict[Any, int] = dict.fromkeys((np.dot, np.inner, np.outer, np.vdot, np.tensordot, np.cross, np.append), 2)
_COUNTS |= {np.broadcast_arrays: 99}
OF_SEQUENCES = {np.stack, np.concatenate, np.hstack, np.vstack, np.column_stack}
_NAMES = ("a", "b", "x", "m", "v", "arr", "values", "prepend", "append")


def positional(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a function as it gets them: arrays of symbols and numbers that have one type each."""
    if func in OF_SEQUENCES:
        return *(list(map(typed, v)) for v in args[:1]), *args[1:]
    if func is np.einsum:
        values = list(map(typed, args[1:]))
        common = np.result_type(*(t for v in values if (t := type_of(v))))
        return args[0], *(in_type(v, common) for v in values)
    if func is np.insert and len(args) > 2:
        array = typed(args[0])
        return array, args[1], in_type(objects(args[2]), type_of(array) or FLOAT64), *args[3:]
    count = _COUNTS.get(func, 1)
    return *map(typed, args[:count]), *args[count:]


def named(name: str, value: Any) -> Any:
    """The same for an argument by name."""
    return list(map(typed, value)) if name in ("arrays", "tup") else typed(value) if name in _NAMES else value
