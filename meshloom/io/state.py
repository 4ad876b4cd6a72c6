"""``ml.save`` and ``ml.load``: values of fields and globals in an HDF5 file, by name.

Layout of the file: attribute ``format``; the group ``values`` with one dataset per field or global, by number whatever
the order and the layout in memory, ghosts of grids included; each has the attributes ``on``, the name of its set ('' of
a global), and ``digest``, the identity of that set as far as it has one. ``checksummed`` keeps it whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import MeshError, UserError, file_path, nearest, shown
from meshloom.io.checksummed import (
    FileKind,
    read_checksummed,
    read_rows,
    restored_name,
    stored_name,
    write_checksummed,
)
from meshloom.io.field_rows import Values, restore, saved_rows, saved_shape
from meshloom.io.rank_rows import AnyRows, RankRows
from meshloom.mesh.core import Field, Set, Subset
from meshloom.mesh.grid import Grid
from meshloom.mesh.values import same_kind
from meshloom.process.ranks import agreed, ranks
from meshloom.recording import refuse_in_program

FORMAT = 1
_KIND = FileKind("saved state", "save it again", "take one that ml.save wrote")


def save(path: str | os.PathLike[str], *values: Values | Mapping[str, Values], **named: Values) -> None:
    """Write fields and globals to an HDF5 file, replacing it in one step.

    Each is known by its name; ``{"before": u}`` or ``before=u`` gives another one. Values stand there by number,
    whatever the layout and the order of a mesh in memory, and with a digest of what they live on.
    """
    refuse_in_program("saving fields", "save them after program.run()")
    place, wanted = _path("save", path), by_name("save", values, named)
    ranks().check_given({"the file to save to": str(place), "what is saved": [*wanted]})
    ranks().check_values(wanted.values())
    arrays = {f"values/{stored_name(name)}": saved_rows(one) for name, one in wanted.items()}
    sets = {name: one.set for name, one in wanted.items() if isinstance(one, Field) and len(one.set)}
    digests = {name: identity(on) for name, on in sets.items()}

    def fill(file: Any) -> None:
        file.attrs["format"] = FORMAT
        file.attrs["values"] = "meshloom"
        for name in wanted:
            on = stored_name(sets[name].name) if name in sets else ""
            file[f"values/{stored_name(name)}"].attrs.update(on=on, digest=digests.get(name, ""))

    write_checksummed(place, arrays, fill)


def load(path: str | os.PathLike[str], *values: Values | Mapping[str, Values], **named: Values) -> None:
    """Put what ``save`` wrote back into fields and globals of these names. All of them, or an error and none.

    Numbers are cast as ``assign`` does it. A file of another mesh or grid is refused; it may hold more than is asked
    for.
    """
    refuse_in_program("loading fields", "load them before")
    place, wanted = _path("load", path), by_name("load", values, named)
    ranks().check_given({"the file to load": str(place), "what is loaded": [*wanted]})
    there, found = read_checksummed(place, _KIND, lambda file: _read(place, file, wanted))
    for name, one in wanted.items():
        if name not in found:
            hint = nearest(name, there, listed="it holds", none="it is empty")
            raise UserError(f"{place}: there is no '{name}' in it{hint}")
        _check(place, name, one, *found[name])
    for name, one in wanted.items():
        restore(one, found[name][0])


def _read(path: Path, file: Any, wanted: Collection[str]) -> tuple[list[str], dict[str, tuple[AnyRows, str]]]:
    """The names in a file, and of those that are wanted the values, with the digest of what they live on."""
    if int(file.attrs["format"]) != FORMAT or file.attrs["values"] != "meshloom":
        raise UserError(f"{path}: of format {file.attrs['format']}, this Meshloom reads format {FORMAT}")
    there = {restored_name(name): one for name, one in file["values"].items()}
    return [*there], {name: (read_rows(one), str(one.attrs["digest"])) for name, one in there.items()
                      if name in wanted}  # fmt: skip


def _check(path: Path, name: str, one: Values, values: AnyRows, digest: str) -> None:
    """UserError where values do not belong into a field or global."""
    shape = saved_shape(one)
    on = f" on {one.set.name}" if isinstance(one, Field) else ""
    if values.shape != shape:
        raise UserError(f"{path}: '{name}' has the shape {values.shape} there, and {shape} here{on}")
    here = identity(one.set) if isinstance(one, Field) else ""
    if digest and here and digest != here:
        kind = "grid" if isinstance(one, Field) and isinstance(one.set, Grid) else "mesh"
        raise UserError(f"{path}: '{name}' was saved on another {kind} with as many"
                        f" elements (digest {digest[:12]}, this one {here[:12]})")  # fmt: skip
    own = values.values if isinstance(values, RankRows) else values
    try:
        agreed(lambda: same_kind(own, one.dtype, f"'{name}'"))
    except MeshError as error:
        raise UserError(f"{path}: {error}") from None


def identity(on: Set) -> str:
    """SHA-256 of what says which elements those of a set are: the places of a mesh's, a grid's axes, the numbers of a
    part; '' of a set that is a number and nothing else."""
    if isinstance(on, Grid):
        return on.digest
    if isinstance(on, Subset):
        members = on.members_of(on.outermost)
        assert members is not None
        numbers = np.ascontiguousarray(members.indices, np.int64)
        return hashlib.sha256(identity(on.outermost).encode() + numbers.tobytes()).hexdigest()
    if on.points is None:
        return ""
    return hashlib.sha256(f"{on.points.shape}".encode() + np.ascontiguousarray(on.points).tobytes()).hexdigest()


def by_name(
    who: str, values: tuple[Any, ...], named: Mapping[str, Any] | None = None, *, what: type | Any = Values
) -> dict[str, Any]:
    """Fields and globals by the names under which somebody wants them; UserError where two have the same."""
    found: dict[str, Any] = {}
    for name, one in (*_listed(who, values), *(named or {}).items()):
        if not isinstance(one, what):
            kinds = " or ".join(kind.__name__ for kind in getattr(what, "__args__", (what,)))
            raise UserError(f"{who}: expected a {kinds}, got {shown(one)}")
        if found.get(name, one) is not one:
            raise UserError(f"{who}: two are called '{name}'; give them names, as in {{'a': ..., 'b': ...}}")
        found[name] = one
    if not found and not values and named is not None:
        raise UserError(f"{who}: give the fields and globals, as in {who}(path, u, t)")
    return found


def _listed(who: str, values: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    for one in values:
        if isinstance(one, Mapping):
            for name, each in one.items():
                if not isinstance(name, str):
                    raise UserError(f"{who}: names are strings, got {shown(name)}")
                yield name, each
        else:
            yield getattr(one, "name", ""), one


def _path(who: str, path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"{who}: the first argument is the path of the file, got {shown(path)}")
    if not Path(path).name:
        raise UserError(f"{who}: the first argument is the path of the file, and {shown(os.fspath(path))} is a folder")
    return file_path(f"{who}: the first argument", path)
