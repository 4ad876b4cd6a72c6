"""Along one axis of cells: the vectors that its operator only multiplies, and arrays as sums of them.

For even cells these are cosines, sines or waves, and fast transforms find them; else they are computed once and a
product with their matrix does it. Arrays are NumPy's or CuPy's: the library of each is asked for by ``libraries``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from meshloom.errors import MeshError
from meshloom.linalg.axis_cells import DIRICHLET, NEUMANN, AxisCells

MOST_DENSE = 4096  # cells along an axis whose vectors are computed and kept as a matrix


def libraries(array: Any) -> tuple[Any, Any]:
    """(arrays, transforms): the modules like ``numpy`` and ``scipy.fft`` for where an array lies."""
    if isinstance(array, np.ndarray):
        import scipy.fft

        return np, scipy.fft
    import cupy
    import cupyx.scipy.fft

    return cupy, cupyx.scipy.fft


class Where:
    """An array of constants, copied once to where arrays lie that it meets."""

    def __init__(self, array: np.ndarray):
        self._copies: dict[Any, Any] = {np: array}

    def like(self, array: Any) -> Any:
        arrays = libraries(array)[0]
        if arrays not in self._copies:
            self._copies[arrays] = arrays.asarray(self._copies[np])
        return self._copies[arrays]


class Transform(ABC):
    """``values``: what the operator along the axis, divided by the widths, multiplies each vector with, ascending or
    not; 0, and the first, where a constant is a vector. ``scale``: what is left to multiply by after going forwards and
    backwards, so that neither way has to."""

    values: np.ndarray
    scale: float = 1.0

    @property
    def word(self) -> str:
        """What its vectors are called."""
        return type(self).__name__.lower()

    @abstractmethod
    def forwards(self, array: Any, axis: int) -> Any:
        """The shares of the vectors in what is given in each cell, a sum over its width."""

    @abstractmethod
    def backwards(self, array: Any, axis: int) -> Any:
        """What is in each cell over the ``scale``, from the shares."""


class Cosines(Transform):
    """Cells of one width with a slope held at both ends, by the discrete cosine transform; ``sines``: with a value."""

    def __init__(self, cells: AxisCells, *, sines: bool):
        n = len(cells)
        self.h, self.sines = float(cells.edges[-1] - cells.edges[0]) / n, sines
        self.values = _squares(np.pi * (np.arange(n) + (1 if sines else 0)) / n, self.h)
        self.scale = 1.0 / (2 * n * self.h)

    @property
    def word(self) -> str:
        return "sines" if self.sines else "cosines"

    def forwards(self, array: Any, axis: int) -> Any:
        fft = libraries(array)[1]
        return (fft.dst if self.sines else fft.dct)(array, type=2, axis=axis)

    def backwards(self, array: Any, axis: int) -> Any:
        fft = libraries(array)[1]
        return (fft.idst if self.sines else fft.idct)(array, type=2, axis=axis, norm="forward")


class Waves(Transform):
    """Cells of one width on a periodic axis, by Fourier's transform. ``real``: what comes in is, so that half of the
    waves are enough; only one axis of an array may be so, that which comes first."""

    def __init__(self, cells: AxisCells, *, real: bool):
        self.n, self.real = len(cells), real
        self.h = float(cells.edges[-1] - cells.edges[0]) / self.n
        self.values = _squares(2.0 * np.pi * np.arange(self.n // 2 + 1 if real else self.n) / self.n, self.h)
        self.scale = 1.0 / (self.n * self.h)

    def forwards(self, array: Any, axis: int) -> Any:
        fft = libraries(array)[1]
        return (fft.rfft if self.real else fft.fft)(array, axis=axis)

    def backwards(self, array: Any, axis: int) -> Any:
        fft = libraries(array)[1]
        if self.real:
            return fft.irfft(array, n=self.n, axis=axis, norm="forward")
        return fft.ifft(array, axis=axis, norm="forward")


class Vectors(Transform):
    """Any cells: the vectors as a matrix, columns V with V' W V = 1 for the widths W."""

    def __init__(self, where: str, cells: AxisCells, dtype: np.dtype):
        if len(cells) > MOST_DENSE:
            raise MeshError(f"{where} has {len(cells)} cells that are stretched, or have unlike ends, besides another"
                            f" such axis; at most {MOST_DENSE}, or use ml.linalg.Multigrid")  # fmt: skip
        root = 1.0 / np.sqrt(cells.widths)
        self.values, vectors = np.linalg.eigh(root[:, None] * cells.dense * root)
        self.values[0] = 0.0 if cells.floating else self.values[0]
        self.matrix = Where((root[:, None] * vectors).astype(dtype))

    def forwards(self, array: Any, axis: int) -> Any:
        return self._product(array, axis, 0)

    def backwards(self, array: Any, axis: int) -> Any:
        return self._product(array, axis, 1)

    def _product(self, array: Any, axis: int, over: int) -> Any:
        arrays = libraries(array)[0]
        found = arrays.tensordot(array, self.matrix.like(array), axes=([axis], [over]))
        return arrays.moveaxis(found, -1, axis)


def fast(cells: AxisCells) -> bool:
    """Is there a fast transform for an axis?"""
    return cells.uniform and (cells.periodic or cells.low == cells.high)


def transform_of(where: str, cells: AxisCells, dtype: np.dtype, *, real: bool) -> Transform:
    """``where`` begins the message; ``real``: does what comes in have no imaginary part?"""
    if not fast(cells):
        return Vectors(where, cells, dtype)
    if cells.periodic:
        return Waves(cells, real=real)
    assert cells.low in (DIRICHLET, NEUMANN)
    return Cosines(cells, sines=cells.low == DIRICHLET)


def _squares(angles: np.ndarray, h: float) -> np.ndarray:
    """(2 - 2 cos(angle))/h^2, exact for small ones."""
    return (2.0 * np.sin(0.5 * angles) / h) ** 2
