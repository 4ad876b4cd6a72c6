"""PICCG of a general sparse matrix: its rows in the order of their colors, stored by stages, and incomplete factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from meshloom.backend import current
from meshloom.errors import MeshError
from meshloom.kernel.access import Read, Write
from meshloom.linalg.colored_order import ColoredOrder, colored
from meshloom.linalg.eisenstat import Eisenstat
from meshloom.linalg.iteration import Iteration, check_alone
from meshloom.linalg.krylov import ConjugateGradients, Operator
from meshloom.linalg.krylov_kernels import gather, scatter
from meshloom.linalg.ordered import Ordered, Parts
from meshloom.linalg.row_storage import RowBlock, Storage, image, scale_and_subtract, subtract, subtract_and_scale
from meshloom.linalg.symmetric import Symmetric
from meshloom.linalg.two_colors import TwoColors, check_two_colors
from meshloom.mesh.core import Field, Map, Set
from meshloom.native.cholesky import Factors, Sparse, diagonal_factored, factored
from meshloom.operation.loop import kernel

REACH_OF_DROP = 2  # rows that two entries connect are likely to have an entry of the factors
FIRST_SHIFT = 1e-3  # where a pivot breaks down; twice as much each time
LARGEST_SHIFT = 1e6
T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What a person asks for: see ``PICCG``; None where it is left to us, and for ``fill`` where ``drop`` decides."""

    colors: int | None
    block: int
    fill: int | None
    drop: float
    shift: float
    storage: str | None
    chunk: int | None
    sigma: int | None
    precision: np.dtype | None
    eisenstat: bool | None

    @property
    def plain(self) -> bool:
        """Is it two colors of points, at most, without fill and a matrix to be stored?"""
        asked = self.storage, self.chunk, self.sigma, self.shift, self.fill != 0, self.block != 1
        return self.colors in (None, 2) and self.eisenstat is not False and not any(asked)


class System(Protocol):
    """A in its order, with factors: x and b are a field of each of ``parts``, scaled by ``scales`` where there are."""

    @property
    def parts(self) -> tuple[Set, ...]: ...

    @property
    def scales(self) -> tuple[Field | None, ...]: ...

    def iteration(self, x: Parts, b: Parts) -> Iteration:
        """Conjugate gradients for the fields of the last part; x of others is set at the end of a solution."""

    def make_close(self, r: Parts, z: Parts) -> None:
        """z close to A^-1 r, both scaled."""


class StoredRows(Ordered):
    """A by rows. ``singular``: it is known to be, and what b has of that was taken out."""

    def __init__(self, given: Symmetric, settings: Settings, *, singular: bool = False):
        check_alone("piccg by rows")
        self.rows, self.dtype, self.given = given.rows, given.dtype, given
        window = settings.sigma or current().target.numbers.solvers.window
        order = colored(given.entries, colors=settings.colors, block=settings.block, window=window,
                        reach=REACH_OF_DROP if settings.fill is None else 1 + settings.fill)  # fmt: skip
        self.colors, self.stages = order.colors, len(order.starts) - 1
        a = order.applied(given.entries)
        if self.stages <= 2 and not singular:
            check_two_colors(a, order, given.name)
        self._system, self.shift = self._factored(order, a, settings)
        self._arrange(order)
        self._steps = self._system.iteration(self._x, self._b)

    def _factored(self, order: ColoredOrder, a: Sparse, settings: Settings) -> tuple[System, float]:
        usual = current().target.numbers.solvers.chunk
        chunk = None if settings.storage == "csr" else settings.chunk or usual
        storage = Storage(chunk, self.dtype, self.dtype, settings.storage == "sell")
        alone = settings.block == 1 and settings.fill == 0 and settings.precision != np.float32
        if not ((alone and order.colors <= 2) if settings.eisenstat is None else settings.eisenstat):
            factors, shift = with_shift(
                lambda now: factored(a, order.stages, fill=settings.fill, drop=settings.drop, shift=now),
                settings.shift,
                self.given.name,
            )
            return Factored(order, a, factors, storage, settings.precision or self.dtype), shift
        pivots, shift = with_shift(lambda now: diagonal_factored(a, shift=now), settings.shift, self.given.name)
        kind: Callable[..., System] = TwoColors if self.stages == 2 and shift == 0.0 else Eisenstat
        return kind(order, a, pivots, storage), shift

    def _arrange(self, order: ColoredOrder) -> None:
        """Make x and b in order: a field of each part of the rows, one part behind the other."""
        parts = self._system.parts
        numbers = np.split(self.rows.choices.reshape(-1)[order.rows], np.cumsum([len(one) for one in parts])[:-1])
        self._places = [Map(part, self.rows, one, "place") for part, one in zip(parts, numbers, strict=True)]
        self._x, self._b = (tuple(part.field(f"{name} in order", dtype=self.dtype) for part in parts) for name in "xb")

    def _iteration(self, most: int) -> Iteration:
        return self._steps

    def _close(self) -> None:
        self._system.make_close(self._b, self._x)

    def _bring(self, given: Field, parts: Parts, *, inverse: bool) -> None:
        for place, scale, part in zip(self._places, self._system.scales, parts, strict=True):
            if scale is None:
                gather(part.set, given[place], part)
            else:
                (gather_unscaled if inverse else gather_scaled)(part.set, given[place], scale, part)

    def _take(self, x: Field) -> None:
        for place, scale, part in zip(self._places, self._system.scales, self._x, strict=True):
            if scale is None:
                scatter(part.set, part, x[place])
            else:
                scatter_scaled(part.set, part, scale, x[place])

    def __str__(self) -> str:
        stages = f", {self.stages} stages" if self.stages > self.colors else ""
        return f"{self.given.name}: {len(self.given.entries)} rows, {self.colors} colors{stages}"


