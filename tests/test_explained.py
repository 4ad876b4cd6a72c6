"""What explanations say: nothing where two numbers are the same as printed, and no more elements than there are."""

from __future__ import annotations

import re

import pytest

import meshloom as ml
from meshloom.config import Setting, build
from meshloom.mesh.arrange import arrangement
from meshloom.schedule.choice.auto import _ratios
from meshloom.schedule.choice.per_thread import in_words
from meshloom.schedule.lines.spec import LineTiling
from meshloom.schedule.spec import ElementsPerThread
from meshloom.solvers import cases

#: Comparisons that tell nothing.
IDLE = (
    re.compile(r"(?<![\d.,])([\d.,]+)( [a-z ]+)? instead of \1(?![\d.,])"),
    re.compile(r"(?<![\d.])1 times\b"),
    re.compile(r"(?<![\d.])(?:0|100) %"),
    re.compile(r"relative: .*\b1\.00\b"),
    re.compile(r"relative: \)"),
    re.compile(r"[;(] ?1(?: x 1)* points? for each thread"),
)
SIZES = re.compile(r"(?m)^\S+ over (.+): ([\d,]+) elements, back end")
NAMED = re.compile(r"(?:blocks?|chunks) of ([\d,]+)")
FUSED = re.compile(r"as one loop over (.+?): \d")
QUICK = (("cpu", "volna_lake"), ("cpu", "bookleaf_sod"), ("emulated", "airfoil"), ("emulated", "tophat1d"))


def idle(text: str) -> list[str]:
    """The lines of an explanation that compare a number with itself."""
    return [line for line in text.splitlines() if any(one.search(line) for one in IDLE)]


def too_many(text: str) -> list[str]:
    """Those that name more elements of a loop than there are."""
    sizes = {over: int(size.replace(",", "")) for over, size in SIZES.findall(text)}
    found, size = [], None
    for line in text.splitlines():
        if head := SIZES.match(line):
            size = int(head[2].replace(",", ""))
        fused = FUSED.search(line)
        most = sizes.get(fused[1]) if fused else size
        if most is not None and any(int(one.replace(",", "")) > most for one in NAMED.findall(line)):
            found.append(line)
    return found


def explained(name: str) -> str:
    """All that the smallest form of a case explains."""
    kind = cases()[name]
    small = [Setting(tuple(key.split(".")), value, "small") for key, value in kind.small.items()]
    return str(kind(build(kind.Config, small)).program.explain())


@pytest.mark.parametrize(("backend", "name"), [
    pytest.param(backend, name, marks=() if (backend, name) in QUICK else pytest.mark.slow)
    for backend in ("cpu", "emulated") for name in cases()
])  # fmt: skip
def test_explanations_of_all_cases_compare_nothing_with_itself(backend: str, name: str) -> None:
    ml.use(backend)
    text = explained(name)
    assert SIZES.search(text) and not idle(text) and not too_many(text)


@pytest.mark.parametrize("line", [
    "  a+b as one loop over cells: 16 bytes per element instead of 16", "16 instead of 16; more",
    "blocks of 736 faces load 1 times the memory", "; chunks of 12, 0 % evaluated again",
    "computed again at 2 points it would take 100 % of the time", "(relative: tile 1.00, color 2.00)", "(relative: )",
    "  schedule   box block=64 (points of a grid; 1 x 1 points for each thread; deterministic)",
])  # fmt: skip
def test_comparisons_that_tell_nothing_are_seen(line: str) -> None:
    assert idle(line)


def test_those_that_tell_something_are_not() -> None:
    lines = ["16 bytes per element instead of 161", "116 instead of 16", "load 1.1 times the memory", "10 % evaluated",
             "(relative: tile 1.01)", "2 x 1 points for each thread"]  # fmt: skip
    assert not idle("\n".join(lines))
    loop = "push over faces: 736 elements, back end cpu\n  plan       reuse 2.00, 40 cache lines per block of {}"
    assert too_many(loop.format("1024")) and not too_many(loop.format("736"))
    fused = "  a+b as one loop over faces: 12 bytes per element; chunks of {}\n" + loop.format(64)
    assert too_many(fused.format("1,024")) and not too_many(fused.format("512"))


@pytest.mark.parametrize(("shape", "said"), [
    ((3, 3), "as given: all 12 faces together load 1.8 times the memory they need, which is good enough (up to 8)"),
    ((20, 20), "as given: all 400 cells together load no more memory than they need"),
    ((30, 30), "as given: blocks of 1024 faces load no more memory than they need"),
    ((60, 60), "as given: blocks of 1024 faces load 1.1 times the memory they need, which is good enough (up to 8)"),
])  # fmt: skip
def test_a_numbering_is_told_by_blocks_that_there_are(shape: tuple[int, int], said: str) -> None:
    assert str(arrangement(ml.generate.box(shape), "auto")) == said


def test_parts_of_sentences() -> None:
    assert in_words(ElementsPerThread(2, 4), 100) == "; 8 elements for each thread, 2 at once"
    assert in_words(ElementsPerThread(2, 4), 3) == "; 3 elements for each thread, 2 at once"
    assert in_words(ElementsPerThread(2, 1), 100) == "; 2 elements for each thread"
    assert in_words(ElementsPerThread(2, 4), 1) == in_words(ElementsPerThread(), 9) == ""
    assert _ratios({"tile": "1.00", "color": "2.00"}) == " (relative: color 2.00; as long: tile)"
    assert _ratios({"tile": "1.00"}) == " (as long: tile)" and _ratios({}) == ""
    assert LineTiling(kind="strided", tile=16).in_words(4, 100, is_simt=False) == "strided lines; side by side: 4"
    assert LineTiling(kind="strided", tile=16).in_words(1, 100, is_simt=False) == "strided lines"
    assert "points to a thread: 9, carries" in LineTiling(points=16).in_words(4, 9, is_simt=True)
