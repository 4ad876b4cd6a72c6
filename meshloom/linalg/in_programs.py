"""Solvers inside programs: they iterate for as long as it takes, or work on whole arrays, which no loop does. So while
a program is recorded, to solve becomes a call at this place of every replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from meshloom.errors import MeshError, instance
from meshloom.linalg.matrix import Matrix
from meshloom.linalg.poisson import Poisson
from meshloom.mesh.core import Field, Global
from meshloom.operation.call import recorded_solve
from meshloom.recording import recorder

P = ParamSpec("P")
T = TypeVar("T")


def called_in_programs(solve: Callable[P, T]) -> Callable[P, T]:
    """Decorator of methods ``solve(x, b)``: what they report is known at every replay, and not when it is recorded."""

    @wraps(solve)
    def either(*args: P.args, **named: P.kwargs) -> Any:
        if recorder.get() is None:
            return solve(*args, **named)
        given = signature(solve).bind(*args, **named)
        solver, x, b = given.args[:3]
        for name, one in (("x", x), ("b", b)):
            instance(f"{solver.name}: {name}", one, Field, error=MeshError)
        later = partial(getattr(solver, solve.__name__), x, b, **given.kwargs)
        return recorded_solve(solver.name, later, _read_by(solver, x, b), (x,))

    return either


def _read_by(solver: Any, x: Field, b: Field) -> tuple[Field | Global, ...] | None:
    """What a solver looks at besides its own; None where it was given a function, which may look at anything."""
    entries: list[Field | Global] = []
    for one in (getattr(solver, "operator", None), getattr(solver, "preconditioner", None)):
        if isinstance(one, Matrix):
            entries.append(one.values)
        elif one is not None and not isinstance(one, str | Poisson):
            return None
    return x, b, *entries
