"""Random numbers for fields: ordinary ones, of some scale, whole ones, and the ends of their type."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np


def values(random: Random, dtype: np.dtype, shape: tuple[int, ...], known: frozenset[str]) -> np.ndarray:
    """Ordinary values, of some scale, with ties or with special values among them."""
    rng = np.random.default_rng(random.randrange(2**32))
    flavour = random.choices(("plain", "scaled", "whole", "special"), (6, 2, 2, 3))[0]
    if dtype.kind == "i":
        return _integers(rng, dtype, shape, flavour, known)
    if flavour == "whole":
        return rng.integers(-4, 5, shape).astype(dtype)
    made = (rng.uniform(0.5, 2.0, shape) * 2.0 ** rng.integers(-2, 3, shape)) * rng.choice([-1.0, 1.0], shape)
    if random.random() < 0.5:
        made = np.abs(made)
    if flavour == "scaled":
        made = made * 2.0 ** random.randint(-30, 30)
    made = made.astype(dtype)
    if flavour == "special":
        info = np.finfo(dtype)
        odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.tiny, -info.tiny, info.smallest_subnormal, info.tiny / 8,
               info.max, info.min, 1.0, -1.0, 0.5, 2.0**31, -(2.0**63), 1e-3]  # fmt: skip
        where = rng.random(shape) < 0.25
        made = np.where(where, rng.choice(np.array(odd, dtype), shape), made)
    return np.asarray(made, dtype)


def _integers(rng: Any, dtype: np.dtype, shape: tuple[int, ...], flavour: str, known: frozenset[str]) -> np.ndarray:
    info = np.iinfo(dtype)
    if flavour == "special" and "integer overflow" not in known:
        odd = np.array([info.min, info.max, 0, 1, -1, 2, 31, 63, 64, info.min + 1, info.max // 2], dtype)
        where = rng.random(shape) < 0.3
        return np.where(where, rng.choice(odd, shape), rng.integers(-9, 10, shape)).astype(dtype)
    most = 1000 if flavour == "scaled" else 6
    return rng.integers(-most, most + 1, shape).astype(dtype)
