"""Chains of elements that share targets, cut into strips."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import PlanError
from meshloom.schedule.choice.auto import choose, estimates
from meshloom.schedule.choice.cost import Work
from meshloom.schedule.plan.declare import Pair
from meshloom.schedule.plan.plan import Topology
from meshloom.schedule.strategies import strategy, verify
from meshloom.schedule.strategies.common.strip_decomposition import Rule, best_strips, cut, links, updates
from meshloom.schedule.strategies.strip import StripPlan
from meshloom.target import H200
from tests.schedule.spoil import spoilt

STRIPS = H200.gpu.strips


def topology(rows: np.ndarray) -> Topology:
    return Topology(len(rows), {0: (rows, int(rows.max()) + 1)}, {0: 0})


def left(rows: np.ndarray) -> float:
    """Updates per element that strips leave."""
    return updates([rows], *best_strips([rows], STRIPS))


def test_a_link_leads_to_the_next_element_that_shares_the_target_and_nobody_follows_two() -> None:
    rows = np.array([[0, 1], [0, 2], [1, 3], [1, 4], [2, 0]])
    np.testing.assert_array_equal(links(rows, Rule(0, 1, 0)), [2, 4, -1, -1, -1])
    np.testing.assert_array_equal(links(rows, Rule(0, 0, 0)), [1, -1, 3, -1, -1])
    crowded = np.array([[5, 7], [6, 7], [7, 8]])
    np.testing.assert_array_equal(links(crowded, Rule(0, 1, 0)), [-1, 2, -1])  # the nearest one is followed


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_chains_are_cut_evenly_and_strips_follow_the_links(lengths: list[int], seed: int) -> None:
    """Chains of any lengths, their elements scattered."""
    n = sum(lengths)
    owner = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(lengths)), lengths))
    link = np.full(n, -1)
    for chain in range(len(lengths)):
        members = np.flatnonzero(owner == chain)
        link[members[:-1]] = members[1:]
    strips = cut(link, STRIPS.longest)
    assert sorted(strips.elements.tolist()) == list(range(n))
    steps = strips.steps()
    assert len(steps) <= STRIPS.longest and all(len(a) >= len(b) for a, b in itertools.pairwise(steps))
    for before, after in itertools.pairwise(steps):
        np.testing.assert_array_equal(link[before[: len(after)]], after)
    assert strips.number == sum(-(-length // STRIPS.longest) for length in lengths)


def test_most_updates_of_hexahedra_quadrilaterals_and_faces_disappear() -> None:
    box = ml.generate.box((16, 17, 18))
    assert left(box.cell_nodes.indices) < 0.36 * 8
    assert left(box.face_cells.indices) < 0.53 * 2
    quads = ml.generate.box((40, 50))
    assert left(quads.cell_nodes.indices) < 0.36 * 4


def test_hexahedra_in_random_order_still_form_strips() -> None:
    rows = np.random.default_rng(0).permutation(ml.generate.box((16, 17, 18)).cell_nodes.indices)
    assert left(rows) < 0.8 * 8


def test_where_nobody_shares_a_target_there_are_no_pairs() -> None:
    strips, (found,) = best_strips([np.arange(200).reshape(50, 4)], STRIPS)
    assert strips.number == 50 and not (found.kept or found.lower or found.upper or found.ends)


def test_the_verifier_rejects_strips_that_would_be_wrong() -> None:
    about = topology(ml.generate.box((4, 5, 6)).cell_nodes.indices)
    plan = strategy("strip").plan(about, 32, target=H200)
    verify(plan, about)
    assert isinstance(plan, StripPlan)
    found, (kept, *_) = plan.meetings[0], plan.meetings[0].kept

    def meeting(**pairs: tuple[Pair, ...]) -> StripPlan:
        return replace(plan, meetings={0: replace(found, **pairs)})

    for wrong, message in (
        (spoilt(plan, "strips", lambda a: a.__setitem__(0, a[1])), "exactly once"),
        (replace(plan, steps=np.array([0, 10, 120])), "after its end"),
        (meeting(lower=(*found.lower, Pair(9, 0))), "does not exist"),
        (meeting(lower=(*found.lower, Pair(0, 8))), "does not exist"),
        (meeting(kept=(kept, kept)), "in two pairs"),
        (meeting(kept=(Pair(kept.slot, 0),), lower=(Pair(0, kept.slot),), upper=(), ends=()), "given away"),
        (replace(plan, meetings={}), "is not for 0"),
    ):
        with pytest.raises(PlanError, match=message):
            verify(wrong, about)


def test_fastest_asks_nothing_but_the_estimated_time() -> None:
    mesh = ml.generate.box((6, 6, 6))
    stress, force = mesh.cells.field("stress", 3), mesh.nodes.field("force", 3)

    @ml.kernel
    def push(stress: ml.Read, force: ml.Inc):
        for corner in range(8):
            force[corner] += stress

    spec = push.loop(mesh.cells, stress, force[mesh.cell_nodes]).spec
    dear = Work(elements=5_000_000, targets=5_000_000, touched=5_000_000, incidences=40_000_000, components=24,
                flops=1e9, compulsory=6e8, staged=1e9, requested=2e9, gathered=2e10, tiles=6.0,
                loads=4.0)  # fmt: skip
    seconds = estimates(spec, dear, H200)
    chosen = {
        name: choose(spec, dear.elements, dear, ml.Schedule(name), target=H200)
        for name in ("auto", "fastest")
    }
    assert chosen["fastest"][0].strategy == min(seconds, key=seconds.__getitem__)
    assert not strategy(chosen["fastest"][0].strategy).deterministic
    assert strategy(chosen["auto"][0].strategy).deterministic
    assert "deterministic" in chosen["auto"][1] and "deterministic" not in chosen["fastest"][1]
