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
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import numpy as np

from meshloom.dist import shared
from meshloom.dist.shared import FilePlace, mapped, opened_by_all, written
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


class Asked(NamedTuple):
    """A ``digest`` of what a mesh is to be made of; '' where nobody can say that. ``changed``: have values of it
    changed since it was made, so that they may be others on every rank?"""

    digest: str
    changed: bool


def made_once(world: World, make: Callable[[], T], given: Sequence[object]) -> T:
    """What ``make`` makes of what is ``given``, such as a mesh, or one with more in a tuple; all must ask where they
    are given the like."""
    if any(isinstance(one, Mesh) and MADE not in one.cells.kept for one in given):
        return make()
    asked = _asked(given)
    everybody = world.allgathered(asked, "which mesh it is to make")
    if {one.digest for one in everybody} != {asked.digest} or not asked.digest:
        with alone():
            return make()
    if any(one.changed for one in everybody):
        return make()  # all do, and may ask each other for values
    made = _made_on_node(world, make)
    for one in made if isinstance(made, tuple) else (made,):
        if isinstance(one, Mesh):
            one.cells.kept[MADE] = MadeOnce(asked.digest, _versions(one))
    return made


def _asked(given: Sequence[object]) -> Asked:
    """By names and arguments, and by what a mesh among them was made of."""
    known: list[MadeOnce | None] = [one.cells.kept[MADE] if isinstance(one, Mesh) else None for one in given]
    changed = any(made is not None and made.versions != _versions(cast(Mesh, one))
                  for one, made in zip(given, known, strict=True))  # fmt: skip
    try:
        said = pickle.dumps([made.digest if made else one for one, made in zip(given, known, strict=True)])
    except Exception:  # a person may give anything
        return Asked("", changed)
    return Asked(hashlib.sha256(said).hexdigest(), changed)


def _versions(of: Mesh) -> tuple[int, int]:
    return of.coordinates.version, of.boundary_group.version


def _made_on_node(world: World, make: Callable[[], T]) -> T:
    """What the first rank of this node has made, or an error of one of those."""
    own: list[T] = []
    with opened_by_all(world) as file:

        def packed() -> Packed | None:
            own.append(make())
            return pack(own[0], file)

        here = done_for_others(packed) if world.node_rank == 0 else (None, None)
        found, failed = world.of_first_on_node(here, "what was made")
        there = mapped(file) if found is not None and found.places else None
    if world.node_size < world.size:  # there are other nodes
        errors = world.allgathered(failed, "whether all is well", patiently=True)
        failed = failed or next(filter(None, errors), None)
    if failed is not None:
        raise here[1] or failed  # its own has the lines that led to it
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
    large: dict[str, np.ndarray] = {}

    def stays_small(buffer: pickle.PickleBuffer) -> bool:
        values = np.frombuffer(buffer.raw(), np.uint8)
        if values.nbytes >= max(shared.LEAST, 1):
            large[str(len(large))] = values
        return values.nbytes < max(shared.LEAST, 1)

    into = io.BytesIO()
    _Pickler(into, pickle.HIGHEST_PROTOCOL, buffer_callback=stays_small).dump(made)
    places = written(large, file)
    return Packed(into.getvalue(), places) if places or not large else None


def unpacked(found: Packed, file: mmap.mmap | None) -> Any:
    """The same again, with large arrays in a file that is mapped."""
    view = memoryview(file) if file is not None else memoryview(b"")
    at = [(place.offset, place.offset + place.shape[0]) for place in found.places.values()]
    return pickle.loads(found.pickled, buffers=[view[first:last] for first, last in at])
