"""What a healthy value keeps to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Limit:
    """What a healthy value keeps to; ``why`` says in some words what is wrong with one that does not, ``cure`` what may
    help."""

    above: float = -np.inf
    below: float = np.inf
    why: str = ""
    component: int | None = None  # of a vector, where the limit is not for all of them
    cure: str = ""

    def broken(self, values: np.ndarray) -> np.ndarray:
        """True where a value (n,) or (n, dim) is outside or NaN."""
        inside = (values > self.above) & (values < self.below)
        if self.component is not None:
            others = np.arange(values.shape[-1]) != self.component
            inside = np.where(others, np.isfinite(values), inside)
        return ~inside

    def text(self, value: float) -> str:
        """``-1.2e-05 (must be above 0: the mesh is tangled)``."""
        bounds = [f"above {self.above:.6g}"] if self.above > -np.inf else []
        bounds += [f"below {self.below:.6g}"] if self.below < np.inf else []
        return f"{value:.6g} (must be {' and '.join(bounds)}{': ' if self.why else ''}{self.why})"
