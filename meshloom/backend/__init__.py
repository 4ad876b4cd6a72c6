"""Back ends by name, and the one in use."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from numpy.typing import ArrayLike

from meshloom.backend.base import Backend
from meshloom.backend.bound_loop import BoundLoop
from meshloom.backend.cpu import CpuBackend
from meshloom.backend.cuda.backend import CudaBackend, EmulatedCuda
from meshloom.backend.hip import HipBackend
from meshloom.backend.numpy import NumpyBackend
from meshloom.errors import ScheduleError, shown, whole_number
from meshloom.mesh.numbering import Rows
from meshloom.native import threads as native_threads
from meshloom.native.cache import tell
from meshloom.native.machine import cpu_count
from meshloom.recording import not_in_program
from meshloom.target import EMULATED, Target

__all__ = [
    "Backend",
    "BoundLoop",
    "automatic_backend",
    "backend",
    "backends",
    "cpu_count",
    "current",
    "distribute",
    "register",
    "threads",
    "use",
    "using",
]

_BACKENDS: dict[str, Backend] = {
    b.name: b for b in (NumpyBackend(), CpuBackend(), CudaBackend(), HipBackend(), EmulatedCuda())
}
LANES = (32, 64)  # threads that a warp may have where it is emulated
_current: Backend | None = None
#: What stands for a back end where fields are in the memories of several processes; None where there is one.
_over_ranks: Callable[[Backend], Backend] | None = None


def register(new: Backend) -> None:
    """Add a back end, to be chosen by its name."""
    _BACKENDS[new.name] = new


def distribute(over_ranks: Callable[[Backend], Backend] | None, threads: int | None = None) -> None:
    """From now on every back end that is chosen runs over ranks, or by itself where that is None; this one has so many
    ``threads`` unless a person says, who may do so later; None: as many as there are by itself. Who has chosen one
    before chooses again."""
    global _over_ranks, _current, USUAL_THREADS
    _over_ranks, _current = over_ranks, None
    USUAL_THREADS = threads or ENVIRONMENT_THREADS or cpu_count()
    native_threads.choose(USUAL_THREADS)


def _placed(chosen: Backend) -> Backend:
    return chosen if _over_ranks is None else _over_ranks(chosen)


def cpu() -> CpuBackend:
    found = _BACKENDS["cpu"]
    assert isinstance(found, CpuBackend)
    return found


#: More than any machine has; far more end a process when OpenMP makes room for them.
MOST_THREADS = max(1024, cpu_count())


def _asked_of_openmp(wanted: str | None) -> int | None:
    """The number in ``OMP_NUM_THREADS``; what is none is ignored, as OpenMP does, with a word."""
    first = (wanted or "").split(",")[0].strip()
    if not first:
        return None
    if first.isdecimal() and first.isascii() and len(first) < 9 and 1 <= int(first) <= MOST_THREADS:
        return int(first)
    warnings.warn(
        f"OMP_NUM_THREADS is {shown(wanted)}, not a number of threads from 1 to {MOST_THREADS};"
        f" using {cpu_count()}, the number of cores",
        stacklevel=2,
    )
    return None


#: How many ``OMP_NUM_THREADS`` asks for, if any; and how many there are unless a person says.
ENVIRONMENT_THREADS = _asked_of_openmp(os.environ.get("OMP_NUM_THREADS"))
USUAL_THREADS = ENVIRONMENT_THREADS or cpu_count()
native_threads.choose(USUAL_THREADS)


@not_in_program("choosing a back end", "choose it before")
def use(
    name: str, *, threads: int | None = None, contract: bool | None = None, strict: bool | None = None,
    lanes: int | None = None, target: str | None = None, reproducible: bool | None = None,
    partition: str | ArrayLike | None = None,
) -> None:  # fmt: skip
    """Choose the back end of everything that follows.

    ``threads``: number of CPU threads; unless ever given, ``OMP_NUM_THREADS``, or all cores. ``contract``: is
    a*b + c computed in one rounding on a CPU (faster, the default); False for digit-by-digit comparison with other
    programs. ``strict``: True makes every loop that is made from now on compute its formula as written, as
    ``ml.kernel(strict=True)`` does for one kernel; False leaves that to the kernels again. ``target``: the GPU that
    ``emulated`` pretends to be: "cuda" unless given, one of NVIDIA's; "hip", one of AMD's, with its text and its
    wavefronts of 64 threads; "gfx942", a larger one. ``lanes``: threads of its warps, 32 or 64, if other than the
    target has. ``reproducible``: True makes every floating-point ``Sum`` to a Global, of loops that are made from now
    on, independent of the order: the same bits for any schedule, number of threads and ranks and back end, where the
    summands have them; and the automatic schedule takes strategies that add up in the order of elements. False leaves
    that again. ``partition``: how meshes that are used from now on are cut over ranks: one of ``ml.partitioners()``, or
    the rank of every cell by number; without ranks nothing is cut.
    """
    global _current
    if not isinstance(name, str) or name not in _BACKENDS:
        raise ScheduleError(f"unknown back end '{name}'; allowed: {', '.join(_BACKENDS)}")
    reason = _BACKENDS[name].unavailable()
    if reason:
        raise ScheduleError(f"back end '{name}' cannot be used here: {reason}")
    for option, value in (("contract", contract), ("strict", strict), ("reproducible", reproducible)):
        if value is not None and not isinstance(value, bool):
            raise ScheduleError(f"{option} must be True or False, got {shown(value)}")
    if partition is not None:
        Rows.placement.cut_by(partition)
    chosen = _BACKENDS[name] if lanes is None and target is None else _emulated(name, lanes, target)
    if threads is not None:
        wanted = whole_number("threads", threads, 1, MOST_THREADS, error=ScheduleError)
        if native_threads.choose(wanted) < wanted:
            tell(native_threads.THREADS_AFTER_FORK)
    if contract is not None:
        cpu().contract = contract
    if strict is not None:
        Backend.strict = strict
    if reproducible is not None:
        Backend.reproducible = reproducible
    _current = _placed(chosen)


@contextmanager
def using(name: str, **options: Any) -> Iterator[None]:
    """``with ml.using("numpy"):`` the back end of a block, with the options of ``use``; then the one of before again,
    with its own."""
    global _current
    before, own = current(), (threads(), cpu().contract, Backend.strict, Backend.reproducible)
    partition = Rows.placement.cutting
    use(name, **options)
    try:
        yield
    finally:
        _current = before
        native_threads.choose(own[0])
        cpu().contract, Backend.strict, Backend.reproducible = own[1:]
        Rows.placement.cutting = partition


def _emulated(name: str, lanes: int | None, target: str | None) -> Backend:
    """The emulated GPU of that target, with so many lanes; nobody else's can be chosen."""
    for option, value in (("lanes", lanes), ("target", target)):
        if value is not None and name != "emulated":
            raise ScheduleError(f"{option} can be chosen on the back end 'emulated' only, not on '{name}'")
    if target is not None and (not isinstance(target, str) or target not in EMULATED):
        raise ScheduleError(f"unknown target {shown(target)}; allowed: {', '.join(EMULATED)}")
    if lanes is not None and (isinstance(lanes, bool) or not isinstance(lanes, int) or lanes not in LANES):
        raise ScheduleError(f"lanes must be {' or '.join(map(str, LANES))}, got {shown(lanes)}")
    wanted = EMULATED[target or "cuda"]
    return _emulator(wanted if lanes is None else replace(wanted, lanes=lanes))


@cache
def _emulator(target: Target) -> Backend:
    """One back end for each target: what was made for one is found again."""
    usual = _BACKENDS["emulated"]
    return usual if usual.target == target else EmulatedCuda(target)


def automatic_backend(found: Mapping[str, str | None]) -> str:
    """The first of cuda, cpu and numpy that can be used, never ``hip`` or ``emulated``; ``found`` is ``backends()``."""
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
        _current = _placed(_BACKENDS[name])
    return _current


def backend() -> str:
    """Name of the back end in use."""
    return current().name


def threads() -> int:
    """Threads that loops on the ``cpu`` back end use: what ``ml.use`` was last given, else ``OMP_NUM_THREADS``, else
    all cores."""
    return int(cpu().threads[0])


def backends(*, ask: bool = True) -> dict[str, str | None]:
    """Every back end: None when it can be used, else why not. ``ask=False``: their names alone, no driver is asked."""
    return {name: b.unavailable() if ask else None for name, b in _BACKENDS.items()}
