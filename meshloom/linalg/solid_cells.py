"""Poisson's equation around solid cells, into which nothing flows: what ``FastPoisson`` does next to its transforms.

Transforms know whole boxes only. So the box is solved as if there were nothing solid in it, and then once more with a
source in one of the two cells of each face of the solids, and as much less in the other: just as strong as it takes
that nothing flows through these faces any more. How strong follows from what would flow there, by a matrix of faces
times faces that is made once (the capacitance method). With A of the box, G the differences across the faces and W
their areas over distances, A - G W G' is the operator without these faces, and what is solved is

    (1/W - G' A^-1 G) s = G' A^-1 b,    then    A x = b + G s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, shown
from meshloom.linalg.axis_cells import AxisCells
from meshloom.linalg.cell_level import outer
from meshloom.linalg.poisson import Poisson
from meshloom.linalg.transforms import Where, libraries
from meshloom.native.algorithms import distinct

InBox = Callable[[Any, Any], None]
MOST_FACES = 4096  # between fluid and solid: a matrix of as many rows and columns is kept


@dataclass(frozen=True)
class CellFaces:
    """CellFaces between two cells of a box: numbers (m,) of the cells on either side, and ``links``, their areas over
    the distance of centres. ``starts``: each part from one of them to the next has no cell twice on one side."""

    cells: np.ndarray
    others: np.ndarray
    links: np.ndarray
    starts: tuple[int, ...]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.links)

    @classmethod
    def of(cls, axes: tuple[AxisCells, ...], wanted: Callable[[Any, Any], Any]) -> CellFaces:
        """All for which ``wanted(cells, others)`` says so, of arrays of such numbers."""
        shape = tuple(len(one) for one in axes)
        number, found = np.arange(np.prod(shape)).reshape(shape), []
        for a in range(len(axes)):
            links = outer([one.links if a == b else one.widths for b, one in enumerate(axes)]).ravel()
            here, before = number.ravel(), np.roll(number, 1, axis=a).ravel()
            for cells, others in ((here, before), (before, here)):
                kept = (links > 0.0) & wanted(cells, others)
                found.append((cells[kept], others[kept], links[kept]))
        starts = (0, *np.cumsum([len(links) for _, _, links in found]).tolist())
        cells, others, links = (np.concatenate(part) for part in zip(*found, strict=True))
        return cls(cells, others, links, starts, shape)

    @cached_property
    def _places(self) -> tuple[tuple[Where, ...], ...]:
        """The cells on either side, as indices along each axis."""
        return tuple(tuple(map(Where, np.unravel_index(one, self.shape))) for one in (self.cells, self.others))

    def _at(self, array: Any, part: slice = slice(None)) -> Iterator[tuple[Any, ...]]:
        """Where an array (*shape,) has the cells on either side."""
        return (tuple(index.like(array)[part] for index in side) for side in self._places)

    def differences(self, x: Any) -> Any:
        """(m,): the value in the cell minus that in the other one, of an array (*shape,) of NumPy or CuPy."""
        cells, others = self._at(x)
        return x[cells] - x[others]

    def add(self, strengths: Any, b: Any) -> None:
        """So much (m,) to what an array (*shape,) has in the cells, and as much less to the others."""
        for first, last in pairwise(self.starts):
            part = slice(first, last)
            cells, others = self._at(b, part)
            b[cells] += strengths[part]
            b[others] -= strengths[part]


class Solids:
    """``solid``: a mask (*shape,) of the cells of an operator. Arrays are those of the cells, of NumPy or CuPy."""

    def __init__(self, poisson: Poisson, solid: np.ndarray):
        self.shape, self.dtype = poisson.grid.shape, poisson.dtype
        axes = poisson.axes
        numbers = solid.ravel()
        self.faces = CellFaces.of(axes, lambda cells, others: ~numbers[cells] & numbers[others])
        if len(self.faces) > MOST_FACES:
            raise MeshError(
                f"fast_poisson: {len(self.faces)} faces between fluid and solid cells, at most {MOST_FACES}"
                "; take fewer or simpler solids, or coarser cells: no other solver takes solids"
            )
        region, held = _regions(axes, numbers), _held(axes).ravel()
        fluid = region[~numbers]
        if (fluid != fluid[0]).any():
            raise MeshError(
                f"fast_poisson: {_cut_off(fluid)} fluid cells are cut off from the others by solid ones;"
                " make them solid, too"
            )
        #: Is no value held at any side of the fluid?
        self.singular = not held[region == fluid[0]].any()
        self._free = _free(region, held, self.faces, None if not poisson.singular else fluid[0])
        volumes = outer([one.widths / one.widths.sum() for one in axes]) * ~solid
        self.parts = (volumes / volumes.sum()).astype(self.dtype)  # of the fluid
        self._parts, self._fluid, self._links = map(Where, (self.parts, ~solid, self.faces.links.astype(self.dtype)))
        self._matrix: Where | None = None

    def in_fluid(self, array: Any) -> Any:
        """A copy, with 0 in all solids."""
        return libraries(array)[0].where(self._fluid.like(array), array, array.dtype.type(0))

    def image(self, x: Any, image: Any) -> Any:
        """The operator's image of x, from that ``image`` which it has in the whole box."""
        found = image.copy()
        self.faces.add(-self._links.like(x) * self.faces.differences(x), found)
        return self.in_fluid(found)

    def put(self, x: Any, b: Any, in_box: InBox) -> None:
        """x to what solves the operator; b counts in the fluid only, and without a Dirichlet side there without what it
        adds up to. In solids x is 0. ``in_box(x, b)`` does the same in the whole box."""
        sources = self.in_fluid(b)
        if self.singular:
            sources -= self._parts.like(b) * sources.sum()
        if self._matrix is None:
            self._matrix = Where(self._made_matrix(x, in_box))
        in_box(x, sources)
        self.faces.add(self._matrix.like(x) @ self.faces.differences(x), sources)
        in_box(x, sources)
        if self.singular:
            x -= (self._parts.like(x) * x).sum()
        x[...] = self.in_fluid(x)

    def _made_matrix(self, x: Any, in_box: InBox) -> np.ndarray:
        """(m, m): from differences across the faces, of the box without solids, to the strengths of the sources. What
        is constant in a region without a Dirichlet side needs no sources: such strengths are fixed to be none. ``x`` is
        written to."""
        faces = self.faces
        found, sources = np.diag(1.0 / faces.links), libraries(x)[0].zeros(self.shape, self.dtype)
        flat = sources.reshape(-1)
        for j, (cell, other) in enumerate(zip(faces.cells.tolist(), faces.others.tolist(), strict=True)):
            flat[cell], flat[other] = 1.0, -1.0
            in_box(x, sources)
            flat[cell] = flat[other] = 0.0
            seen = faces.differences(x)
            found[:, j] -= seen if isinstance(seen, np.ndarray) else seen.get()
        usual = np.mean(1.0 / faces.links)
        for vector in self._free:
            found += usual * np.outer(vector, vector) / (vector @ vector)
        return np.linalg.inv(0.5 * (found + found.T)).astype(self.dtype)


