"""The one operation: its content, what it answers of its operands, and that nobody asks of which kind one is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.operation.domain import EVERYWHERE, INSIDE, BoxPoints, GridLines, SetElements
from meshloom.operation.operation import Operation
from tests.fitted import changed

ROOT = Path(ml.__file__).parent.parent


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    before = ml.backend()
    ml.use("numpy")
    yield
    ml.use(before)


@ml.kernel
def spread(u: ml.Read, v: ml.Inc):
    v[0] += u[1] - u[0]
    v[1] -= u[1] - u[0]


@ml.kernel
def scale(u: ml.ReadWrite, factor: ml.Read):
    u *= factor


@ml.kernel
def halve(f: ml.Read, out: ml.Write):
    out[...] = 0.5 * f


class World:
    """A step with a loop through a map, one with a number, a box, lines and a fill; everything in it may be another."""

    def __init__(self) -> None:
        self.cells, self.edges = ml.Set(6, "cells"), ml.Set(5, "edges")
        self.ends = ml.Map(self.edges, self.cells, [[k, k + 1] for k in range(5)], "ends")
        self.u, self.v = self.cells.field("u", data=np.arange(6.0)), self.cells.field("v")
        self.grid = ml.Grid((12, 10), periodic=True)
        self.f, self.g = self.grid.field("f"), self.grid.field("g")
        self.start, self.factor, self.high, self.off, self.power = 0.0, 2.0, 10, 0.25, 2

    def step(self) -> None:
        power = self.power

        @ml.kernel
        def raised(u: ml.Read, v: ml.Write):
            v[...] = u**power

        self.v.fill(self.start)
        spread(self.edges, self.u[self.ends], self.v[self.ends])
        scale(self.cells, self.u, self.factor)
        raised(self.cells, self.v, self.u)
        halve(self.grid.box((0, 0), (12, self.high)), self.f, self.g)
        line = ml.linalg.LineOperator(ml.linalg.Tridiagonal(self.off, 1.0, self.off, periodic=True))
        ml.linalg.line_loop(self.grid, 1, line, self.g, self.f)

    def contents(self) -> list[object]:
        return [one.content for one in ml.Program(self.step).operations]


def test_two_recordings_of_one_function_have_one_content() -> None:
    world = World()
    one, other = world.contents(), world.contents()
    assert len(one) == 6 and one == other and [*map(hash, one)] == [*map(hash, other)]
    assert len(set(one)) == 6, "and no two operations of it have the same"


OTHERS: dict[str, tuple[int, Callable[[World], Any]]] = {
    "another number to fill with": (0, lambda w: setattr(w, "start", 1.0)),
    "a zero of the other sign": (0, lambda w: setattr(w, "start", -0.0)),
    "another map": (1, lambda w: setattr(w, "ends", ml.Map(w.edges, w.cells, w.ends.indices[::-1].copy(), "ends"))),
    "another number as an argument": (2, lambda w: setattr(w, "factor", 2.5)),
    "a captured value": (3, lambda w: setattr(w, "power", 3)),
    "another box": (4, lambda w: setattr(w, "high", 9)),
    "another operator": (5, lambda w: setattr(w, "off", 0.125)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_changed_changes_the_content_of_one_operation(what: str) -> None:
    world = World()
    before = world.contents()
    number, change = OTHERS[what]
    change(world)
    assert [k for k, (a, b) in enumerate(zip(before, world.contents(), strict=True)) if a != b] == [number]


def test_names_and_schedules_are_no_content() -> None:
    world = World()

    @ml.kernel
    def called_otherwise(x: ml.Read, y: ml.Inc):
        y[0] += x[1] - x[0]
        y[1] -= x[1] - x[0]

    given = world.edges, world.u[world.ends], world.v[world.ends]
    loops = spread.loop(*given), spread.loop(*given, schedule="color"), called_otherwise.loop(*given)
    assert len({one.content for one in loops}) == 1


def test_outputs_that_share_their_nodes_are_told_apart() -> None:
    world = World()

    @ml.kernel
    def both(u: ml.Read, v: ml.Write, w: ml.Write):
        v[...], w[...] = u + 1.0, u

    @ml.kernel
    def one(u: ml.Read, v: ml.Write, w: ml.Write):
        v[...], w[...] = u + 1.0, 1.0

    given = world.cells, world.u, world.v, world.v.like("w")
    assert both.loop(*given).content != one.loop(*given).content


def test_a_sum_that_starts_anew_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that became one set the Global by themselves: that is a part of what they do."""
    changed(monkeypatch, fusion={"worth": np.inf})
    ml.use("cpu")
    points = ml.Set(10, "points")
    u, v, total = points.field("u"), points.field("v"), ml.Global(0.0, "total")

    @ml.kernel
    def make(u: ml.Read, v: ml.Write):
        v[...] = u + 1.0

    @ml.kernel
    def add(v: ml.Read, total: ml.Sum):
        total += v

    def steps(anew: bool) -> ml.Program:
        @ml.program
        def made():
            if anew:
                total.value = 0.0
            make(points, u, v)
            add(points, v, total)

        return made

    (anew,), (on,), (again,) = (steps(one).fused_steps for one in (True, False, True))
    assert anew.content == again.content != on.content


