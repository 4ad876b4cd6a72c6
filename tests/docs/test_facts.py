"""What the pages say about the code, compared with the code: tables, figures, messages, generated text."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from collections.abc import Callable
from contextlib import chdir
from dataclasses import fields, replace
from itertools import product as pairs
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench import truth_cases
from meshloom.backend import cpu_dialect
from meshloom.backend.cuda import dialect
from meshloom.backend.translation_unit import Argument, TranslationUnit, make_unit
from meshloom.errors import KernelError
from meshloom.kernel import expr, passes
from meshloom.kernel.count import arithmetic, combining_flops, flops_by_kind
from meshloom.order import BAD_EXCESS, TYPICAL_BLOCK
from meshloom.schedule.choice.cost import Work
from meshloom.schedule.strategies import strategy
from meshloom.schedule.strategies.common.symmetric_gather import seen_alike
from meshloom.solvers.finite_volume.case import FiniteVolume
from meshloom.solvers.volna.basins import WaterCase
from meshloom.target import CPU, H200, Target
from tests.docs.test_docs import program

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table(name: str, first_heading: str) -> list[list[str]]:
    """Rows of the table whose first heading is given, cells stripped, without the heading and its rule."""
    text = page(name)
    start = text.index(f"| {first_heading} |")
    body = text[start : text.find("\n\n", start)]
    return [[cell.strip() for cell in row.split("|")] for row in ROW.findall(body)][2:]


@ml.kernel
def smooth(u: ml.Read, change: ml.Inc) -> None:
    d = u[1] - u[0]
    change[0] += d
    change[1] -= d


def smooth_loop(wish: ml.Schedule | None = None) -> ml.Loop:
    """The loop of schedules.md."""
    mesh = ml.generate.box((60, 40), cells="triangle")
    u, change = mesh.cells.field("u"), mesh.cells.field("change")
    return smooth.loop(mesh.faces, u[mesh.face_cells], change[mesh.face_cells], schedule=wish)


# --- schedules.md -------------------------------------------------------------------------------------------------


def test_every_entry_of_a_schedule_is_documented() -> None:
    assert [row[0].strip("`") for row in table("docs/schedules.md", "entry")] == [f.name for f in fields(ml.Schedule)]


def test_variants_of_loops_over_grids() -> None:
    rows = table("docs/grids.md", '`Schedule("box", variant=...)`')
    listed = re.findall(r"`(\w+)`", " ".join(row[0] for row in rows))
    assert listed == list(ml.variants("box"))


def test_block_sizes() -> None:
    rows = table("docs/schedules.md", "strategy | block on a CPU, at most")
    assert [row[0].strip("`") for row in rows] == ["direct", "box", *ml.strategies()]
    for name, cpu, gpu in rows:
        found = [target.numbers.block(name.strip("`")) for target in (CPU, H200)]
        assert found == [int(cpu), int(gpu)], name
    shrunk = strategy("color").block(CPU, 64 * 1000)
    assert (shrunk, strategy("color").block(CPU, 1)) == (1000, 512)
    assert "1/64 of the elements, but not below 512" in page("docs/schedules.md")


def test_figures_of_the_cost_model() -> None:
    rows = table("docs/schedules.md", "nanoseconds")
    assert [row[0].strip("`") for row in rows] == [f.name for f in fields(CPU.rates) if f.name.startswith("per_")]
    for name, *written in rows:
        real = [getattr(machine, name.strip("`")) * 1e9 for machine in (CPU.rates, H200.rates)]
        assert [float(w) for w in written] == pytest.approx(real, rel=1e-3), name


def value_of(formula: str, known: dict[str, float]) -> float:
    """``*B* + 2 *S* - *I* / 3``: sums of products, factors side by side."""
    total, sign, product, divide = 0.0, 1.0, 1.0, False
    for word in formula.split():
        if word in "+-":
            total, sign, product = total + sign * product, 1.0 if word == "+" else -1.0, 1.0
        elif word == "/":
            divide = True
        else:
            factor = known[word.strip("*")] if word.startswith("*") else float(word)
            product, divide = product / factor if divide else product * factor, False
    return total + sign * product


def test_costs_of_the_strategies() -> None:
    work = Work(elements=1000, targets=400, touched=350, incidences=2000, components=8, flops=6e4, compulsory=9e4,
                staged=3.2e4, requested=1.2e5, gathered=2.1e5, tiles=1.3, loads=1.4, reload_reads=1.1e4,
                reload_updates=2.3e4, reload_gathers=3.1e4, reload_stage=4.7e3, reload_maps=5.3e3,
                target_reuse=0.3, colors=6.0)  # fmt: skip
    known = {"B": work.compulsory, "F": work.flops, "S": work.staged, "E": work.elements, "T": work.targets,
             "t": work.touched, "I": work.incidences, "U": work.elements * work.components, "C": round(2000 / 400) + 2,
             "J": work.target_reuse, "D": work.loads, "N": work.colors, "R": work.reload_reads,
             "A": work.reload_updates, "V": work.reload_gathers, "W": work.reload_stage, "M": work.reload_maps,
             "K": work.tiles, "Q": work.requested, "G": work.gathered,
             "P": 2.1e5 / 2000 / 80}  # fmt: skip
    spec = smooth_loop().spec
    alike = all(seen_alike(spec, m) for m in spec.racy_maps)
    rows = table("docs/schedules.md", "strategy | bytes")
    assert [row[0].strip("`") for row in rows] == list(ml.strategies())
    (scattered,) = (row[1] for row in table("docs/schedules.md", "symbol | meaning") if row[0] == "*H*, *X*")
    assert scattered.startswith("on a GPU 1.9 and 3.25, on a CPU 1:")
    (once,) = (row[1] for row in table("docs/schedules.md", "symbol | meaning") if row[0] == "*Y*")
    assert once.startswith("on a GPU 2, on a CPU 1.5:")
    (again,) = (row[1] for row in table("docs/schedules.md", "symbol | meaning") if row[0] == "*Lc*, *Lo*, *Ls*, *Lt*")
    assert again.startswith("on a GPU 1, 1, 1 and 3.25, on a CPU 2, 6, 7 and 4.5:")
    for (name, moved, flops, besides), target in pairs(rows, (CPU, H200)):
        known |= dict(zip("HXYZ", (1.9, 3.25, 2.0, 1.0) if target.is_simt else (1.0, 1.0, 1.5, 1.25), strict=True))
        known |= dict(zip(("Lc", "Lo", "Ls", "Lt"), (1, 1, 1, 3.25) if target.is_simt else (2, 6, 7, 4.5), strict=True))
        known["Lo"] *= 0.25 if alike and not target.is_simt else 1.0
        known["m"] = 0.0 if target.is_simt else work.reload_maps
        known["b"] = 0.0 if target.is_simt or alike else 20.0 * work.incidences
        known["w"] = (4 if target.is_simt else 2) * 8  # one double
        known["L"] = (4.0 if target.is_simt else 2.0) * (work.loads - 1.0) * work.touched
        cost = strategy(name.strip("`")).cost(spec, work, target=target)
        extra = {what: value_of(amount, known) for amount, what in re.findall(r"([^,]+) (\w+)(?:,|$)", besides)}
        written = [value_of(moved, known), value_of(flops, known), extra.get("atomics", 0), extra.get("updates", 0),
                   extra.get("launches", 1), extra.get("visits", 0), extra.get("requests", 0),
                   extra.get("rounds", 0), extra.get("passed", 0)]  # fmt: skip
        real = [cost.bytes, cost.flops, cost.atomics, cost.updates, cost.launches, cost.visits, cost.requests,
                cost.rounds, cost.passed]  # fmt: skip
        assert written == pytest.approx(real), name
    contended = strategy("atomic").cost(spec, replace(work, contention=0.5))
    assert contended.contended == 0.5 * contended.atomics
    idle = strategy("block_color").cost(spec, replace(work, colors=16.0, blocks=32))
    busy = replace(idle, concurrent_blocks=CPU.rates.saturating_blocks)
    waiting = replace(idle, bytes=0.0, flops=0.0, requests=0.0).seconds(CPU.rates)
    assert idle.seconds(CPU.rates) - waiting == pytest.approx(4 * (busy.seconds(CPU.rates) - waiting))
    assert CPU.rates.saturating_blocks == H200.rates.saturating_blocks
    held = CPU.numbers.order
    assert held == H200.numbers.order
    saturated = f"saturated by {CPU.rates.saturating_blocks:g} blocks at a time (`saturating_blocks`)"
    assert saturated in page("docs/schedules.md")
    assert f"so {held.held_rows:g} loads of a row\ncount as one, and lines of which {held.held_lines:g} parts" in page(
        "docs/schedules.md")  # fmt: skip


def test_what_a_bad_order_is() -> None:
    text = " ".join(page("docs/schedules.md").split())
    assert f"blocks of {TYPICAL_BLOCK} consecutive faces, or cells, load more than {BAD_EXCESS:g} times" in text


def test_small_loops() -> None:
    few = CPU.cpu.threads
    assert f"at most {few.small_elements:,} elements and {few.small_flops:,} operations" in page("docs/schedules.md")
    assert f"more than about {H200.gpu.shared.most:,} bytes" in page("docs/schedules.md")


def test_light_loops() -> None:
    text, light = " ".join(page("docs/schedules.md").split()), H200.gpu.vectors
    assert f"at least {light.many:,} elements and loads and stores at most {light.most_values} numbers" in text


# --- kernels.md ---------------------------------------------------------------------------------------------------


def flux_graph(folder: Path) -> tuple[list[expr.Node], int]:
    """The traced graph of the flux in kernels.md, and the operations that merge its outputs into ``res``."""
    script = folder / "kernels.py"
    script.write_text(program(ROOT / "docs" / "kernels.md"), encoding="utf-8")
    with chdir(folder):  # the page writes files
        names = runpy.run_path(str(script))
    kernel, mesh, q, adt, res = (names[n] for n in ("res_calc", "mesh", "q", "adt", "res"))
    at = mesh.face_cells
    loop = kernel.loop(mesh.faces, mesh.coordinates[mesh.face_nodes], q[at], adt[at], res[at])
    merged = arithmetic(combining_flops(loop.spec.params, loop.spec.outputs))
    (traced,) = kernel.state.traces.values()
    return [o.value for o in traced.outputs], merged


def test_operations_of_the_flux(tmp_path: Path) -> None:
    roots, merged = flux_graph(tmp_path)
    simple = passes.fold_constants(passes.powers_to_products(passes.fold_constants(roots)))
    shared = passes.fold_constants(passes.share_reciprocals(simple))
    collected = passes.fold_constants(passes.collect_terms(shared))
    ordered = passes.fold_constants(passes.order_products(collected))
    assert arithmetic(flops_by_kind(ordered)) == arithmetic(flops_by_kind(passes.optimise(roots)))
    rows = table("docs/kernels.md", "after")
    for (what, operations, divisions), stage in zip(rows, (roots, shared, collected, ordered), strict=True):
        kinds = flops_by_kind(stage)
        assert arithmetic(kinds) + merged == int(operations.split(",")[0]), what
        assert kinds["div"] == int(divisions), what
    assert f"{flops_by_kind(roots)['special']} of them powers" in rows[0][1]
    assert merged == 8 and "the eight additions into `res`" in page("docs/kernels.md")
    fewest, most = rows[-1][1], rows[1][1]
    assert f"with {fewest} operations instead of {most}" in " ".join(page("CHANGELOG.md").split())


def branches(x: ml.Read, y: ml.Write) -> None:
    if x > 1.0:
        y[...] = x


def writes_a_read(x: ml.Read, y: ml.Write) -> None:
    x[...] = 1.0
    y[...] = x


def sets_an_increment(y: ml.Read, x: ml.Inc) -> None:
    x[...] = 2.0 * y


def reads_an_increment(y: ml.Write, x: ml.Inc) -> None:
    x += 1.0
    y[...] = 2.0 * x


def renames_an_output(y: ml.Read, x: ml.Write) -> None:
    x = 2.0 * y  # noqa: F841


def forgets_an_entry(y: ml.Read, x: ml.Write) -> None:
    x[0] = y[0]


def sorts(x: ml.Read, y: ml.Write) -> None:
    y[...] = np.sort(x)


def mixes_kinds(x: ml.Read, n: ml.Inc) -> None:
    n += x


def knows_no_name(x: ml.Read, y: ml.Write) -> None:
    y[...] = x * a  # noqa: F821


def asks_for_a_neighbour(x: ml.Read, y: ml.Write) -> None:
    y[...] = x[1] - x[0]


WRONG = (branches, writes_a_read, sets_an_increment, reads_an_increment, renames_an_output, forgets_an_entry,
         mixes_kinds, knows_no_name, asks_for_a_neighbour, sorts)  # fmt: skip


@pytest.mark.parametrize(("row", "function"), list(enumerate(WRONG)), ids=lambda v: getattr(v, "__name__", ""))
def test_messages_are_those_of_the_code(row: int, function: Callable[..., None]) -> None:
    shown = table("docs/kernels.md", "message says")
    assert len(shown) == len(WRONG)
    points, dim = ml.Set(3, "points"), 2 if function in (forgets_an_entry, sorts) else 1
    with pytest.raises(KernelError) as caught:
        second = points.field("b", dim, dtype=np.int64 if function is mixes_kinds else None)
        ml.kernel(function)(points, points.field("a", dim), second)
    text = str(caught.value).replace(f"kernel {function.__name__}", "kernel k")
    assert shown[row][0].strip("`") in text
    assert f"{Path(__file__).name}:" in text or function is forgets_an_entry, "names the user's line"


# --- architecture.md ----------------------------------------------------------------------------------------------


def test_rooms_are_those_of_contributing() -> None:
    described = re.findall(r"`(\w+)`", " ".join(row[0] for row in table("docs/architecture.md", "module")))
    rooms = [row[0].strip("`") for row in table("CONTRIBUTING.md", "module")]
    assert set(described) == set(rooms) - {"meshloom", "__main__"}


def unit_of_smooth(target: Target) -> TranslationUnit:
    """The loop of schedules.md under ``tile``, as a back end would take it."""
    ml.use("emulated" if target.is_simt else "cpu")
    loop = smooth_loop(ml.Schedule("tile", block=256))
    extra = () if target.is_simt else (Argument("threads_in_use", "int64_t", True),)
    return make_unit(replace(loop.spec, whole_rows=target.is_simt), loop.plan, extra=extra, target=target)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_generated_code_is_as_shown(backend: str) -> None:
    block = re.search(rf"<!-- generated for {backend} -->\n```cpp\n(.*?)```", page("docs/architecture.md"), re.S)
    assert block, f"architecture.md shows no code for {backend}"
    unit = unit_of_smooth(H200 if backend == "cuda" else CPU)
    if backend == "cpu":
        source = cpu_dialect.render(unit)
    else:
        source = dialect.render(unit, dialect.kernels(unit, 256, 256), wide_index=False)
    rest = [line.strip() for line in source.splitlines()]
    for line in block[1].splitlines():
        head = line.strip().split("...")[0]
        place = next((k for k, real in enumerate(rest) if real.startswith(head)), None)
        assert place is not None, f"not generated, or not in this order: {line}"
        rest = rest[place + 1 :]


def test_what_is_printed_about_fusion() -> None:
    """The text of architecture.md is what a GPU's program says; the emulated one says the same."""
    from meshloom.solvers.airfoil import Airfoil, AirfoilConfig, AirfoilMeshOptions

    ml.use("emulated")
    program = Airfoil(AirfoilConfig(mesh=AirfoilMeshOptions(i=20, j=30))).program
    before, graph = program.explain().split("\n\n")[0], program.graph  # which compiles it
    assert program.explain().split("\n\n")[0] in page("docs/architecture.md")
    assert program.explain().startswith(before.replace("graph: not yet: run the program, then ask again", graph))


