"""What a person hands to a mesh, checked: coordinates, maps, groups and copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, known_name, shown, whole_number
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.connectivity import CellTable, NodeLists, node_lists
from meshloom.mesh.core import Set
from meshloom.mesh.permutation import SETS, Permutation
from meshloom.mesh.validation_error import ValidationError
from meshloom.mesh.values import as_array, same_kind
from meshloom.native.algorithms import distinct

S = TypeVar("S", bound=Set)
T = TypeVar("T")
#: The group of boundary faces that nobody named.
UNNAMED = "boundary"


def checked_coordinates(coordinates: ArrayLike, dimension: int, kind: str) -> np.ndarray:
    """Coordinates (n, d) of cells of such a kind as finite doubles, a copy."""
    x = np.array(same_kind(coordinates, np.dtype(np.float64), "coordinates"))
    if x.ndim != 2 or x.shape[1] != dimension:
        raise MeshError(f"{kind} cells need coordinates of shape (n, {dimension}), got {x.shape}")
    if not np.isfinite(x).all():
        node = int(np.argmin(np.isfinite(x).all(axis=1)))
        problem = f"node {{node}} has the coordinates {x[node].tolist()}: they must be finite numbers"
        raise ValidationError(problem, nodes=[node])
    return x


def cells_of_faces(name: str, indices: ArrayLike, width: int) -> np.ndarray:
    """The cells of each face, (n, width)."""
    array = as_array(indices, name)
    if array.size == 0:
        return np.zeros((0, width), dtype=np.int32)
    if array.ndim == 1 and width == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[1] != width:
        raise MeshError(f"{name}: expected shape (n, {width}), got {array.shape}")
    return array


def checked_lists(name: str, given: object, sizes: tuple[int, ...]) -> NodeLists:
    """The nodes of each face, which may have so many."""
    lists = node_lists(given, name, sizes[-1])
    odd = [part.nodes.shape for part in lists.sizes if part.nodes.shape[1] not in sizes]
    if odd:
        raise MeshError(f"{name}: expected shape {' or '.join(f'(n, {size})' for size in sizes)}, got {odd[0]}")
    return lists


def given_cells(kind: str | Mapping[str, ArrayLike], nodes: object) -> CellTable:
    """Cells of one kind, or of those that are named with the numbers of their cells, as they are."""
    width = KINDS[kind].nodes if isinstance(kind, str) and kind in KINDS else None
    table = CellTable.given(kind, node_lists(nodes, "cell_nodes", width))
    for block in table.blocks:
        if block.nodes.shape[1] != block.kind.nodes:
            raise MeshError(f"cell_nodes: expected shape (n, {block.kind.nodes}), got {block.nodes.shape}")
    return table


def made_set(make: type[S], name: str, total: int, halo: Mapping[str, int], numbers: Permutation | None) -> S:
    """A set of a mesh, the last of whose elements may be copies, as it lies in memory."""
    copies = whole_number(f"{name}: halo", halo.get(name, 0), 0, total, error=MeshError)
    return make(total - copies, name, halo=copies, numbering=None if numbers is None else numbers.of(name))


def by_name(what: str, given: Mapping[str, T] | None) -> dict[str, T]:
    """What is given by name; MeshError where it is no such thing."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise MeshError(f"{what} takes names and what they stand for, {{name: value}}, got {shown(given)}")
    return dict(given)


def group_numbers(groups: Mapping[str, int] | None) -> dict[str, int]:
    """The numbers of named boundary groups."""
    most = 2**31 - 1
    return {name: whole_number(f"boundary groups: the number of {name}", number, 1, most, error=MeshError)
            for name, number in by_name("groups", groups).items()}  # fmt: skip


def checked_halo(halo: Mapping[str, int] | None) -> dict[str, int]:
    """How many elements of each set are copies."""
    copies = by_name("halo", halo)
    for name in copies:
        known_name("set with a halo", name, SETS, error=MeshError)
    return copies


def numbered(names: list[str], given: Mapping[str, int]) -> dict[str, int]:
    """A number for each group name: the given one, else the next free from 1."""
    free = (number for number in range(1, len(names) + len(given) + 1) if number not in given.values())
    return {name: int(given[name]) if name in given else next(free) for name in names}


def checked_cell_groups(groups: Mapping[str, ArrayLike] | None, count: int) -> dict[str, np.ndarray]:
    """The cells of each group, ascending, each once; arrays that nobody changes by mistake."""
    checked = {}
    for name, cells in by_name("cell_groups", groups).items():
        numbers = as_array(cells, f"cell group {name!r}")
        if numbers.ndim != 1 or not (numbers.size == 0 or np.issubdtype(numbers.dtype, np.integer)):
            raise MeshError(f"cell group {name!r}: expected a list of cell numbers, got {numbers.dtype} of shape"
                            f" {numbers.shape}")  # fmt: skip
        wrong = numbers[(numbers < 0) | (numbers >= count)]
        if wrong.size:
            raise MeshError(f"cell group {name!r}: cell {wrong[0]} does not exist; there are {count}, counted from 0")
        checked[str(name)] = distinct(numbers).astype(np.int64)
        checked[str(name)].flags.writeable = False
    return checked


def checked_groups(
    groups: Mapping[str, int] | None, numbers: ArrayLike | None, count: int
) -> tuple[dict[str, int], np.ndarray]:
    """Names and the number of each boundary face, checked against each other."""
    known = group_numbers(groups)
    if numbers is None:
        names = known or ({UNNAMED: 1} if count else {})
        if len(names) > 1:
            raise MeshError(f"boundary_group is missing: which boundary faces belong to {', '.join(names)}?")
        return names, np.full(count, next(iter(names.values()), 1), dtype=np.int32)
    values = as_array(numbers, "boundary_group")
    if values.shape not in ((count,), (count, 1)) or not (values.size == 0 or np.issubdtype(values.dtype, np.integer)):
        raise MeshError(f"boundary_group: expected {count} integers, got shape {values.shape} of {values.dtype}")
    values = values.reshape(-1)
    present = distinct(values).tolist()
    names = known if groups is not None else group_numbers({f"group{number}": number for number in present})
    if len(set(names.values())) < len(names):
        raise MeshError(f"two boundary groups have the same number: {names}")
    unknown = [number for number in present if number not in names.values()]
    if unknown:
        raise MeshError(f"boundary_group holds {unknown[0]}, but the groups are {names}")
    return names, values.astype(np.int32)
