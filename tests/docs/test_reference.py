"""docs/reference.md lists every public name, and what the site shows for it is the docstring of that very object."""

from __future__ import annotations

import inspect
import re
from functools import reduce
from types import ModuleType

import pytest

import meshloom as ml
from meshloom.errors import MeshloomError
from tests.docs.test_docs import ROOT
from tests.findings import none_fails

PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
ENTRY = re.compile(r"^::: (\S+)\n    options:\n      heading: ml\.(\S+)\n      toc_label: ml\.(\S+)$", re.MULTILINE)
OTHER_NAMES = {"Loop", "linalg.Stencil"}  # of what is listed under its own name


def listed() -> dict[str, str]:
    """What the page lists: by its name below ``ml``, where the code that it is read from stands."""
    return {name: path for path, name, label in ENTRY.findall(PAGE)}


def public() -> set[str]:
    """Every name below ``ml`` that a person may write; modules by what is in them."""
    names: set[str] = set()
    for name in ml.__all__:
        value = getattr(ml, name)
        names |= {f"{name}.{inner}" for inner in inside(value)} if isinstance(value, ModuleType) else {name}
    return names - OTHER_NAMES


def inside(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    return [name for name, value in vars(module).items() if is_public(name, value, module)]


def is_public(name: str, value: object, module: ModuleType) -> bool:
    """Of a module that does not list its names (that of the errors): the exceptions that it defines."""
    return isinstance(value, type) and issubclass(value, MeshloomError) and value.__module__ == module.__name__


def at(name: str) -> object:
    """The object of a name such as ``linalg.cg`` below ``ml``."""
    return reduce(getattr, name.split("."), ml)


def test_the_page_lists_every_public_name_once() -> None:
    assert len(ENTRY.findall(PAGE)) == len(re.findall("^:::", PAGE, re.MULTILINE)) == len(listed())
    assert all(name == label for _, name, label in ENTRY.findall(PAGE))
    assert set(listed()) == public()
    assert "`ml.Loop` is another name of `ml.Operation`" in PAGE and ml.Loop is ml.Operation


def test_every_public_name_has_a_docstring_of_its_own() -> None:
    none_fails(sorted(public()), has_a_docstring)


def has_a_docstring(name: str) -> None:
    value = at(name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__, f"ml.{name} does not say what it is"


def test_the_site_shows_the_docstring_of_that_object() -> None:
    """A name that is also one of a file, such as ``meshloom.backend``, would show the text of the file."""
    griffe = pytest.importorskip("griffe")
    code = griffe.load("meshloom", search_paths=[str(ROOT)], allow_inspection=False)
    for name, path in listed().items():
        value = at(name)
        if inspect.isclass(value) or inspect.isfunction(value):
            found = code[path.removeprefix("meshloom.")].docstring
            assert found and found.value == inspect.getdoc(value), f"ml.{name} is not what stands in {path}"
