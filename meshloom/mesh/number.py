"""A plain number as an argument of a loop: memory of its own, so that another number needs no other code."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.mesh.core import Global
from meshloom.native.threads import check_device
from meshloom.recording import outside_program

_HELD: dict[str, str] = {  # kind -> the type of the memory
    "bool": "int32", "np.bool": "int32", "int": "int64", "large int": "int64", "float": "float64",
    "int32": "int32", "int64": "int64", "float32": "float32", "float64": "float64",
}  # fmt: skip
_PYTHON = {"bool": bool, "int": int, "large int": int, "float": float, "np.bool": np.bool_}


def kind_of_number(value: object) -> str | None:
    """What NumPy takes a number for: Python's own are "bool", "int" and "float", and weak; None where it is no number
    that kernels compute with. Integers that int32 does not hold are a kind of their own, since NumPy refuses them
    where they meet int32."""
    if type(value) is float:  # nearly always, and calls are counted in microseconds
        return "float"
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        name = "np.bool" if value.dtype == np.bool_ else str(value.dtype)
        return name if name in _HELD else None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "float"
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        return None
    return "int" if -(2**31) <= value < 2**31 else "large int"


class PlainNumber(Global):
    """A plain number that a loop was given: a Global that nobody else sees. ``kind``: see ``kind_of_number``.
    ``latest``: the number of now, on the host."""

    __slots__ = ("kind", "latest")

    def __init__(self, value: Any, kind: str, name: str):
        with outside_program():  # it is a constant of the loop, and is not set at every replay
            super().__init__(value, name, dtype=_HELD[kind])
        self.kind, self.latest = kind, value

    def put(self, value: Any) -> None:
        """Another number of the same kind; on a device in its turn, without waiting for it."""
        storage = self._storage
        if type(storage) is not np.ndarray:
            check_device()
        storage.fill(value)
        self.latest = value

    @property
    def plain(self) -> Any:
        """The number as it was given."""
        return _PYTHON.get(self.kind, self.dtype.type)(self.value)
