"""Cases in Python files of a person's own: ``meshloom run mine.py:Heat``.

The file is run as Python runs a module that is imported: it is the person's own, whom nothing stops from running it by
hand. What is run is what was hashed, so a checkpoint can say of which text it is. A file without a class, such as a
script, is refused before anything of it has run.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import sys
from pathlib import Path
from types import ModuleType

from meshloom.case import Case, CaseSource, keeping_registry
from meshloom.catalogue.check import check_case
from meshloom.errors import MeshloomError, UserError, nearest, shown
from meshloom.run.place import class_line, is_mistake, mistake_text, place_of

_SUFFIX = ".py"


def parts_of(target: str) -> tuple[str, str] | None:
    """File and class of ``mine.py:Heat``; '' where the class is left out, None for what names no Python file."""
    file, colon, name = target.rpartition(":")
    if colon and file.endswith(_SUFFIX):
        return file, name
    return (target, "") if target.endswith(_SUFFIX) else None


def load(target: str, where: str = "", base: Path = Path()) -> type[Case]:
    """The case in a file, whose path begins at ``base``; UserError, with file and line, for what is none."""
    found = parts_of(target)
    assert found is not None, target
    path, name = _path(found[0], where, base), found[1]
    source = _text(path, where)
    module = _module(path, source)
    case = _chosen(path, name, _cases_in(module))
    check_case(case, f"{class_line(case)}: ")
    case.source = CaseSource(path, case.__name__, hashlib.sha256(source).hexdigest())
    return case


def _path(file: str, where: str, base: Path) -> Path:
    try:
        return (base / Path(file).expanduser()).absolute()
    except (OSError, RuntimeError) as error:
        raise UserError(f"{where}{file}: no such path: {error}") from None


def _text(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        moved = "; if it has moved, name it: meshloom run mine.py ..." if where else ""
        raise UserError(f"{where}{path}: the file of the case cannot be read: {reason}{moved}") from None


def _module(path: Path, source: bytes) -> ModuleType:
    """The file, run. The same text is run once in a process, another text under the same name anew."""
    name = f"own_case_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    before = sys.modules.get(name)
    if before is not None and getattr(before, "own_source", None) == source:
        return before
    tree = _parsed(path, source)
    if not any(isinstance(node, ast.ClassDef) for node in ast.walk(tree)):
        raise UserError(f"{path}: no case in it, nor any class; a script is run by: python {path.name}")
    module = ModuleType(name)
    module.__file__, module.__dict__["own_source"] = str(path), source
    sys.modules[name] = module  # where dataclasses look up what annotations mean
    linecache.checkcache(str(path))
    if str(path.parent) not in sys.path:  # for modules of theirs that lie beside it, as Python does for a script
        sys.path.insert(0, str(path.parent))
    try:
        with keeping_registry():
            exec(compile(tree, str(path), "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if not is_mistake(error):
            raise
        raise UserError(_import_problem(path, error)) from error
    return module


def _parsed(path: Path, source: bytes) -> ast.Module:
    try:
        return ast.parse(source, str(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno or 1}: not Python: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not Python: {error}") from None


def _import_problem(path: Path, error: BaseException) -> str:
    """In one line, what stopped the file from being run, and where."""
    if isinstance(error, MeshloomError) and str(path) in str(error):
        return str(error)
    what = str(error) if isinstance(error, MeshloomError) else mistake_text(error)
    return f"{place_of(error, str(path)) or path}: {what}"


def _cases_in(module: ModuleType) -> dict[str, type[Case]]:
    """The classes of the file itself that are cases, by name; not those that it imports."""
    found = (one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Case))
    return {one.__name__: one for one in found if one.__module__ == module.__name__}


def _chosen(path: Path, name: str, found: dict[str, type[Case]]) -> type[Case]:
    if not found:
        raise UserError(f"{path}: no case in it; derive a class from meshloom.case.Case (see meshloom new)")
    if name:
        if name not in found:
            raise UserError(f"{path}: no case {shown(name)} in it{nearest(name, found)}")
        return found[name]
    # What others of the file derive from, and has no name of its own, is their common part.
    likely = [case for case in found.values()
              if "name" in vars(case) or not any(case in other.__mro__[1:] for other in found.values())]  # fmt: skip
    if len(likely) > 1:
        several = ", ".join(f"{path.name}:{case.__name__}" for case in likely)
        raise UserError(f"{path}: several cases in it; name one of {several}")
    return likely[0]
