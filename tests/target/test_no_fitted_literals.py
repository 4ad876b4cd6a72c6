"""A number that was fitted lives with the device's data, not in the code that uses it.

The rule: in the modules that choose, plan and run, no number but 0, 1 and 2 is written down, in a constant, a default
or a formula. Where formulas are full of numbers, it holds for what may be a threshold: sizes (64 and more), and what
something is compared with or bounded by, also by the name of a constant; in ``linalg`` for all constants. In solvers,
files and pages, which say nothing about machines, it holds for what is both. Numbers in subscripts and in text for a
person decide nothing; how many numbers a type holds was not fitted, nor was how much a function remembers. What is left
stands below, each with its reason.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.docs.test_rooms import PACKAGE, files, parsed

#: Where every number is looked at.
ENGINE = ("target/", "schedule/", "operation/", "backend/", "order/")
#: Where thresholds are looked for in formulas, too; and those of them whose constants are all looked at.
MIDDLE, CONSTANTS = ("linalg/", "mesh/", "kernel/", "native/", "library/", "dist/", "compact/"), "linalg/"
#: In these rooms, but shapes of bodies and what a person may ask for.
SHAPES = "mesh/generators/"
#: Drawn for a person: judged as pages are.
PAGES = ("operation/dataflow_svg.py",)
#: Chosen by name alone, as a reference: nothing weighs them.
BY_NAME = "schedule/lines/reference"
#: From here on a number may be a size of something that somebody has timed.
SIZE = 64
BOUNDS = {"min", "max", "clip", "minimum", "maximum"}
ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE
REMEMBERING = {"cache", "lru_cache"}
FOLDED: dict[type[ast.operator] | type[ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.LShift: operator.lshift, ast.Pow: operator.pow, ast.USub: operator.neg,
}  # fmt: skip

BYTES = "bytes of a number or an index, or a row that is moved at once: what types and instructions have"
FORM = "what a plan or a program looks like, whatever runs it: stored plans and their checks depend on it"
ASKED = "what a person may ask for, from and to"
ROUNDING = "what rounding leaves"
OURS = "what CUDA or a file of ours has by definition"
PATIENCE = "how soon somebody who waits is heard: it grows with what is measured on the way"
METHOD = "what a numerical method does, whatever runs it"
MODEL = "a Work that a test makes by hand; counts give all of it"
TOLD = "from where on a person is told that something takes long, or refused"
AT_ONCE = "how much is worked on at a time, so that memory suffices: neither a choice nor a bit hangs on it"
MEASURE = "how the order of a mesh is measured, sampled: fitted numbers are numbers of this measure"
MEASURED = "how long a measurement of a machine takes, and of how much: nothing weighs it"
KEPT = "how much a cache keeps"
ON_PAGE = "what a page, a picture or a line for a person has room for"
DEVICE = "what devices have, from their data sheets: the data that the sentence speaks of"
PRINTED = "how a nest is printed: nests know no target"
ARITHMETIC = "arithmetic of whole numbers: hashes, counters, digits, bits"
SHAPE = "how many nodes or axes there are"
FILES = "rights, sizes and limits of files, by definition of what reads them"
SQUARES = "sides of a square of the textbook's transposition, for which every GPU has room: nothing weighs them"
PHYSICS = "a number of the physics, or of what is compared with it"
#: Module -> what stands in a line that has such a number -> why.
LEFT: dict[str, dict[str, str]] = {
    "schedule/choice/cost.py": {"8.0 / row_bytes": BYTES, "1.0 - 1e-12": ROUNDING, "target_reuse: float": MODEL,
                                "colors: float": MODEL, "blocks: int = 1024": MODEL},
    "schedule/choice/counts.py": {"LINE = 64": "bytes of a cache line that are counted, for a person to read"},
    "schedule/choice/explain.py": {"count < 1000": "units for a person", "count /= 1000": "units for a person"},
    "schedule/choice/schedule.py": {"VECTORS = ": ASKED, "MOST_ELEMENTS = ": ASKED, "_BOUNDS = ": ASKED,
                                    "self.vector >= 16": BYTES},
    "schedule/choice/symmetry.py": {"PRIME = ": ARITHMETIC, "digest_size=16": ARITHMETIC},
    "schedule/strategies/box.py": {"_ALIGNED = 16": "doubles of a cache line", "2**40": FORM},
    "schedule/strategies/common/gather.py": {"MOST_IN_ROW = ": FORM, "MOST_BEYOND = ": FORM, "MOST_ROOM = ": FORM,
                                             "2 <= best <= MOST_IN_ROW": FORM},
    "schedule/strategies/common/points.py": {"NEAR = 16": FORM, "VARIANTS = ": ASKED, "itemsize // 4": BYTES},
    "schedule/strategies/common/stage.py": {"size % 16 == 0 and size <= 64": BYTES},
    "schedule/strategies/block_staged.py": {"2 * work.incidences + 8 * work.touched": BYTES},
    "schedule/strategies/owner.py": {"4 * work.incidences + 8 * work.targets": BYTES},
    "schedule/strategies/staged.py": {"4 * work.incidences + 8 * work.targets": BYTES},
    "schedule/strategies/strip.py": {"4 * work.elements": BYTES},
    "schedule/strategies/tile.py": {"8 * work.incidences + 8 * work.targets": BYTES},
    "schedule/fused/fused.py": {"TARGET >> 5": "bits of a word", "// 32) * 32": "bits of a word"},
    "schedule/lines/gpu_solve.py": {"MOST_UNROLLED = 8": PRINTED},
    "schedule/lines/on_gpu.py": {"itemsize == 8": BYTES, "* 3 * tiling.points": FORM, ".reshape(3, count, m)": FORM,
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
    "backend/cuda/graph.py": {"MOST_LOOPS = ": KEPT, "FIRST = 4": PATIENCE, "max(took, 1e-9)": PATIENCE},
    "backend/cuda/history.py": {"THREADS = 32": "of a kernel that copies a row of globals"},
    "backend/cuda/nvrtc.py": {"to_bytes(8": OURS},
    "backend/cuda/peaks.py": {"THREADS, BLOCKS_EACH = ": MEASURED, "TARGETS = ": MEASURED, "REPEATS = ": MEASURED,
                              "STEPS = ": MEASURED, "VALUES = ": MEASURED, "0.75": MEASURED},
    "backend/cuda/repeat.py": {"FIRST = 4": PATIENCE, "MOST_GROWTH = 8": PATIENCE, "OLDEST_DRIVER = ": OURS,
                               "cupy.zeros(3": OURS, "start, 1e-9": PATIENCE},
    "linalg/axis_cells.py": {"ROUNDED = ": ROUNDING, "WINDOW = 4": METHOD},
    "linalg/colored_sgs.py": {"MOST_SWEEPS = ": ASKED, "MOST_BLOCK = ": ASKED, "LARGEST_ERROR = ": ROUNDING},
    "linalg/eisenstat.py": {"CAREFUL = ": METHOD, "STALE = ": METHOD, "ROUNDS = ": METHOD},
    "linalg/factors.py": {"LEAST_LEFT = ": ROUNDING},
    "linalg/fast_poisson.py": {"MOST_TIMES = ": METHOD, "SAFE = ": ROUNDING},
    "linalg/fft_nests.py": {"EDGE, ROWS = ": SQUARES},
    "linalg/gmres.py": {"MOST_STEPS = ": ASKED, "RESTART = ": METHOD, "NOTHING_NEW = ": ROUNDING},
    "linalg/iteration.py": {"MOST_ITERATIONS": ASKED, "TOLERANCE = ": METHOD, "RESTARTS = ": METHOD,
                            "SMALLEST = ": ROUNDING},
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
    "linalg/poisson.py": {"100.0 * float(np.finfo": ROUNDING},
    "schedule/spec.py": {"VECTOR = 16": BYTES, "_PIECE, _MOST_PIECES = ": BYTES},
    "schedule/nest/binned.py": {"WORDS = ": FORM, "MOST_SUMMANDS = ": ARITHMETIC, "WAITING = ": PRINTED,
                                "unroll, any_order = BINNED": PRINTED},
    "schedule/nest/printer.py": {'"*": 13': OURS, '"==": 9': OURS, "_SELECT, _PREFIX, _ATOM": OURS},
    "schedule/nest/reduce.py": {"unroll: ClassVar": PRINTED},
    "schedule/plan/schema.py": {"_COUNT = ": "more than any size"},
    "schedule/plan/plan_cache.py": {"SCHEMA = ": FORM},
    "schedule/plan/topology.py": {"2**31": BYTES},
    "operation/arguments.py": {"g in (4, 2, 1)": BYTES},
    "operation/calls.py": {"MOST_SPECIALIZATIONS = ": KEPT},
    "operation/inspection.py": {"CHUNK = ": AT_ONCE, "MOST_STEPS = ": ON_PAGE, "threshold=32": ON_PAGE},
    "operation/program.py": {"MOST_REPLAYS = ": ASKED, "MOST_NESTED = ": ASKED, "MOST_CACHED = ": KEPT,
                             "MOST_TAPES = ": KEPT},
    "operation/run_arguments.py": {"MOST_INLINED = ": TOLD, "MOST_MEMORY = ": TOLD, "8 * times": BYTES},
    "operation/weak_cache.py": {"MOST_SHARED = ": KEPT},
    "backend/__init__.py": {"LANES = ": DEVICE, "MOST_THREADS": ASKED},
    "backend/compiling.py": {"MOST_LOWERED = ": KEPT},
    "backend/numpy.py": {"CHUNK = ": "how the reference rounds its sums, which other back ends are compared with"},
    "backend/numpy_binned.py": {"BITS, LEAST = ": ARITHMETIC, "CUTS = ": ARITHMETIC,
                                "PLUS_ZERO, SPECIAL = ": ARITHMETIC, "_HALF = ": ARITHMETIC},
    "backend/translation_unit.py": {"_C_OF = ": BYTES},
    "target/cuda.py": {"lanes=32, multiprocessors=132, block_threads=1024": DEVICE,
                       "shared_unasked=49_152, cache_line=128": DEVICE},
    "target/hip.py": {"WAVE64, WAVE32 = ": DEVICE, "_UNITS = ": DEVICE, "lanes=WAVE64": DEVICE,
                      "shared=65_536, shared_unasked=65_536": DEVICE, "GFX90A = ": DEVICE, "GFX942 = ": DEVICE},
    "target/target.py": {"SHARED_ROW = ": DEVICE, "registers // 8": DEVICE, "cache_line=64": DEVICE},
    "target/device_files.py": {"_LARGEST = ": ASKED, "len(key) == 3": FORM},
    "order/__init__.py": {"USUAL_BLOCK = ": "numberings depend on it", "2**31 - 1": ASKED,
                          "cloud.shape[1] <= 3": SHAPE},
    "order/graph.py": {"HUB_WINDOW = ": METHOD, "_EVERYTHING = ": "more than any window"},
    "order/partition.py": {"_METIS_IMBALANCE = ": METHOD, "8 * len(": FILES, "offsets * 8": FILES},
    "order/quality.py": {"TYPICAL_BLOCK = ": MEASURE, "SAMPLED_": MEASURE, "_TARGETS_PER_LINE = ": BYTES,
                         "sampled_blocks(len(rows), block, 8)": MEASURE, "line_bytes: int": BYTES},
    "kernel/collect.py": {"MODERATE = ": ROUNDING, "MOST_TERMS = ": METHOD},
    "kernel/dense.py": {"LARGEST = ": ASKED, "_EXPANDED = ": METHOD},
    "kernel/notes.py": {"MOST = ": TOLD},
    "kernel/operands.py": {"np.broadcast_arrays: 99": "any number of arguments"},
    "kernel/passes.py": {"abs(exponent) > 16": ROUNDING},
    "kernel/random.py": {"_MULTIPLIERS = ": METHOD, "_WEYL = ": METHOD, "MOST_BLOCKS = ": ARITHMETIC,
                         "0xFFFF": ARITHMETIC, "10_000": ASKED},
    "kernel/sameness.py": {"len(values) < 64": "bytes: as short as a hash of them, or twice as long"},
    "kernel/state.py": {"MOST_SIGNATURES = ": KEPT},
    "kernel/survey_values.py": {"MOST_BYTES = ": TOLD},
    "kernel/symbols.py": {"180.0": ARITHMETIC},
    "kernel/trace.py": {"NODE_WARNING = ": TOLD, "ENTRY_WARNING = ": TOLD, "MOST_NODES = ": TOLD},
    "mesh/arrange.py": {"block: int = 256": ASKED},
    "mesh/assigned.py": {"MOST_LISTED = ": ASKED, "CHUNK = ": AT_ONCE},
    "mesh/box.py": {"MOST_RADIUS = ": ASKED, "MOST_PARTS = ": KEPT,
                    "MOST_PADDING = ": "memory that a person gives up for aligned rows: docs/grids.md promises it"},
    "mesh/components.py": {"MOST_COMPONENTS = ": ASKED, "MOST_AXES = ": ASKED},
    "mesh/corners.py": {"_ROUNDING = ": ROUNDING, "/ 64.0": METHOD, "(len(p) - 3)": SHAPE, "4.0 * np.pi": SHAPE,
                        "1e-12": ROUNDING},
    "mesh/validation_error.py": {"_MOST_LISTED = ": ON_PAGE},
    "mesh/faces.py": {"kind.nodes < 3": SHAPE, "_MIXERS = ": ARITHMETIC, "64 - bits": ARITHMETIC},
    "mesh/formula.py": {"MOST_OPERATIONS = ": ASKED},
    "mesh/generate.py": {"_SURFACE_POINTS = ": SHAPE, "< 1e-3": ROUNDING, "12 * prod": SHAPE},
    "mesh/geometry.py": {"shape[1] <= 3": SHAPE},
    "mesh/grid.py": {"_METRIC_DEGREE = ": METHOD},
    "mesh/integrals.py": {"count < 4": SHAPE},
    "mesh/layout.py": {"MOST_WIDTH = ": ASKED},
    "mesh/locate.py": {"_ON_A_SIDE = ": ROUNDING, "_FLAT = ": ROUNDING},
    "mesh/mesh.py": {"block: int = 256": ASKED},
    "mesh/periodic.py": {"_MOST_APART = ": METHOD, "_SAME_SHAPE = ": METHOD},
    "mesh/html_repr.py": {"MOST_READ = ": TOLD, "_MOST_DRAWN = ": ON_PAGE, "_MOST_RANGES = ": ON_PAGE},
    "mesh/validation.py": {"_SAME_PLACE = ": METHOD, "_FULL_TURN = ": SHAPE, "_SLACK = ": ROUNDING,
                           "_TOGETHER = ": AT_ONCE, "np.uint64(0x": ARITHMETIC, "1e-300": ROUNDING},
    "native/algorithms.py": {"MOST_BYTES = ": ARITHMETIC, "else 64": ARITHMETIC},
    "native/cache.py": {"_LOCK_SECONDS = ": PATIENCE, "0o": FILES, "bytes(1 << 16)": FILES},
    "native/charges.py": {"_CHUNK = ": PATIENCE},
    "native/compiler.py": {"SECONDS = ": PATIENCE, "(command, 126": FILES, "<= 1e6": ASKED},
    "native/eviction.py": {"LIMIT = ": FILES, "SPARED = ": PATIENCE, "ABANDONED = ": PATIENCE, "_UNITS = ": ARITHMETIC},
    "native/ownership.py": {"_MOST_LINKS = ": FILES},
    "native/face_matching.py": {"_MOST = ": SHAPE},
    "native/peaks.py": {"BYTES = ": MEASURED, "STEPS = ": MEASURED},
    "native/runtime.py": {"megabytes": "a copy is measured", "max(1024, cores)": ASKED},
    "compact/scheme.py": {"_LEAST_PIVOT = ": ROUNDING},
    "compact/schemes.py": {"limit_denominator(": ROUNDING},
    "compact/taylor.py": {"EXACT = ": METHOD},
    "dist/agreement.py": {"MOST_BEGUN = ": KEPT},
    "dist/partition.py": {"MOST_RANKS = ": ASKED, "_BINS = ": AT_ONCE},
    "dist/shared.py": {"LEAST = ": AT_ONCE, "LARGE = ": AT_ONCE, "_ALIGNED = ": FILES},
    "dist/world.py": {"LONGEST_NOTE = ": FORM},
    "dist/messages.py": {"_SOON = ": PATIENCE},
    "dist/ending.py": {"_MOST = ": FORM, "_CODE_BITS = ": FORM},
    "dist/waits.py": {"STILL_UNDER_WAY = ": PATIENCE, "_SHORTEST, _LONGEST = ": PATIENCE,
                      "_STAGGER, _LATEST = ": PATIENCE},
}  # fmt: skip
#: The same where machines are none of a module's business.
ELSEWHERE: dict[str, dict[str, str]] = {
    "cli/cache.py": {"value < 1000": ON_PAGE},
    "config.py": {"_MAX_BYTES = ": FILES, "SMALLEST, LARGEST = ": ASKED},
    "io/checkpoint.py": {"_MOST_IN_ATTRIBUTE = ": FILES},
    "io/checksummed.py": {"_PAGE = ": FILES},
    "io/collective.py": {"BLOCK = ": FILES},
    "io/draw/canvas.py": {"_FAR = ": ON_PAGE, "_LEAST = ": ON_PAGE},
    "io/draw/maps.py": {"_MOST_EVEN = ": ON_PAGE},
    "io/draw/raster.py": {"_MOST_AT_ONCE = ": AT_ONCE},
    "launch.py": {"_LONG_TO_COMPILE = ": TOLD},
    "markup.py": {"_MOST = ": ON_PAGE},
    "mesh/generators/planar.py": {"around: int = ": ASKED, "along: int = ": ASKED},
    "run/facts.py": {"_MOST_BYTES = ": FILES},
    "run/names.py": {"_LONGEST_NAME = ": FILES, "b < 127": FILES},
    "run/page/curves.py": {"_POINTS = ": ON_PAGE, "WIDTH, HEIGHT": ON_PAGE, "1e300": ROUNDING},
    "run/page/render.py": {"size < 1000.0": ON_PAGE},
    "run/report.py": {"rounded < 3600": ON_PAGE},
    "run/samples.py": {"MOST_POINTS = ": ASKED},
    "run/script.py": {"MOST_STEPS = ": ASKED},
    "run/verdict.py": {"USUAL_FALL = ": METHOD},
    "run/views.py": {"_MOST_ALONG = ": ON_PAGE},
    "solvers/advection/base.py": {"_MOST_STEPS = ": ROUNDING, "_EXTREME = ": ROUNDING},
    "solvers/bookleaf/case.py": {"_LOOK_AHEAD = ": PATIENCE},
    "solvers/bookleaf/problems.py": {"SOD_LENGTH": PHYSICS},
    "solvers/finite_volume/implicit.py": {"cfl_max: float = ": METHOD},
    "solvers/finite_volume/plate.py": {"y < 1e4": PHYSICS},
    "solvers/finite_volume/shock_tube.py": {"_BINS = ": ON_PAGE},
    "solvers/fractional_step/case.py": {"STEADY_EVERY = ": METHOD},
    "solvers/fractional_step/channel.py": {"TURBULENT_FROM = ": PHYSICS},
    "solvers/fractional_step/turbulence.py": {"SPACING = ": PHYSICS, "500.0": PHYSICS},
    "solvers/lulesh/kernels.py": {"NO_LIMIT = ": PHYSICS},
    "studies/axes.py": {"MOST_RUNS = ": ASKED},
    "studies/processes.py": {"_LOG = ": ON_PAGE},
    "studies/table.py": {"_LONGEST_WHY = ": ON_PAGE},
    "toml.py": {"_DEEPEST = ": FILES},
}  # fmt: skip


def named(node: ast.AST) -> str:
    """The last name of ``a.b``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def folded(node: ast.AST) -> float | None:
    """The value of a number, or of a formula of numbers alone."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else \
            [node.operand] if isinstance(node, ast.UnaryOp) else []  # fmt: skip
    values = [folded(one) for one in parts]
    if not values or None in values or type(node.op) not in FOLDED:  # type: ignore[attr-defined]
        return None
    return FOLDED[type(node.op)](*values)  # type: ignore[attr-defined,no-any-return]


def of_bits(value: float) -> bool:
    """Does a type of 32 bits or more hold so many numbers, or one less? Has it no end?"""
    if not math.isfinite(value):
        return True
    whole = abs(int(value))
    return whole == abs(value) and whole >= 2**31 - 1 and (whole & (whole - 1) == 0 or whole & (whole + 1) == 0)


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node in which a number may decide something."""
    if isinstance(node, ast.Subscript):
        yield node.value
    elif not isinstance(node, ast.JoinedStr) and not (isinstance(node, ast.Call) and named(node.func) in REMEMBERING):
        yield from ast.iter_child_nodes(node)


