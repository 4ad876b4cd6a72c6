"""Names that a person gives reach generated text and file names only as letters, digits and underscores."""

from __future__ import annotations

import ast
import csv
import io
import linecache
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom import linalg
from meshloom.backend import cpu_dialect
from meshloom.backend.cuda import dialect, nvrtc
from meshloom.backend.translation_unit import Argument, make_unit
from meshloom.errors import CompilerError, MeshError, MeshloomError, one_line
from meshloom.io import checkpoint
from meshloom.io.monitors import MonitorLog, write_table
from meshloom.io.vtk import write_vtu
from meshloom.native import compiler
from meshloom.native.names import MOST_LETTERS, safe_name
from meshloom.schedule.nest.graph import users_line
from meshloom.target import CPU, H200
from tests.letters import ENCODABLE
from tests.one_line import one_line_from

EVIL = [
    "x\n#error injected\n//", "x\r#error injected", "x\u2028#error", "x */ #error", "x\\", "x??/", "x\\\n#error",
    "../../../outside", "/tmp/outside", "..", ".", "", "a/b", "-o", "a b", "éu", "é" * 300, "n" * 5000,
    "\x0c\x0b\x1b[31m", '"); system("true', "%s%n", "con", "a\u202eb",
]  # fmt: skip
NO_FILE_HOLDS = ["a\0b", "\ud800"]


def named_kernel(name: str) -> ml.Kernel:
    def function(u: ml.Read, out: ml.Inc, total: ml.Sum):
        out[0] += 2.0 * u[1]
        out[1] += u[0]
        total += u[0] + u[1]

    function.__name__ = name
    return ml.kernel(function)


def run(name: str) -> list[Any]:
    """What a loop, a line loop and a program all of whose parts have that name give."""
    faces, cells = ml.Set(3, name), ml.Set(4, name)
    sides = ml.Map(faces, cells, [(0, 1), (1, 2), (2, 3)], name)
    u, out, total = cells.field(name, data=np.arange(4.0)), cells.field(name), ml.Global(0.0, name)

    def body() -> None:
        named_kernel(name)(faces, u[sides], out[sides], total)

    body.__name__ = name
    program = ml.program(body)
    program.run(1)
    grid = ml.Grid(8, periodic=True, name=name)
    f, y = grid.field(name, data=np.arange(8.0)), grid.field(name)
    operator = linalg.LineOperator(linalg.Tridiagonal(0.0, 2.0, 0.0, periodic=True))
    linalg.LineLoop(grid, 0, operator, f, y, name=name)()
    return [*out.numpy(), total.value, *y.numpy()]


