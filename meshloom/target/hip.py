"""AMD's GPUs: what they have, and their language. No AMD device has run any of it: its text runs emulated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshloom.target.language import Multiprocessor, language
from meshloom.target.target import Target

WAVE64, WAVE32 = 64, 32  # lanes of a wavefront
_UNITS = {WAVE64: 4, WAVE32: 2}  # that execute wavefronts, of a multiprocessor ("compute unit")


def _bounds(threads: int, blocks: int, target: Multiprocessor) -> str:
    """HIP counts the wavefronts that an execution unit must have room for; CUDA, the blocks of a multiprocessor."""
    units, lanes = _UNITS[target.lanes], target.lanes
    waves = -(-blocks * threads // (lanes * units))
    return f"__launch_bounds__({threads}, {max(1, min(waves, target.resident_threads // (lanes * units)))})"


_HERE = Path(__file__)
HIP = language("HIP", _HERE.with_name("hip.hpp"), _HERE.with_name("hip_emulation.hpp"), _bounds)


def _gpu(multiprocessors: int, bytes_per_second: float) -> Target:
    """One of the CDNA line, whose rates go by published bandwidths: nothing was measured."""
    return Target(
        lanes=WAVE64, multiprocessors=multiprocessors, block_threads=1024, resident_threads=2048, registers=131_072,
        shared=65_536, shared_unasked=65_536, cache_line=128, device="amd", speed=bytes_per_second, language=HIP,
    )  # fmt: skip


GFX90A = _gpu(110, 1.6e12)  # one of the two dies of an MI250X
GFX942 = _gpu(304, 5.3e12)  # an MI300X


def of_properties(properties: Mapping[str, Any]) -> Target:
    """A GPU by the properties that HIP has for it, under CuPy's names.

    Shared memory needs no asking for. Rates are those of GFX90A, as much slower as there are fewer multiprocessors.
    """
    multiprocessors, shared = int(properties["multiProcessorCount"]), int(properties["sharedMemPerBlock"])
    return Target(
        lanes=int(properties["warpSize"]),
        multiprocessors=multiprocessors,
        block_threads=int(properties["maxThreadsPerBlock"]),
        resident_threads=int(properties["maxThreadsPerMultiProcessor"]),
        registers=int(properties["regsPerBlock"]),
        shared=shared,
        shared_unasked=shared,
        cache_line=GFX90A.cache_line,
        device=GFX90A.device,
        speed=GFX90A.speed * multiprocessors / GFX90A.multiprocessors,
        language=HIP,
    )