def test_it_prints_its_domain_and_operands() -> None:
    world = World()
    operations = ml.Program(world.step).operations
    shown = [repr(one) for one in operations]
    assert repr(operations[1].operands) == "(Operand(Read u[ends]), Operand(Inc v[ends]))"
    assert "()" not in str(operations[0].counts), "of a fill, which has no flops"
    assert shown[0] == "Operation(v = 0 over all places of v: Write v)"
    assert shown[1] == "Operation(spread over edges: Read u[ends], Inc v[ends])"
    assert shown[4] == "Operation(halve over grid: Read f, Write g)"
    assert shown[5] == "Operation(lines over the lines of grid along axis 1: Read g along lines, Write f)"


def test_domains_are_equal_by_what_they_visit() -> None:
    grid, cells = ml.Grid((6, 5), ghosts=1), ml.Set(4, "cells")
    one, same, other = (BoxPoints(grid.box((0, 0), high)) for high in ((2, 2), (2, 2), (2, 3)))
    assert one == same != other
    assert SetElements(cells) == SetElements(cells) != SetElements(ml.Set(4, "cells"))
    assert GridLines(grid, 0) == GridLines(grid, 0) != GridLines(grid, 1)
    assert len({BoxPoints(grid.inside), BoxPoints(grid.box((0, 0), (6, 5))), GridLines(grid, 0)}) == 2


@pytest.mark.parametrize("ghosts", [0, 1])
def test_whether_a_field_is_set_anew_depends_on_how_much_of_it_somebody_sees(ghosts: int) -> None:
    grid = ml.Grid((8, 8), periodic=True, ghosts=ghosts)
    f, g = grid.field("f"), grid.field("g")
    part, middle = grid.box((0, 0), (8, 4)), ((2, 1), (4, 3))
    line = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True))
    answers = {
        "fill": (ml.Program(lambda: g.fill(1.0)).operations[0], (True, True, True)),
        "loop": (halve.loop(grid, f, g), (True, not ghosts, True)),
        "everywhere": (halve.loop(grid.everything, f, g), (True, True, True)),
        "part": (halve.loop(part, f, g), (False, False, True)),
        "lines": (ml.linalg.LineLoop(grid, 0, line, f, g), (True, not ghosts, True)),
        "in place": (ml.linalg.LineLoop(grid, 0, line, g, g), (False, False, False)),
        "scaled": (scale.loop(grid, g, 2.0), (False, False, False)),
    }
    for name, (operation, expected) in answers.items():
        found = tuple(operation.defines(g, where) for where in (INSIDE, EVERYWHERE, middle))
        assert found == expected, name
        assert not operation.defines(f, INSIDE)


