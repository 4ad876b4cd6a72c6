"""GPU back ends stand on what NVIDIA and CuPy document: no ctypes of their own, nothing private, nothing unlisted."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import meshloom
from meshloom.backend.cuda import nvrtc
from meshloom.backend.cuda.backend import CudaBackend
from meshloom.errors import CompilerError
from tests.one_line import one_line_from

PACKAGE = Path(meshloom.__file__).parent
FILES = [file for room in ("backend", "target") for file in sorted((PACKAGE / room).rglob("*.py"))]
#: Those that open what the CPU's compiler made.
OPEN_LIBRARIES = {"backend/cpu.py", "backend/cuda/emulator.py"}
VENDORS = ("cupy", "cupyx", "cupy_backends", "cuda")
#: What CuPy's reference lists, of what is used here; look there before adding to it.
DOCUMENTED = {
    "RawModule", "asarray", "copyto", "empty", "ones", "zeros", "zeros_like", "cuda.Device", "cuda.Event",
    "cuda.Stream", "cuda.get_current_stream", "cuda.get_elapsed_time", "cuda.runtime",
    "cuda.compiler.CompileException",
}  # fmt: skip


def trees() -> Iterator[tuple[str, ast.Module]]:
    for file in FILES:
        yield str(file.relative_to(PACKAGE)), ast.parse(file.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    """Modules that are imported anywhere in a file, and names from them as if they were modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def own(tree: ast.Module) -> set[str]:
    """Private names that a file gives to something itself."""
    found = {"_replace"}  # of named tuples, documented
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def private_attributes(tree: ast.Module) -> list[str]:
    """Private attributes of others."""
    known = own(tree)
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in known
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and not ast.unparse(node.value).startswith("super()")
    ]  # fmt: skip


def chains(tree: ast.Module) -> Iterator[list[str]]:
    """``a.b.c`` as its names, the longest ones; what a call gives begins a new one."""
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        names: list[str] = []
        here: ast.AST = node
        while isinstance(here, ast.Attribute) and id(node) not in inside:
            names.insert(0, here.attr)
            here = here.value
        if names and isinstance(here, ast.Name):
            yield [here.id, *names]


def unlisted(tree: ast.Module) -> list[str]:
    """What is asked of CuPy that is not DOCUMENTED, wherever it is called ``cupy`` or ``_cupy``."""
    found = []
    for names in chains(tree):
        asked = ".".join(names).replace("_cupy.", "cupy.").rpartition("cupy.")[2]
        if {"cupy", "_cupy"} & set(names[:-1]) and not any(f"{asked}.".startswith(f"{one}.") for one in DOCUMENTED):
            found.append(asked)
    return found


def test_only_what_the_cpu_compiles_is_opened_by_ctypes() -> None:
    assert {name for name, tree in trees() if imported(tree) & {"ctypes", "_ctypes", "cffi"}} == OPEN_LIBRARIES


def test_nothing_private_of_others_is_used() -> None:
    for name, tree in trees():
        assert not private_attributes(tree), name
        ours = [one for one in imported(tree) if one.split(".")[0] in VENDORS]
        assert not [one for one in ours if any(map(private, one.split(".")))], name


def test_cupy_is_asked_for_what_it_documents() -> None:
    for name, tree in trees():
        assert not unlisted(tree), name
        assert "cupy_backends" not in {one.split(".")[0] for one in imported(tree)}, name


@pytest.mark.parametrize("text", [
    "import cupy\ncupy._core.raw()", "from cuda.bindings import driver\ndriver._handle", "def f(x):\n    return x._ptr",
])  # fmt: skip
def test_private_attributes_are_found(text: str) -> None:
    assert len(private_attributes(ast.parse(text))) == 1


def test_what_cupy_does_not_document_is_found() -> None:
    text = "self.cupy.cuda.driver.get(1)\nself._cupy.cuda.function.Module()\ncupy.asarray(x)\ncupy.cuda.runtime.free(0)"
    assert unlisted(ast.parse(text)) == ["cuda.driver.get", "cuda.function.Module"]


# ----- where something is missing -----------------------------------------------------------------------------------
def bindings(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """``cuda.bindings.nvrtc`` is ``module``; None: it cannot be imported."""
    package = ModuleType("cuda.bindings")
    package.nvrtc = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", None if module is None else package)
    nvrtc.library.cache_clear()


class NoLibrary:
    @staticmethod
    def nvrtcVersion() -> None:
        raise RuntimeError("Failure finding libnvrtc.so:\n  a\n  long\n  story")


class Broken:
    @staticmethod
    def nvrtcVersion() -> tuple[int]:
        return (7,)


@pytest.mark.parametrize(("module", "said"), [
    (None, "^NVIDIA's cuda.bindings are not installed, so CUDA code cannot be compiled: pip install '.*cuda.*'"),
    (NoLibrary, "^no NVRTC library was found, so CUDA code cannot be compiled: pip install '.*cuda.*'"),
])  # fmt: skip
def test_what_is_missing_is_one_line(module: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings(monkeypatch, module)
    with one_line_from(CompilerError, said):
        nvrtc.build("", "nothing", "sm_90")


def test_a_library_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings(monkeypatch, Broken)
    with one_line_from(CompilerError, "^NVRTC does not work here: 7$"):
        nvrtc.version()


def test_a_device_without_a_compiler_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is computed, and with the reason."""
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(runtime=None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    bindings(monkeypatch, None)
    backend = CudaBackend()
    monkeypatch.setattr(backend, "_no_device", lambda *_: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert str(backend._reason).startswith("NVIDIA's cuda.bindings are not installed")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Whatever a test made of it, the next one looks again."""
    yield
    nvrtc.library.cache_clear()
