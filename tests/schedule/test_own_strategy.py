"""A strategy is one file that nobody else names: one that is written from the docs alone works wherever others do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ScheduleError
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.plan.emitter import Emitter
from meshloom.schedule.strategies.base import Strategy
from tests.docs.test_docs import blocks
from tests.docs.test_rooms import files, parsed
from tests.written import nodes, text_of, texts

PACKAGE = Path(ml.__file__).parent
PAGE = PACKAGE.parent / "docs" / "schedules.md"
NAMES = {name for name, one in Emitter.registry.items() if isinstance(one, Strategy)}
FOLDER, STRATEGIES = "schedule/strategies", "meshloom.schedule.strategies"
CLASSES = {type(Emitter.registry[name]).__name__ for name in NAMES}
#: How a strategy's file or class is imported, or reached through the package of all.
IMPORTED = {f"{STRATEGIES}.{name}" for name in NAMES | CLASSES}
ATTRIBUTES = tuple(f"strategies.{name}" for name in NAMES | CLASSES)
_ANY = "|".join(sorted(NAMES))
#: "tile block=128", as a person writes a schedule; a name in quotes inside a longer text.
A_SCHEDULE, QUOTED = re.compile(rf"^({_ANY})(?: +\w+=\S+)+$"), re.compile(rf"[\"']({_ANY})[\"']")
LETTERS = 4  # in a row: fewer are in too many words
_WIDTH = "lines of a block, of a loop along lines"
_GENERATOR = "a generator of meshes"
#: Words that are also names of strategies, and what they mean where they stand.
OTHERWISE = {
    ("order/orderings.py", "color"): "an ordering", ("mesh/reorder.py", "color"): "an ordering",
    ("mesh/generate.py", "box"): _GENERATOR, ("solvers/advection/cone.py", "box"): "a shape of the start",
    ("solvers/navier_stokes/taylor_green.py", "box"): "a grid's name",
    ("schedule/nest/nodes.py", "atomic"): "a kind of node", ("backend/cpu_dialect.py", "color"): "a variable in C++",
    ("schedule/lines/methods.py", "direct"): "a module of references",
    ("schedule/lines/on_gpu.py", "tile"): _WIDTH, ("schedule/lines/spec.py", "tile"): _WIDTH,
    ("schedule/lines/systems.py", "tile"): _WIDTH, ("schedule/lines/nest_parts.py", "tile"): "a variable in C++",
    ("io/openfoam.py", "owner"): "a file of OpenFOAM", ("io/draw/surface.py", "color"): "an argument of PyVista",
    ("case/schedules.py", "color"): "an example in a message, for a person",
}  # fmt: skip


@pytest.fixture
def mine() -> Iterator[str]:
    """The strategy of the page, registered by its class alone, and gone afterwards."""
    (block,) = (one.text for one in blocks(PAGE, "python") if "(Strategy)" in one.text)
    before = dict(Emitter.registry)
    try:
        exec(compile(block, "docs/schedules.md", "exec"), {"__name__": "of_the_page"})
        (name,) = Emitter.registry.keys() - before.keys()
        yield name
    finally:
        Emitter.registry.clear()
        Emitter.registry.update(before)


@ml.kernel
def give(u: ml.Read, r: ml.Inc):
    r[0] += u[1] - u[0]
    r[1] -= u[1] - u[0]


@ml.kernel
def take(r: ml.ReadWrite, u: ml.ReadWrite):
    u += 0.1 * r
    r[...] = 0.0


def diffused(backend: str, schedule: ml.Schedule | None, *, fuse: bool, steps: int = 4) -> tuple[np.ndarray, str]:
    ml.use(backend)
    mesh = ml.generate.box((20, 30), cells="triangle")
    u = mesh.cells.field("u", 3, data=np.random.default_rng(2).random((mesh.cells.total, 3)))
    r = mesh.cells.field("r", 3)

    @ml.program(fuse=fuse)
    def step() -> None:
        give(mesh.faces, u[mesh.face_cells], r[mesh.face_cells], schedule=schedule)
        take(mesh.cells, r, u)

    step.run(steps)
    return u.numpy(), step.loops[0].schedule.strategy


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("fuse", [True, False])
def test_it_runs_in_programs_fused_or_not_on_every_back_end(mine: str, backend: str, fuse: bool) -> None:
    expected, _ = diffused("numpy", None, fuse=False)
    found, used = diffused(backend, ml.Schedule(strategy=mine), fuse=fuse)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    assert used == mine


def test_it_competes_in_the_automatic_choice_and_votes_for_layouts(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(Emitter.registry[mine]), "cost", lambda *_, **__: Cost(1.0, 1.0))
    found, used = diffused("emulated", ml.Schedule(strategy="fastest"), fuse=True)
    assert used == mine and mine in ml.strategies()
    np.testing.assert_allclose(found, diffused("numpy", None, fuse=False)[0], rtol=1e-13, atol=1e-14)


def test_what_is_no_whole_strategy_is_refused_at_its_class(mine: str) -> None:
    before = dict(Emitter.registry)
    all_of_it = "cost, passes, plan, deterministic, summary, plans"
    with pytest.raises(ScheduleError, match=rf"^strategy 'half' lacks {all_of_it}; docs/schedules\.md has "):
        type("Half", (Strategy,), {"name": "half"})
    kind = type(Emitter.registry[mine])
    said = {word: getattr(kind, word) for word in all_of_it.split(", ")}
    for word in said:
        rest = {other: one for other, one in said.items() if other != word}
        with pytest.raises(ScheduleError, match=f"^strategy 'half' lacks {word}; "):
            type("Half", (Strategy,), {"name": "half", **rest})
        for odd in (3, None, "yes" if word != "summary" else " ", *([np.ndarray] if word == "plans" else [])):
            with pytest.raises(ScheduleError, match=f"^strategy 'half': {word} must be .*, got "):
                type("Half", (Strategy,), {"name": "half", **rest, word: odd})
    for name in ("owner", "fused", "auto", mine):
        with pytest.raises(ScheduleError, match=f"^strategy '{name}' is there already; Other needs another name$"):
            type("Other", (kind,), {"name": name})
    for odd in (3, "", "a b", "a\nb", None):
        with pytest.raises(ScheduleError, match=r"^strategy Other: name must be a word such as 'mine', got "):
            type("Other", (kind,), {"name": odd})
    type("Louder", (kind,), {"summary": "without a name of its own"})
    assert Emitter.registry == before


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [("plan", None), ("plan", 7), ("passes", None), ("passes", []), ("passes", ()), ("cost", 1.0), ("cost", None)],
)
def test_a_wrong_answer_is_told_in_one_line(
    mine: str, answer: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(Emitter.registry[mine]), answer, lambda *_, **__: wrong)
    factor = 1.0 + len(f"{answer}{wrong}")  # no other loop has had such a text

    @ml.kernel
    def add(u: ml.Read, r: ml.Inc):
        r[0] += factor * u[1]

    ml.use("emulated")
    mesh = ml.generate.box((20, 30))
    u, r = mesh.cells.field("u"), mesh.cells.field("r")
    schedule = ml.Schedule(strategy="fastest" if answer == "cost" else mine)
    with pytest.raises(ScheduleError, match=f"^strategy '{mine}': {answer} must give a "):
        add(mesh.faces, u[mesh.face_cells], r[mesh.face_cells], schedule=schedule)


# ----- nobody else names one ------------------------------------------------------------------------------------------
def pattern(node: ast.AST) -> str:
    """What matches the texts that an expression may make: parts that are not known yet may be anything."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(pattern, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return pattern(node.left) + pattern(node.right)
    return "..+"  # one letter, or a number behind a word, makes no name of it