# --- the other pages ----------------------------------------------------------------------------------------------


def test_extras_are_those_of_the_project() -> None:
    extras = tomllib.loads(page("pyproject.toml"))["project"]["optional-dependencies"]
    assert {row[0].strip("`") for row in table("docs/index.md", "extra")} == set(extras)


def test_all_cases_stand_in_the_readme_and_in_the_docs() -> None:
    from meshloom.solvers import cases

    named = re.findall(r"`(\w+)`", " ".join(row[0] for row in table("README.md", "cases")))
    assert sorted(named) == [n for n, one in cases().items() if one.__module__.startswith("meshloom.")], "not of tests"
    assert all(f"\n{name} " in page("docs/cases.md") for name in named)


def test_options_of_run_are_documented() -> None:
    from typer.main import get_command

    from meshloom.cli.main import app

    command = get_command(app).commands["run"]  # type: ignore[attr-defined]
    options = {o for p in command.params for o in p.opts if o.startswith("--")}
    rows = " ".join(row[0] for row in table("docs/cases.md", "option"))
    assert set(re.findall(r"--\w+", rows)) == options - {"--help"}


# --- benchmarks.md, on the GPU ------------------------------------------------------------------------------------


def result(name: str) -> dict:
    return json.loads(page(f"bench/results/{name}"))


