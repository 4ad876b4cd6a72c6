"""Solvers inside programs: they iterate for as long as it takes, or work on whole arrays, which no loop does. So while
a program is recorded, to solve becomes a call at this place of every replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from meshloom.errors import MeshError, ProgramError, instance
from meshloom.linalg.matrix import Matrix
from meshloom.linalg.poisson import Poisson
from meshloom.mesh.core import Field
from meshloom.operation.call import CalledFunction, Later, Storages, called
from meshloom.recording import recorder

P = ParamSpec("P")
T = TypeVar("T")


def called_in_programs(solve: Callable[P, T], *, reads_temporaries: bool = True) -> Callable[P, T]:
    """Decorator of methods ``solve(x, b)``. ``reads_temporaries``: may these be temporary fields of the program?"""

    @wraps(solve)
    def either(*args: P.args, **named: P.kwargs) -> Any:
        record = recorder.get()
        if record is None:
            return solve(*args, **named)
        try:
            given = signature(solve).bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{solve.__qualname__}(): {error}") from None
        solver, x, b = given.args
        for name, one in (("x", x), ("b", b)):
            instance(f"{solver.name}: {name}", one, Field, error=MeshError)
            if one.temporary and not reads_temporaries:
                raise ProgramError(f"{solver.name}: {name} is a temporary field ({one.name}), which a solver that runs"
                                   " programs of its own cannot read; make it an ordinary one, temporary=False")
        later = partial(getattr(solver, solve.__name__), x, b, **given.kwargs)
        record(called(CalledFunction(later, _read_by(solver, x, b), (x,)), f"{solver.name}.solve"))
        return Later(f"what {solver.name} reports", "look at it in a function that ml.call is given")

    return either


def _read_by(solver: Any, x: Field, b: Field) -> Storages | None:
    """What a solver looks at besides its own; None where it was given a function, which may look at anything."""
    given = [getattr(solver, name, None) for name in ("operator", "preconditioner")]
    if not all(one is None or isinstance(one, str | Matrix | Poisson) for one in given):
        return None
    return x, b, *[one.values for one in given if isinstance(one, Matrix)]
