"""What ``copy`` and ``pickle`` make of the nouns of a loop.

A copy of a field is another field with the same values on the same set. Sets, maps, meshes and grids never change, so a
copy of one is itself, as with tuples: a field on a copied set would fit no loop with the others. Nothing can be
pickled: in another process fields would be on sets of their own, each on another one, and share nothing.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from meshloom.errors import MeshError, ProgramError

T = TypeVar("T")


class InOneProcess:
    """What cannot be pickled."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        what = f"{type(self).__name__.lower()} {getattr(self, 'name', '')}".rstrip()
        raise MeshError(
            f"{what} cannot be pickled for a file or another process: send arrays, such as numpy() and indices, and"
            " make it of them there"
        )


class ItsOwnCopy(InOneProcess):
    """What never changes, and is known by being itself."""

    __slots__ = ()

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        return self


class NoCopy:
    """What is bound to the fields that it was made with."""

    __slots__ = ()
    name: str

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ProgramError(
            f"{type(self).__name__.lower()} {self.name} can be neither copied nor pickled: it works on fields of its"
            " own; make another one in the same way"
        )