EXPECTED = [2.0, 4.0, 7.0, 2.0, 9.0, *(np.arange(8.0) / 2)]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A cache of its own, and every source that was compiled for it."""
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "deep" / "cache"))
    seen: list[str] = []
    compile_, key = compiler._compile, compiler._key
    monkeypatch.setattr(compiler, "_key", lambda source, *rest: (seen.append(source), key(source, *rest))[1])
    monkeypatch.setattr(compiler, "_compile", lambda *rest: compile_(*rest))
    return seen


def files_of(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_loops_of_any_name_are_right_and_stay_in_the_cache(backend: str, tmp_path: Path, sources: list[str]) -> None:
    ml.use(backend)
    for name in (EVIL[0], "../../../outside", "éu") if backend == "cpu" else EVIL[:1]:
        assert run(name) == EXPECTED, name
    ml.use("cpu")
    cache = tmp_path / "deep" / "cache"
    stray = [p for p in files_of(tmp_path) if cache not in p.parents]
    assert not stray and len(files_of(cache / "code")) >= 4  # libraries and their sources
    assert all(re.fullmatch(r"[A-Za-z0-9_]+-[0-9a-f]{32}(\.\w+)+", p.name) for p in files_of(cache / "code"))
    assert not any("#error" in line.split("//")[0] for source in sources for line in source.splitlines())


@settings(max_examples=300, deadline=None)
@given(st.one_of(
    st.text(ENCODABLE), st.sampled_from(EVIL + NO_FILE_HOLDS),
    st.text(alphabet="\\/.\n\r\0\"'*?#$%()é\ud800\u2028", max_size=20),
))  # fmt: skip
def test_a_safe_name_is_a_word_of_ascii(name: str) -> None:
    safe = safe_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", safe, re.ASCII) and len(safe) <= MOST_LETTERS
    assert safe_name(safe) == safe
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,40}", name, re.ASCII):
        assert safe == name


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.one_of(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
                      st.sampled_from(EVIL)))  # fmt: skip
def test_generated_text_holds_nothing_but_the_safe_name(name: str) -> None:
    """Compared with the text of a kernel that has the safe name to begin with; nothing is compiled."""
    texts = []
    for one in (name, safe_name(name)):
        faces, cells = ml.Set(3, one), ml.Set(4, one)
        sides = ml.Map(faces, cells, [(0, 1), (1, 2), (2, 3)], one)
        u, out, total = cells.field(one, data=np.arange(4.0)), cells.field(one), ml.Global(0.0, one)
        loop = named_kernel(one).loop(faces, u[sides], out[sides], total, schedule="atomic")
        texts.append(rendered(loop))
    assert texts[0] == texts[1]
    texts[0][0].encode(), texts[0][1].encode()


def rendered(loop: Any) -> tuple[str, str]:
    """The C++ and the CUDA of a loop."""
    extra = (Argument("threads_in_use", "int64_t", True),)
    unit, on_gpu = (make_unit(loop.spec, loop.plan, extra=extra, target=target) for target in (CPU, H200))
    return cpu_dialect.render(unit), dialect.render(on_gpu, dialect.kernels(on_gpu, 128, 128), wide_index=False)


@pytest.mark.parametrize("name", NO_FILE_HOLDS)
def test_names_that_no_file_holds_are_refused(name: str) -> None:
    cells = ml.Set(2, "cells")
    for wrong in (lambda: ml.Set(2, name), lambda: cells.field(name), lambda: ml.Global(0.0, name)):
        with one_line_from(MeshError, "a name that files can hold"):
            wrong()


@pytest.mark.parametrize("name", EVIL)
def test_messages_stay_one_line(name: str) -> None:
    one = ml.Set(2, name)
    for wrong in (
        lambda: ml.Set(-1, name),
        lambda: one.field(name, 0),
        lambda: one.field(name, data=["a", "b"]),
        lambda: ml.Map(one, one, [7, 7], name),
        lambda: ml.Global(None, name),  # type: ignore[arg-type]
        lambda: named_kernel(name)(one),
        lambda: named_kernel(name)(one, one.field(name)),
        lambda: one.field(name, layout=name),
        lambda: ml.use(name),
        lambda: named_kernel(name).loop(one, schedule={name: 1}),
        lambda: ml.generate.box((2, 2)).group(name),
    ):
        with pytest.raises(MeshloomError) as caught:
            wrong()
        text = str(caught.value)
        assert text.isprintable() and len(text.splitlines()) == 1, repr(text)


@pytest.mark.parametrize("name", [n for n in EVIL if n])
def test_what_is_explained_keeps_its_lines(name: str) -> None:
    ml.use("cpu")
    cells = ml.Set(4, name)
    me = ml.Map(cells, cells, [(0, 1), (1, 2), (2, 3), (3, 0)], name)
    explained = []
    for one in (name, "plain"):
        loop = named_kernel(one).loop(cells, cells.field(one)[me], cells.field(one)[me], ml.Global(0.0, one))
        explained.append(loop.explain())
    assert len(explained[0].splitlines()) == len(explained[1].splitlines())


# ----- the user's lines as comments ---------------------------------------------------------------------------------
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(ENCODABLE), st.text(alphabet="\\?/\n\r\x0b\x0c\x1c\x85\u2028\ud800ab ", max_size=20)))
def test_comments_are_one_line_of_comment(line: str) -> None:
    linecache.cache["<odd>"] = (len(line), None, [line], "<odd>")
    text = str(users_line(("<odd>", 1)))
    assert text.startswith("// ") and text.isprintable() and "\\" not in text and "??" not in text
    text.encode()
    del linecache.cache["<odd>"]


# ----- compilers ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["../../outside", "a/b", "x\n", "\0", "", "-o", "n" * 5000])
def test_compilers_write_where_they_should(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "deep" / "cache"))
    library = compiler.build('extern "C" int one() { return 1; }', name)
    assert library.parent == tmp_path / "deep" / "cache" / "code"
    with pytest.raises(CompilerError) as caught:
        compiler.build("no C++", name)
    assert str(caught.value).isprintable()
    try:
        nvrtc.library()
    except CompilerError:
        return
    nvrtc.build('extern "C" __global__ void one() {}', name, "sm_90")
    with pytest.raises(CompilerError) as caught:
        nvrtc.build("no CUDA", name, "sm_90")
    assert str(caught.value).isprintable()
    assert not [p for p in files_of(tmp_path) if tmp_path / "deep" / "cache" not in p.parents]


# ----- files --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", EVIL)
def test_files_for_others_can_be_read(name: str, tmp_path: Path) -> None:
    mesh = ml.generate.box((2, 2))
    write_vtu(tmp_path / "a.vtu", mesh, {name: np.ones(4)})
    found = ElementTree.parse(tmp_path / "a.vtu").getroot().iter("DataArray")
    assert one_line(name) in [array.attrib["Name"] for array in found]
    MonitorLog(tmp_path / "m.csv", (name, "other"), np.ones((2, 2))).close()
    write_table(tmp_path / "t.csv", (name, "other"), np.ones((2, 2)))
    for file, columns in (("m.csv", ["iteration", one_line(name), "other"]), ("t.csv", [one_line(name), "other"])):
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert len(text.splitlines()) == 3
        assert next(csv.reader(io.StringIO(text))) == columns


@pytest.mark.parametrize("name", [n for n in EVIL if "\0" not in n])
def test_checkpoints_keep_names(name: str, tmp_path: Path) -> None:
    values = {name: np.arange(3.0), "u": np.ones(2)}
    saved = checkpoint.Checkpoint("case", 1, "double", "mesh", "", values, (name,), np.ones((1, 1)))
    checkpoint.save(tmp_path / "c.h5", saved)
    found = checkpoint.load(tmp_path / "c.h5")
    assert found.state.keys() == values.keys() and found.monitor_names == (name,)
    np.testing.assert_array_equal(found.state[name], values[name])


def test_kernels_of_the_package_have_names_to_be_shown() -> None:
    """``explain()`` of a program names the loops that Meshloom brings along, so none is called as if it were hidden."""
    root = Path(ml.__file__).parent
    hidden = [
        f"{path.relative_to(root)}:{node.lineno}: {node.name}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_")
        if any(ast.unparse(one).partition("(")[0].split(".")[-1] == "kernel" for one in node.decorator_list)
    ]
    assert not hidden, "\n".join(hidden)
