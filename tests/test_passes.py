"""Dependence is decided in one place, from the graph; a pass is a function from graph to graph, named in one list."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import meshloom as ml
from meshloom.dist.lower import RANK_PASSES
from meshloom.operation import passes
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.program import _fused
from meshloom.operation.fusion.trials import Trials
from meshloom.operation.operation import Operation
from tests.docs.test_rooms import files, parsed

PACKAGE = Path(ml.__file__).parent
ALL = (*passes.RECORDED_PASSES, *passes.PASSES, *passes.WEIGHED_PASSES, *passes.FUSION_PASSES, passes.CONTRACTION,
       *RANK_PASSES)  # fmt: skip
#: Analyses of before, each of which asked on its own whether something may move past something else.
GONE = {"_may_follow", "_why_not", "_maker", "_followers", "read_in", "needed_later", "without_idle_fills",
        "_constants", "dependencies", "Footprint", "footprint_of"}  # fmt: skip
#: Where operations are told apart by what they read and write: the graph, and what is asked of a single one.
ASKED_OF_ONE = {"operation/dataflow.py", "operation/operation.py"}
#: What an operation says of the fields and globals that it uses.
TOUCHES = {"reads", "writes", "written", "storages", "temporary_fields", "operands", "defines", "needs"}
#: What has attributes of these names, and is no operation: modes, loops without their data, graphs.
NO_OPERATIONS = {"mode", "modes", "spec", "graph"}
#: What a graph says of all of its operations, in whatever order they run.
OF_ALL = {"read", "written", "storages"}
#: Functions that look at what several operations use, and why none of them decides an order by it.
ALLOWED = {
    "dist/usage.py": {
        "maps_of": "which maps loops reach through", "sets_of": "on which sets they are", "_steps": "how far they look",
        "_due": "bytes that an exchange carries, whenever that is",
    },
    "operation/field_layouts.py": {"layouts_by_votes": "whose votes for a layout count"},
    "operation/fusion/along_lines.py": {"graph": "puts the parts together, in the order that they have"},
    "operation/fusion/compose.py": {"_points": "the offsets of all loops of a box"},
    "operation/fusion/into_lines.py": {"_epilogue": "asks an operation about what the graph says that it waits for"},
    "operation/fusion/recompute.py": {
        "pairs_of": "asks those that the graph says to look at a value how far they look",
        "__init__": "gives what one of two loops writes, which the graph says may be one, a buffer next to its place",
        "_blocker": "what one loop that is made of two would change and look at",
    },
    "operation/passes.py": {"sink_initialisers": "asks the graph who touches first what a fill sets"},
    "operation/tape.py": {"choose_layouts": "marks all fields, whatever uses them: their layouts have been chosen"},
    "operation/recorded.py": {"difference": "two recordings of one program, side by side"},
    "run/diagnose.py": {"_first_loop": "runs them one by one, and looks at what each has written"},
}  # fmt: skip
#: Functions that take a graph and give one, and are no pass.
NO_PASS = {"passed": "goes through a list of them", "without_store": "a trial of recompute, which that may leave",
           "fuse": "goes through them as far as they pay", "_fused": "the same without those that are weighed",
           "fused": "the same, kept for whoever weighs it", "with_operations": "of a graph, what passes make theirs by",
           "_straight": "what contract_edges weighs",
           "_rotated": "the same"}  # fmt: skip


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path, _ in files():
        yield path.relative_to(PACKAGE).as_posix(), parsed(path)


def test_the_analyses_of_before_are_gone() -> None:
    found = {f"{where}: {node.name}" for where, tree in trees() for node in ast.walk(tree)
             if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in GONE}  # fmt: skip
    assert not found


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Those of a file, methods and functions inside of others included."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def storage_functions(trees: Iterable[ast.AST]) -> set[str]:
    """Functions that tell what an operation uses: from one to fields, globals or operands."""
    return {node.name for tree in trees for node in functions(tree)
            if node.args.args and "Operation" in annotation(node.args.args[0])
            and re.search(r"Field|Global|Storage|Operand", annotation(node))}  # fmt: skip


def annotation(node: ast.arg | ast.FunctionDef) -> str:
    """What a parameter is, or what a function gives."""
    said = node.annotation if isinstance(node, ast.arg) else node.returns
    return "" if said is None else ast.unparse(said)


def one_of_several(function: ast.FunctionDef) -> set[str]:
    """Names in a function for one after the other of something, and for what is found by such a number."""
    walked = list(ast.walk(function))
    found = {name for node in walked if isinstance(node, ast.For | ast.comprehension) for name in names(node.target)}
    found |= {one.arg for node in walked if isinstance(node, ast.Lambda) for one in node.args.args}
    turns = [part for node in walked if isinstance(node, ast.For | ast.While) for part in ast.walk(node)]
    found |= {name for node in turns for target, value in assigned(node) if _takes_one(value) for name in names(target)}
    given = [(target, value) for node in walked for target, value in assigned(node)]
    for _ in given:
        found |= {name for target, value in given if isinstance(value, ast.Subscript) and names(value.slice) & found
                  for name in names(target)}  # fmt: skip
    return found


def _takes_one(value: ast.expr) -> bool:
    """Is it one of a list, of which a loop takes another one at every turn?"""
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("pop", "popleft", "next")


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets of an assignment with their values, those of tuples one by one."""
    if isinstance(node, ast.NamedExpr):
        yield node.target, node.value
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def asked_about(function: ast.FunctionDef, telling: set[str]) -> Iterator[ast.expr]:
    """The expressions of which a function asks what they read, write or use, itself or by those that tell it."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr in TOUCHES and last_name(node.value) not in NO_OPERATIONS:
            yield node.value
        elif isinstance(node, ast.Call) and last_name(node.func) in telling and node.args:
            yield node.args[0]
        elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "attrgetter"):
            asked = {one.value for one in node.args if isinstance(one, ast.Constant)}
            if asked & TOUCHES:
                yield node.args[0] if last_name(node.func) == "getattr" else node  # of whatever it is called with


def last_name(node: ast.expr) -> str:
    """That of ``a.b``, ``b`` and ``b[c]``."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def parts_asked(function: ast.FunctionDef) -> bool:
    """Is there what a graph says of all operations, asked about a part of a list?"""
    given = [(target, value) for node in ast.walk(function) for target, value in assigned(node)]
    cut = {name for target, value in given if any(isinstance(one, ast.Slice) for one in ast.walk(value))
           for name in names(target)}  # fmt: skip

    def of_part(node: ast.AST) -> bool:
        made = isinstance(node, ast.Call) and last_name(node.func) == "Dataflow"
        return made and any(isinstance(one, ast.Slice) or names(one) & cut for one in ast.walk(node))

    graphs = {name for target, value in given if any(map(of_part, ast.walk(value))) for name in names(target)}
    return any(of_part(one.value) or names(one.value) & graphs for one in ast.walk(function)
               if isinstance(one, ast.Attribute) and one.attr in OF_ALL)  # fmt: skip


