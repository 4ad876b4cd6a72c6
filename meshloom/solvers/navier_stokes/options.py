"""Settings that the flow cases share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import meshloom as ml
from meshloom import compact
from meshloom.config import option

MOST_STEPS = 10_000_000
RUN_DOC, TIME_DOC, OUTPUT_DOC = "How many steps at most, and on what.", "Time steps.", "What to write, and how often."
SCHEME_DOC, FILTER_DOC = "How the equations are made discrete.", "A low-pass filter of the solution after every step."


@dataclass(frozen=True)
class FlowTimeOptions:
    """When to end, and how long a step is."""

    end: float = option(2.0, "time at the end", above=0.0)
    cfl: float = option(1.0, "Courant number: points that the fastest wave passes in a step", above=0.0, high=100.0)
    dt: float = option(0.0, "length of a step; 0 takes it from cfl", low=0.0)


@dataclass(frozen=True)
class FlowSchemeOptions:
    """How the equations are made discrete."""

    retired: ClassVar[Mapping[str, str]] = {"passes": "what is stored between loops is decided where they run"}

    solver: str = option(
        "auto",
        "what solves the tridiagonal systems along lines",
        allowed=lambda: ("auto", *ml.linalg.tridiagonal.methods()),
    )


@dataclass(frozen=True)
class FlowFilterOptions:
    """A compact low-pass filter along every axis."""

    order: int = option(0, "order of the filter, an even number; 0 leaves it out", low=0, high=10)
    alpha: float = option(0.49, "the nearer 0.5, the fewer waves are damped", above=-0.5, high=0.4999)

    @property
    def scheme(self) -> Any:
        """The filter, or None."""
        return compact.filters(self.order, self.alpha) if self.order else None
