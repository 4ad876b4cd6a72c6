"""The cases: physics only. Every module of this folder is asked for them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from meshloom.case import Case, registry
from meshloom.errors import UserError, nearest


def cases() -> dict[str, type[Case]]:
    """All cases by name."""
    _import_modules()
    return dict(sorted(registry.items()))


@cache
def _import_modules() -> None:
    """All of this folder, which is looked through once: every command, and every check of a setting, asks for cases."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)


def case_named(name: str) -> type[Case] | None:
    """The case of that name. One that a module is named after is found without the others, which take longer to import
    than such a case takes until its first iteration."""
    if name in {module.name for module in pkgutil.iter_modules(__path__)}:
        importlib.import_module(f"{__name__}.{name}")
    return registry.get(name) or cases().get(name)


def find_case(name: str, where: str = "") -> type[Case]:
    """The case of that name, or UserError that names the nearest."""
    if (found := case_named(name)) is None:
        raise UserError(f"{where}unknown case '{name}'{nearest(name, cases())}")
    return found