def no_operations(function: ast.FunctionDef, made: Mapping[str, str]) -> set[str]:
    """Names in a function that are no operations: by what is said of its parameters, and of what it calls."""
    found = {one.arg for one in function.args.args if one.annotation and "Operation" not in annotation(one)} | {"self"}
    for node in ast.walk(function):
        for target, value in assigned(node):
            called = last_name(value.func) if isinstance(value, ast.Call) else ""
            if called and "Operation" not in made.get(called, "" if called[:1].isupper() else "Operation"):
                found |= names(target)
    return found


def results(trees: Iterable[ast.AST]) -> dict[str, str]:
    """What functions of these names say that they give, all of them together."""
    found: dict[str, str] = {}
    for node in (one for tree in trees for one in functions(tree)):
        found[node.name] = f"{found.get(node.name, '')} {annotation(node)}"
    return {"Operation": "Operation", **found}


def scans(tree: ast.AST, telling: set[str], made: Mapping[str, str]) -> Iterator[str]:
    """Functions that look at what more than one operation reads, writes or uses: of one after the other, of those at
    numbers that they go through, of a part of a list as a whole, or of two, whatever these are called."""
    has_graphs = any(isinstance(node, ast.Call) and last_name(node.func) == "Dataflow" for node in ast.walk(tree))
    for node in functions(tree):
        asked = list(asked_about(node, telling))
        if not asked and not has_graphs:
            continue
        several, others = one_of_several(node), no_operations(node, made)
        listed = any(isinstance(one, ast.Name) and one.id in several for one in asked)
        numbered = any(isinstance(one, ast.Subscript) and names(one.slice) & several for one in asked)
        of_all = any(isinstance(one, ast.Call) and last_name(one.func) == "attrgetter" for one in asked)
        places = {ast.unparse(one) for one in asked if not isinstance(one, ast.Call)} - others - several
        if listed or numbered or of_all or len(places) > 1 or parts_asked(node):
            yield node.name


def test_nobody_else_looks_at_what_several_operations_use() -> None:
    """Whoever decides by that asks the graph; the others are listed, each with its reason."""
    listed = dict(trees())
    telling, made = storage_functions(listed.values()), results(listed.values())
    found = {where: set(scans(tree, telling, made)) for where, tree in listed.items() if where not in ASKED_OF_ONE}
    assert {where: those for where, those in found.items() if those} == {w: set(those) for w, those in ALLOWED.items()}