def every(node: ast.AST) -> Iterator[int]:
    """The lines of all numbers."""
    if isinstance(node, ast.Constant):
        if type(node.value) in (int, float) and node.value not in (0, 1, 2):
            yield node.lineno
    else:
        for part in inside(node):
            yield from every(part)


def values(node: ast.AST) -> Iterator[tuple[int, float]]:
    """(line, value) of numbers, those that are written as formulas one by one."""
    value = folded(node)
    if value is not None:
        if not of_bits(value):
            yield node.lineno, value  # type: ignore[attr-defined]
    else:
        for part in inside(node):
            yield from values(part)


def thresholds(node: ast.AST) -> Iterator[int]:
    yield from (line for line, value in values(node) if value not in (0, 1, 2, -1))


def sizes(node: ast.AST) -> Iterator[int]:
    yield from (line for line, value in values(node) if abs(value) >= SIZE)


def deciding(tree: ast.AST) -> Iterator[ast.AST]:
    """What is compared by its size, and bounds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(one, ORDERS) for one in node.ops):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.Call) and named(node.func) in BOUNDS:
            yield from (*node.args, *(word.value for word in node.keywords))


def named_values(tree: ast.AST) -> Iterator[tuple[set[str], ast.expr]]:
    """What is given a name, with its value: variables, attributes, parameters by their defaults."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield {named(one) for target in node.targets for one in ast.walk(target)}, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield {named(node.target)}, node.value
        elif isinstance(node, ast.arguments):
            given = [*node.posonlyargs, *node.args]
            pairs = [*zip(given[len(given) - len(node.defaults) :], node.defaults, strict=True),
                     *zip(node.kwonlyargs, node.kw_defaults, strict=True)]  # fmt: skip
            yield from (({one.arg}, default) for one, default in pairs if default is not None)


