"""A number that was fitted lives with the device's data, not in the code that uses it.

The rule: in the modules that choose, no number but 0, 1 and 2 is written down, in a constant, a default or a formula.
Of solvers, whose formulas are full of numbers, it holds for constants. Numbers in subscripts and in text for a person
decide nothing. What is left stands below, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "meshloom"
ROOMS = ("target/rates.py", "schedule/choice", "schedule/strategies", "schedule/fused", "schedule/lines",
         "operation/fusion", "backend/cuda", "backend/cpu.py", "linalg")  # fmt: skip
#: Where constants are looked at, and no formulas.
CONSTANTS = "linalg"
#: Chosen by name alone, as a reference: nothing weighs them.
BY_NAME = "schedule/lines/reference"

BYTES = "bytes of a number or an index, or a row that is moved at once: what types and instructions have"
FORM = "what a plan or a program looks like, whatever runs it: stored plans and their checks depend on it"
ASKED = "what a person may ask for, from and to"
ROUNDING = "what rounding leaves"
OURS = "what CUDA or a file of ours has by definition"
PATIENCE = "how soon somebody who waits is heard: it grows with what is measured on the way"
METHOD = "what a numerical method does, whatever runs it"
MODEL = "a Work that a test makes by hand; counts give all of it"
#: Module -> what stands in a line that has such a number -> why.
LEFT: dict[str, dict[str, str]] = {
    "schedule/choice/cost.py": {"8.0 / row_bytes": BYTES, "1.0 - 1e-12": ROUNDING, "beside: float": MODEL,
                                "colors: float": MODEL, "blocks: int = 1024": MODEL},
    "schedule/choice/counts.py": {"LINE = 64": "bytes of a cache line that are counted, for a person to read"},
    "schedule/choice/explain.py": {"count < 1000": "units for a person", "count /= 1000": "units for a person"},
    "schedule/choice/schedule.py": {"VECTORS = ": ASKED, "MOST_ELEMENTS = ": ASKED, "_BOUNDS = ": ASKED,
                                    "self.vector >= 16": BYTES},
    "schedule/choice/symmetry.py": {"PRIME = ": "arithmetic modulo a prime", "maxsize=256": "a cache of answers",
                                    "digest_size=16": "arithmetic modulo a prime"},
    "schedule/strategies/box.py": {"_ALIGNED = 16": "doubles of a cache line", "2**40": FORM},
    "schedule/strategies/common/gather.py": {"MOST_IN_ROW = ": FORM, "MOST_BEYOND = ": FORM, "MOST_ROOM = ": FORM,
                                             "2 <= best <= MOST_IN_ROW": FORM},
    "schedule/strategies/common/points.py": {"NEAR = 16": FORM, "VECTOR = 16": BYTES, "VARIANTS = ": ASKED,
                                             "itemsize // 4": BYTES},
    "schedule/strategies/common/stage.py": {"size % 16 == 0 and size <= 64": BYTES},
    "schedule/strategies/owner.py": {"4 * work.incidences + 8 * work.targets": BYTES},
    "schedule/strategies/staged.py": {"4 * work.incidences + 8 * work.targets": BYTES},
    "schedule/strategies/strip.py": {"4 * work.elements": BYTES},
    "schedule/strategies/tile.py": {"8 * work.incidences + 8 * work.targets": BYTES},
    "schedule/fused/fused.py": {"TARGET >> 5": "bits of a word", "// 32) * 32": "bits of a word"},
    "schedule/lines/gpu_solve.py": {"MOST_UNROLLED = 8": "how a nest is printed: nests know no target"},
    "schedule/lines/on_gpu.py": {"itemsize == 8": BYTES, "* 3 * form.points": FORM, ".reshape(3, count, m)": FORM,
                                 "-4 * len(spec.operands)": FORM, "Array(REALS, ANY, ANY, 3, ANY)": FORM},
    "schedule/lines/segments.py": {"FAR = 1 << 30": "beyond every line", "4.0 * np.finfo(dtype).eps": ROUNDING,
                                   "cut.points, 3)": FORM},
    "schedule/lines/spec.py": {"points: int = 16": FORM, "tile: int = 16": FORM, "threads: int = 1024": FORM,
                               "batch: int = 4": FORM, "most: int = 1024": FORM, '"points": (1': ASKED,
                               '"batch": (1': ASKED, '"carries": (0': ASKED},
    "schedule/lines/systems.py": {"carries = 4 * cells": FORM},
    "schedule/lines/tables.py": {"eps) / 8.0": ROUNDING},
    "operation/fusion/cost.py": {"default=8) / 8": BYTES},
    "operation/fusion/recompute.py": {"itemsize // 4": BYTES},
    "backend/cuda/backend.py": {">= 2**31": BYTES, "_WIDTH = ": BYTES, "// 16) * 16": BYTES},
    "backend/cuda/dialect.py": {"_FINISH_THREADS = 1024": "of the one block that ends a sum: how it is rounded"},
    "backend/cuda/driver.py": {"_SLOT = 8": OURS, "_ALL = ": OURS, "_NO_CONTEXT = ": OURS, "CARVEOUT, 100": OURS},
    "backend/cuda/engine.py": {"/ 1e3": OURS, "ones(1 << 26)": "a copy is measured", "range(5)": "a copy is measured"},
    "backend/cuda/graph.py": {"MOST_LOOPS = ": "a cache of loops", "FIRST = 4": PATIENCE, "max(took, 1e-9)": PATIENCE},
    "backend/cuda/history.py": {"THREADS = 32": "of a kernel that copies a row of globals"},
    "backend/cuda/nvrtc.py": {"to_bytes(8": OURS},
    "backend/cuda/repeat.py": {"FIRST = 4": PATIENCE, "MOST_GROWTH = 8": PATIENCE, "OLDEST_DRIVER = ": OURS,
                               "cupy.zeros(3": OURS, "start, 1e-9": PATIENCE},
    "linalg/axis_cells.py": {"ROUNDED = ": ROUNDING, "WINDOW = 4": METHOD},
    "linalg/colored_sgs.py": {"MOST_SWEEPS = ": ASKED, "MOST_BLOCK = ": ASKED, "LARGEST_ERROR = ": ROUNDING},
    "linalg/eisenstat.py": {"CAREFUL = ": METHOD, "STALE = ": METHOD, "ROUNDS = ": METHOD},
    "linalg/factors.py": {"LEAST_LEFT = ": ROUNDING},
    "linalg/fast_poisson.py": {"MOST_TIMES = ": METHOD, "SAFE = ": ROUNDING},
    "linalg/fft_nests.py": {"EDGE, ROWS = ": FORM},
    "linalg/gmres.py": {"MOST_STEPS = ": ASKED, "NOTHING_NEW = ": ROUNDING},
    "linalg/iteration.py": {"MOST_ITERATIONS = ": ASKED, "RESTARTS = ": METHOD, "SMALLEST = ": ROUNDING},
    "linalg/lines.py": {"_SOLVE = 5": "operations of a solve, counted"},
    "linalg/matrix.py": {"LARGEST_BLOCK = ": ASKED},
    "linalg/multigrid.py": {"ALIKE = ": METHOD, "MOST_STEPS = ": ASKED, "STRETCHED = ": METHOD,
                            "MOST_CYCLES = ": ASKED},
    "linalg/operator.py": {"MOST_GROWTH = ": ROUNDING},
    "linalg/piccg.py": {"MOST_COLORS = ": ASKED, "MOST_BLOCK = ": ASKED, "MOST_FILL = ": ASKED,
                        "MOST_WINDOW = ": ASKED},
    "linalg/red_black.py": {"LEAST = ": ROUNDING},
    "linalg/red_black_kernels.py": {"LINKS, WIDTHS, WALLS, NUMBERS = ": FORM},
    "linalg/row_storage.py": {"WIDTHS = ": FORM, "MOST_CHUNK = ": ASKED},
    "linalg/smoothing.py": {"DAMPING = ": METHOD},
    "linalg/solid_cells.py": {"MOST_FACES = ": ASKED},
    "linalg/stored_rows.py": {"FIRST_SHIFT = ": METHOD, "LARGEST_SHIFT = ": METHOD},
    "linalg/symmetric.py": {"ROUNDED = ": ROUNDING},
    "linalg/systems.py": {"ROUNDINGS = ": ROUNDING},
    "linalg/transforms.py": {"MOST_DENSE = ": ASKED},
}  # fmt: skip


def modules() -> Iterator[Path]:
    for room in ROOMS:
        path = PACKAGE / room
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def numbers(tree: ast.AST) -> Iterator[int]:
    """The lines of numbers that may decide something."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Constant):
            if type(node.value) in (int, float) and node.value not in (0, 1, 2):
                yield node.lineno
        elif isinstance(node, ast.Subscript):
            yield from numbers(node.value) if isinstance(node.value, ast.AST) else ()
        elif not isinstance(node, ast.JoinedStr):
            yield from numbers(node)


