"""Plans as declared objects: a strategy in one file, what declarations say, and that no name is ever taken apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import meshloom
import meshloom as ml
from meshloom.errors import PlanError, ScheduleError
from meshloom.native import cache
from meshloom.schedule.lines import methods
from meshloom.schedule.plan import plan_cache
from meshloom.schedule.plan.declare import Listed, Part, Table, declared
from meshloom.schedule.plan.emitter import Emitter
from meshloom.schedule.plan.plan import Plan, Topology, arrays, sizes, symbol
from meshloom.schedule.plan.schema import check_schema
from meshloom.schedule.strategies import strategy, verify
from meshloom.schedule.strategies.color import IndexedColorPlan
from tests.schedule.spoil import Forgetful
from tests.written import text_of

PACKAGE = Path(meshloom.__file__).parent


@pytest.fixture
def toy() -> Iterator[str]:
    """The toy strategy, known for the length of a test."""
    before, known = ml.backend(), dict(Emitter.registry)
    from tests.schedule.one_by_one import OneByOne

    Emitter.registry[OneByOne.name] = OneByOne()
    yield OneByOne.name
    Emitter.registry.clear()
    Emitter.registry.update(known)
    Emitter.registry.pop(OneByOne.name, None)
    ml.use(before)


@ml.kernel
def spread(w: ml.Read, x: ml.Read, res: ml.Inc, total: ml.Sum):
    res[0] += w * x[1]
    res[1] -= w * x[0]
    total += w


def run(backend: str, wish: ml.Schedule | None = None) -> tuple[ml.Loop, np.ndarray, float]:
    ml.use(backend)
    mesh = ml.generate.box((6, 5))
    w = mesh.faces.field("w", data=np.arange(1.0, 1 + len(mesh.faces)))
    x = mesh.cells.field("x", data=np.arange(1.0, 1 + len(mesh.cells)))
    res, total = mesh.cells.field("res"), ml.Global(0.0, "total")
    to = mesh.face_cells
    loop = spread.loop(mesh.faces, w, x[to], res[to], total, schedule=wish)
    loop()
    return loop, res.numpy(), float(total.value)


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_one_file_adds_a_strategy(toy: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, its plan is kept on disk, read again, verified, and built again where it is wrong."""
    monkeypatch.setattr(plan_cache, "smallest_stored", lambda: 1)
    monkeypatch.setattr(plan_cache, "_living", Forgetful())
    _, expected, total = run("numpy")
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    (tmp_path / "plans").mkdir(mode=0o700)
    run(backend, ml.Schedule(toy))
    (file,) = (tmp_path / "plans").iterdir()
    whole = cache.load_arrays("plans", file.stem) or {}
    assert whole.keys() == {"outline", "array0", "array1"}
    for damaged in (None, "array0", "array1"):
        if damaged:
            changed = whole[damaged].copy()
            changed[3] = changed[4]
            cache.store_arrays("plans", file.stem, whole | {damaged: changed})
        loop, found, added = run(backend, ml.Schedule(toy))
        assert loop.schedule.strategy == toy and np.array_equal(found, expected) and added == total
        again = cache.load_arrays("plans", file.stem) or {}
        assert all(np.array_equal(again[name], one) for name, one in whole.items()), "not built again"
    assert symbol(loop.plan, "turns") == "turns" and not sizes(loop.plan)
    turns = loop.plan.turns.copy()
    turns[3] = turns[4]
    with pytest.raises(PlanError, match="two elements have one turn"):
        verify(replace(loop.plan, turns=turns), topology_of(loop))


def topology_of(loop: ml.Loop) -> Topology:
    return Topology(loop.set.size, {0: (loop.maps[0].positions, loop.maps[0].target.total)}, {0: 0})


def test_the_toy_is_gone() -> None:
    with pytest.raises(ScheduleError, match="unknown strategy 'one_by_one'"):
        strategy("one_by_one")


# ----- what is declared ---------------------------------------------------------------------------------------------
def plan_types(base: type = Plan) -> Iterator[type]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith("meshloom."):
            yield kind
            yield from plan_types(kind)


