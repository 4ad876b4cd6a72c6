"""Candidates: what a loop is chosen from, with times, what they are made of, and why others were not taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

import meshloom as ml
from bench.race_loop import Data, res_calc
from meshloom.operation.fusion.fused_program import ranked
from meshloom.schedule.choice.auto import candidates, choose
from meshloom.schedule.choice.candidate import Candidate, Candidates, rank
from meshloom.schedule.choice.cost import OVERLAPPING, Cost, combined
from meshloom.schedule.choice.per_thread import chosen_per_thread
from meshloom.schedule.strategies import strategy
from meshloom.schedule.strategies.common.points import tile_of
from meshloom.target import CPU, H200, Rates
from tests.fitted import changed
from tests.schedule.kept_choices import light, star


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    yield
    ml.use(before[0], threads=before[1])


@ml.kernel(strict=True)
def strict_flux(u: ml.Read, change: ml.Inc):
    change[0] += u[1] - u[0]
    change[1] -= u[1] - u[0]


def residual(schedule: str | None = None, rows: int = 9) -> ml.Loop:
    mesh = ml.generate.naca0012(12, rows)
    return res_calc.loop(mesh.faces, *Data(mesh).fields("float64", "aos"), schedule=schedule)


def strict_loop() -> ml.Loop:
    mesh = ml.generate.box((6, 5))
    u, change = mesh.cells.field("u"), mesh.cells.field("change")
    return strict_flux.loop(mesh.faces, u[mesh.face_cells], change[mesh.face_cells])


# --- ranking ------------------------------------------------------------------------------------------------------


def test_the_least_time_of_those_allowed_comes_first_then_what_is_forbidden_then_what_cannot_be_done() -> None:
    slow, quick = Candidate("slow", {"bytes": 2.0}), Candidate("quick", {"bytes": 1.0})
    forbidden, declined = Candidate("f", {"bytes": 0.5}, forbidden="why"), Candidate("d", declined="why not")
    assert rank([declined, forbidden, slow, quick]) == (quick, slow, forbidden, declined)
    assert [one.allowed for one in rank([declined, forbidden, slow])] == [True, False, False]


def test_of_equals_and_of_what_nothing_predicts_the_first_that_is_offered_wins() -> None:
    offered = [Candidate("a", declined="no room"), Candidate("b"), Candidate("c")]
    assert [one.what for one in rank(offered)] == ["b", "c", "a"] and offered[1].seconds == 0.0


def test_what_ranks_need_not_be_what_is_shown() -> None:
    one, other = Candidate("one", {"bytes": 9.0}, ranked_by=1.0), Candidate("other", {"bytes": 3.0}, ranked_by=2.0)
    assert rank([other, one])[0] is one


def test_parts_that_overlap_count_by_the_longest() -> None:
    assert combined({"bytes": 2.0, "flops": 3.0, "requests": 1.0, "atomics": 0.5, "rounds": 0.25}) == 3.75
    assert combined({}) == 0.0
    rates = H200.rates
    one = Cost(1e9, 1e9, atomics=1e6, rounds=2.0, concurrent_blocks=2.0)
    assert one.seconds(rates) == combined(one.parts(rates))
    slower = rates.saturating_blocks / 2.0
    assert one.parts(rates)["bytes"] == pytest.approx(1e9 * rates.per_byte * slower), "blocks leave it idle"
    assert one.figures == {"bytes": 1e9, "flops": 1e9, "atomics": 1e6, "launches": 1, "rounds": 2.0,
                           "concurrent_blocks": 2.0}  # fmt: skip


def test_fused_programs_are_ranked_by_the_time_of_a_replay_and_the_first_of_equals_is_taken() -> None:
    @dataclass(frozen=True)
    class Fused:
        name: str
        takes: float
        prologue: tuple[str, ...] = ()
        operations: tuple[()] = ()

        def seconds(self, rates: Rates) -> float:
            return self.takes

    first, *others = ranked([Fused("slow", 2.0), Fused("one", 1.0), Fused("other", 1.0)], H200)
    assert first.what.name == "one" and first.seconds == 1.0 and [one.what.name for one in others] == ["other", "slow"]
    launch = H200.rates.per_launch
    straight, saved = Fused("straight", 1.0), [Fused("a launch less", 1.0 - launch, ("head",)),
                                             Fused("two for two", 1.0 - 2 * launch, ("a", "b"))]  # fmt: skip
    for rotated in saved:
        assert ranked([straight, rotated], H200)[0].what is straight, "its prologue has launches of its own"
        assert ranked([straight, rotated], CPU)[0].what is rotated, "there every loop waits for the one before"
    faster = Fused("less traffic, too", 1.0 - 1.1 * launch, ("head",))
    assert ranked([straight, faster], H200)[0].what is faster, "whatever its bytes"


# --- of a loop ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
@pytest.mark.parametrize("wish", ["auto", "fastest", "tile"])
def test_every_strategy_is_listed_and_the_first_is_in_force(
    backend: str, wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(monkeypatch, threads={"small_elements": 1})
    ml.use(backend)
    loop = residual(wish)
    listed = loop.candidates["strategy"]
    assert {one.what.strategy for one in listed} == set(ml.strategies())
    assert listed[0].what == loop.schedule and listed[0].allowed
    for one in listed[1:]:
        may = strategy(one.what.strategy).deterministic if wish == "auto" else wish == "fastest"
        assert one.allowed == may and (may or one.forbidden), one
    for one in listed:
        assert one.seconds == combined(one.parts) > 0.0 and one.facts["bytes"] > 0.0


def test_a_strict_loop_is_left_to_those_that_add_in_the_order_of_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, threads={"small_elements": 1})
    ml.use("cpu")
    listed = strict_loop().candidates["strategy"]
    assert {one.what.strategy for one in listed if one.allowed} == {"owner", "staged", "tile"}
    assert {one.forbidden for one in listed if one.what.strategy in ("color", "block_color")} == {
        "does not add up in the order of elements (strict)"
    }


def test_a_rule_that_decides_is_the_reason_why_others_are_not_taken() -> None:
    ml.use("cpu")
    first, *others = (loop := residual()).candidates["strategy"]
    assert first.what == loop.schedule and {one.forbidden for one in others} == {loop.reason}
    direct = light.loop(row := ml.Set(10, "own"), row.field("a"), row.field("b"))
    assert [one.what for one in direct.candidates["strategy"]] == [direct.schedule], "there is nothing to protect"


def test_a_strategy_without_room_stays_in_the_list_and_the_reason_says_so() -> None:
    ml.use("emulated")
    loop = residual()
    target = replace(H200, shared=1000)
    listed = candidates(loop.spec, loop.elements, loop.work, loop.wish, target=target)
    declined = {one.what.strategy: one for one in listed if one.declined}
    assert declined.keys() == {"tile", "block_staged"} and declined["tile"].seconds > 0.0
    _, reason = choose(loop.spec, loop.elements, loop.work, loop.wish, target=target)
    assert f"; tile declined: {declined['tile'].declined}" in reason and "B of shared memory" in reason
    assert "declined" not in choose(loop.spec, loop.elements, loop.work, loop.wish, target=H200)[1]


def test_times_know_the_threads_in_use_and_the_order_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, threads={"small_elements": 1})
    found = {}
    for threads in (1, 2, 64):
        ml.use("cpu", threads=threads)
        found[threads] = residual(rows=300).candidates["strategy"]
    assert len({tuple(one.what for one in listed) for listed in found.values()}) == 1
    for one, two, many in zip(*found.values(), strict=True):
        assert one.seconds > two.seconds > many.seconds and one.weight == two.weight == many.weight
        assert one.parts["launches"] == one.parts["rounds"] == 0.0, "one thread starts no others and waits for none"
        assert two.parts["launches"] == many.parts["launches"] == one.facts["launches"] * CPU.rates.per_launch


# --- one thread -----------------------------------------------------------------------------------------------------


def pulled(x: ml.Read, u: ml.Read, pull: ml.Inc, least: ml.Min, own: ml.ReadWrite):
    """Slots in another order than they are, products that must not be contracted, or all alike."""
    pull[1] += u * x[0] + x[1]
    pull[0] -= u * x[1] - x[0]
    least[0] = x[1] * u
    least[1] = x[0] * u
    own[...] = own * 0.5 + u * x[0]


def pulled_by(schedule: str, threads: tuple[int, ...], strict: bool) -> tuple[ml.Loop, list[np.ndarray]]:
    """The same loop object again and again, by so many threads each time; some elements have one target twice."""
    rng = np.random.default_rng(4)
    bars, nodes = ml.Set(5000, "bars"), ml.Set(700, "nodes")
    ends = ml.Map(bars, nodes, np.where(rng.random((5000, 1)) < 0.1, 3, rng.integers(0, 700, (5000, 2))), "ends")
    x, u = nodes.field("x", data=rng.random(700)), bars.field("u", data=rng.normal(size=5000))
    pull, least, own = nodes.field("pull"), nodes.field("least"), bars.field("own", data=rng.random(5000))
    kernel = ml.kernel(pulled, strict=strict)
    loop = kernel.loop(bars, x[ends], u, pull[ends], least[ends], own, schedule=schedule)
    for number in threads:
        ml.use(ml.backend(), threads=number, reproducible=not strict)
        loop()
    return loop, [one.numpy().copy() for one in (pull, least, own)]


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "reproducible"])
def test_one_thread_goes_through_the_elements_with_the_same_bits_whoever_changes_the_number(
    monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    changed(monkeypatch, threads={"small_elements": 1})
    ml.use("numpy" if strict else "cpu", reproducible=not strict)
    _, wanted = pulled_by("auto" if strict else "owner", (1, 1, 1), strict)
    ml.use("cpu", reproducible=not strict)
    for schedule in ("auto", "owner", "staged", "tile"):
        for threads in ((1, 1, 1), (2, 2, 2), (1, 3, 1), (4, 1, 2)):
            loop, found = pulled_by(schedule, threads, strict)
            assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True)), (schedule, threads)
            assert ("if (threads == 1)" in loop.source) == (schedule == "auto")


def test_one_thread_is_told_of_and_only_where_bits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, threads={"small_elements": 1})
    ml.use("cpu")
    loop = strict_loop()
    serial, other = loop.candidates["one thread"]
    assert serial.what == "serial" and other.what == loop.schedule.strategy and serial.seconds < other.seconds
    assert "goes through the elements in their order" in loop.reason and "if (threads == 1)" in loop.source

    def summed(u: ml.Read, change: ml.Inc, total: ml.Sum):
        change[0] += u[1]
        change[1] -= u[0]
        total += u[0]

    mesh = ml.generate.box((6, 5))
    u, change, total = mesh.cells.field("u"), mesh.cells.field("change"), ml.Global(0.0)
    ends = mesh.face_cells
    others = [ml.kernel(summed, strict=True).loop(mesh.faces, u[ends], change[ends], total), residual(),
              strict_flux.loop(mesh.faces, u[ends], change[ends], schedule=ml.Schedule(order="random"))]  # fmt: skip
    for one in others:
        assert "one thread" not in one.candidates and "one thread" not in one.reason
        assert "if (threads == 1)" not in one.source


# --- on a GPU, and along lines --------------------------------------------------------------------------------------


def test_on_a_gpu_tiles_shares_and_layouts_are_listed_too() -> None:
    ml.use("emulated")
    grid = ml.Grid((8, 8, 70), periodic=True)
    stencil = star.loop(grid, grid.field("u")[grid.star(1)], grid.field("out"))
    assert stencil.candidates["points per thread"][0].what == tile_of(stencil.spec)
    own = ml.Set(10, "own")
    direct = light.loop(own, own.field("a"), own.field("b"))
    one, several = direct.candidates["elements per thread"]
    assert one.what == chosen_per_thread(direct.spec, direct.schedule, direct.elements, direct.backend.target)
    assert several.what.count > 1 and "too few threads" in several.declined
    assert {one.what for one in residual().candidates["layout"]} == {"aos", "aosoa32", "soa"}
    ranked = [one.what for one in residual("atomic").candidates["layout"]]
    assert ranked == ["aosoa32", "soa", "aos"], "atomics like them apart"


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_along_lines_methods_and_forms_are_listed(backend: str) -> None:
    ml.use(backend)
    grid = ml.Grid((12, 40), periodic=True)
    operator = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True), scale=1.0)
    for name in ("auto", "thomas"):
        loop = ml.linalg.LineLoop(grid, 0, operator, grid.field("f"), grid.field("g"), method=name)
        methods = loop.candidates["method"]
        assert methods[0].what == loop.schedule.strategy and methods[0].parts and len(methods) > 4
        assert all(one.forbidden for one in methods[1:])
        assert loop.candidates["tiling"][0].what == loop.spec.tiling


def test_they_print_as_a_table() -> None:
    ml.use("cpu", threads=2)
    found = residual().candidates
    head, *rows = str(found).splitlines()
    assert head == "strategy" and len(rows) == len(ml.strategies()) and rows[0].startswith("  block_color block=")
    assert " ms counts) = max(bytes " in rows[0] and "not taken: only" in rows[1]
    assert repr(found) == str(found) and "<strong>strategy</strong>" in found._repr_html_()
    assert str(Candidates(layout=rank([Candidate("aos"), Candidate("soa", declined="no")]))) == (
        "layout\n  aos\n  soa  declined: no")
    assert set(OVERLAPPING) <= set(Cost(1.0, 1.0).parts(CPU.rates))


def test_a_variant_is_offered_with_the_strategies_that_have_it() -> None:
    mesh = ml.generate.naca0012(12, 9)
    wish = ml.Schedule("color", variant="indices")
    loop = res_calc.loop(mesh.faces, *Data(mesh).fields("float64", "aos"), schedule=wish)
    offered = {one.what.strategy: one.what.variant for one in loop.candidates["strategy"]}
    assert offered.pop("color") == "indices" and set(offered.values()) == {"plain"}
