"""``meshloom new heat``: a starting point for a case of one's own, which runs as it is."""

from __future__ import annotations

import keyword
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from meshloom.catalogue.find import names_a_case
from meshloom.errors import UserError, known_name, shown

KINDS = ("mesh", "grid")
_NAME, _CLASS = "mycase", "MyCase"  # what the texts call theirs


def write_start(name: str, kind: str, folder: Path) -> Path:
    """Write ``<name>.py``; UserError, and nothing is written, where a file is there or the name is not for a case."""
    known_name("kind of a case", kind, KINDS)
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise UserError(f"{shown(name)} cannot be the name of a case: take letters, digits and _, such as heat_2d")
    if names_a_case(name):
        raise UserError(f"{shown(name)} is a case already (see meshloom cases); take another name")
    path = folder / f"{name}.py"
    try:
        if path.exists() or path.is_symlink():
            raise FileExistsError
        if find_spec(name) is not None:
            raise UserError(f"{shown(name)} is a module of Python's or of a package here, which {path.name} would hide;"
                            " take another name")  # fmt: skip
        with open(path, "x", encoding="utf-8") as file:
            file.write(text_of(name, kind))
    except FileExistsError:
        raise UserError(f"{path} is there already; take another name, or remove it first") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return path


def text_of(name: str, kind: str) -> str:
    """The starting point, as Python."""
    text = resources.files("meshloom.catalogue").joinpath("starts", f"{kind}.txt").read_text(encoding="utf-8")
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Case_"
    if not class_name.isidentifier() or class_name in text.replace(_CLASS, ""):
        class_name = f"{class_name}Case" if class_name.isidentifier() else f"Case{class_name}"
    return text.replace(_CLASS, class_name).replace(_NAME, name)
