"""compute-sanitizer over every strategy, layout and precision: clean, and not clean where a bug is planted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cuda import nvrtc
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.errors import CompilerError
from meshloom.schedule.plan.plan import Plan, arrays
from tests.backend import sanitized
from tests.backend.sanitized import Case, Report, errors_in
from tests.schedule.spoil import replaced

CLEAN = {
    "memcheck": "========= COMPUTE-SANITIZER\nbox aos float64 tile block=64: right\n"
    "========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= COMPUTE-SANITIZER\n"
    "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
}
FOUND = {
    "memcheck": "========= Invalid __global__ write of size 4 bytes\n=========     at outside+0x70\n"
    "=========     by thread (127,0,0) in block (0,0,0)\n=========     Address 0x7f5c00000200 is out of bounds\n"
    "========= ERROR SUMMARY: 1 error\n",
    "racecheck": "========= Error: Race reported between Write access at race+0x90\n"
    "=========     and Read access at race+0xf0 [508 hazards]\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
}


@pytest.mark.parametrize("tool", sanitized.TOOLS)
def test_summaries_are_read(tool: str) -> None:
    assert errors_in(CLEAN[tool]) == 0 and errors_in(FOUND[tool]) == 1
    assert errors_in("Traceback (most recent call last): ...") is None


def test_a_report_is_clean_only_with_a_summary_and_a_good_end() -> None:
    clean = Report(0, 0, CLEAN["memcheck"])
    assert clean.clean and clean.unusable is None
    assert not replace(clean, errors=2).clean and not replace(clean, errors=None).clean
    assert not replace(clean, exit_code=sanitized.WRONG_EXIT).clean
    assert not replace(clean, exit_code=sanitized.ERROR_EXIT).clean
    refused = Report(0, 1, "========= COMPUTE-SANITIZER\n========= Device not supported. Please refer to the manual.\n")
    assert refused.unusable == "Device not supported. Please refer to the manual."
    assert Report(3, 9, refused.text).unusable is None, "it worked, and found something"


@pytest.mark.slow
def test_the_loops_are_right_when_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of them: the matrix of tests/schedule runs the rest."""
    monkeypatch.setattr(sanitized, "LAYOUTS", ("aosoa4",))
    monkeypatch.setattr(sanitized, "PRECISIONS", (np.float64,))
    monkeypatch.setattr(sanitized, "GRID_VARIANTS", ("plain",))
    assert sanitized.run_loops("emulated") == 0
    monkeypatch.setattr(sanitized, "WIDTHS", (64,))
    assert sanitized.run_grids("emulated") == 0
    assert sanitized.run_widths("emulated") == 0


def test_a_wrong_result_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "run", lambda self, wish, spoil=None: [np.array(0.0 if wish is None else 1.0)])
    monkeypatch.setattr(sanitized, "GRID_VARIANTS", ())
    monkeypatch.setattr(sanitized, "WIDTHS", ())
    assert sanitized.run_program("loops", "emulated") == sanitized.WRONG_EXIT


def test_spoilt_plans_are_spoilt() -> None:
    """They differ from the right ones in the arrays that the code uses; nobody verifies them again."""
    ml.use("emulated")
    for strategy, spoil, name in (("color", sanitized.beyond, "visit"),
                                  ("block_color", sanitized.one_color, "color_positions")):  # fmt: skip
        case = Case("box", "aos", np.float64)
        wish = ml.Schedule(strategy, block=sanitized.BLOCK)
        plan = sanitized.exchange.loop(case.faces, *case.arguments, schedule=wish).plan
        assert (arrays(spoil(plan))[name] != arrays(plan)[name]).any()


class Placed(np.ndarray):
    """An array on a device of its own."""


class Moving(EmulatedCuda):
    """Fields move when a loop first uses them, as they do on a real device."""

    name = "moving"

    def place(self, storage: np.ndarray) -> np.ndarray:
        return storage if isinstance(storage, Placed) else storage.view(Placed)


def test_a_spoilt_plan_survives_the_move_to_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan without colors does nothing: if the right one came back, cells would change."""
    monkeypatch.setitem(_BACKENDS, "moving", Moving())
    ml.use("moving")

    def nothing(plan: Plan) -> Plan:
        return replaced(plan, "color_offsets", np.zeros(1, np.int64))

    wish = ml.Schedule("color", block=sanitized.BLOCK)
    assert (Case("box", "aos", np.float64).run(wish)[0] != 1.0).any()
    assert (Case("box", "aos", np.float64).run(wish, nothing)[0] == 1.0).all()


@pytest.mark.parametrize("source", [sanitized.OUTSIDE, sanitized.RACE], ids=["outside", "race"])
def test_planted_kernels_compile(source: str) -> None:
    try:
        nvrtc.library()
    except CompilerError as error:
        pytest.skip(str(error))
    nvrtc.build(source, "planted", "sm_90")


def test_a_tool_that_finds_something_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pretended sanitizer that finds the planted bugs, and one in the loops too."""
    tool = tmp_path / "sanitizer"
    for in_loops, expected in ((0, 0), (1, 1)):
        tool.write_text(
            f"#!{sys.executable}\nimport sys\nn = {in_loops} if sys.argv[-1] == 'loops' else 1\n"
            "print(f'========= ERROR SUMMARY: {n} errors')\nsys.exit(9 if n else 0)\n"
        )
        tool.chmod(0o755)
        assert sanitized.check_everything(str(tool)) == expected
    assert "NOT AS IT MUST BE" in capsys.readouterr().out


# --- with a device ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sanitizer() -> str:
    """The tool, where it is there and works on the device."""
    found = sanitized.find_sanitizer()
    if found is None:
        pytest.skip("compute-sanitizer was not found")
    if reason := sanitized.check(found, "memcheck", "outside").unusable:
        pytest.skip(f"compute-sanitizer cannot be used here: {reason}")
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("tool", sanitized.TOOLS)
def test_every_loop_is_clean(tool: str, sanitizer: str) -> None:
    found = sanitized.check(sanitizer, tool, "loops")
    assert found.clean, "\n".join(found.text.splitlines()[-60:])
    assert "WRONG" not in found.text and found.text.count(": right") >= 12 * len(ml.strategies())


@pytest.mark.gpu
@pytest.mark.parametrize(("program", "tool"), sanitized.PLANTED.items())
def test_a_planted_bug_is_found(program: str, tool: str, sanitizer: str) -> None:
    found = sanitized.check(sanitizer, tool, program)
    assert found.errors and not found.clean, found.text
