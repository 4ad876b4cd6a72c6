"""What is known by being itself: no key is an address, which is another object's when the first one is gone."""

from __future__ import annotations

import ast
import copy
import fractions
import gc
import importlib
import pickle
import re
import types
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.sameness import IdentityDict, Same
from meshloom.operation import calls, policy, program
from tests.caches import BY_KEY, Cache, caches
from tests.counted import python_calls
from tests.docs.test_rooms import files, parsed

PACKAGE = Path(ml.__file__).parent
OBJECTS = 40  # one after the other: some lie where one before them did,
MOST = 100 * OBJECTS  # by then: how soon depends on what else the process has in memory


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    with ml.using("numpy"):
        yield


# ----- addresses that are used again ----------------------------------------------------------------------------------
@ml.kernel
def copied(u: ml.Read, out: ml.Write):
    out[...] = u


@ml.kernel
def scaled(u: ml.Read, factor: ml.Read, out: ml.Write):
    out[...] = factor * u


@ml.kernel
def second(u: ml.Read, out: ml.Write):
    out[...] = u[1]


@ml.program
def copied_in_a_program(u: ml.Field, out: ml.Field) -> None:
    copied(out.set, u, out)


class World:
    """Sets and fields that stay. Each way uses a new object, which is gone when it ends, to give one number, ``k``."""

    def __init__(self) -> None:
        self.cells, self.grid = ml.Set(4, "cells"), ml.Grid((12,), periodic=True)
        self.numbers = self.cells.field("numbers", data=np.arange(4.0))
        self.ones, self.out = self.cells.field("ones", data=np.ones(4)), self.cells.field("out")
        self.f, self.x = self.grid.field("f", data=np.ones(12)), self.grid.field("x")

    def field(self, k: int) -> tuple[Any, float]:
        one = self.cells.field("u", data=np.full(4, float(k)))
        copied(self.cells, one, self.out)
        return one, self.out.numpy()[0]

    def number(self, k: int) -> tuple[Any, float]:
        one = ml.Global(float(k))
        scaled(self.cells, self.ones, one, self.out)
        return one, self.out.numpy()[0]

    def map(self, k: int) -> tuple[Any, float]:
        one = ml.Map(self.cells, self.cells, np.full((4, 2), [0, k % 4]))
        second(self.cells, self.numbers[one], self.out)
        return one, k - k % 4 + self.out.numpy()[0]

    def kernel(self, k: int) -> tuple[Any, float]:
        @ml.kernel
        def one(u: ml.Read, out: ml.Write):
            out[...] = k * u

        one(self.cells, self.ones, self.out)
        return one, self.out.numpy()[0]

    def argument(self, k: int) -> tuple[Any, float]:
        one = self.cells.field("u", data=np.full(4, float(k)))
        copied_in_a_program(one, self.out)
        return one, self.out.numpy()[0]

    def named_argument(self, k: int) -> tuple[Any, float]:
        one = self.cells.field("u", data=np.full(4, float(k)))
        copied_in_a_program(out=self.out, u=one)
        return one, self.out.numpy()[0]

    def program(self, k: int) -> tuple[Any, float]:
        one = self.cells.field("u")
        ml.program(lambda: (one.fill(k), copied(self.cells, one, self.out))).run()
        return one, self.out.numpy()[0]

    def buffer(self, k: int) -> tuple[Any, float]:
        one = np.full(4, float(k))
        self.ones.storage = one
        copied_in_a_program(self.ones, self.out)
        return one, self.out.numpy()[0]

    def operand_of_lines(self, k: int) -> tuple[Any, float]:
        one = self.grid.field("u", data=np.full(12, float(k)))
        ml.compact.filter(one, 0, self.x)
        return one, float(np.round(self.x.numpy()[0], 9))

    def systems_along_lines(self, k: int) -> tuple[Any, float]:
        one = ml.linalg.LineSystems(self.grid, 0, 0.0, np.full(12, 1.0 / (k + 1)), 0.0)
        one.solve(self.f, self.x)
        return one.inverse, float(np.round(self.x.numpy()[0] - 1.0, 9))