def constants(tree: ast.Module) -> ast.Module:
    """What a module says of its constants."""
    return ast.Module([one for one in tree.body if isinstance(one, ast.Assign | ast.AnnAssign)], [])


def found() -> list[tuple[str, str]]:
    """(module, line) of every such number, each line once."""
    lines: dict[tuple[str, str], None] = {}
    for path in modules():
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        if not name.startswith(BY_NAME):
            written, tree = text.splitlines(), ast.parse(text)
            looked_at = constants(tree) if name.startswith(CONSTANTS) else tree
            lines |= dict.fromkeys((name, written[n - 1].strip()) for n in numbers(looked_at))
    return list(lines)


def test_no_number_decides_but_those_of_the_devices_files() -> None:
    left = [f"{name}: {line}" for name, line in found() if not any(part in line for part in LEFT.get(name, ()))]
    assert not left, "numbers that were fitted belong to meshloom/target/devices; others into LEFT, with the reason"


def test_nothing_is_excused_that_is_not_there() -> None:
    lines = found()
    gone = [(name, part) for name, parts in LEFT.items() for part in parts
            if not any(name == one and part in line for one, line in lines)]  # fmt: skip
    assert not gone


@pytest.mark.parametrize("line", ["BLOCK = 96", "def f(x, most=7): pass", "if n > 3.5: pass", "x = {'a': (1, 5)}[k]"])
def test_numbers_are_found(line: str) -> None:
    assert list(numbers(ast.parse(line))) == [1]


@pytest.mark.parametrize(("text", "lines"), [("MANY = 96\ndef f(x): return 7 * x", [1]), ("def f(): return 96", [])])
def test_of_solvers_constants_are_found(text: str, lines: list[int]) -> None:
    assert list(numbers(constants(ast.parse(text)))) == lines


@pytest.mark.parametrize("line", ["x = y[3]", "x = y[3:40]", "x = f'{100 * y:.3g}'", "x = 2 * y - 1", "x = True"])
def test_what_decides_nothing_is_not(line: str) -> None:
    assert not list(numbers(ast.parse(line)))