def with_shift(make: Callable[[float], T | int], shift: float, name: str) -> tuple[T, float]:
    """What ``make(shift)`` gives, with the shift raised until it is no number of a row where a pivot breaks down, and
    the shift that it took."""
    row = -1
    while shift <= LARGEST_SHIFT:
        made = make(shift)
        if not isinstance(made, int):
            return made, shift
        row, shift = made, max(2.0 * shift, FIRST_SHIFT)
    raise MeshError(f"piccg: {name} has no incomplete factorisation: a pivot breaks down at place {row} of the order,"
                    f" with the diagonal raised by {LARGEST_SHIFT:g} times itself")  # fmt: skip


class Factored:
    """With any factors L D L^T, in a ``precision`` of their own, and a product."""

    def __init__(self, order: ColoredOrder, a: Sparse, factors: Factors, storage: Storage, precision: np.dtype):
        ordered, of_factors = Set(len(a), "rows in order"), replace(storage, dtype=precision)
        self.parts, self.scales = (ordered,), (None,)
        self._lower, self._upper = (RowBlock(ordered, ordered, one, order.starts, of_factors)
                                    for one in (factors.above.transposed(), factors.above))  # fmt: skip
        self._inverse = ordered.field("inverse", dtype=precision, data=1.0 / factors.pivots)
        self._off_diagonal = RowBlock(ordered, ordered, a.where(a.columns != a.rows), (0, len(a)), storage)
        self._diagonal = ordered.field("diagonal", dtype=storage.dtype, data=a.diagonal)

    def iteration(self, x: Parts, b: Parts) -> Iteration:
        return InOrder(self._product, preconditioner=self._sweeps)._iteration(x[0], 0)

    def make_close(self, r: Parts, z: Parts) -> None:
        self._sweeps(r[0], z[0])

    def _product(self, x: Field, y: Field) -> None:
        self._off_diagonal.run(image, x, x, self._diagonal, y)

    def _sweeps(self, r: Field, z: Field) -> None:
        """z = L^-T D^-1 L^-1 r. Rows that no later one looks at are done with on the way down."""
        self._lower.start()
        for down, up in zip(self._lower.stages, self._upper.stages, strict=True):
            if up.empty:
                down.run(subtract_and_scale, z, r, self._inverse, z)
            else:
                down.run(subtract, z, r, z)
        self._upper.start()
        for up in reversed(self._upper.stages):
            if not up.empty:
                up.run(scale_and_subtract, z, self._inverse, z)


class InOrder(ConjugateGradients):
    """Conjugate gradients with an operator and a preconditioner that are known to set all of their results, part by
    part."""

    name = "piccg"

    def _complete(self, which: str, apply: Operator, x: Field) -> Operator:
        return apply


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def gather_scaled(x: Read, scale: Read, y: Write):
    y[...] = scale * x[0]


@kernel
def gather_unscaled(x: Read, scale: Read, y: Write):
    y[...] = x[0] / scale


@kernel
def scatter_scaled(x: Read, scale: Read, y: Write):
    y[0] = scale * x
