"""Dependence is decided in one place, from the graph; a pass is a function from graph to graph, named in one list."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import meshloom as ml
from meshloom.operation import passes
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.program import _fused
from meshloom.operation.fusion.trials import Trials
from meshloom.operation.operation import Operation
from tests.docs.test_rooms import files, parsed

PACKAGE = Path(ml.__file__).parent
ALL = (*passes.RECORDED_PASSES, *passes.PASSES, *passes.WEIGHED_PASSES, *passes.FUSION_PASSES)
#: Analyses of before, each of which asked on its own whether something may move past something else.
GONE = {"_may_follow", "_why_not", "_maker", "_followers", "read_in", "needed_later", "without_idle_fills",
        "_constants", "dependencies", "Footprint", "footprint_of"}  # fmt: skip
#: Where operations are told apart by what they read and write: the graph, and what is asked of a single one.
ASKED_OF_ONE = {"operation/dataflow.py", "operation/operation.py"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path, _ in files():
        yield path.relative_to(PACKAGE).as_posix(), parsed(path)


def test_the_analyses_of_before_are_gone() -> None:
    found = {f"{where}: {node.name}" for where, tree in trees() for node in ast.walk(tree)
             if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in GONE}  # fmt: skip
    assert not found


def touched(node: ast.AST) -> bool:
    """Does an expression mention what operations read or write?"""
    return any(isinstance(one, ast.Attribute) and one.attr in ("reads", "writes", "storages") for one in ast.walk(node))


def compares(node: ast.AST) -> bool:
    """Is something looked for among what operations touch, or is what two of them touch compared?"""
    if isinstance(node, ast.Compare):
        inside = any(isinstance(one, ast.In | ast.NotIn) for one in node.ops)
        return inside and any(map(touched, node.comparators))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.Sub):
        return touched(node)
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr
    return named in ("isdisjoint", "intersection", "difference", "issubset") and touched(node)


def goes_through(node: ast.AST) -> bool:
    """Is it a walk over operations or loops, or a part of a list of them?"""
    if isinstance(node, ast.For | ast.comprehension):
        return bool({"operations", "loops"} & set(re.findall(r"\w+", ast.unparse(node.iter))))
    is_part = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
    return is_part and ast.unparse(node.value).endswith(("operations", "loops"))  # type: ignore[attr-defined]


def scans(tree: ast.Module) -> Iterator[str]:
    """Functions that go through operations to find one that touches what another does."""
    for node in ast.walk(tree):
        inner = list(ast.walk(node)) if isinstance(node, ast.FunctionDef) else []
        if any(map(compares, inner)) and any(map(goes_through, inner)):
            yield node.name  # type: ignore[attr-defined]


#: Who does so, and asks for no order among the operations of a program.
NO_ORDER = {"operation/in_turn.py _not_there": "what one recording has stored and another one needs",
            "operation/tape.py _pieces_now": "which fields a segment uses"}  # fmt: skip


def test_nobody_else_scans_a_program_for_who_touches_what() -> None:
    found = {f"{where} {name}" for where, tree in trees() if where not in ASKED_OF_ONE for name in scans(tree)}
    assert found == NO_ORDER.keys()


@pytest.mark.parametrize(
    "body",
    ["return any(x in one.writes for one in operations[k + 1 :])",
     "return [one for one in loops if x not in one.reads]",
     "for one in program.operations:\n        if set(one.writes) & set(x.reads):\n            return one",
     "return all(one.storages.isdisjoint(x.writes) for one in self.operations)",
     "return {s for one in graph.operations for s in one.reads} - set(x.writes)",
     "for n, one in enumerate(tape.loops):\n        if x in {*one.reads}: return n"],
)  # fmt: skip
def test_the_test_finds_what_it_is_for(body: str) -> None:
    assert list(scans(ast.parse(f"def f(self, operations, loops, k, x):\n    {body}\n"))) == ["f"]


def test_who_asks_the_graph_is_left_alone() -> None:
    assert not list(scans(ast.parse("def f(graph, k, x):\n    return graph.changed_by(x, k, 9)\n")))
    assert not list(scans(ast.parse("def f(one, x):\n    return x in one.writes\n")))


def test_loads_are_replaced_by_one_function() -> None:
    """Whoever puts loops together, or takes several points as one, substitutes; other rules are those of kernels. Loops
    are put together by ``substitution.py``: no other file knows how what one has made becomes another's."""
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    rewriting = {where for where, text in texts.items() if "passes.rewrite(" in text or "import rewrite" in text}
    assert all(where.startswith("kernel/") for where in rewriting)
    assert {where for where, text in texts.items() if "substitute(" in text} == {
        "kernel/passes.py", "kernel/derivative.py", "operation/fusion/substitution.py",
        "operation/fusion/along_lines.py", "schedule/strategies/common/points.py",
    }  # fmt: skip
    composing = {where for where, text in texts.items() if "fusion.substitution import" in text}
    fusion = {f"operation/fusion/{name}.py" for name in ("along_lines", "compose", "recompute")}
    assert composing == fusion | {"linalg/lines.py"}


