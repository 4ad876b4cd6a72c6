"""What ``copy`` and ``pickle`` make of the nouns of a loop.

A copy of a field is another field with the same values on the same set. Sets, meshes and grids never change, so
a copy of one is itself, as with tuples: a field on a copied set would fit no loop with the others. A map is between its
sets what they are for fields, and its copy itself, too.

A pickle holds all that a thing refers to: a field its set, a map both of its sets, a mesh everything it has. So what is
pickled together, as the arguments of one call in another process are, fits together there; what is pickled one by one
is on sets of its own each. Nothing of a kernel or of a program is ever pickled.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar
from weakref import ref

import numpy as np

from meshloom.errors import ProgramError
from meshloom.kernel.sameness import Distinct
from meshloom.recording import refuse_in_program

T = TypeVar("T")


class Sent(Distinct):
    """What is pickled with what it refers to."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        what = f"{type(self).__name__.lower()} {getattr(self, 'name', '')}".rstrip()
        refuse_in_program(f"pickling {what}", "pickle it before, or after program.run()")
        return _empty, (type(self),), self._sent()

    @abstractmethod
    def _sent(self) -> dict[str, Any]:
        """Its attributes, to be pickled."""


def _empty(kind: type[T]) -> T:
    """One without attributes yet: those that refer to it are made with it."""
    return kind.__new__(kind)


class _Weak(NamedTuple):
    """Somebody whom a thing knows, and does not keep."""

    known: Any


class _ReadOnly(NamedTuple):
    values: np.ndarray


def _packed(value: Any) -> Any:
    """As pickle keeps it: weak references are its enemies, and it forgets that arrays are read-only."""
    if isinstance(value, ref):
        return _Weak(value())
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return _ReadOnly(value)
    return {key: _packed(one) for key, one in value.items()} if type(value) is dict else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, _Weak):
        return None if value.known is None else ref(value.known)
    if isinstance(value, _ReadOnly):
        value.values.flags.writeable = False
        return value.values
    return {key: _unpacked(one) for key, one in value.items()} if type(value) is dict else value


class ItsOwnCopy(Sent):
    """What is known by being itself. ``_made_again``: attributes that others keep in it, which are
    empty again in another process."""

    __slots__ = ()
    _made_again: ClassVar[tuple[str, ...]] = ()

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        return self

    def _sent(self) -> dict[str, Any]:
        kind = type(self)
        own = {name for one in kind.__mro__ for name, found in vars(one).items() if isinstance(found, cached_property)}
        own |= {"serial", *self._made_again}
        slots = [name for one in kind.__mro__ for name in getattr(one, "__slots__", ()) if hasattr(self, name)]
        known = {name: getattr(self, name) for name in slots} | getattr(self, "__dict__", {})
        return {name: _packed(value) for name, value in known.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, _unpacked(value))
        self._restored()

    def _restored(self) -> None:
        """All attributes are there but those that are made again."""


class NoCopy:
    """What is bound to the fields that it was made with."""

    __slots__ = ()
    name: str

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ProgramError(
            f"{type(self).__name__.lower()} {self.name} can be neither copied nor pickled: it works on fields of its"
            " own; make another one in the same way"
        )


def sent_with_arrays(one: ItsOwnCopy) -> dict[str, Any]:
    """What is sent of an object, with all arrays, also those that are made again from others in another process."""
    known = getattr(one, "__dict__", {})
    return {name: _packed(each) for name, each in known.items() if isinstance(each, np.ndarray)} | one._sent()
