"""Values merged into others, as the access modes say it."""

from __future__ import annotations

import numpy as np

from meshloom.kernel.access import identity
from meshloom.kernel.expr import C_TYPES
from meshloom.schedule.nest.nodes import Expr, Number, call

_CHOOSING = {"minimum": "ml_min", "maximum": "ml_max"}


def combined(combine: str, old: Expr, new: Expr, dtype: np.dtype) -> Expr:
    """A new value merged into an old one; just the new one without a combining mode."""
    if not combine:
        return new
    if combine in _CHOOSING:
        return call(_CHOOSING[combine], old, new)
    return call("ml_wrapped_add", old, new, of_types=(C_TYPES[dtype],)) if dtype.kind == "i" else old + new


def negated(value: Expr, dtype: np.dtype) -> Expr:
    """The value with the other sign; the smallest integer has none, and wraps around."""
    return call("ml_wrapped_neg", value, of_types=(C_TYPES[dtype],)) if dtype.kind == "i" else -value


def nothing(combine: str, dtype: np.dtype) -> Number:
    """The value that changes no other one when it is merged into it."""
    return Number(identity(combine, dtype), dtype)