def may_name(node: ast.AST) -> set[str]:
    """Strategies whose names an expression may put together, of which it says some letters in a row."""
    is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and text_of(node) is not None)
    if not is_text:
        return set()
    made = pattern(node)
    said = max((len(part) for part in made.split("..+")), default=0)
    return {name for name in NAMES if said >= LETTERS and made != name and re.fullmatch(made, name)}


def named_in(where: str, tree: ast.Module) -> Iterator[str]:
    """Strategies that a module names in its code: as a text, however it is put together, alone, as a schedule, or in
    quotes; by importing its file or its class; or as an attribute of the package of all."""
    made = (node for node in nodes(tree) if isinstance(node, ast.JoinedStr | ast.BinOp))
    yield from (f"{where}: {name!r} may be {ast.unparse(node)}" for node in made for name in sorted(may_name(node)))
    for at, text in texts(tree):
        found = {text} & NAMES or set(A_SCHEDULE.findall(text)) or set(QUOTED.findall(text))
        meant = sorted(name for name in found if (where, name) not in OTHERWISE)
        yield from (f"{where}: {name!r} in {ast.unparse(at)}" for name in meant)
    for node in nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            imported = {module, *(f"{module}.{one.name}".lstrip(".") for one in node.names)}
            yield from (f"{where}: import of {one}" for one in sorted(imported & IMPORTED))
        elif isinstance(node, ast.Attribute) and ast.unparse(node).endswith(ATTRIBUTES):
            yield f"{where}: {ast.unparse(node)}"