def parts_of(kind: type) -> Iterator[type]:
    """A type and the types of everything it may hold."""
    yield kind
    for one in declared(kind):
        holding = one.holding
        while isinstance(holding, Table | Listed):
            holding = holding.of
        for part in holding.kinds if isinstance(holding, Part) else ():
            yield from parts_of(part)


@pytest.mark.parametrize("kind", sorted(plan_types(), key=lambda one: one.__name__), ids=lambda one: one.__name__)
def test_every_field_of_a_plan_is_declared_in_words(kind: type) -> None:
    assert kind.__doc__ and not kind.__doc__.startswith(kind.__name__ + "(")
    for part in parts_of(kind):
        known = {one.name for one in declared(part)}
        others = {f.name for f in fields(part)} - known  # type: ignore[arg-type]
        assert others == ({"strategy", "block"} if issubclass(part, Plan) else set())
        assert all(len(one.words) > 5 for one in declared(part))


def test_names_of_types_tell_plans_on_disk_apart() -> None:
    found = {*plan_types()}
    assert len({one.__name__ for one in found}) == len(found) > 12


def test_a_symbol_is_that_of_something_that_is_there() -> None:
    rows = np.array([[0, 1], [1, 2]], np.int32)
    plan = strategy("color").build(Topology(2, {3: (rows, 3)}, {3: 0}, others={7: rows}), 16, variant="indices")
    assert isinstance(plan, IndexedColorPlan)
    assert symbol(plan, "by_color", 7) == "by_color7" and plan.n_colors == 2
    assert set(arrays(plan)) == {"color_offsets", "by_color3", "by_color7"} and not sizes(plan)
    with pytest.raises((AttributeError, KeyError, AssertionError)):
        symbol(plan, "by_colour", 7)
    with pytest.raises(KeyError):
        symbol(plan, "by_color", 0)
    with pytest.raises(AssertionError):
        symbol(plan, "visit")


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
@pytest.mark.parametrize("method", ["auto", *methods.names()])
@pytest.mark.parametrize("periodic", [False, True])
def test_plans_of_line_loops_have_the_form_they_declare(method: str, backend: str, periodic: bool) -> None:
    ml.use(backend)
    grid = ml.Grid((9, 40), periodic=periodic)
    stencil = ml.linalg.LineStencil({0: 1.0})
    one = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.3, 1.0, 0.3, periodic=periodic), stencil)
    loop = ml.linalg.LineLoop(grid, 1, one, grid.field("f"), grid.field("out"), method=method)
    check_schema(loop.plan, Topology(0, {}, {}))
    lost = next(one.name for one in declared(type(loop.plan)) if one.name == "operators")
    with pytest.raises(PlanError, match="operators is missing"):
        check_schema(replace(loop.plan, **{lost: None}), Topology(0, {}, {}))


# ----- names are never taken apart ----------------------------------------------------------------------------------
TAKEN_APART = {"split", "rsplit", "partition", "removeprefix", "removesuffix", "startswith", "endswith", "rstrip",
               "lstrip", "isdigit"}  # fmt: skip


def taken_apart(source: str) -> Iterator[str]:
    """Where a module uses regular expressions, or takes strings apart."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.name for one in node.names] + [getattr(node, "module", "") or ""]
            if "re" in names:
                yield f"line {node.lineno}: regular expressions"
        elif isinstance(node, ast.Attribute) and node.attr in TAKEN_APART:
            yield f"line {node.lineno}: .{node.attr}"


#: What looks something up, or looks for it, by a name that it is given, and as which argument.
LOOKING = {"get": 0, "pop": 0, "setdefault": 0, "attrgetter": 0, "__getitem__": 0, "index": 0, "getattr": 1,
           "hasattr": 1, "setattr": 1, "delattr": 1}  # fmt: skip


def is_composed(node: ast.AST) -> bool:
    """Is it a text that is put together of values?"""
    text = text_of(node)
    return text is not None and not isinstance(node, ast.Constant) and any(
        isinstance(one, ast.Name | ast.Attribute | ast.Call) for one in ast.walk(node))  # fmt: skip


def composed_lookups(source: str) -> Iterator[str]:
    """Where something is looked up, or looked for, by a name that was put together, there or just before."""
    tree = ast.parse(source)
    for function in [tree, *(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.Lambda))]:
        given = {named.id for node in ast.walk(function) if isinstance(node, ast.Assign | ast.NamedExpr)
                 and function is not tree and is_composed(node.value)
                 for named in (node.targets if isinstance(node, ast.Assign) else [node.target])
                 if isinstance(named, ast.Name)}  # fmt: skip
        for node in ast.walk(function):
            for what, name in looked_up(node):
                if (function is tree and is_composed(name)) or (isinstance(name, ast.Name) and name.id in given):
                    yield f"line {name.lineno}: {what}"


def looked_up(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """How a node looks something up, and by what."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield "[f'...']", node.slice
    elif isinstance(node, ast.Compare) and any(isinstance(one, ast.In | ast.NotIn) for one in node.ops):
        yield "f'...' in", node.left
    elif isinstance(node, ast.Dict):
        yield from (("{f'...': }", key) for key in node.keys if key is not None)
    elif isinstance(node, ast.Call):
        place = LOOKING.get(getattr(node.func, "attr", getattr(node.func, "id", "")))
        if place is not None:
            yield from (("get(f'...')", one) for one in node.args[place : place + 1])


