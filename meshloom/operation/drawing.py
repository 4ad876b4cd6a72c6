"""Kernels that draw random numbers as those of what loops know: the state of the source, and the element's number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshloom.errors import KernelError, shown
from meshloom.kernel.access import Mode, RandomNumbers, Read
from meshloom.kernel.random import Draws
from meshloom.kernel.signature import Signature, of_all
from meshloom.mesh.random import Random


def sources(kernel: str, modes: Mapping[str, type[Mode]], given: Sequence[Any]) -> list[Random]:
    """What a kernel draws from: every source once."""
    found: list[Random] = []
    for (name, mode), one in zip(modes.items(), given, strict=True):
        if mode is not RandomNumbers:
            continue
        where = f"kernel {kernel}, parameter {name}"
        if not isinstance(one, Random):
            raise KernelError(f"{where}: expected ml.Random(seed=...), got {shown(one)}")
        if any(one is other for other in found):
            raise KernelError(f"{where}: random source {one.name} is passed twice, and would give the same numbers")
        found.append(one)
    return found


def drawing(function: Callable[..., None], modes: Mapping[str, type[Mode]]) -> Callable[..., None]:
    """The function as one of the states of its sources, with the number of the element behind its arguments."""
    call, sources_at = of_all(function), [mode is RandomNumbers for mode in modes.values()]

    def fixed(*values: Any) -> None:
        *states, element = values
        return call([Draws(one, element) if draws else one for one, draws in zip(states, sources_at, strict=True)])

    fixed.__name__ = function.__name__
    where = function.__code__  # messages about the kernel as a whole name its own line
    fixed.__code__ = fixed.__code__.replace(co_filename=where.co_filename, co_firstlineno=where.co_firstlineno)
    return fixed


def drawing_signature(kernel: str, modes: Mapping[str, type[Mode]]) -> Signature:
    """Its parameters."""
    return Signature(kernel, {n: Read if m is RandomNumbers else m for n, m in modes.items()} | {"element": Read})