def test_preferences_of_layouts_are_those_measured() -> None:
    race = result("2026-11-15_race-rings_h200.json")
    later = result("2026-11-15_locality_h200.json")["loops"]["airfoil"]["variants"]
    race["variants"] += [r | {"order": "hilbert"} for r in later if r["strategy"] == "strip"]  # measured as given
    others = ("any", "direct", "long_rows", "parts_of_rows", "block_staged")  # the last is newer than the race
    measured = {name: dict(written) for name, written in H200.gpu.layouts.items() if name not in others}
    assert set(measured) == set(ml.strategies()) - set(others)
    assert set(H200.gpu.layouts["direct"].values()) == {1.0}, "nothing is indirect"
    for name, written in measured.items():
        assert 1.0 <= written.pop("aosoa32") <= written["soa"], "groups are gathered as components apart, or better"
        times = {layout: min(r["ms"] for r in race["variants"] if "ms" in r and r["order"] == "hilbert"
                             and (r["strategy"], r["precision"], r["layout"], r["variant"])
                             == (name, "float64", layout, "plain")) for layout in written}  # fmt: skip
        found = {layout: ms / min(times.values()) for layout, ms in times.items()}
        assert written == pytest.approx(found, rel=0.02), name


def test_what_long_rows_lose_is_what_the_zoo_has_measured() -> None:
    """Where a warp takes whole rows, together over the best; where targets take parts of them, apart over together."""
    times: dict[tuple[str, str, str], dict[str, float]] = {}
    for r in result("2026-11-19_zoo_h200.json")["rows"]:
        if "ms" in r and r["layout"] != "auto":
            found = times.setdefault((r["loop"], r["family"], r["strategy"]), {})
            found[r["layout"]] = min(r["ms"], found.get(r["layout"], float("inf")))
    rows, parts = H200.gpu.layouts["long_rows"], H200.gpu.layouts["parts_of_rows"]
    whole = [one["aos"] / min(one.values()) for (loop, _, name), one in times.items()
             if (loop, name) in {("least_squares", "owner"), ("limiter_bounds", "owner"),
                                 ("stiffness_tetrahedron", "tile"), ("stiffness_hexahedron", "tile")}]  # fmt: skip
    assert min(whole) > 1.5 and rows["aos"] == pytest.approx(float(np.median(whole)), rel=0.15)
    apart = [one for (loop, _, name), one in times.items() if loop[:9] == "stiffness" and name == "owner"]
    for layout in ("soa", "aosoa32"):
        found = [one[layout] / one["aos"] for one in apart]
        assert parts[layout] == pytest.approx(float(np.median(found)), rel=0.1)