@pytest.mark.parametrize("text", [
    "any(x in one.writes for one in operations[k + 1 :])",
    "any(w is x for one in loops[k + 1 :] for w in one.writes)",
    "{s for one in before for s in one.writes} & {s for one in behind for s in one.reads}",
    "[one for one in group.parts[1:] if x in one.storages]",
    "next(piece for piece in pieces[k:] if piece.defines(x))",
    "any(x in operations[k].reads for k in range(3, 9))",
    "any(graph.operations[j].needs(x) for j in positions)",
    "{o.storage for loop in loops for o in loop.operands if o.mode.writes}",
    "any(x in _around(loop) for loop in loops)",
    "x in Dataflow(loops[k:]).written",
    "not set(first.writes).isdisjoint(then.reads)",
    "[s for one in map(again, loops) for s in one.temporary_fields]",
    "not set(parts[0].writes).isdisjoint(parts[1].reads)",
    "any(x in one for one in (group.first.writes, group.then.reads))",
    "set(self.loops[0].writes) & set(after(x).reads) and set(self.loops[-1].reads)",
    "(rest := loops[k:]) and x in Dataflow(rest).written",
    "x in dataflow.Dataflow(loops[k:]).written",
    "any(x in getattr(one, 'writes') for one in loops)",
    "any(map(attrgetter('writes'), loops))",
    "any(map(lambda one: x in one.writes, loops))",
    "any(x in fusion._around(loop) for loop in loops)",
])  # fmt: skip
def test_a_scan_is_found_however_it_is_written(text: str) -> None:
    assert list(scans(ast.parse(f"def f(x, k):\n    return {text}"), {"_around"}, {})) == ["f"]


def test_so_are_those_in_loops_and_methods() -> None:
    text = """
class A:
    def by_position(self, x):
        def inner(k):
            loop, place = self.loops[k], k
            return x in loop.writes
        return [inner(k) for k in range(9)]
    def by_loop(self):
        found = set()
        for one in self.loops:
            found |= set(one.writes)
        return found
    def by_turns(self, stack):
        while stack:
            one = stack.pop()
            if one.writes:
                return one
    def by_alias(self, pair):
        first, then = pair
        return set(first.writes) & set(then.reads)
    def by_graph(self, k, x):
        behind = self.loops[k:]
        graph = Dataflow(behind)
        return x in graph.written
    def by_calls(self, k):
        first, then = self.find(k), self.find(k + 1)
        return set(first.writes) & set(then.reads)
    def of_what_is_made(self, loop: Operation):
        merged = Operands()
        return merged.reads, loop.reads
    def of_graph(self, k, x):
        return self.graph.changed_by(x, k, 9) is None and x in self.graph.written
    def of_one(self, loop: Operation):
        return [one for one in loop.writes if one in loop.reads and loop.needs(one)]
    def by_mode(self, modes):
        return [mode for mode in modes if mode.writes]
"""
    expected = {"by_position", "by_loop", "by_turns", "by_alias", "by_graph", "by_calls"}
    assert set(scans(ast.parse(text), set(), {})) == expected
    told = "def _around(loop: Operation) -> set[Field]: ...\ndef _long(loop: Operation) -> bool: ..."
    assert storage_functions([ast.parse(told)]) == {"_around"}


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


def passes_in(tree: ast.AST) -> Iterator[str]:
    """Functions that take a graph, whichever parameter that is, and give one, or that of a fused program; methods of
    graphs, too."""
    methods = {id(node) for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == "Dataflow"
               for node in one.body}  # fmt: skip
    for node in functions(tree):
        given = [annotation(one) for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        takes = id(node) in methods or any(re.search(r"\bDataflow\b", one) for one in given)
        if takes and re.search(r"\b(Dataflow|FusedProgram)\b", annotation(node)):
            yield node.name


def test_every_pass_is_in_the_lists() -> None:
    listed = {one.__name__ for one in ALL}
    found = {name for _, tree in trees() for name in passes_in(tree)}
    assert found == listed | set(NO_PASS) and len(listed) >= 4


def test_passes_are_found_wherever_they_are() -> None:
    text = """
def public(graph: Dataflow) -> Dataflow: ...
def _private(graph: Dataflow, *, deep: bool = False) -> Dataflow: ...
def by_another(most: int, /, graph: "Dataflow | None" = None) -> tuple[Dataflow, int]: ...
def by_name(*, of: dataflow.Dataflow) -> Dataflow | None: ...
def outer():
    def inner(graph: Dataflow) -> Dataflow: ...
class A:
    def method(self, graph: Dataflow) -> "Dataflow": ...
    def makes(self, loops: list[Operation]) -> Dataflow: ...
class Dataflow:
    def turned(self) -> Dataflow: ...
def asks(graph: Dataflow) -> bool: ...
def fuses(graph: Dataflow) -> FusedProgram: ...
"""
    expected = {"fuses", "public", "_private", "by_another", "by_name", "inner", "method", "turned"}
    assert set(passes_in(ast.parse(text))) == expected


def test_a_pass_is_named_in_its_list_and_by_nobody_else() -> None:
    """Those of a program that another one repeats are gone through before it is recorded: it is refused by its name."""
    listed = {one.__name__ for one in ALL}
    lists = "operation/passes.py", "dist/lower.py"
    naming = {where: names(tree) & listed for where, tree in trees() if where not in lists}
    assert {where: found for where, found in naming.items() if found} == {"operation/repeated.py": {"check_defined"}}


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.__name__)
def test_a_pass_takes_a_graph_and_gives_one_and_changes_none(one: Any) -> None:
    assert issubclass(get_type_hints(one)["return"], Dataflow)
    assert next(iter(inspect.signature(one).parameters)) == "graph"
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
