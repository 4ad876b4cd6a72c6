"""PICCG of a general sparse matrix: ordered, factored and stored by rows; x is put in order once for a solution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshloom.kernel.access import Read, Write
from meshloom.linalg.colored_order import LARGE, ColoredOrder, colored
from meshloom.linalg.eisenstat import EisenstatSystem, pivots_of
from meshloom.linalg.incomplete import Fill, Product, Sweeps, factors_of
from meshloom.linalg.iteration import Iteration, Report
from meshloom.linalg.krylov import ConjugateGradients, Operator
from meshloom.linalg.row_storage import Storage
from meshloom.linalg.symmetric import Symmetric
from meshloom.linalg.two_colors import TwoColors, check_two_colors
from meshloom.mesh.core import Field, Map, Set
from meshloom.native.cholesky import Sparse
from meshloom.operation.loop import kernel

CHUNK = 32  # rows: a warp
REACH_OF_DROP = 2  # rows that two entries connect are likely to have an entry of the factors


@dataclass(frozen=True)
class Settings:
    """What a person asks for: see ``PICCG``; None where it is left to us."""

    colors: int | None
    block: int
    fill: Fill
    shift: float
    storage: str | None
    chunk: int | None
    sigma: int | None
    precision: np.dtype | None
    eisenstat: bool | None

    @property
    def plain(self) -> bool:
        """Is it two colors of points, at most, without fill and a matrix to be stored?"""
        asked = self.storage, self.chunk, self.sigma
        return (
            self.colors in (None, 2)
            and self.block == 1
            and self.fill.level == 0
            and self.shift == 0.0
            and self.eisenstat is not False
            and not any(asked)
        )


class Method(ABC):
    """How a matrix in one form is solved: what ``PICCG`` asks."""

    rows: Set
    dtype: np.dtype
    colors: int
    shift: float

    @abstractmethod
    def solve(self, x: Field, b: Field, tol: float, most: int) -> Report:
        """Improve x until the norm of b - A x is at most ``tol`` times that of b."""

    @abstractmethod
    def make_close(self, r: Field, z: Field) -> None:
        """z close to A^-1 r; inside a program this is recorded."""

    @abstractmethod
    def bytes_per_iteration(self) -> int:
        """What the loops of an iteration have to load and store."""


class SparseMethod(Method):
    """A by rows. ``singular``: it is known to be, and what b has of that was taken out."""

    def __init__(self, given: Symmetric, settings: Settings, *, singular: bool = False):
        self.rows, self.dtype, self.given = given.rows, given.dtype, given
        a, fill, by_rows = given.entries, settings.fill, settings.storage != "csr"
        order = colored(a, colors=settings.colors, block=settings.block, window=settings.sigma or LARGE,
                        reach=REACH_OF_DROP if fill.level is None else 1 + fill.level)  # fmt: skip
        self.colors, self.stages = order.colors, len(order.starts) - 1
        alone = settings.block == 1 and fill.level == 0 and settings.precision != np.float32
        self.eisenstat = (alone and order.colors <= 2) if settings.eisenstat is None else settings.eisenstat
        chunk = (settings.chunk or CHUNK) if by_rows else None
        storage = Storage(chunk, self.dtype, settings.storage == "sell")
        in_order = order.applied(a)
        if self.stages <= 2 and not singular:
            check_two_colors(in_order, order, given.name)
        make = self._split if self.eisenstat else self._with_product
        make(order, in_order, storage, settings)

    def _split(self, order: ColoredOrder, a: Sparse, storage: Storage, settings: Settings) -> None:
        """With factors that keep the entries of A."""
        pivots, self.shift = pivots_of(a, settings.shift, self.given.name)
        if self.stages == 2 and self.shift == 0.0:
            two = TwoColors(order, a, pivots, storage)
            self._arrange(order, two.parts, two.scales)
            self._iteration: Iteration = two.iteration(self._x, self._b)
            self._close = lambda: two.make_close(self._b, self._x)
            return
        ordered = Set(len(a), "rows in order")
        system = EisenstatSystem(ordered, order, a, pivots, storage)
        self._arrange(order, (ordered,), (system.scale,))
        self._iteration = system.iteration(self._x[0])
        self._close = lambda: system.make_close(self._b[0], self._x[0])

    def _with_product(self, order: ColoredOrder, a: Sparse, storage: Storage, settings: Settings) -> None:
        """With any factors, and a product."""
        ordered = Set(len(a), "rows in order")
        factors, self.shift = factors_of(a, order, settings.fill, settings.shift, self.given.name)
        precision = self.dtype if settings.precision is None else settings.precision
        sweeps = Sweeps(ordered, order, factors, replace(storage, dtype=precision), self.dtype)
        self._arrange(order, (ordered,), (None,))
        product = Product(ordered, a, storage)
        self._iteration = InOrder(product, preconditioner=sweeps)._iteration(self._x[0], 0)
        self._close = lambda: sweeps(self._b[0], self._x[0])

    def _arrange(self, order: ColoredOrder, parts: Sequence[Set], scales: Sequence[Field | None]) -> None:
        """Make x and b in order: a field of each part of the rows, one part behind the other, scaled where it is."""
        ends, numbers = np.cumsum([0, *map(len, parts)]), self.rows.choices.reshape(-1)[order.rows]
        self._scales = scales
        self._places = [Map(part, self.rows, numbers[i:j], "place")
                        for part, i, j in zip(parts, ends[:-1], ends[1:], strict=True)]  # fmt: skip
        self._x, self._b = (tuple(part.field(f"{name} in order", dtype=self.dtype) for part in parts) for name in "xb")

    def solve(self, x: Field, b: Field, tol: float, most: int) -> Report:
        self._bring(x, self._x, inverse=True)
        self._bring(b, self._b, inverse=False)
        report = self._iteration.solve(self._x[-1], self._b[-1], tol, most)
        if np.isfinite(report.residual):
            self._take(x)
        return report

    def make_close(self, r: Field, z: Field) -> None:
        self._bring(r, self._b, inverse=False)
        self._close()
        self._take(z)

    def bytes_per_iteration(self) -> int:
        steps = self._iteration.iterate.bind(self._x[-1], self._b[-1]).loops
        return sum(one.compulsory for one in steps) // self._iteration.steps

    def _bring(self, given: Field, parts: Sequence[Field], *, inverse: bool) -> None:
        """Put x (``inverse``) or b in order; where the system is scaled x is by the inverse of what b is scaled by."""
        for place, scale, part in zip(self._places, self._scales, parts, strict=True):
            if scale is None:
                bring(part.set, given[place], part)
            else:
                (bring_unscaled if inverse else bring_scaled)(part.set, given[place], scale, part)

    def _take(self, x: Field) -> None:
        """Put x back."""
        for place, scale, part in zip(self._places, self._scales, self._x, strict=True):
            if scale is None:
                take(part.set, part, x[place])
            else:
                take_scaled(part.set, part, scale, x[place])

    def __str__(self) -> str:
        stages = f", {self.stages} stages" if self.stages > self.colors else ""
        return f"{self.given.name}: {len(self.given.entries)} rows, {self.colors} colors{stages}"


class InOrder(ConjugateGradients):
    """Conjugate gradients with an operator and a preconditioner that are known to set all of their results, part by
    part."""

    name = "piccg"

    def _complete(self, which: str, apply: Operator, x: Field) -> Operator:
        return apply


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def bring(x: Read, y: Write):
    y[...] = x[0]


@kernel
def bring_scaled(x: Read, scale: Read, y: Write):
    y[...] = scale * x[0]


@kernel
def bring_unscaled(x: Read, scale: Read, y: Write):
    y[...] = x[0] / scale


@kernel
def take(x: Read, y: Write):
    y[0] = x


@kernel
def take_scaled(x: Read, scale: Read, y: Write):
    y[0] = scale * x
