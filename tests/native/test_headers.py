"""Headers that the compiler has read ahead: used, made again where damaged, and never needed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from meshloom.native import compiler, headers, tidy

SOURCE = "#include <cmath>\n#include <vector>\nextern \"C\" double twice(double x) { return 2 * std::fabs(x); }\n"


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the folder of its libraries."""
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(headers, "_useful", {})
    return tmp_path / "cache" / "code"


def answer(source: str = SOURCE) -> float:
    function = compiler.load(source, "twice", generated=True).twice
    function.restype, function.argtypes = compiler.ctypes.c_double, [compiler.ctypes.c_double]
    return float(function(-4.0))


def form(code: Path) -> Path:
    (found,) = code.glob("headers-*.h.gch")
    return found


def test_the_compiler_uses_them(code: Path) -> None:
    host = compiler.host_compiler()
    assert answer() == 8.0
    if form(code).stat().st_size == 0:
        pytest.skip("this compiler makes no such form")
    (source,) = code.glob("twice-*.cpp")
    command = [host.path, *host.flags, "-H", str(source), "-o", os.devnull, "-include", str(form(code).with_suffix(""))]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert f"! {form(code)}" in listed or "clang" in host.version  # as GCC marks those it uses


def test_they_are_made_once_for_all_that_begin_alike(code: Path) -> None:
    answer()
    made = form(code).stat().st_ino
    headers._useful.clear()  # another process
    assert answer(SOURCE.replace("2 *", "3 *")) == 12.0
    assert form(code).stat().st_ino == made or form(code).stat().st_size == 0
    answer(SOURCE.replace("vector", "limits"))
    assert len([*code.glob("headers-*.gch")]) == 2


@pytest.mark.parametrize("damage", ["cut", "garbage", "garbage that says it is whole", "gone", "a folder"])
def test_damaged_ones_do_no_harm(code: Path, damage: str) -> None:
    answer()
    path = form(code)
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"gpch" + bytes(5000))
    if damage == "garbage that says it is whole":
        (total,) = code.glob("headers-*.sum")
        total.write_bytes(headers._digest(path.read_bytes()))
    headers._useful.clear()
    assert answer(SOURCE.replace("2 *", "5 *")) == 20.0
    if damage != "garbage that says it is whole":
        (total,) = code.glob("headers-*.sum")
        assert total.read_bytes() == headers._digest(form(code).read_bytes())
        assert form(code).stat().st_size > len(whole) / 2


def test_a_compiler_that_cannot_make_them(code: Path) -> None:
    assert headers.flags_for(SOURCE, code, "facts", lambda header, form: False) == ()
    assert headers.flags_for("int x;\n", code, "facts", lambda header, form: True) == ()
    assert headers.flags_for(SOURCE, code / "missing", "facts", lambda header, form: True) == ()


def test_a_compiler_that_fails_is_asked_once(code: Path) -> None:
    asked: list[Path] = []

    def make(header: Path, form: Path) -> bool:
        asked.append(header)
        form.unlink()  # as compilers do that could not finish
        return False

    code.mkdir(parents=True, mode=0o700)
    for _process in range(3):
        for _ in range(3):
            assert headers.flags_for(SOURCE, code, "facts", make) == ()
        headers._useful.clear()
    assert len(asked) == 1


def test_the_cache_knows_them(code: Path) -> None:
    answer()
    kept = {path.suffix for one in tidy.entries(code.parent) for path in one.files}
    assert {".so", ".cpp", ".h", ".gch", ".sum"} <= kept
    tidy.clear(code.parent)
    assert not code.exists()
