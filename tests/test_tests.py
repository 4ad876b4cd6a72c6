"""Tests that cannot fail, found by reading them: the cheap kinds."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

from tests.findings import none_fails

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.py"))
#: Calls that judge by themselves: they raise.
JUDGES = ("assert", "check", "compare", "agree", "refused", "raises", "warns", "verify", "fails", "sanitized",
          "one_line_from", "none_fails")  # fmt: skip
#: Test functions that judge by running at all: what they call raises where something is wrong.
RUNS = {"test_every_kernel_of_the_matrix_compiles", "test_planted_kernels_compile"}


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def literals(node: ast.expr) -> bool:
    """Nothing that the code under test has a say in: no name but those of plain functions."""
    plain = {"len", "max", "min", "sum", "abs", "sorted", "int", "float", "str", "True", "False"}
    return not {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - plain


def parts(test: ast.expr) -> Iterator[ast.expr]:
    """What ``and`` joins: each must be able to be false."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from parts(value)
    else:
        yield test


def harmless(one: ast.expr) -> str:
    """Why an assertion cannot be false, or nothing."""
    if isinstance(one, ast.Tuple):
        return "a tuple is true"
    if literals(one):
        return "literals only"
    if isinstance(one, ast.BoolOp) and isinstance(one.op, ast.Or) and any(literals(v) for v in one.values):
        return "or a literal"
    over = one.args[0] if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "all" and one.args else None
    if isinstance(over, ast.GeneratorExp | ast.ListComp):
        listed = [c for g in over.generators for c in ast.walk(g.iter) if isinstance(c, ast.Call)]
        if any(getattr(c.func, "attr", "") in ("glob", "rglob", "iterdir") for c in listed):
            return "all of what may be no file"
    return ""


def called(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            yield getattr(call.func, "attr", getattr(call.func, "id", ""))


def judges(test: ast.FunctionDef, helpers: dict[str, bool]) -> bool:
    if any(isinstance(node, ast.Assert) for node in ast.walk(test)):
        return True
    return any(helpers.get(name, False) or any(word in name for word in JUDGES) for name in called(test))


def problems(text: str) -> list[str]:
    """One line for each thing in a file that cannot fail."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    helpers = {node.name: any(isinstance(n, ast.Assert) for n in ast.walk(node)) for node in nodes
               if isinstance(node, ast.FunctionDef)}  # fmt: skip
    found = [f"line {node.lineno}: {why}" for node in nodes if isinstance(node, ast.Assert)
             for one in parts(node.test) if (why := harmless(one))]  # fmt: skip
    for test in functions_of(tree):
        if test.name not in RUNS and not judges(test, helpers):
            found.append(f"line {test.lineno}: {test.name} asserts nothing")
        for node in ast.walk(test):
            if isinstance(node, ast.ExceptHandler) and all(isinstance(b, ast.Pass) for b in node.body):
                found.append(f"line {node.lineno}: an error is swallowed")
            if isinstance(node, ast.For) and {"glob", "rglob", "iterdir"} & set(called(node.iter)):
                found.append(f"line {node.lineno}: a loop over what may be no file")
    return found


def test_every_test_can_fail() -> None:
    def check(file: Path) -> None:
        found = problems(file.read_text(encoding="utf-8"))
        assert not found, "; ".join(found)

    none_fails(FILES, check, shown=lambda file: file.relative_to(HERE))


# ----- names that are two things --------------------------------------------------------------------------------------
def assigned_to_functions(text: str) -> list[str]:
    """Attributes set on functions that a package has under the name of one of its modules: whoever meant the module
    changes nothing."""
    assigned = {*re.findall(r"^ *(?:[^=(#\n]*, )?(\w+)\.\w+(?:, [^=(#\n]*)? = ", text, re.MULTILINE)} - {"self"}
    if not any(re.search(rf"^from [^#]*?\bimport\b[^#]*?\b{one}\b", text, re.MULTILINE) for one in assigned):
        return []  # most files are not worth parsing
    tree, found = ast.parse(text), []
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    imported = {one.asname or one.name: (str(node.module), one.name) for node in imports for one in node.names}
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            for one in ast.walk(target):
                if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in imported:
                    module, name = imported[one.value.id]
                    if isinstance(getattr(import_module(module), name, None), FunctionType):
                        found.append(f"line {node.lineno}: {one.attr} is set on the function {module}.{name}")
    return found


def test_no_attribute_is_set_on_a_function_in_place_of_its_module() -> None:
    wrong = "from meshloom import backend\nbackend._over_ranks, x = None, 1"
    assert assigned_to_functions(wrong) == ["line 2: _over_ranks is set on the function meshloom.backend"]

    def check(file: Path) -> None:
        found = assigned_to_functions(file.read_text(encoding="utf-8"))
        assert not found, "; ".join(found)

    root = HERE.parent
    files = [*FILES, *sorted((root / "bench").rglob("*.py")), *sorted((root / "meshloom").rglob("*.py"))]
    none_fails(files, check, shown=lambda file: file.relative_to(root))


def left_out(patterns: Iterable[str]) -> set[str]:
    """Folders of tests into which pytest does not look where it is told to leave out such names."""
    folders = {part for file in FILES for part in file.relative_to(HERE).parts[:-1]}
    return {one for one in folders for pattern in patterns if fnmatch(one, pattern)}


def test_pytest_looks_into_every_folder(pytestconfig: pytest.Config) -> None:
    assert left_out(pytestconfig.getini("norecursedirs")) == set()
    assert left_out(["*.egg", ".*", "build", "dist", "venv"]) == {"dist"}, "as pytest has it, unless it is told"


def test_a_parametrisation_over_nothing_fails() -> None:
    options = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["empty_parameter_set_mark"] == "fail_at_collect"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("assert 3 * 800 == 2400", "literals only"),
        ("assert f() and 2 == 2", "literals only"),
        ("assert f() or True", "or a literal"),
        ("assert (f(), 'text')", "a tuple is true"),
        ("assert all(p.is_file() for p in folder.glob('*'))", "all of what may be no file"),
        ("f()", "asserts nothing"),
        ("try:\n        f()\n    except ValueError:\n        pass\n    assert g()", "an error is swallowed"),
        ("for p in folder.glob('*'):\n        assert p", "a loop over what may be no file"),
    ],
)
def test_what_is_found(body: str, why: str) -> None:
    (line,) = problems(f"def test_one():\n    {body}\n")
    assert why in line


def test_what_is_not() -> None:
    fine = ("assert f() == 3 and g(2)", "with pytest.raises(E):\n        f()", "check_all(f)", "assert_same(f(), 1)")
    assert [problems(f"def test_one():\n    {body}\n") for body in fine] == [[]] * len(fine)


#: Distributions of extras that a machine may lack, by the modules they bring.
EXTRAS = {"meshio", "kaminpar", "pymetis", "pyamg", "cuda", "cupy", "shap", "lightgbm", "optuna", "pyvista", "gmsh"}


def imported_at_once(tree: ast.Module) -> set[str]:
    """What a module asks for as soon as it is read."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


def test_no_file_of_tests_needs_an_extra_to_be_read() -> None:
    """One that does ends the whole run on a machine without it, such as one with a GPU and little else."""

    def check(path: Path) -> None:
        missing = imported_at_once(ast.parse(path.read_text())) & EXTRAS
        assert not missing, f"{path.name} imports {', '.join(missing)} at its top: use pytest.importorskip"

    none_fails(FILES, check, shown=lambda path: path.relative_to(HERE))
