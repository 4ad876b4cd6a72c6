"""The emulated HIP target as a back end with a name of its own, for tests that take back ends by name."""

from __future__ import annotations

import pytest

from meshloom.backend import register
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.target import GFX90A

NAME = "emulated_hip"
SLOW = pytest.param(NAME, marks=pytest.mark.slow)

register(EmulatedCuda(GFX90A, name=NAME))
