"""The airfoil residual loop in the array frameworks a Python user has: CuPy, PyTorch (compiled), JAX (jit).

Each function takes NumPy arrays and returns ``run()``, which executes the loop once and gives the increments of ``res``
(cells, 4) as a device array, and ``wait()``, which waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Peer = tuple[Callable[[], Any], Callable[[], None]]


def flux(stack: Callable[[list[Any]], Any], x: Any, q: Any, adt: Any, nodes: Any, cells: Any) -> Any:
    """Fluxes (edges, 4) through all edges, in whichever array library the arguments belong to."""
    d = x[nodes[:, 0]] - x[nodes[:, 1]]
    dx, dy = d[:, 0], d[:, 1]
    a, b = q[cells[:, 0]], q[cells[:, 1]]
    mu = 0.025 * (adt[cells[:, 0]] + adt[cells[:, 1]])

    def side(s: Any) -> tuple[Any, Any]:
        return (s[:, 1] * dy - s[:, 2] * dx) / s[:, 0], 0.4 * (s[:, 3] - 0.5 * (s[:, 1] ** 2 + s[:, 2] ** 2) / s[:, 0])

    (va, pa), (vb, pb) = side(a), side(b)
    terms = [
        va * a[:, 0] + vb * b[:, 0],
        va * a[:, 1] + pa * dy + vb * b[:, 1] + pb * dy,
        va * a[:, 2] - pa * dx + vb * b[:, 2] - pb * dx,
        va * (a[:, 3] + pa) + vb * (b[:, 3] + pb),
    ]
    return 0.5 * stack(terms) + mu[:, None] * (a - b)


def cupy_arrays(x: np.ndarray, q: np.ndarray, adt: np.ndarray, nodes: np.ndarray, cells: np.ndarray) -> Peer:
    import cupy
    import cupyx

    arrays = [cupy.asarray(v) for v in (x, q, adt, nodes, cells)]

    def run() -> Any:
        f = flux(lambda terms: cupy.stack(terms, axis=1), *arrays)
        res = cupy.zeros_like(arrays[1])
        cupyx.scatter_add(res, arrays[4][:, 0], f)
        cupyx.scatter_add(res, arrays[4][:, 1], -f)
        return res

    return run, cupy.cuda.Device().synchronize


def torch_compiled(x: np.ndarray, q: np.ndarray, adt: np.ndarray, nodes: np.ndarray, cells: np.ndarray) -> Peer:
    import torch

    arrays = [torch.as_tensor(v, device="cuda") for v in (x, q, adt, nodes.astype(np.int64), cells.astype(np.int64))]

    @torch.compile
    def step(x: Any, q: Any, adt: Any, nodes: Any, cells: Any) -> Any:
        f = flux(lambda terms: torch.stack(terms, dim=1), x, q, adt, nodes, cells)
        return torch.zeros_like(q).index_add(0, cells[:, 0], f).index_add(0, cells[:, 1], -f)

    return lambda: step(*arrays), torch.cuda.synchronize


def jax_jit(x: np.ndarray, q: np.ndarray, adt: np.ndarray, nodes: np.ndarray, cells: np.ndarray) -> Peer:
    import jax

    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    arrays = [jnp.asarray(v) for v in (x, q, adt, nodes, cells)]

    @jax.jit
    def step(x: Any, q: Any, adt: Any, nodes: Any, cells: Any) -> Any:
        f = flux(lambda terms: jnp.stack(terms, axis=1), x, q, adt, nodes, cells)
        return jnp.zeros_like(q).at[cells[:, 0]].add(f).at[cells[:, 1]].add(-f)

    last: list[Any] = []

    def run() -> Any:
        last[:] = [step(*arrays)]
        return last[0]

    return run, lambda: last[0].block_until_ready()


PEERS: dict[str, Callable[..., Peer]] = {"CuPy": cupy_arrays, "torch.compile": torch_compiled, "JAX jit": jax_jit}
