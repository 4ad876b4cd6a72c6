"""Other ways to a derivative along the lines of a field on a GPU: cuSPARSE's batched solvers, cuFFT, JAX.

Each function takes the shape of the field and the axis and returns rows to measure: a name, ``run()``, ``wait()`` and
``error()``, the largest difference of the first run from NumPy as a share of the largest value, on some lines. cuSPARSE
gets the right-hand side for nothing: only its solve is timed. All in double; the solvers on closed lines, the
Fourier transforms on periodic ones.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom import compact

LIBRARIES = ("libcusparse.so.12", "libcusparse.so.11", "libcusparse.so")
SOME_LINES = 5


@dataclass(frozen=True)
class PeerRun:
    """Something to measure next to our own loops."""

    name: str
    run: Callable[[], Any]
    wait: Callable[[], Any]
    error: Callable[[], float]


def bands(points: int) -> np.ndarray:
    """Lower, main and upper diagonal (3, points) of LELE6 on a closed line; what sticks out is 0."""
    left, _ = compact.matrices(compact.LELE6, points, periodic=False)
    lower, upper = np.append(0.0, np.diag(left, -1)), np.append(np.diag(left, 1), 0.0)
    return np.stack([lower, np.diag(left), upper])


def numbers(shape: tuple[int, ...], xp: Any) -> Any:
    """Values from 1 to 2 without a pattern, the same for NumPy and the device."""
    flat = xp.arange(int(np.prod(shape)), dtype=np.float64) * 0.6180339887498949
    return (1.0 + flat - xp.floor(flat)).reshape(shape)


def some_lines(array: Any, axis: int) -> np.ndarray:
    """A few lines along the axis, (n, lines), on the host."""
    flat = array.swapaxes(0, axis).reshape(array.shape[axis], -1) if axis else array.reshape(array.shape[0], -1)
    picked = flat[:, :: max(1, flat.shape[1] // SOME_LINES)][:, :SOME_LINES]
    return np.asarray(picked.get() if hasattr(picked, "get") else picked)


def solved(right: np.ndarray) -> np.ndarray:
    """The solutions (n, lines) by scipy."""
    from scipy.linalg import solve_banded

    lower, main, upper = bands(len(right))
    return solve_banded((1, 1), np.stack([np.roll(upper, 1), main, np.roll(lower, -1)]), right)


def share(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# --- cuSPARSE ---------------------------------------------------------------------------------------------


def cusparse(shape: tuple[int, ...], axis: int) -> Iterator[PeerRun]:
    """gtsv2StridedBatch on contiguous lines, with transposes around it on others; gtsvInterleavedBatch on axis 0."""
    import cupy

    field = numbers(shape, cupy)
    expected = solved(some_lines(field, axis))
    n, lines, last = shape[axis], field.size // shape[axis], len(shape) - 1
    wait = cupy.cuda.get_current_stream().synchronize
    diagonals = [cupy.ascontiguousarray(cupy.broadcast_to(cupy.asarray(one), (lines, n))) for one in bands(n)]
    x = cupy.ascontiguousarray(cupy.moveaxis(field, axis, last))
    strided = _solver("cusparseDgtsv2StridedBatch", n, diagonals, x, lines, n)
    out = cupy.empty_like(field)

    def with_transposes() -> None:
        x[...] = cupy.moveaxis(field, axis, last)
        strided()
        out[...] = cupy.moveaxis(x, last, axis)

    run, target = (strided, x) if axis == last else (with_transposes, out)
    name = "cuSPARSE gtsv2StridedBatch" + ("" if axis == last else " and two transposes")
    yield _checked(name, run, wait, target, axis, expected)
    if axis == 0 and len(shape) > 1:
        yield _interleaved(field, n, lines, wait, expected)


def _interleaved(field: Any, n: int, lines: int, wait: Callable[[], Any], expected: np.ndarray) -> PeerRun:
    """gtsvInterleavedBatch by Thomas; it overwrites the matrix, so that is written again every time."""
    import cupy

    matrix = [cupy.asarray(one)[:, None] for one in bands(n)]
    diagonals, x = [cupy.empty((n, lines)) for _ in range(3)], field.reshape(n, lines).copy()
    solve = _solver("cusparseDgtsvInterleavedBatch", n, diagonals, x, lines, None)

    def run() -> None:
        for target, source in zip(diagonals, matrix, strict=True):
            target[...] = source
        solve()

    return _checked("cuSPARSE gtsvInterleavedBatch", run, wait, x, 0, expected)


def _checked(
    name: str, run: Callable[[], Any], wait: Callable[[], Any], target: Any, axis: int, expected: np.ndarray
) -> PeerRun:
    def error() -> float:
        run()
        return share(some_lines(target, axis), expected)

    return PeerRun(name, run, wait, error)


def _solver(function: str, n: int, diagonals: list[Any], x: Any, lines: int, stride: int | None) -> Callable[[], None]:
    """A call of a batched solver of cuSPARSE in place of ``x``, with its buffer."""
    import cupy

    handle = ctypes.c_void_p(cupy.cuda.device.get_cusparse_handle())
    library = _library()
    pointers = [ctypes.c_void_p(one.data.ptr) for one in (*diagonals, x)]
    algorithm = [] if stride is not None else [ctypes.c_int(0)]
    counts = [ctypes.c_int(lines)] + ([ctypes.c_int(stride)] if stride is not None else [])
    size = ctypes.c_size_t()
    before = [handle, *algorithm, ctypes.c_int(n), *pointers, *counts]
    _call(library, f"{function}_bufferSizeExt", *before, ctypes.byref(size))
    buffer = cupy.empty(max(size.value, 1), np.uint8)

    def run() -> None:
        _call(library, function, *before, ctypes.c_void_p(buffer.data.ptr))

    return run


def _library() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise ImportError(f"cuSPARSE was not found ({', '.join(LIBRARIES)})")


def _call(library: Any, function: str, *arguments: Any) -> None:
    status = getattr(library, function)(*arguments)
    if status:
        raise RuntimeError(f"{function} answered with status {status}")


# --- Fourier transforms -----------------------------------------------------------------------------------


def spectral(field: Any, axis: int, xp: Any) -> Any:
    """The derivative of a periodic field with spacing 1, by the Fourier transform along an axis."""
    n = field.shape[axis]
    waves = 2j * np.pi * xp.fft.rfftfreq(n).reshape([-1 if a == axis else 1 for a in range(field.ndim)])
    return xp.fft.irfft(waves * xp.fft.rfft(field, axis=axis), n=n, axis=axis)


def cufft(shape: tuple[int, ...], axis: int) -> Iterator[PeerRun]:
    import cupy

    field = numbers(shape, cupy)
    expected = spectral(some_lines(field, axis), 0, np)

    def error() -> float:
        return share(some_lines(spectral(field, axis, cupy), axis), expected)

    wait = cupy.cuda.get_current_stream().synchronize
    yield PeerRun("CuPy, cuFFT (spectral derivative)", lambda: spectral(field, axis, cupy), wait, error)


# --- JAX --------------------------------------------------------------------------------------------------


def jax(shape: tuple[int, ...], axis: int) -> Iterator[PeerRun]:
    """Compiled by jit: the spectral derivative, and its tridiagonal solver with the lines as right-hand sides."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave memory to the others
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    field = jnp.asarray(numbers(shape, np))
    derive = jax.jit(lambda f: spectral(f, axis, jnp))
    expected = spectral(some_lines(field, axis), 0, np)
    yield _jitted("JAX jit, spectral derivative", lambda: derive(field), axis, expected)
    lower, main, upper = (jnp.asarray(one) for one in bands(shape[axis]))

    def solve(f: Any) -> Any:
        right = jnp.moveaxis(f, axis, 0).reshape(shape[axis], -1)
        found = jax.lax.linalg.tridiagonal_solve(lower, main, upper, right)
        return jnp.moveaxis(found.reshape(shape[axis], *(n for a, n in enumerate(shape) if a != axis)), 0, axis)

    run = jax.jit(solve)
    yield _jitted("JAX jit, tridiagonal_solve", lambda: run(field), axis, solved(some_lines(field, axis)))


def _jitted(name: str, call: Callable[[], Any], axis: int, expected: np.ndarray) -> PeerRun:
    """A compiled function of JAX, which answers before it is done: waiting is for its last answer."""
    last: list[Any] = []

    def run() -> None:
        last[:] = [call()]

    return PeerRun(name, run, lambda: [one.block_until_ready() for one in last],
                   lambda: share(some_lines(call(), axis), expected))  # fmt: skip


PEERS: dict[str, Callable[[tuple[int, ...], int], Iterator[PeerRun]]] = {
    "cuSPARSE": cusparse, "CuPy": cufft, "JAX": jax
}  # fmt: skip
