"""What ranks would all make alike, such as a mesh that is read or generated, is made by one rank of each node, and the
others map its arrays.

The first rank of a node makes it, and pickles it: large arrays go into a file (``shared.py``), all else into the
message that the others wait for. Every rank has a mesh of its own then, whose arrays lie in the file: pages are there
once, and who writes has a copy of the page. Where ranks ask for different things, or no file can be written, each makes
its own. A mesh that was made so knows by what, and what is made of it is made once, too; not of one that a script has
made of arrays of its own, or whose values have changed since: what ranks have may differ there.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from meshloom.dist import shared
from meshloom.dist.shared import FilePlace, HeldArray, mapped, opened_by_all, written
from meshloom.dist.world import World
from meshloom.mesh.copies import ItsOwnCopy, sent_with_arrays
from meshloom.mesh.mesh import Mesh
from meshloom.process.ranks import alone, done_for_others

T = TypeVar("T")
MADE = "made once"  # where cells keep by what all ranks have made their mesh


class MadeOnce(NamedTuple):
    """``digest`` of what was given to make a mesh, and the ``versions`` of its values then."""

    digest: str
    versions: tuple[int, int]


class Packed(NamedTuple):
    """A pickle, and where large arrays lie in a file, in the order in which it refers to them."""

    pickled: bytes
    places: Mapping[str, FilePlace]


def made_once(world: World, make: Callable[[], T], given: Sequence[object]) -> T:
    """What ``make`` makes of what is ``given``; all must ask where they are given the like."""
    digest = _digest(given)
    if digest is None:
        return make()
    asked = set(world.allgathered(digest, "which mesh it is to make"))
    if asked != {digest} or not digest:
        with alone():
            return make()
    made = _made_on_node(world, make)
    if isinstance(made, Mesh):
        made.cells.kept[MADE] = MadeOnce(digest, _versions(made))
    return made


def _digest(given: Sequence[object]) -> str | None:
    """Of names and arguments, and of that of which a mesh among them was made; '' where nobody can say what they are,
    None where ranks have meshes of their own."""
    known = [one.cells.kept.get(MADE) if isinstance(one, Mesh) else None for one in given]
    for one, made in zip(given, known, strict=True):
        if isinstance(one, Mesh) and (made is None or made.versions != _versions(one)):
            return None
    try:
        said = pickle.dumps([made.digest if made else one for one, made in zip(given, known, strict=True)])
    except Exception:  # a person may give anything
        return ""
    return hashlib.sha256(said).hexdigest()


def _versions(of: Mesh) -> tuple[int, int]:
    return of.coordinates.version, of.boundary_group.version


def _made_on_node(world: World, make: Callable[[], T]) -> T:
    """What the first rank of this node has made, or its error."""
    own: list[T] = []
    with opened_by_all(world) as file:

        def packed() -> Packed | None:
            own.append(make())
            return pack(own[0], file)

        here = done_for_others(packed) if world.node_rank == 0 else (None, None)
        found, failed = world.on_node(here)[0]
        if failed is not None:
            raise here[1] or failed  # its own has the lines that led to it
        there = mapped(file) if found is not None and found.places else None
    if found is not None and (there is not None or not found.places):
        made: T = unpacked(found, there)
        return made
    with alone():
        return own[0] if own else make()


# ----- pickles ------------------------------------------------------------------------------------------------------
class _Pickler(pickle.Pickler):
    """Of what is its own copy all arrays are included, so that nobody makes them again."""

    def reducer_override(self, one: Any) -> Any:
        if not isinstance(one, ItsOwnCopy):
            return NotImplemented
        made, of, _ = one.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return made, of, sent_with_arrays(one)


def pack(made: object, file: BinaryIO | None) -> Packed | None:
    """Ready for other ranks of the node, with large arrays in a file; None where it cannot be written."""
    large: dict[str, HeldArray] = {}

    def stays_small(buffer: pickle.PickleBuffer) -> bool:
        values = np.frombuffer(buffer.raw(), np.uint8)
        if values.nbytes >= max(shared.LEAST, 1):
            large[str(len(large))] = HeldArray(values, _keep)
        return values.nbytes < max(shared.LEAST, 1)

    into = io.BytesIO()
    _Pickler(into, pickle.HIGHEST_PROTOCOL, buffer_callback=stays_small).dump(made)
    places = written(large, file)
    return Packed(into.getvalue(), places) if places or not large else None


def _keep(values: np.ndarray) -> None:
    """Nobody puts another array in its place."""


def unpacked(found: Packed, file: mmap.mmap | None) -> Any:
    """The same again, with large arrays in a file that is mapped."""
    view = memoryview(file) if file is not None else memoryview(b"")
    at = [(place.offset, place.offset + place.shape[0]) for place in found.places.values()]
    return pickle.loads(found.pickled, buffers=[view[first:last] for first, last in at])
