"""Cases on ranks: a design in which every two of case, back end, number of ranks, and fused or not meet; ``matrix.py``
has all of it."""

from __future__ import annotations

import argparse
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from tests.dist import matrix, pairs
from tests.dist.matrix import LAUNCHES, NAMES, SAME, Alone, Found, Kept, Launch, differing, outcomes
from tests.dist.on_ranks_cases import CASES, SCRIPTS, VARIANTS

OTHERS = (*VARIANTS, *SCRIPTS)


@pytest.mark.parametrize(("names", "same_bits"), [
    pytest.param(CASES, True, id="cases"),
    pytest.param(CASES, False, id="cases in any bits", marks=pytest.mark.slow),
    pytest.param(OTHERS, True, id="other forms, and scripts", marks=pytest.mark.slow),
])  # fmt: skip
def test_runs_of_the_design_are_the_same(names: tuple[str, ...], same_bits: bool) -> None:
    assert pairs.wrong(pairs.found_by(names, same_bits=same_bits)[0]) == {}


def test_in_the_design_every_two_meet() -> None:
    rows = [run[:4] for run in pairs.design()]
    axes = (CASES, ("numpy", "cpu", "emulated"), pairs.RANKS, (True, False))
    for a, b in combinations(range(len(axes)), 2):
        assert {(row[a], row[b]) for row in rows} == {*product(axes[a], axes[b])}, (axes[a][0], axes[b][0])
    assert len(rows) == 4 * len(CASES) + 2 * 2, "as few as there are numbers of ranks, but where bits differ"
    assert len({*rows}) == len(rows) and {*pairs.OWN_BITS} <= {*NAMES}


@pytest.mark.parametrize("names", [CASES, OTHERS])
def test_every_run_of_the_design_is_held_against_another_to_the_bit(names: tuple[str, ...]) -> None:
    """One that is not the same shows, whichever it is; and values that differ where bits may."""
    right = {run: Found({"a.csv": "1", "run.toml": run.backend}, (np.array([1.0]),)) for run in pairs.design(names)}
    assert pairs.wrong(right) == {}
    for run in right:
        spoilt = right | {run: right[run]._replace(digests={"a.csv": "2", "run.toml": run.backend})}
        assert {run} < {one for two in pairs.wrong(spoilt) for one in two}, run
    of_free = dict.fromkeys(pairs.design(names, same_bits=False), Found({}, (np.array([1.0]),)))
    for run in of_free:
        spoilt = of_free | {run: Found({}, (np.array([1.001]),))}
        assert pairs.wrong(of_free) == {} and {run} < {one for two in pairs.wrong(spoilt) for one in two}, run


# ----- without a launcher -------------------------------------------------------------------------------------------
def test_what_differs_is_named() -> None:
    one = Found({"a.vtu": "1", "b.csv": "2"}, (np.array([1.0, 2.0]), np.array([np.nan, 4.0])))
    assert differing(one, one) == []
    assert differing(one, one._replace(digests={"a.vtu": "1", "b.csv": "3"})) == ["b.csv"]
    assert differing(one, one._replace(digests={"a.vtu": "1"})) == ["b.csv"]
    other = np.array([1.0, 2.0 + 1e-7]), one.values[1]
    assert differing(one, one._replace(values=other)) == ["array 0"]
    assert differing(one, one._replace(values=(one.values[0] + 1e-12, one.values[1]))) == []
    assert differing(one, one._replace(values=(one.values[0], np.array([1.0, 4.0])))) == ["array 1"]
    for scale in (1e-20, 1.0, 1e20):  # a lift that is zero but for round-off, next to a drag; and one that is not
        drag, lifts = np.array([scale]), [np.array([value * scale]) for value in (2e-14, 1e-14, 2e-7, 1e-7)]
        here, there, other, another = (Found({}, (drag, lift)) for lift in lifts)
        assert differing(here, there) == [] and differing(other, another) == ["array 1"], scale
    assert differing(one, one._replace(values=one.values[:1])) == ["the number of arrays"]


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed is tried again, what was the same is not."""
    chosen, file = argparse.Namespace(only=["airfoil", "fv", "march"], backend="cpu"), tmp_path / "kept.jsonl"
    first, second, *_ = (one for one in LAUNCHES if one.backend == "cpu")
    kept = Kept.of(file)
    assert next(matrix.parts(chosen, kept)) == (first, ["airfoil", "fv", "march"])
    kept.add(first, {"airfoil": SAME, "fv": "monitors.csv", "march": SAME})
    kept.add(second, dict.fromkeys(chosen.only, SAME))
    for again in (kept, Kept.of(file)):
        left = [*matrix.parts(chosen, again)]
        assert left[0] == (first, ["fv"]) and len(left) == 31 and second not in [launch for launch, _ in left]


def test_a_case_that_fails_is_told_and_the_others_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(launch: Launch, names: list[str], iterations: int) -> dict[str, Found]:
        assert "fv" not in names, "it\nbroke down"
        bits = "other" if launch.ranks == 3 and "march" in names else "1"
        return {name: Found({"a": bits}) for name in names}

    monkeypatch.setattr(matrix, "run", run)
    launch = Launch("cpu", 3)
    found = outcomes(launch, ["airfoil", "fv", "march"], Alone())
    assert found["airfoil"] == SAME and found["march"] == "a" and "it broke down" in found["fv"]
