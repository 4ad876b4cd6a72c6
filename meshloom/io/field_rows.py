"""The values of fields and Globals as rows by number: for files, and for looks at the state of a run.

Where a field is over ranks every rank has the rows of its own elements, and gathers none; elsewhere it has all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TypeGuard

import numpy as np

from meshloom.io.rank_rows import AnyRows, RankRows, on_every_rank
from meshloom.mesh.buffer import OverRanks
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.values import same_kind
from meshloom.process.ranks import ranks

Values = Field | Global


def saved_shape(one: Values) -> tuple[int, ...]:
    """That of ``one.saved()``, without asking for values."""
    return one.shape if isinstance(one, Global) else (one.set.total - len(one.set.padding), *one.components)


def saved_rows(one: Values) -> AnyRows:
    """What a checkpoint holds, as ``one.saved()``: ghosts included."""
    return _rows(one, saved_shape(one)[0], _saved_numbers) if _over_ranks(one) else one.saved()


def shown_rows(one: Field) -> AnyRows:
    """What a person sees, as ``one.numpy()``; of a grid over ranks its points in a row."""
    return _rows(one, prod(one.set.array_shape), lambda on, at: on.numbers_at(at)) if _over_ranks(one) else one.numpy()


def as_rows(values: Field | AnyRows) -> AnyRows:
    """What a person sees of a field, or has given."""
    if isinstance(values, Field):
        return shown_rows(values)
    return values if isinstance(values, RankRows) else np.asarray(values)


def rows_on(on: Set, fields: Mapping[str, Field | AnyRows]) -> dict[str, AnyRows]:
    """Values on a set as rows by number: arrays of this rank's own elements, as ``field.local()`` gives them, are its
    part of all; others stay as they are. All ranks must ask."""
    found = {name: as_rows(one) for name, one in fields.items()}
    arrays = {name: np.asarray(found[name]) for name, one in fields.items() if not isinstance(one, Field | RankRows)}
    if ranks().size == 1 or not arrays:
        return found
    mine, count = on.mine, prod(on.array_shape)
    # Where a rank owns all elements, both look alike there: others know.
    has_own = [one.ndim > 0 and len(one) == len(mine) for one in arrays.values()]
    everybody = zip(*ranks().allgathered(has_own, "which rows it has"), strict=True)
    own = {name: RankRows(count, mine, arrays[name]) for name, is_own in zip(arrays, map(all, everybody), strict=True)
           if is_own}  # fmt: skip
    return found | own


def restore(one: Values, saved: AnyRows) -> None:
    """Take back what ``saved_rows`` gave; all ranks must call it."""
    if not (isinstance(saved, RankRows) and _over_ranks(one)):
        one.restore(on_every_rank(saved))
        return
    positions, rows = one.storage.owned()
    numbers = _saved_numbers(one.set, positions)
    is_known = numbers >= 0
    values = same_kind(saved.at(numbers[is_known]), one.dtype, f"field {one.name}")
    rows[is_known] = values.reshape(len(values), one.dim)
    _assign_own(one, rows)


def snapshot(one: Values) -> Callable[[], None]:
    """A copy of what this rank has of the values; called, it is put back. No other rank is asked."""
    if _over_ranks(one):
        one.check_readable()
        own = one.storage.owned()[1]
        return lambda: _assign_own(one, own)
    rows = one.rows()
    return lambda: one.assign_rows(rows)


def numbered_rows(one: Field) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, ascending, of rows that this rank has, and the rows (n, dim): those of ``one.numbered()``, but for
    padding, or of its own elements where the field is over ranks."""
    if _over_ranks(one):
        one.check_readable()
        positions, rows = one.storage.owned()
        numbers = _numbers(one.set, positions)
    else:
        numbers, rows = np.arange(one.set.total), one.numbered()
    order = np.argsort(numbers, kind="stable")
    order = order[~np.isin(numbers[order], one.set.padding)]
    return numbers[order], rows[order]


def all_finite(several: Iterable[Values]) -> bool:
    """Is every value a finite number? All ranks must ask."""
    rows = [saved_rows(one) for one in several]
    here = all(bool(np.isfinite(one.values if isinstance(one, RankRows) else one).all()) for one in rows)
    return ranks().largest(int(not here)) == 0


def clean(one: Field) -> None:
    """Values that are not finite become 0; all ranks must call it."""
    if not all_finite([one]):
        if _over_ranks(one):
            rows = one.storage.owned()[1]
            _assign_own(one, np.where(np.isfinite(rows), rows, 0.0))
        else:
            rows = one.rows()
            one.assign_rows(np.where(np.isfinite(rows), rows, 0.0))


def _over_ranks(one: Values) -> TypeGuard[Field]:
    return isinstance(one, Field) and isinstance(one.storage, OverRanks)


def _rows(one: Field, count: int, numbered: Callable[[Set, np.ndarray], np.ndarray]) -> RankRows:
    """The rows of a field over ranks; ``numbered`` gives the numbers of elements at some positions, -1 of others."""
    one.check_readable()
    positions, rows = one.storage.owned()
    numbers = numbered(one.set, positions)
    is_known = numbers >= 0
    values = rows if is_known.all() else rows[is_known]
    return RankRows(count, numbers[is_known], values.reshape(len(values), *one.components))


def _numbers(on: Set, positions: np.ndarray) -> np.ndarray:
    """Of rows at some positions, all that are stored counted."""
    return positions if on.numbering is None else on.numbering[positions]


def _saved_numbers(on: Set, positions: np.ndarray) -> np.ndarray:
    """The same without padding, which is -1."""
    numbers = _numbers(on, positions)
    return np.where(np.isin(numbers, on.padding), -1, numbers - np.searchsorted(on.padding, numbers))


def _assign_own(one: Field, rows: np.ndarray) -> None:
    """Take other values (n, dim) for this rank's own elements."""
    one.storage.assign_owned(rows)
    one.undefined_after = ""
    one.changed()
