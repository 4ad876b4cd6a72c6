"""Targets: what plans, choices and generated code may count on where they run. One file for each maker of GPUs."""

from meshloom.target.cuda import CUDA, H200, of_device
from meshloom.target.hip import GFX90A, GFX942, HIP, of_properties
from meshloom.target.language import Language, language
from meshloom.target.numbers import (
    ChunkNumbers,
    FusionNumbers,
    GpuLineNumbers,
    Numbers,
    OrderNumbers,
    PointNumbers,
    StripNumbers,
    VectorNumbers,
)
from meshloom.target.rates import Rates
from meshloom.target.target import CPU, SHARED_ROW, Target

#: GPUs that can be emulated, by what a person calls them.
EMULATED: dict[str, Target] = {"cuda": H200, "hip": GFX90A, "gfx942": GFX942}

__all__ = [
    "CPU",
    "CUDA",
    "EMULATED",
    "GFX90A",
    "GFX942",
    "H200",
    "HIP",
    "SHARED_ROW",
    "ChunkNumbers",
    "FusionNumbers",
    "GpuLineNumbers",
    "Language",
    "Numbers",
    "OrderNumbers",
    "PointNumbers",
    "Rates",
    "StripNumbers",
    "Target",
    "VectorNumbers",
    "language",
    "of_device",
    "of_properties",
]