# --- originals.md -------------------------------------------------------------------------------------------------


def test_bounds_of_the_comparisons() -> None:
    """The table of bounds, against the code that compares."""
    rows = {row[1]: row[2:] for row in table("docs/originals.md", "application | compared")}

    def written(*bounds: truth_cases.BoundLoop, of: int) -> str:
        digits = [re.sub(r"e-0?", "e-", f"{bound[of]:.0e}") for bound in bounds]
        return digits[0] if len(set(digits)) == 1 else "; ".join(digits)

    water = truth_cases.WATER_BOUNDS["v17"]
    runs = truth_cases.MINIAERO_RUNS
    for what, bounds in {
        "energy at the origin": (truth_cases.LULESH_ENERGY,),
        "time of every cycle": (truth_cases.LULESH_TIME, truth_cases.LULESH_DT, truth_cases.LULESH_FIELDS,
                                truth_cases.LULESH_SUMS),
        "all fields after 1 and 10": (truth_cases.BOOKLEAF_FIELDS,),
        "energies, masses": (truth_cases.BOOKLEAF_DECK, truth_cases.BOOKLEAF_STEP),
        "all fields at the end": (truth_cases.BOOKLEAF_END,),
        "tube and ramp": (runs["sod", 1], runs["ramp", 400]),
        "plate after 1 step": (runs["plate", 1], runs["plate", 400]),
        "single precision": (truth_cases.V17_STATE, water.volume, water.energy),
        "in the mean": (truth_cases.V18_DEPTH, truth_cases.V18_VELOCITY),
    }.items():  # fmt: skip
        (found,) = [row for name, row in rows.items() if name.startswith(what)]
        assert found == [written(*bounds, of=0), written(*bounds, of=1)], what


def test_conditions_of_the_channel_are_told():
    """Those that ``fv`` has without a mesh file."""
    row = next(row for row in table("docs/finite_volume.md", "case") if row[0] == "`fv`")[1]
    told = re.search(r": `(\w+)` and `(\w+)` are `(\w+)`, `(\w+)` and `(\w+)`, the floor, are `(\w+)`;", row)
    assert told is not None
    one, other, open_kind, top, floor, solid = told.groups()
    kinds = {name: entry["kind"] for name, entry in FiniteVolume.channel.items()}
    assert kinds == {one: open_kind, other: open_kind, top: solid, floor: solid}


def test_monitors_of_water_are_told():
    assert all(f"`{name}`" in page("docs/volna.md") for name in WaterCase.monitors)