def test_the_same_by_another_schedule_is_another_operation() -> None:
    world = World()
    loop = spread.loop(world.edges, world.u[world.ends], world.v[world.ends])
    other = loop.by("color")
    assert other is not loop and other.schedule.strategy == "color" and other.content == loop.content
    with pytest.raises(ml.errors.ScheduleError, match="takes no schedule"):
        ml.Program(lambda: world.v.fill(1.0)).operations[0].by("color")
    lines = ml.linalg.LineLoop(world.grid, 1, ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25,
                                                                    periodic=True)), world.f, world.g)  # fmt: skip
    with pytest.raises(ml.errors.ScheduleError, match="strategies do not apply along lines"):
        lines.by("color")


def test_what_has_no_kernel_cannot_be_run_element_by_element() -> None:
    world = World()
    with pytest.raises(ml.errors.KernelError, match="v = 1 has no kernel to be called element by element"):
        ml.Program(lambda: world.v.fill(1.0)).operations[0].run_plainly()
    assert not world.v.numpy().any()


@ml.kernel
def carry(u: ml.Read, slope: ml.ReadWrite):
    slope += u * slope


@ml.kernel
def advance(slope: ml.Read, u: ml.ReadWrite):
    u -= 0.01 * slope


@pytest.mark.parametrize("ghosts", [0, 1])
def test_what_a_line_loop_sets_anew_is_not_stored_before(ghosts: int) -> None:
    """A step derives u along lines, and two loops that become one use the result: in the next step it is another."""

    def stepped(back_end: str) -> tuple[np.ndarray, ml.Program]:
        ml.use(back_end)
        grid = ml.Grid((12, 10), extent=2 * np.pi, periodic=True, ghosts=ghosts)
        u = grid.field("u", data=np.sin(grid.meshgrid()[0]) + 2.0)

        @ml.program
        def step() -> None:
            slope = ml.compact.d(u, 0)
            carry(grid, u, slope)
            advance(grid, slope, u)

        step.run(3)
        return u.numpy(), step

    (found, program), (expected, _) = stepped("emulated"), stepped("numpy")
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    with ml.using("emulated"):
        (one,) = program.fused_steps
    assert one.name == "carry+advance"
    assert {p.name for p in one.spec.params if p.mode.writes} == {"u"}, "neither of the slope's values is read again"


# ----- nobody asks of which kind one is -------------------------------------------------------------------------------
#: What operations differ in; where each kind may be told from another is the file that defines them.
PARTS = ("Operation", "Domain", "Body", "ExecutionPolicy")
#: What the kinds were called when they were classes, and what users call them; a tape stood among operations, too.
NAMES = {"Operation", "Loop", "LineLoop", "Runnable", "Fill", "Copy", "FusedLoop", "ComposedLines", "Tape"}
#: What takes types in brackets, and holds nothing of them.
HOLDING_NONE = ("Callable", "Union", "Optional", "Annotated", "ClassVar", "Final", "Literal", "type", "TypeGuard")
TYPE_ALIAS: Any = getattr(ast, "TypeAlias", ast.AnnAssign)  # "type Step = ...", which Python 3.11 does not know


def named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def kinds_of(texts: list[str]) -> set[str]:
    """Names of the classes that derive from a domain, a body or a policy, and all names of operations."""
    classes = (found for text in texts for found in re.findall(r"^ *class (\w+)\(([^)]*)\)", text, re.MULTILINE))
    bases = {name: set(re.findall(r"\w+", listed)) for name, listed in classes}
    found = set(PARTS)
    while more := {name for name, its in bases.items() if its & found} - found:
        found |= more
    return found | NAMES