WAYS = [way for name, way in vars(World).items() if not name.startswith("_")]


@pytest.mark.parametrize("evicts", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_object_at_the_address_of_another_one_is_another_one(
    way: Callable[[World, int], tuple[Any, float]], evicts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what was kept for the object of before is still there: the key is right by itself."""
    if not evicts:
        for module in (calls, policy, program):
            monkeypatch.setattr(module, "weak_entry", lambda cache, key, parts: ())
    world, addresses, made = World(), set(), 0
    while made < OBJECTS or len(addresses) == made < MOST:
        one, found = way(world, made)
        assert found == made
        addresses.add(id(one))
        made += 1
        del one
        gc.collect()
    assert len(addresses) < made, "none has lain where another one did: the test shows nothing"


def test_a_fused_program_follows_buffers_at_any_address() -> None:
    cells = ml.Set(64, "cells")
    u, between, out = (cells.field(name) for name in ("u", "between", "out"))
    with ml.using("emulated"):

        @ml.program
        def step() -> None:
            copied(cells, u, between)
            scaled(cells, between, 2.0, out)

        addresses, made = set(), 0
        while made < OBJECTS or len(addresses) == made < MOST:
            u.storage = np.full(64, float(made))
            addresses.add(id(u.storage))
            step.run()
            assert out.numpy().tolist() == [2.0 * made] * 64
            made += 1
    assert len(addresses) < made


# ----- serial numbers -------------------------------------------------------------------------------------------------
def test_every_copy_has_a_number_of_its_own() -> None:
    mesh = ml.Set(4, "cells")
    through = ml.Map(mesh, mesh, np.arange(4))
    field, sum_of = mesh.field("u"), ml.Global(1.0)
    assert copy.copy(mesh) is copy.deepcopy(mesh) is mesh
    found = [mesh, through, field, sum_of, copy.copy(field), copy.deepcopy(sum_of), copied, copied_in_a_program]
    found += pickle.loads(pickle.dumps((mesh, through, field, sum_of, ml.Grid((3,)).inside)))
    assert len({one.serial for one in found}) == len(found)


def test_a_buffer_that_comes_back_has_its_number_again() -> None:
    field = ml.Set(4, "cells").field("u")
    before, number = field.placement(), field.storage_version
    field.storage = np.ones(4)
    moved = field.storage_version
    field.changed()
    assert moved == field.storage_version > number, "writing to a buffer makes no other one of it"
    field.put_back(before)
    assert field.storage_version == number


def test_calls_cost_what_they_did() -> None:
    """The key of a call is made of attributes, of which no function of Python knows."""
    world = World()
    through = world.numbers[ml.Map(world.cells, world.cells, np.zeros((4, 2), int))]

    def call() -> None:
        second(world.cells, through, world.out)

    counted = python_calls(call)
    assert counted == python_calls(lambda: copied(world.cells, world.ones, world.out))


# ----- by identity ----------------------------------------------------------------------------------------------------
def test_equal_objects_are_told_apart() -> None:
    found: IdentityDict[str] = IdentityDict()
    one, equal = [1], [1]
    assert found.setdefault((one,), "one") == found.setdefault((one,), "other") == "one"
    assert found.setdefault((equal,), "equal") == "equal" and found.setdefault((one, equal), "both") == "both"
    assert found.values() == ["one", "equal", "both"] and len(found) == 3
    assert Same(one) == Same(one) != Same(equal) and hash(Same(one)) == hash(Same(one))


def test_what_was_met_is_held_and_a_key_holds_nothing() -> None:
    class Thing:
        pass

    found: IdentityDict[int] = IdentityDict()
    met, named = Thing(), Thing()
    key, gone = Same(named), [weakref.ref(met), weakref.ref(named)]
    found.setdefault((met,), 1)
    del met, named
    gc.collect()
    assert [one() is None for one in gone] == [False, True] and len(found) == 1
    assert key == key and key != Same(Thing())


# ----- no key is an address -------------------------------------------------------------------------------------------
_OF_PYTHON = "the function itself, which a kernel of the user's may call"
_TO_C = "handed to C, or to a device"
#: Where the package asks for an address, or a hash that may be one, and why that is no key that outlives the object.
ALLOWED = {
    "kernel/sameness.py IdentityDict.setdefault": "it holds the objects whose addresses are its keys",
    "kernel/sameness.py Same.__init__": "it is equal to nothing when the object is gone",
    "kernel/c_state.py results_kept": "an order among objects that are all there, and no key",
    "kernel/survey.py": _OF_PYTHON, "kernel/survey.py Survey._of_python_itself": _OF_PYTHON,
    "mesh/buffer.py _extent": "whether two fields overlap now",
    "mesh/array_interop.py SharedMemory.__cuda_array_interface__": "what other libraries ask for",
    "backend/cuda/driver.py": _TO_C, "backend/cuda/emulator.py": _TO_C, "backend/cuda/repeat.py": _TO_C,
    "native/ffi.py": _TO_C, "native/runtime.py": _TO_C,
    "dist/ending.py": "exit and quit, which Python puts there",
    "records.py _compare": "the hash that a class is given, of the values of its fields",
}  # fmt: skip
#: Attributes that are addresses, or lead to them.
ADDRESSES = {"ctypes", "ptr", "data_ptr", "addressof", "__array_interface__", "__cuda_array_interface__"}
MENTIONED = re.compile(rf"(?<!\.)\bid\b|hash\b|__hash__|builtins|object\.__repr__|\b({'|'.join(ADDRESSES)})\b")


def asks_for_an_address(node: ast.AST, inside: str) -> bool:
    """Does it mention ``id``, ``hash`` or what leads to an address? A hash is made of hashes where it is defined."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "builtins" in {getattr(node, "module", ""), *(one.name for one in node.names)}
    if isinstance(node, ast.Name):
        return node.id in ("id", "__builtins__") or (node.id == "hash" and inside.rpartition(".")[2] != "__hash__")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        return any(isinstance(one, ast.Constant) and one.value in {"__hash__", *ADDRESSES} for one in node.args)
    if isinstance(node, ast.Attribute):
        by_default = isinstance(node.value, ast.Name) and node.value.id == "object" and node.attr == "__repr__"
        return by_default or node.attr == "__hash__" or node.attr in ADDRESSES
    return False


def uses_of_addresses(node: ast.AST, around: str = "") -> Iterator[tuple[str, int]]:
    """(the function that it is in, line) of every such mention, but where a class says that its objects are told apart
    as Python does it."""
    for one in ast.iter_child_nodes(node):
        if isinstance(node, ast.ClassDef) and ast.unparse(one) == "__hash__ = object.__hash__":
            continue
        if asks_for_an_address(one, around):
            yield around, getattr(one, "lineno", 0)
        named = isinstance(one, ast.FunctionDef | ast.ClassDef)
        yield from uses_of_addresses(one, f"{around}.{one.name}".lstrip(".") if named else around)


def test_no_key_is_an_address() -> None:
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    found = {f"{path} {where}".rstrip(): line for path, text in texts.items()
             if MENTIONED.search(text)  # reading a file as a tree takes far longer
             for where, line in uses_of_addresses(ast.parse(text))}  # fmt: skip
    assert not {f"{where}, line {line}" for where, line in found.items()
                if where not in ALLOWED and where.partition(" ")[0] not in ALLOWED}  # fmt: skip
    assert not [one for one in ALLOWED if not any(where.startswith(one) for where in found)]


@pytest.mark.parametrize(
    "line",
    ["key = id(x), 3", "sorted(x, key=id)", "tuple(map(id, x))", "class A:\n    def f(self): return {id(self)}",
     "CACHE[hash(x)] = 1", "cache[x.__hash__()]", "found = cache.get(object.__hash__(x))", "set(map(hash, x))",
     "key = repr, object.__repr__(x)", "key = x.ctypes.data", "key = array.data.ptr", "key = ctypes.addressof(x)",
     "key = x.__array_interface__['data'][0]", "key = getattr(x, '__hash__')()", "f = lambda x: (hash(x), 1)",
     "class A:\n    def key(self): return hash(self.field)", "import builtins\nkey = builtins.id(x)",
     "from builtins import id as number\nkey = number(x)", "key = __builtins__['id'](x)",
     "class A:\n    __hash__ = lambda self: id(self)", "class A:\n    __hash__ = B.__hash__",
     "class A:\n    def __hash__(self): return id(self)", "class A:\n    def by__hash__(self): return hash(self.u)"],
)  # fmt: skip
def test_the_test_finds_what_it_is_for(line: str) -> None:
    assert MENTIONED.search(line) and len(list(uses_of_addresses(ast.parse(line)))) >= 1


@pytest.mark.parametrize(
    "line", ["node.id, valid(x), f(id=3), 'id(x)'", "class A:\n    def __hash__(self): return hash(self.name)",
             "class A:\n    __hash__ = object.__hash__", "x.digest, hashlib.sha256(x)"],
)  # fmt: skip
def test_names_that_are_not_the_function_are_left_alone(line: str) -> None:
    assert not list(uses_of_addresses(ast.parse(line)))


# ----- what is remembered goes by content -----------------------------------------------------------------------------
#: Functions that remember, and dictionaries of modules, by objects that are told apart by their addresses: these are
#: kept alive with what was found for them. Weak dictionaries keep none.
_NODES = "few graphs, the newest, which are small"
_NUMPY = "functions of NumPy, which are always there"
_LANGUAGES = "languages of GPUs, of which there are two, with a function each"
REMEMBERED = {
    "kernel/count.py live_registers": _NODES, "kernel/expr.py _ordered": _NODES, "kernel/passes.py _all_folded": _NODES,
    "schedule/choice/symmetry.py rounded_by_side": _NODES, "schedule/choice/symmetry.py swapped_maps": _NODES,
    "kernel/expr.py types_of": _NUMPY,
    "kernel/symbols.py _elementwise": _NUMPY, "kernel/symbols.py _composed": _NUMPY,
    "kernel/symbols.py _UFUNCS": _NUMPY, "kernel/symbols.py _COMPOSED": _NUMPY, "kernel/symbols.py _REPLACED": _NUMPY,
    "kernel/operands.py _COUNTS": _NUMPY, "compact/schemes.py filters": "alpha is a number, of any type",
    "kernel/c_state.py functools.lru_cache(lambda: None)": "the type of such functions",
    "linalg/gmres.py GMRES._iteration.cache(work.improved_by)": "by whole numbers, and gone with the solver",
    "operation/field_layouts.py layouts_by_votes.cache(lambda loop: loop.estimate)":
        "gone with the call, which is given the loops",
    "backend/__init__.py _emulator": _LANGUAGES, "dist/backend.py _over_ranks": "back ends, of which there are few",
    "backend/cuda/dialect.py prelude_of": _LANGUAGES,
    "compact/operators.py _operator": "few schemes, the newest, which are small",
    "process/signals.py _undo": "who asked to be told; taken out when it is over",
    "solvers/finite_volume/stability.py longest_cfl": "functions of a module",
}  # fmt: skip
BY_VALUE = (int, float, complex, bool, str, bytes, type(None), type, np.dtype, types.CodeType, fractions.Fraction)


def by_content(kind: Any, within: tuple[Any, ...] = ()) -> bool:
    """Are objects of a type told apart by what they hold, all the way down? ``within``: types that are being asked."""
    parts, made_of = get_args(kind), get_origin(kind)
    if kind in (None, type, Ellipsis, *within) or made_of in (type, Literal) or isinstance(kind, str):
        return True
    if parts:
        return made_of in (tuple, types.UnionType, Union) and all(by_content(one, within) for one in parts)
    if isinstance(kind, type) and issubclass(kind, BY_VALUE):
        return True
    if not isinstance(kind, type) or kind in (object, Hashable) or kind.__hash__ in (None, object.__hash__):
        return False
    if is_dataclass(kind) or issubclass(kind, tuple):
        hints = get_type_hints(kind)
        held = [one.name for one in fields(kind) if one.compare] if is_dataclass(kind) else getattr(kind, "_fields", ())
        return bool(held) and all(by_content(hints[name], (*within, kind)) for name in held)
    return {"__hash__", "__eq__"} <= vars(kind).keys()


def shared_caches(tree: ast.Module) -> list[Cache]:
    """Functions that remember, and what a module and its classes have, found by keys."""
    return [one for one in caches(tree) if not one.of_object and one.kind in ("function", *BY_KEY)]


def kept_alive(module: types.ModuleType, tree: ast.Module) -> Iterator[str]:
    """Of what a module and its classes remember that whose arguments or keys are told apart by address; what has no
    type may be anything."""
    for one in shared_caches(tree):
        if one.keys is None or not all(by_content(eval(ast.unparse(key), vars(module))) for key in one.keys):
            yield one.name


def test_what_is_remembered_is_found_by_content() -> None:
    found: set[str] = set()
    for path, name in files():
        if shared_caches(parsed(path)):
            where = path.relative_to(PACKAGE).as_posix()
            found |= {f"{where} {one}" for one in kept_alive(importlib.import_module(name), parsed(path))}
    assert found == REMEMBERED.keys()


@dataclass(frozen=True)
class _Gas:
    gamma: float
    name: str = "air"


@dataclass(frozen=True)
class _Holder:
    field: ml.Field


class _Pair(NamedTuple):
    first: int
    second: tuple[str, ...]


def test_types_by_content() -> None:
    good: list[Any] = [int, str, tuple[int, ...], _Gas, _Pair, type[_Gas], int | None, tuple[_Gas, np.dtype],
                       Literal["a"]]  # fmt: skip
    assert [kind for kind in good if not by_content(kind)] == []
    bad: list[Any] = [ml.Field, ml.Set, object, Any, Callable[[int], int], _Holder, tuple[int, ml.Map], ml.Mesh | None,
                      Hashable, list[int], np.ndarray]  # fmt: skip
    assert [kind for kind in bad if by_content(kind)] == []


def test_functions_that_keep_objects_alive_are_found() -> None:
    text = """
from __future__ import annotations
from functools import cache, lru_cache
from functools import cache as remembered
import functools
from typing import Any, ClassVar
import meshloom as ml
@cache
def good(n: int, name: str) -> int: return n
@cache
def by_field(u: ml.Field) -> int: return 1
@functools.lru_cache(maxsize=8)
def untyped(u): return 1
@lru_cache
def any_one(u: Any) -> int: return 1
class Case:
    @cache
    def answer(self) -> int: return 1
KNOWN: dict[ml.Set, int] = {}
NAMED: dict[str, ml.Set] = {}
later = cache(by_field)
PLAIN = {}
FILLED = {"a": 1}
def put(u): FILLED.setdefault(u, 2)
CONSTANT = {"a": 1}
@remembered
def otherwise(u: ml.Field) -> int: return 1
def outer():
    @cache
    def inner(u: ml.Field) -> int: return 1
    return inner
def given(u: int, known={}): return known
class Kept:
    by_set: ClassVar[dict[ml.Set, int]] = {}
    untyped = {}
    named: ClassVar[dict[str, int]] = {}
    class Deeper:
        deep = dict()
"""
    module = types.ModuleType("planted")
    exec(text, vars(module))
    found = list(kept_alive(module, ast.parse(text)))
    assert sorted(found) == sorted([
        "by_field", "untyped", "any_one", "Case.answer", "KNOWN", "cache(by_field)", "PLAIN", "FILLED", "otherwise",
        "outer.inner", "given: {}", "Kept.by_set", "Kept.untyped", "Kept.Deeper.deep",
    ])  # fmt: skip