def constants(tree: ast.Module) -> Iterator[ast.AST]:
    """What a module and its classes say of their constants, and the defaults of parameters."""
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    yield from (one for body in bodies for one in body if isinstance(one, ast.Assign | ast.AnnAssign))
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            yield from (*node.defaults, *filter(None, node.kw_defaults))


def is_number(node: ast.expr) -> bool:
    """Is it a number, or are all of a tuple?"""
    return all(map(is_number, node.elts)) if isinstance(node, ast.Tuple) else folded(node) is not None


def that_decide(numbers: Callable[[ast.AST], Iterator[int]], tree: ast.Module) -> Iterator[int]:
    """Those that something is compared with or bounded by, where they stand or where something of that name gets its
    value: constants of the module, and whatever is a number and nothing else."""
    parts = list(deciding(tree))
    names = {named(one) for part in parts for one in ast.walk(part)} - {""}
    at_top = {node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)}
    values_of_names = [value for given, value in named_values(tree) if given & names
                       and (is_number(value) or (value in at_top and any(map(str.isupper, given & names))))
                       ]  # fmt: skip
    for part in (*parts, *values_of_names):
        yield from numbers(part)


def lines_of(name: str, tree: ast.Module) -> set[int]:
    """The lines of a module whose numbers may decide something about machines."""
    if name.startswith(BY_NAME):
        return set()
    if name.startswith(ENGINE) and name not in PAGES:
        return set(every(tree))
    if not name.startswith(MIDDLE) or name.startswith(SHAPES):
        return set(that_decide(sizes, tree))
    of_constants = [line for one in constants(tree) for line in every(one)] if name.startswith(CONSTANTS) else ()
    return {*sizes(tree), *that_decide(thresholds, tree), *of_constants}