def asked(tree: ast.Module, kinds: set[str]) -> Iterator[str]:
    """Subclasses of Operation, and where a kind is asked for: isinstance, type(..) is, or a case of match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and {named(base) for base in node.bases} & NAMES:
            yield f"line {node.lineno}: class {node.name}"
        elif isinstance(node, ast.Call) and named(node.func) in ("isinstance", "issubclass"):
            wanted = {named(one) for one in ast.walk(node.args[1]) if isinstance(one, ast.Name | ast.Attribute)}
            if wanted & kinds:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Call) and named(node.left.func) == "type":
            if {named(one) for one in node.comparators} & kinds:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.MatchClass) and named(node.cls) in kinds:
            yield f"line {node.lineno}: {ast.unparse(node.cls)}"


def types_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Every expression of a module, those that are written as text included."""
    for node in ast.walk(tree):
        yield node
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "Operation" in node.value:
            with suppress(SyntaxError):
                yield from ast.walk(ast.parse(node.value, mode="eval"))


def alternatives(node: ast.AST, aliases: dict[str, set[str]]) -> set[str]:
    """The types that an annotation allows, but None: of ``A | B``, ``Union[A, B]`` and names of such."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return alternatives(node.left, aliases) | alternatives(node.right, aliases)
    if isinstance(node, ast.Subscript) and named(node.value) in ("Union", "Optional", "Annotated", "ClassVar", "Final"):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = parts[:1] if named(node.value) == "Annotated" else parts
        return {name for one in parts for name in alternatives(one, aliases)}
    if isinstance(node, ast.Constant):
        return set()
    name = named(node.value if isinstance(node, ast.Subscript) else node)  # type: ignore[arg-type]
    return aliases.get(name, {name or ast.unparse(node)})


def aliases_of(trees: Iterable[ast.AST]) -> dict[str, set[str]]:
    """What names of types stand for, where that is several, an operation among them; of all modules together."""
    given = [(named(target), node.value) for tree in trees for node in ast.walk(tree)
             if isinstance(node, ast.Assign | ast.AnnAssign | TYPE_ALIAS) and node.value is not None
             for target in (node.targets if isinstance(node, ast.Assign) else
                            [node.target if isinstance(node, ast.AnnAssign) else node.name])]  # fmt: skip
    given = [(name, value) for name, value in given if name and isinstance(value, ast.BinOp | ast.Subscript | ast.Name)]
    found: dict[str, set[str]] = {}
    for _ in range(3):  # a name of a name of one
        for name, value in given:
            if "Operation" in (kinds := alternatives(value, found)) and (len(kinds) > 1 or name != "Operation"):
                found[name] = kinds
    return found


def mixed(tree: ast.AST, aliases: dict[str, set[str]]) -> Iterator[str]:
    """What holds operations and something else, whatever it is: all that takes types in brackets, but for what takes
    or gives one of them."""
    for node in types_in(tree):
        if isinstance(node, ast.Subscript) and named(node.value) not in HOLDING_NONE:
            for one in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                kinds = alternatives(one, aliases) if not isinstance(one, ast.Slice) else set()
                if "Operation" in kinds and len(kinds) > 1:
                    yield f"line {node.lineno}: {ast.unparse(node)}"


FILES = {path: path.read_text(encoding="utf-8") for folder in ("meshloom", "bench", "tests")
         for path in (ROOT / folder).rglob("*.py") if path.stem != "test_operation"}  # fmt: skip
KINDS = kinds_of([text for path, text in FILES.items() if (ROOT / "meshloom") in path.parents])
OWN = {"meshloom/operation/domain.py"}  # where boxes with the same ends are one domain


def test_nobody_asks_of_which_kind_an_operation_is() -> None:
    mentions = re.compile(rf"\b({'|'.join(sorted(KINDS))})\b")  # reading a file as a tree takes far longer
    found = {str(path.relative_to(ROOT)): list(asked(ast.parse(text), KINDS)) for path, text in FILES.items()
             if mentions.search(text)}  # fmt: skip
    assert not {name: lines for name, lines in found.items() if lines and name not in OWN}
    known = {"KernelBody", "StrategyPolicy", "MethodPolicy", "BoxPoints", "FusedPolicy", "ComposedBody"}
    assert known <= KINDS and len(found) > 30


def test_no_list_holds_operations_and_something_else() -> None:
    trees = {str(path.relative_to(ROOT)): ast.parse(text) for path, text in FILES.items() if "Operation" in text}
    aliases = aliases_of(trees.values())
    found = {name: list(mixed(tree, aliases)) for name, tree in trees.items()}
    assert not {name: lines for name, lines in found.items() if lines} and len(found) > 30


@pytest.mark.parametrize(
    "text",
    ["found: list[Operation | Tape] = []", "def f() -> tuple[Operation | Tape, ...]: ...",
     "def f(x: Sequence[str | op.Operation]): ...", "x: list[Union[Operation, Tape]]", "x: deque[Operation | Tape]",
     "x: dict[str, Operation | Tape]", "Step = Operation | Tape\nx: list[Step]", "x: 'list[Operation | Tape]'",
     "Step: TypeAlias = Union[Tape, Operation]\nOther = Step\nx: set[Other]", "x = deque[Operation | Tape]()",
     "x: tuple[Optional[Union[Operation, Tape]], ...]", "Steps = list[Operation | Tape]",
     "x: Recent[int, Operation | Tape]", "x: WeakSet[Operation | Callable[[], None]]"],
)  # fmt: skip
def test_lists_of_operations_and_something_else_are_found(text: str) -> None:
    tree = ast.parse(text)
    assert len(list(mixed(tree, aliases_of([tree])))) == 1


@pytest.mark.parametrize(
    "text", ["x: list[Operation]", "x: Operation | None", "x: list[Field | Global]", "x: tuple[Operation, ...]",
             "x: list[Operation | None]", "x: Callable[[Operation | Tape], None]", "x: dict[Operation, Launches]",
             "Loop = Operation\nx: list[Loop]"],
)  # fmt: skip
def test_lists_of_operations_alone_are_not(text: str) -> None:
    tree = ast.parse(text)
    assert not list(mixed(tree, aliases_of([tree])))


@pytest.mark.parametrize(
    "line",
    ["class Sparse(Operation): pass", "class Sparse(ml.Loop): pass", "isinstance(o, Operation)",
     "x = [o for o in loops if isinstance(o, ml.Loop | Field)]", "isinstance(one, (Fill, Copy))",
     "isinstance(o.domain, GridLines)", "isinstance(o.body, KernelBody)", "if type(o.policy) is StrategyPolicy: pass",
     "isinstance(piece, Tape)", "match o.domain:\n    case BoxPoints(): pass"],
)  # fmt: skip
def test_the_test_finds_what_it_is_for(line: str) -> None:
    assert list(asked(ast.parse(line), KINDS))


@pytest.mark.parametrize(
    "line", ["class Wide(StrategyPolicy): pass", "isinstance(x, Field)", "o.domain.along_lines", "type(x) is Arg"]
)
def test_the_test_leaves_others_alone(line: str) -> None:
    assert not list(asked(ast.parse(line), KINDS))


def test_no_class_can_derive_from_it() -> None:
    with pytest.raises(TypeError, match="no class derives from Operation"):
        type("Sparse", (Operation,), {})


def test_it_is_frozen_whatever_is_done_with_it() -> None:
    world = World()
    program = ml.program(world.step)
    for one in program.loops:
        before, content = {f.name: getattr(one, f.name) for f in fields(one)}, one.content
        one.prepare()
        one.explain()
        one()
        if one.domain.visits_elements:
            one.reschedule("color")
            assert one.wish.strategy == "color" and one.execution.launches is None
            one()
        assert {f.name: getattr(one, f.name) for f in fields(one)} == before and one.content == content
        for name in (*before, "policy", "backend", "calls", "anything"):
            with pytest.raises(FrozenInstanceError):
                setattr(one, name, None)
