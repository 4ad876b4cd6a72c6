"""NVIDIA's GPUs: what they have, and their language."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from meshloom.target.language import Multiprocessor, language
from meshloom.target.target import Target


def _bounds(threads: int, blocks: int, target: Multiprocessor) -> str:
    return f"__launch_bounds__({threads}, {blocks})"


_HERE = Path(__file__)
CUDA = language("CUDA", _HERE.with_name("cuda.cuh"), _HERE.with_name("cuda_emulation.hpp"), _bounds)

#: The GPU that figures were measured on, for emulation and wherever there is no device to ask.
H200 = Target(
    lanes=32, multiprocessors=132, block_threads=1024, resident_threads=2048, registers=65536, shared=232_448,
    shared_unasked=49_152, cache_line=128, device="nvidia", speed=132.0, language=CUDA,
)  # fmt: skip


def of_device(attributes: Mapping[str, int]) -> Target:
    """A GPU by the attributes that CUDA has for it, under CuPy's names.

    Rates are those measured, as much slower as there are fewer multiprocessors: no attribute tells them.
    """
    multiprocessors = attributes["MultiProcessorCount"]
    return Target(
        lanes=attributes["WarpSize"],
        multiprocessors=multiprocessors,
        block_threads=attributes["MaxThreadsPerBlock"],
        resident_threads=attributes["MaxThreadsPerMultiProcessor"],
        registers=attributes["MaxRegistersPerMultiprocessor"],
        shared=attributes["MaxSharedMemoryPerBlockOptin"],
        shared_unasked=attributes["MaxSharedMemoryPerBlock"],
        cache_line=H200.cache_line,
        device=H200.device,
        speed=float(multiprocessors),
        language=CUDA,
    )