_SAID = "what NVIDIA's compiler says"
_CPP = "C++ that it prints, which nobody reads again"
_OF_PYTHON = "names of Python's modules and attributes"
#: Who takes text apart, and what it is.
OTHER_TEXT = {
    "operation/call.py": _OF_PYTHON, "operation/in_turn.py": _OF_PYTHON, "operation/reads.py": _OF_PYTHON,
    "operation/inspection.py": "what is shown to a person", "operation/plain.py": "an array: no text at all",
    "linalg/iteration.py": "what is shown to a person", "linalg/stored_rows.py": "an array: no text at all",
    "linalg/operator.py": "a matrix: no text at all", "backend/__init__.py": "a variable of the environment",
    "backend/machine.py": "what the kernel says of the processor", "backend/translation_unit.py": _CPP,
    "backend/cuda/dialect.py": _CPP, "backend/cuda/backend.py": "what is shown to a person",
    "backend/cuda/nvrtc.py": _SAID,
    "backend/cuda/nvrtc_child.py": _SAID, "dist/explained.py": "what is shown to a person",
}  # fmt: skip
#: Who looks up by a name that it puts together, and where.
TABLES = {"schedule/lines/on_gpu.py": "rows of the devices' files, which are called so there"}


@pytest.mark.parametrize("room", ["schedule", "operation", "order", "library", "dist", "backend", "linalg"])
def test_nothing_is_encoded_in_a_name(room: str) -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in (PACKAGE / room).rglob("*.py")}
    apart = {name: [*taken_apart(source)] for name, source in sources.items()}
    composed = {name: [*composed_lookups(source)] for name, source in sources.items()}
    found = {name: [*([] if name in TABLES else composed[name]), *([] if name in OTHER_TEXT else apart[name])]
             for name in sources}  # fmt: skip
    assert len(found) >= 4 and not {name: lines for name, lines in found.items() if lines}
    assert all(apart[name] for name in OTHER_TEXT if name in apart), "nothing is excused that is not there"
    assert all(composed[name] for name in TABLES if name in composed), "here neither"


def test_the_reader_of_modules_sees_names_that_are_taken_apart() -> None:
    assert [*taken_apart("import re\nx.split('_')\nfrom re import match")] != []
    for line in ("a[f'near{m}']", "f'near{m}' in a", "b = {f'x{k}': 1}", "getattr(plan, f'near{m}')",
                 "a.get(f'near{m}')", "a.get('near' + m, 0)", "a['near%d' % m]", "a['near{}'.format(m)]",
                 "hasattr(a, '_'.join(['near', m]))",
                 "def f(m):\n    name = f'near{m}'\n    return a[name]", "attrgetter(f'near{m}')(a)",
                 "def f(m): return getattr(a, name) if (name := f'near{m}') else a"):  # fmt: skip
        assert len([*composed_lookups(line)]) == 1, line
    for line in ("a['near']", "getattr(a, 'near')", "a.get(name)", "def f(m):\n    name = f'near{m}'\n    print(name)"):
        assert not [*composed_lookups(line)], line