def test_no_module_names_a_strategy_but_its_own() -> None:
    """In the whole package: neither those who choose, nor back ends, nor solvers and cases."""
    trees = {path.relative_to(PACKAGE).as_posix(): parsed(path) for path, _ in files()}
    own = {f"{FOLDER}/{name}.py" for name in NAMES} | {f"{FOLDER}/__init__.py"}  # which registers them
    assert own <= trees.keys() and len(trees) > 400
    assert not [found for where, tree in trees.items() if where not in own for found in named_in(where, tree)]
    said = {(where, text) for where, tree in trees.items() for _, text in texts(tree)}
    gone = [(where, name) for where, name in OTHERWISE if not any(one == where and name in text for one, text in said)]
    assert not gone


@pytest.mark.parametrize("where", ["case/base.py", "solvers/airfoil.py", "operation/policy.py", "linalg/matrix.py"])
@pytest.mark.parametrize(
    "line",
    ['x = "owner"', 'x = strategy == "tile"', 'x = f"owner"', 'x = "own" + "er"', 'x = "block_" "color"',
     'x = "_".join(("warp", "atomic"))', 'x = {"staged": 1}', 'f(schedule="tile block=128")',
     'f(schedule=f"tile block={n}")', 'x = {"strategy": "strip"}', 'x = "say strategy = \'owner\'"',
     "from meshloom.schedule.strategies.owner import Owner", "from meshloom.schedule.strategies import Owner",
     "from meshloom.schedule.strategies import owner", "import meshloom.schedule.strategies.owner as o",
     "x = strategies.Owner", "x = ml.schedule.strategies.owner.Owner"],
)  # fmt: skip
def test_the_test_finds_what_it_is_for(where: str, line: str) -> None:
    assert len(list(named_in(where, ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "line", ["x = getattr(strategies, f'{kind}_color')", "x = known.get(f'block_{kind}')", "x = known['warp_' + end]",
             "x = f'{part}aged'"],
)  # fmt: skip
def test_a_name_of_which_a_part_is_not_known_is_found(line: str) -> None:
    assert list(named_in("backend/cpu.py", ast.parse(line))) and list(named_in("linalg/lines.py", ast.parse(line)))


@pytest.mark.parametrize(
    "line", ['"""owner in words."""', 'x = "the owner of a cell"', "x = cell.owner", "from meshloom import order",
             "from meshloom.schedule.strategies import strategy", 'x = "color 3 of 4"'],
)  # fmt: skip
def test_other_words_are_left_alone(line: str) -> None:
    assert not list(named_in("case/base.py", ast.parse(line)))