def test_operands_of_what_is_put_together_are_merged_by_one_class() -> None:
    """Whether what several parts use is read, written or both is asked there, and by nobody else in the room."""
    merging = {where for where, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.Call)
               and ast.unparse(node.func) in ("Operands", "merged_operands")}  # fmt: skip
    fusion = {f"operation/fusion/{name}.py" for name in ("along_lines", "compose", "recompute")}
    assert merging == fusion | {"operation/operand.py", "operation/call.py", "linalg/lines.py"}
    asking = {where for where, tree in trees() for node in ast.walk(tree)
              if isinstance(node, ast.IfExp) and ast.unparse(node.body) == "ReadWrite"}  # fmt: skip
    assert asking == {"linalg/lines.py"}, "of a spec, whose lines are loaded before they are stored"


def test_every_pass_is_in_the_lists() -> None:
    """Public functions of the package from one graph to one graph."""
    listed = {one.__name__ for one in ALL}
    found = set()
    for _, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.args.args:
                first, returns = node.args.args[0].annotation, node.returns
                if first and returns and ast.unparse(first) == ast.unparse(returns) == "Dataflow":
                    found.add(node.name)
    assert found - {"passed"} == listed and len(listed) >= 4


def test_nobody_fuses_programs_around_the_passes() -> None:
    """What becomes of a graph when it is fused is said in one file; whoever weighs graphs is a pass, and asks there."""
    made = {where for where, tree in trees() for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.args.args and node.returns
            and ast.unparse(node.args.args[0].annotation or node.returns) == "Dataflow"
            and "FusedProgram" in ast.unparse(node.returns)}  # fmt: skip
    assert made == {"operation/fusion/program.py"}


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.__name__)
def test_a_pass_takes_a_graph_and_gives_one_and_changes_none(one: Any) -> None:
    assert get_type_hints(one)["return"] is Dataflow and next(iter(inspect.signature(one).parameters)) == "graph"
    before = recorded()
    graph = Dataflow(before)
    found = one(graph, Trials(partial(_fused, rotates=True))) if one in passes.WEIGHED_PASSES else one(graph)
    assert graph.operations == before and isinstance(found, Dataflow)
    assert {type(operation) for operation in found.operations} == {type(operation) for operation in before}


@ml.kernel
def double(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u


def recorded() -> tuple[Operation, ...]:
    ml.use("numpy")
    grid = ml.Grid((6, 5), periodic=True)
    u, v, w = (grid.field(name) for name in "uvw")

    @ml.program
    def step() -> None:
        v.fill(3.0)
        double(grid, u, v)
        w.fill(0.0)
        double(grid, v, u)

    return step._tape().operations


def test_what_the_passes_do() -> None:
    found = passes.passed(Dataflow(recorded()), passes.PASSES)
    assert [one.name for one in found.operations] == ["double", "w = 0", "double"], "v is set anew"
    found = passes.passed(found, passes.FUSION_PASSES)
    assert [one.name for one in found.operations] == ["double", "double", "w = 0"], "a fill waits for who needs it"
