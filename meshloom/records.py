"""Dataclasses that take less time to make: a start makes hundreds of them.

The standard library writes six methods of every frozen one as text and compiles it. Comparison, hash and text are the
same for all but for the names of the fields: here they are made of these names, and mean what those of the standard
library mean. Its own still make what is left: how objects begin, and that they do not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:  # checked as what it stands for
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, eq: bool = True, repr: bool = True, **options: Any) -> Any:
        """``dataclasses.dataclass``, for classes without an order or a hash of their own asking."""

        def made(cls: type) -> type:
            own = vars(cls)
            has_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
            found = dataclasses.dataclass(eq=False, repr=False, **options)(cls)
            if repr and "__repr__" not in own:
                found.__repr__ = _text
            if eq:
                _compare(found, "__eq__" not in own, not has_hash)
            return found

        return made if cls is None else made(cls)


def _compare(cls: Any, comparing: bool, hashing: bool) -> None:
    """Give a class the methods that tell its objects apart by what is in them, those that it has not got itself."""
    fields = dataclasses.fields(cls)
    if comparing:
        cls.__eq__ = _equality(_values([one.name for one in fields if one.compare]))
    if hashing:
        hashed = [one.name for one in fields if (one.compare if one.hash is None else one.hash)]
        cls.__hash__ = _hash(_values(hashed)) if cls.__dataclass_params__.frozen else None


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of some fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple([getattr(one, name) for name in names])


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


@recursive_repr()
def _text(self: Any) -> str:
    said = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({said})"
