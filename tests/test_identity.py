"""What is known by being itself: no key is an address, which is another object's when the first one is gone."""

from __future__ import annotations

import ast
import copy
import gc
import pickle
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.sameness import IdentityDict, Same
from meshloom.operation import calls, policy, program
from tests.counted import python_calls

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
#: Where the package says ``id``, and why that is no key that outlives the object.
ALLOWED = {
    "kernel/sameness.py IdentityDict.setdefault": "it holds the objects whose addresses are its keys",
    "kernel/c_state.py results_kept": "an order among objects that are all there, and no key",
    "kernel/survey.py": _OF_PYTHON,
    "kernel/survey.py Survey._of_python_itself": _OF_PYTHON,
}


def uses_of_id(node: ast.AST, around: str = "") -> Iterator[tuple[str, int]]:
    """(the function that it is in, line) of every mention of the function ``id``."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.Name) and one.id == "id":
            yield around, one.lineno
        named = isinstance(one, ast.FunctionDef | ast.ClassDef)
        yield from uses_of_id(one, f"{around}.{one.name}".lstrip(".") if named else around)


def test_no_key_is_an_address() -> None:
    texts = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    found = {f"{path} {where}".rstrip(): line for path, text in texts.items()
             if re.search(r"(?<!\.)\bid\b", text)  # reading a file as a tree takes far longer
             for where, line in uses_of_id(ast.parse(text))}  # fmt: skip
    assert not {f"{where}, line {line}" for where, line in found.items() if where not in ALLOWED}
    assert "kernel/sameness.py IdentityDict.setdefault" in found


@pytest.mark.parametrize(
    "line", ["key = id(x), 3", "sorted(x, key=id)", "tuple(map(id, x))", "class A:\n    def f(self): return {id(self)}"]
)
def test_the_test_finds_what_it_is_for(line: str) -> None:
    assert len(list(uses_of_id(ast.parse(line)))) == 1


def test_names_that_are_not_the_function_are_left_alone() -> None:
    assert not list(uses_of_id(ast.parse("node.id, valid(x), f(id=3), 'id(x)'")))
