"""Kernels over maps of varying arity as those over what loops know: a padded map, and how many of its slots count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshloom.errors import KernelError
from meshloom.kernel.access import Mode, Read
from meshloom.kernel.collection import collected
from meshloom.kernel.signature import Signature, of_all
from meshloom.mesh.core import Arg, Field, VaryingMap

Pattern = tuple[int | None, ...]  # for each argument, which of the maps of varying arity it is seen through


def pattern_of(given: Sequence[Any]) -> tuple[Pattern, list[VaryingMap]]:
    """Which arguments are seen through maps of varying arity, and these maps, each once."""
    maps: dict[VaryingMap, int] = {}
    found = [maps.setdefault(a.map, len(maps)) if type(a) is Arg and isinstance(a.map, VaryingMap) else None
             for a in given]  # fmt: skip
    return tuple(found), list(maps)


def known_arguments(kernel: str, modes: Mapping[str, type[Mode]], given: Sequence[Any], pattern: Pattern,
                    maps: Sequence[VaryingMap]) -> tuple[Any, ...]:  # fmt: skip
    """The same arguments as fixed maps show them, and behind them how many elements there are through each map."""
    fixed: list[Any] = []
    for (name, mode), one, which in zip(modes.items(), given, pattern, strict=True):
        if which is not None and mode is not Read:
            raise KernelError(
                f"kernel {kernel}, parameter {name}: {one} is seen through a map of varying arity, so it can only be"
                f" Read, and this is {mode.shown}; loop over a set of the pairs instead"
            )
        fixed.append(one if which is None else Arg(one.field, maps[which].padded))
    counts: list[Field] = [one.counts for one in maps]
    return (*fixed, *counts)


def over_collections(function: Callable[..., None], names: Sequence[str], pattern: Pattern) -> Callable[..., None]:
    """The function as one of such arguments."""
    call = of_all(function)

    def fixed(*values: Any) -> None:
        counts = values[len(pattern) :]
        shown = [one if which is None else collected(name, one, counts[which])
                 for name, one, which in zip(names, values, pattern, strict=False)]  # fmt: skip
        return call(shown)

    fixed.__name__ = function.__name__
    where = function.__code__  # messages about the kernel as a whole name its own line
    fixed.__code__ = fixed.__code__.replace(co_filename=where.co_filename, co_firstlineno=where.co_firstlineno)
    return fixed


def signature_over(kernel: str, modes: Mapping[str, type[Mode]], maps: int) -> Signature:
    """Its parameters."""
    return Signature(kernel, {**modes, **{f"count {k}": Read for k in range(maps)}})