def judged(name: str, text: str, tree: ast.Module | None = None) -> list[str]:
    """Such lines of a module."""
    written = text.splitlines()
    return list(dict.fromkeys(written[n - 1].strip() for n in sorted(lines_of(name, tree or ast.parse(text)))))


@cache
def found() -> list[tuple[str, str]]:
    """(module, line) of every such number in the package, each line once."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path, _ in files()}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    return [(name, line) for name, path in paths.items() for line in judged(name, texts[name], parsed(path))]


def excused(name: str, line: str) -> bool:
    return any(part in line for part in {**LEFT, **ELSEWHERE}.get(name, ()))


def test_no_number_decides_but_those_of_the_devices_files() -> None:
    left = [f"{name}: {line}" for name, line in found() if not excused(name, line)]
    assert not left, "numbers that were fitted belong to meshloom/target/devices; others into LEFT, with the reason"


def test_nothing_is_excused_that_is_not_there() -> None:
    lines = found()
    every_part = [part for excuses in (LEFT, ELSEWHERE) for parts in excuses.values() for part in parts]
    assert all(every_part), "lines, not files"
    gone = [(name, part) for excuses in (LEFT, ELSEWHERE) for name, parts in excuses.items() for part in parts
            if not any(name == one and part in line for one, line in lines)]  # fmt: skip
    assert not gone and not LEFT.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize("line", ["BLOCK = 96", "def f(x, most=7): pass", "if n > 3.5: pass", "x = {'a': (1, 5)}[k]"])
def test_numbers_are_found(line: str) -> None:
    assert list(every(ast.parse(line))) == [1]


#: What somebody may write next, and where; each must be found in that module as it is now.
PLANTED = [
    ("operation/policy.py", "def f(n): return n < 4096 * 1.37"),
    ("operation/policy.py", "def f(n): return 256 if n else 128"),
    ("schedule/strategies/owner.py", "def f(work): return work.loads > 3.5"),
    ("backend/cpu_dialect.py", "MANY = 7"),
    ("order/curves.py", "def f(n, most=40): return n"),
    ("target/device_files.py", "WORTH = 0.95"),
    ("linalg/krylov.py", "def f(n): return 1 if n > 73000 else 2"),
    ("linalg/krylov.py", "def f(n): return not 0.3 * n <= 24"),
    ("linalg/krylov.py", "WORTH = 0.93"),
    ("linalg/krylov.py", "def f(n):\n    many = 73000\n    return n // many"),
    ("linalg/krylov.py", "EDGE, COLUMNS = 48, 9"),
    ("linalg/krylov.py", "def f(n, edge=48): return n // edge"),
    ("linalg/krylov.py", "class A:\n    edge: int = 48"),
    ("mesh/core.py", "def f(n, *, edge=48): return n < edge"),
    ("mesh/core.py", "def f(n):\n    edge, rows = 48, 9\n    return min(n, rows)"),
    ("mesh/core.py", "class A:\n    edge = 48\n    def f(self, n): return n > self.edge"),
    ("mesh/core.py", "edge = 48\ndef f(n): return n > edge"),
    ("target/cuda.py", "WORTH = 0.95"), ("target/hip.py", "WORTH = 0.95"),
    ("operation/dataflow_svg.py", "def f(n, most=512): return n <= most"),
    ("solvers/airfoil.py", "def f(n, most=512): return n <= most"),
    ("mesh/box.py", "FAR = 1 / 7\ndef f(n): return n < FAR * n"),
    ("mesh/core.py", "def f(n): return min(n, 1 << 15)"),
    ("mesh/core.py", "def f(n): return range(0, n, 3 * 10**4)"),
    ("kernel/count.py", "def f(n): return (n - 5000).bit_length()"),
    ("native/tiles.py", "def f(n, most=300): return n"),
    ("library/ghosts.py", "def f(n): return 40 < n"),
    ("solvers/airfoil.py", "MOST = 512\ndef f(n): return n <= MOST"),
    ("solvers/airfoil.py", "def f(n): return n // 3 > 73_000"),
    ("case/base.py", "def f(n): return np.clip(n, 1, 4096)"),
    ("io/vtk.py", "def f(n): return not n < 2 * 1e4"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "planted"), PLANTED, ids=lambda one: one[:40])
def test_what_is_planted_is_found(name: str, planted: str) -> None:
    before = (PACKAGE / name).read_text(encoding="utf-8")
    new = [line for line in judged(name, f"{before}\n{planted}\n") if not excused(name, line)]
    assert len(new) == 1 and new[0] in planted and not [one for one in judged(name, before) if not excused(name, one)]


@pytest.mark.parametrize("line", ["x = y[3]", "x = y[3:40]", "x = f'{100 * y:.3g}'", "x = 2 * y - 1", "x = True",
                                  "@lru_cache(maxsize=256)\ndef f(): pass"])  # fmt: skip
def test_what_decides_nothing_is_not(line: str) -> None:
    assert not list(every(ast.parse(line)))


@pytest.mark.parametrize(
    ("name", "line"),
    [("linalg/krylov.py", "def f(a, b): return 0.5 * (a + b)"), ("mesh/core.py", "small = n < 2**31"),
     ("mesh/core.py", "len(f) == 3"), ("solvers/airfoil.py", "GAS = 287.0\nx = GAS * t"),
     ("solvers/airfoil.py", "x = a < 0.5"), ("solvers/airfoil.py", "n = option(100, high=4096)"),
     ("io/vtk.py", "x = y[73000]")],
)  # fmt: skip
def test_nor_is_physics(name: str, line: str) -> None:
    assert not judged(name, line)
