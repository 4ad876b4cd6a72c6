"""Back ends by name, and the one in use."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

from meshloom.backend.base import Backend, Bound
from meshloom.backend.cpu import CpuBackend
from meshloom.backend.cuda.backend import CudaBackend
from meshloom.backend.numpy import NumpyBackend
from meshloom.errors import ScheduleError, nearest

__all__ = [
    "Backend",
    "Bound",
    "automatic_backend",
    "backend",
    "backends",
    "cpu_count",
    "current",
    "register",
    "threads",
    "use",
]

_BACKENDS: dict[str, Backend] = {b.name: b for b in (NumpyBackend(), CpuBackend(), CudaBackend())}
_current: Backend | None = None


def register(new: Backend) -> None:
    """Add a back end, to be chosen by its name."""
    _BACKENDS[new.name] = new


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu() -> CpuBackend:
    found = _BACKENDS["cpu"]
    assert isinstance(found, CpuBackend)
    return found


cpu().threads[0] = int(os.environ.get("OMP_NUM_THREADS", "0").split(",")[0] or 0) or cpu_count()


def use(name: str, *, threads: int | None = None, contract: bool | None = None) -> None:
    """Choose the back end of everything that follows.

    ``threads``: number of CPU threads, all cores unless given. ``contract``: may the compiler fuse a*b+c into one
    rounding (faster, the default); False for digit-by-digit comparison with other programs.
    """
    global _current
    if name not in _BACKENDS:
        raise ScheduleError(f"unknown back end '{name}'{nearest(name, _BACKENDS)}")
    reason = _BACKENDS[name].unavailable()
    if reason:
        raise ScheduleError(f"back end '{name}' cannot be used here: {reason}")
    if threads is not None:
        if int(threads) != threads or threads < 1:
            raise ScheduleError(f"threads must be a whole number from 1, got {threads}")
        cpu().threads[0] = threads
    if contract is not None:
        cpu().contract = contract
    _current = _BACKENDS[name]


def automatic_backend(found: Mapping[str, str | None]) -> str:
    """The first of cuda, cpu and numpy that can be used; ``found`` is ``backends()``."""
    return next((name for name in ("cuda", "cpu") if found[name] is None), "numpy")


def current() -> Backend:
    """The back end in use: unless chosen, ``cuda`` where there is a GPU, ``cpu`` where there is a compiler, else
    ``numpy`` with a word about why."""
    global _current
    if _current is None:
        found = backends()
        name = automatic_backend(found)
        if name == "numpy":
            warnings.warn(f"{found['cpu']}; using the numpy back end, which is slow", stacklevel=2)
        _current = _BACKENDS[name]
    return _current


def backend() -> str:
    """Name of the back end in use."""
    return current().name


def threads() -> int:
    """Threads that loops on the ``cpu`` back end use."""
    return int(cpu().threads[0])


def backends() -> dict[str, str | None]:
    """Every back end: None when it can be used, else why not."""
    return {name: b.unavailable() for name, b in _BACKENDS.items()}
