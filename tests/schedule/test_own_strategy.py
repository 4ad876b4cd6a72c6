"""A strategy is one file that nobody else names: one that is written from the docs alone works wherever others do."""

from __future__ import annotations

import ast
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

PACKAGE = Path(ml.__file__).parent
PAGE = PACKAGE.parent / "docs" / "schedules.md"
NAMES = {name for name, one in Emitter.registry.items() if isinstance(one, Strategy)}
FILES = "meshloom.schedule.strategies."
#: Words that are also names of strategies, and mean something else where they stand.
OTHERWISE = {("order/orderings.py", "color"), ("mesh/reorder.py", "color"), ("mesh/generate.py", "box"),
             ("schedule/nest/nodes.py", "atomic"), ("backend/cpu_dialect.py", "color")}  # fmt: skip


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
def named_in(path: Path) -> Iterator[str]:
    """Strategies that a module names in its code, as a string or by importing its file."""
    where = str(path.relative_to(PACKAGE))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and node.value in NAMES and (where, node.value) not in OTHERWISE:
            yield f"{where}, line {node.lineno}: {node.value!r}"
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if module.startswith(FILES) and module.removeprefix(FILES) in NAMES:
            yield f"{where}, line {node.lineno}: import of {node.module}"


def test_no_module_names_a_strategy_but_its_own() -> None:
    looked_at = [path for folder in ("schedule", "operation", "backend", "target", "linalg", "order", "mesh")
                 for path in sorted((PACKAGE / folder).rglob("*.py"))
                 if path.parent.name != "lines"]  # fmt: skip  # how lines are cut has words of its own
    own = {PACKAGE / "schedule" / "strategies" / f"{name}.py" for name in NAMES}
    register = PACKAGE / "schedule" / "strategies" / "__init__.py"
    assert own <= set(looked_at)
    assert not [found for path in looked_at if path not in {*own, register} for found in named_in(path)]


def test_the_test_finds_what_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    text = 'from meshloom.schedule.strategies.owner import Owner\nx = strategy == "tile"\n"""owner in words."""\n'
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    assert list(named_in(tmp_path / "a.py")) == [
        "a.py, line 1: import of meshloom.schedule.strategies.owner", "a.py, line 2: 'tile'"
    ]  # fmt: skip
