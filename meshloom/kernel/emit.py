"""Constants in C, exact in their type."""

from __future__ import annotations

import math

import numpy as np

from meshloom.kernel.expr import C_TYPES, FLOAT32, INT64


def literal(value: float | int | bool, dtype: np.dtype) -> str:
    """A constant in C, exact in its type."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "i":
        if value == np.iinfo(dtype).min:
            return f"({literal(value + 1, dtype)} - 1)"
        return f"INT64_C({value})" if dtype == INT64 else f"({value})" if value < 0 else str(value)
    suffix = "f" if dtype == FLOAT32 else ""
    if math.isnan(value):
        return f"({C_TYPES[dtype]})NAN"
    if math.isinf(value):
        return f"({C_TYPES[dtype]})({'-' if value < 0 else ''}INFINITY)"
    text = repr(float(value)) if dtype != FLOAT32 else str(np.float32(value))
    text = text if any(c in text for c in ".e") else text + ".0"
    return f"({text}{suffix})" if text.startswith("-") else text + suffix
