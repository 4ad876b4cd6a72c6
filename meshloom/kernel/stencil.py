"""What a kernel gets for ``field[grid.offsets(...)]``: values by offset, ``u[1, 0]``, and nothing to write to."""

from __future__ import annotations

from typing import Any, NoReturn

from meshloom.kernel.values import fail

Offset = tuple[int, ...]


class Stencil:
    """``values`` has one entry (a number, or the components) for each of ``offsets``."""

    def __init__(self, name: str, offsets: tuple[Offset, ...], values: Any):
        self._name, self._values = name, values
        self._slots = {offset: slot for slot, offset in enumerate(offsets)}

    def __getitem__(self, offset: int | Offset) -> Any:
        key = offset if isinstance(offset, tuple) else (offset,)
        slot = self._slots.get(key)
        if slot is None:
            listed = ", ".join(map(_text, self._slots))
            fail(
                f"parameter {self._name} is read at offset {_text(key)}, but was passed with the offsets {listed};"
                " components of a vector come after: u[1, 0][2]"
            )
        return self._values[slot]

    def __setitem__(self, offset: Any, value: Any) -> NoReturn:
        fail(f"parameter {self._name} is read at offsets and cannot be written; pass the field itself to write it")


def _text(offset: Offset) -> str:
    return f"({', '.join(map(str, offset))})"