def solid_mask(solid: ArrayLike, shape: tuple[int, ...]) -> np.ndarray | None:
    """Solid cells as a person gives them: True or False for each cell. None where there are none."""
    try:
        mask = np.asarray(solid)
    except ValueError:
        mask = np.zeros(0)
    if mask.dtype != bool or mask.shape != shape:
        got = f"{mask.dtype} of shape {mask.shape}" if isinstance(solid, np.ndarray) else shown(solid)
        raise MeshError(f"fast_poisson: solid is True or False for each cell, an array of shape {shape}, got {got}")
    if mask.all():
        raise MeshError("fast_poisson: all cells are solid; leave some where there is something to solve for")
    return mask.copy() if mask.any() else None


def _regions(axes: tuple[AxisCells, ...], solid: np.ndarray) -> np.ndarray:
    """(cells,): the number of the region of fluid, or of solid, that each cell is part of."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    same = CellFaces.of(axes, lambda cells, others: solid[cells] == solid[others])
    graph = coo_matrix((np.ones(len(same)), (same.cells, same.others)), shape=(len(solid),) * 2)
    return connected_components(graph, directed=False)[1]


def _free(region: np.ndarray, held: np.ndarray, faces: CellFaces, but: int | None) -> list[np.ndarray]:
    """For each region without a Dirichlet side, ``but`` one, what flows out of it, (m,), where x is 1 in it and 0
    elsewhere: the strengths that change nothing, as they come from what is constant there."""
    loose = [one for one in distinct(region) if one != but and not held[region == one].any()]
    inside, outside = region[faces.cells], region[faces.others]
    return [faces.links * (1.0 * (inside == one) - (outside == one)) for one in loose]


def _held(axes: tuple[AxisCells, ...]) -> np.ndarray:
    """(*shape,): is a value held at a side of the cell?"""
    return reduce(np.logical_or.outer, [one.walls > 0.0 for one in axes])


def _cut_off(regions: np.ndarray) -> int:
    """How many cells are not part of the largest region."""
    return len(regions) - int(np.bincount(regions).max())
