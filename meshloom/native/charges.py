"""The field of charged lines and their mirror images, in compiled code (``charges.cpp``)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from meshloom.errors import MeshError
from meshloom.native.ffi import call
from meshloom.native.machine import cpu_count

#: Points for each chunk of a thread: some milliseconds with a thousand charges.
_CHUNK = 1024


def mirrored_field(points: np.ndarray, charges: np.ndarray) -> np.ndarray:
    """The field (n, 3) at ``points`` (n, 3) of straight lines, ``charges`` (m, 8): start, end, blur and charge, and of
    their images at -y. The blur is a length squared, positive, that is added to squared distances.
    """
    if points.ndim != 2 or points.shape[1] != 3 or charges.ndim != 2 or charges.shape[1] != 8:
        raise MeshError(f"a field of charges: shapes {points.shape} and {charges.shape}, expected (n, 3) and (m, 8)")
    if not (charges[:, 6] > 0).all():
        raise MeshError("a field of charges: every blur must be positive")
    given, sources = np.ascontiguousarray(points, np.float64), np.ascontiguousarray(charges, np.float64)
    field = np.empty_like(given)

    def chunk(start: int) -> None:
        here = slice(start, start + _CHUNK)
        call("charges", "mirrored_field", given[here], len(given[here]), sources, len(sources), field[here])

    with ThreadPoolExecutor(cpu_count()) as threads:  # ctypes gives the interpreter free while C++ runs
        list(threads.map(chunk, range(0, len(given), _CHUNK)))
    return field
