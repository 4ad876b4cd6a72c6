"""The shape of what a field holds at one element: a number, a vector, a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from meshloom.errors import MeshError, shown, whole_number

MOST_COMPONENTS = 2**16  # of a field
MOST_AXES = 8
Components = int | Sequence[int]  # as a person gives them: how many, or their shape


def component_shape(given: Components, what: str) -> tuple[int, ...]:
    """The shape at one element: () for 1, (d,) for another number, a shape as it is. ``what`` begins the message."""
    if not isinstance(given, list | tuple):
        if isinstance(given, np.ndarray) and given.ndim:
            return component_shape(given.tolist(), what)
        dim = whole_number(f"{what}: dim", given, 1, MOST_COMPONENTS, error=MeshError)
        return () if dim == 1 else (dim,)
    try:
        shape = tuple(whole_number(what, one, 1, MOST_COMPONENTS, error=MeshError) for one in given)
    except MeshError:
        raise MeshError(f"{what}: dim must be a whole number or a shape such as (5, 3), got {shown(given)}") from None
    if len(shape) > MOST_AXES or prod(shape) > MOST_COMPONENTS:
        most = f"at most {MOST_AXES} axes and {MOST_COMPONENTS} components"
        raise MeshError(f"{what}: a shape has {most}, got {shown(given)}")
    return shape
