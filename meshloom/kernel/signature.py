"""The parameters of a kernel, and which argument of a call belongs to which."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from meshloom.errors import KernelError, nearest
from meshloom.kernel.access import Mode
from meshloom.records import dataclass


@dataclass(frozen=True)
class Signature:
    """``modes``: the access mode of every parameter, in order; ``variadic``: the one with a star, or None.

    ``defaults``: numbers for parameters that are left out. What comes behind the star is given by name.
    """

    kernel: str
    modes: dict[str, type[Mode]]
    variadic: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)

    def takes(self, count: int) -> bool:
        """Can it have so many arguments, those with defaults included?"""
        return count == len(self.modes) if self.variadic is None else count >= len(self.modes) - 1

    def expanded(self, count: int) -> dict[str, type[Mode]]:
        """The modes of ``count`` arguments, in order; those of the star are called ``terms[0]``, ``terms[1]``, ..."""
        if not self.takes(count):
            raise KernelError(f"{self._takes}, got {count}")
        if self.variadic is None:
            return self.modes
        many = range(count - len(self.modes) + 1)
        result: dict[str, type[Mode]] = {}
        for name, mode in self.modes.items():
            result |= {f"{name}[{k}]": mode for k in many} if name == self.variadic else {name: mode}
        return result

    def ordered(self, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call, by position and by name, in the order of the parameters."""
        if not named and self.variadic is None and len(given) == len(self.modes):
            return tuple(given)  # as nearly always: calls are counted in microseconds
        names = list(self.modes)
        star = names.index(self.variadic) if self.variadic is not None else len(names)
        before, more = names[:star], given[star:]
        if more and self.variadic is None:
            raise KernelError(f"{self._takes}, got {len(given) + len(named)}")
        by_name = dict(zip(before, given, strict=False))
        for name, argument in named.items():
            if name not in self.modes or name == self.variadic:
                others = [n for n in names if n != self.variadic]
                raise KernelError(f"kernel {self.kernel} has no parameter '{name}'{nearest(name, others)}")
            if name in by_name:
                raise KernelError(f"kernel {self.kernel}: parameter {name} is given twice, by position and by name")
            by_name[name] = argument
        missing = [n for n in names if n not in by_name and n not in self.defaults and n != self.variadic]
        if missing and not named:
            raise KernelError(f"{self._takes}, got {len(given)}")
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise KernelError(f"kernel {self.kernel}: {', '.join(missing)} {are} missing; it takes {self._wanted}")
        found = [by_name[n] if n in by_name else self.defaults.get(n) for n in names if n != self.variadic]
        return (*found[:star], *more, *found[star:])

    @property
    def _takes(self) -> str:
        return f"kernel {self.kernel} takes {self._wanted}"

    @property
    def _wanted(self) -> str:
        listed = ", ".join(f"*{n}" if n == self.variadic else n for n in self.modes)
        most, least = len(self.modes), len(self.modes) - len(self.defaults) - (self.variadic is not None)
        count = f"at least {least}" if self.variadic else f"{least} to {most}" if least < most else most
        return f"{count} argument{'' if count in (1, 'at least 1') else 's'} after the set ({listed})"


def of_all(function: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    """The function, called with the values of all its parameters in order: those behind a star by their names."""
    parameters = inspect.signature(function).parameters.items()
    named = [name for name, parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]

    def call(values: Sequence[Any]) -> Any:
        first = len(values) - len(named)
        return function(*values[:first], **dict(zip(named, values[first:], strict=True)))

    return call
