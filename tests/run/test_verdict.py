"""The verdict on a run towards a steady state is a function of its residuals, whatever their scale and number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meshloom.run.verdict import BROKEN, CONVERGED, FALLING, GROWING, STALLED, SWINGING, TOO_SHORT, judged

Share = np.ndarray  # of a run, from 0 to 1
HISTORIES: dict[str, tuple[Callable[[Share], np.ndarray], str]] = {
    "falls by five decades": (lambda s: 10.0 ** (-5.0 * s), CONVERGED),
    "falls, and comes to rest at rounding": (lambda s: np.maximum(10.0 ** (-40.0 * s), 3e-15), CONVERGED),
    "falls by two decades so far": (lambda s: 10.0 ** (-2.0 * s), FALLING),
    "falls slowly": (lambda s: 10.0 ** (-0.5 * s), FALLING),
    "stands still from the first": (lambda s: np.ones_like(s), STALLED),
    "stalls after one decade": (lambda s: 10.0 ** -np.minimum(4.0 * s, 1.0), STALLED),
    "rings": (lambda s: 10.0 ** (-np.minimum(4.0 * s, 2.0) + 0.4 * np.sin(150.0 * s)), STALLED),
    "grows from the first": (lambda s: 10.0 ** (2.0 * s), GROWING),
    "falls, then grows": (lambda s: 10.0 ** np.where(s < 0.3, -12.0 * s, -3.6 + 3.0 * (s - 0.3)), GROWING),
    "stands still but for a spike": (lambda s: np.where(np.abs(s - 0.5) < 0.01, 1e4, 1.0), STALLED),
    "jumps up, and falls to more than at first": (
        lambda s: 10.0 ** np.interp(s, [0, 0.05, 0.5, 1], [0, 4.0, 1.0, 1.0]), STALLED
    ),
    "falls at once to rounding": (lambda s: 10.0 ** np.interp(s, [0, 0.02, 1], [0, -14.0, -14.0]), CONVERGED),
    "has grown, and stays there": (lambda s: 10.0 ** np.interp(s, [0, 0.2, 0.4, 1], [0, -3.5, -1.5, -1.5]), STALLED),
}


@pytest.mark.parametrize("count", [16, 32, 170, 4001])
@pytest.mark.parametrize("name", HISTORIES)
def test_states(name: str, count: int) -> None:
    """16 iterations are too few for a standstill: no quarter of them can have seen two swings."""
    history, state = HISTORIES[name]
    state = TOO_SHORT if state == STALLED and count < 32 else state
    found = [judged("rms", scale * history(np.linspace(0.0, 1.0, count))) for scale in (1e-290, 1e-7, 1.0, 1e12, 1e290)]
    assert all(one is not None and (one.state, one.converged) == (state, state == CONVERGED) for one in found), found
    assert len({one.since for one in found if one}) == 1


def test_noise_does_not_matter() -> None:
    dice = np.random.default_rng(3)
    for name, (history, state) in HISTORIES.items():
        noisy = history(np.linspace(0.0, 1.0, 600)) * np.exp(0.3 * dice.standard_normal(600))
        found = judged("rms", noisy)
        assert found is not None and found.state == state, (name, found)


@pytest.mark.parametrize("count", [100, 170, 1000, 4001])
def test_growth_at_the_end_is_growth(count: int) -> None:
    found = judged("rms", 10.0 ** np.interp(np.linspace(0.0, 1.0, count), [0, 0.93, 1], [0, -4.0, -0.7]))
    assert found is not None and found.state == GROWING and abs(found.since - 0.93 * count) <= 2


def test_since_when() -> None:
    s = np.linspace(0.0, 1.0, 1600)
    grows, stalls = (judged("rms", HISTORIES[one][0](s)) for one in ("falls, then grows", "stalls after one decade"))
    assert grows is not None and abs(grows.since - 0.3 * 1600) <= 2 and "grows since iteration" in grows.text
    assert stalls is not None and abs(stalls.since - 0.25 * 1600) <= 200 and "stalled at 0.1 since" in stalls.text


def test_a_limit_decides() -> None:
    falls = 10.0 ** (-5.0 * np.linspace(0.0, 1.0, 100))
    met, missed = judged("rms", falls, 2e-5), judged("rms", falls, 1e-6)
    assert met is not None and met.converged and met.text == "converged: rms is 1e-05, below 2e-05"
    assert missed is not None and not missed.converged and missed.state == FALLING and "above 1e-06" in missed.text
    short = judged("rms", falls[-2:], 2e-5)
    assert short is not None and short.converged


def test_what_says_nothing_and_what_is_not_finite() -> None:
    assert judged("rms", np.empty(0)) is None
    for count in range(1, 8):
        short = judged("rms", np.ones(count))
        assert short is not None and short.state == TOO_SHORT and not short.converged
    broken = judged("rms", np.array([1.0, 0.5, np.nan, 1.0, np.inf]))
    assert broken is not None and (broken.state, broken.since, broken.converged) == (BROKEN, 3, False)
    few = [judged("rms", np.ones(count)).text for count in (1, 2)]  # type: ignore[union-attr]
    assert few == [f"not converged: {told} too few to judge" for told in ("1 iteration is", "2 iterations are")]
    still = judged("rms", np.zeros(100))
    assert still is not None and still.converged
    with np.errstate(all="raise"):
        gap = judged("rms", np.where(np.arange(100) == 50, 0.0, 1.0))
    assert gap is not None and gap.state == STALLED


@pytest.mark.parametrize("swings", [0.3, 0.6, 1.0, 1.7, 2.5, 3.5])
@pytest.mark.parametrize("count", [100, 400, 3001])
def test_swings_too_slow_to_tell_are_no_standstill(count: int, swings: float) -> None:
    """So many in a half of the run, by a factor of 1.5 either way; whatever their phase it is not called stalled."""
    s = np.linspace(0.0, 1.0, count)
    for phase in np.linspace(0.0, 2.0 * np.pi, 12, endpoint=False):
        found = judged("rms", 10.0 ** (-np.minimum(6.0 * s, 2.0) + 0.18 * np.sin(4.0 * np.pi * swings * s + phase)))
        assert found is not None and found.state != STALLED, (phase, found)
        assert found.state != SWINGING or f"{count} iterations are too few to tell" in found.text


@pytest.mark.parametrize("swings", [6, 10, 23])
@pytest.mark.parametrize("count", [400, 3001])
def test_swings_that_were_seen_often_are_a_standstill(count: int, swings: int) -> None:
    s = np.linspace(0.0, 1.0, count)
    for phase in np.linspace(0.0, 2.0 * np.pi, 12, endpoint=False):
        found = judged("rms", 10.0 ** (-np.minimum(6.0 * s, 2.0) + 0.18 * np.sin(4.0 * np.pi * swings * s + phase)))
        assert found is not None and found.state == STALLED, (phase, found)


def test_swings_that_can_hide_no_fall_do_not_count() -> None:
    """By two hundredths, or a line that falls as slowly: it stands still."""
    s = np.linspace(0.0, 1.0, 300)
    for still in (1.0 + 0.02 * np.sin(6.0 * s), 10.0 ** (-0.05 * s), 0.1 + np.exp(-30.0 * s)):
        found = judged("rms", still)
        assert found is not None and found.state == STALLED, found


#: Logarithms (base 10, hundredths) of the residual of density of an explicit NACA 0012 on 32 x 12 cells, after every
#: second of its first 120 iterations. It converges.
AIRFOIL = (
    48, -1, -25, -53, -25, -54, -83, -86, -105, -74, -114, -99, -80, -127, -139,
    -140, -153, -157, -159, -162, -165, -168, -170, -170, -170, -168, -167, -167, -168, -170,
    -170, -171, -170, -168, -167, -166, -166, -168, -171, -175, -178, -179, -178, -174, -171,
    -167, -165, -163, -162, -161, -161, -161, -161, -163, -166, -170, -175, -181, -189, -197,
)  # fmt: skip


def test_a_coarse_airfoil_has_not_stalled() -> None:
    seen = 10.0 ** (0.01 * np.interp(np.arange(120), np.arange(0, 120, 2), AIRFOIL))
    told = {count: judged("rms", seen[:count]) for count in range(30, 121)}
    assert {one.state for one in told.values() if one} <= {FALLING, SWINGING}
    assert all(told[count].state == SWINGING for count in (80, 100))  # type: ignore[union-attr]


#: Logarithms (base 10, thousandths) of the residuals of the first 20 iterations of the airfoil, which converges, on
#: 45,000 and on 648 cells.
BEGINNINGS = (
    (-2419, -2445, -2477, -2512, -2551, -2592, -2634, -2674, -2709, -2736,
     -2755, -2765, -2769, -2768, -2765, -2763, -2762, -2764, -2769, -2776),
    (-2157, -2215, -2280, -2353, -2434, -2521, -2615, -2710, -2799, -2868,
     -2906, -2914, -2905, -2891, -2878, -2871, -2869, -2873, -2881, -2894),
)  # fmt: skip


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_the_beginning_of_a_run_is_no_standstill(beginning: tuple[int, ...]) -> None:
    residuals = 10.0 ** (0.001 * np.array(beginning))
    told = [judged("rms", residuals[:count]) for count in range(8, 21)]
    assert {one.state for one in told if one} <= {FALLING, SWINGING, TOO_SHORT}


@pytest.mark.parametrize("count", range(8, 32))
def test_what_is_short_never_stalls(count: int) -> None:
    dice = np.random.default_rng(count)
    for still in (np.ones(count), 1.0 + 0.5 * (np.arange(count) % 2), np.exp(0.1 * dice.standard_normal(count))):
        found = judged("rms", still)
        assert found is not None and found.state != STALLED, found


def bumps(share: Share, until: float = 0.78) -> np.ndarray:
    """Falls, rests, jumps up, and comes down to a rest above the first one ``until`` so late in the run."""
    shares, logs = [0, 0.25, 0.5, 0.55, until - 0.03, until, 1], [0, -2.5, -2.3, -1.8, -1.8, -2.2, -2.2]
    return 10.0 ** np.interp(share, shares, logs)


#: No run of these falls: the state, or the states, that may be told of them, whatever their number of iterations.
NO_FALLS: dict[str, tuple[Callable[[Share], np.ndarray], set[str]]] = {
    "flat after a bump": (bumps, {STALLED}),
    "not long flat after a bump": (lambda s: bumps(s, 0.84), {STALLED, SWINGING}),
    "comes down from a bump, to above where it was": (
        lambda s: 10.0 ** np.interp(s, [0, 0.25, 0.5, 0.55, 1], [0, -2.5, -2.3, -1.2, -2.0]), {SWINGING}
    ),
    "falls fast, then is flat for long": (lambda s: 10.0 ** -np.minimum(10.0 * s, 2.0), {STALLED}),
    "falls, then is flat for a quarter": (lambda s: 10.0 ** -np.minimum(2.8 * s, 2.0), {SWINGING}),
    "a fast limit cycle": (lambda s: 10.0 ** (-np.minimum(9.0 * s, 2.0) + 0.2 * np.sin(300.0 * s)), {STALLED}),
    "grows after a fall": (lambda s: 10.0 ** np.interp(s, [0, 0.5, 1], [0, -2.0, -1.0]), {GROWING}),
}


@pytest.mark.parametrize("limit", [None, 1e-9])
@pytest.mark.parametrize("count", [400, 1601, 3000])
@pytest.mark.parametrize("name", NO_FALLS)
def test_more_iterations_help_only_what_falls(name: str, count: int, limit: float | None) -> None:
    history, states = NO_FALLS[name]
    dice = np.random.default_rng(1)
    for noise in (0.0, 0.02):
        residuals = history(np.linspace(0.0, 1.0, count)) * np.exp(noise * dice.standard_normal(count))
        found = judged("rms", residuals, limit)
        assert found is not None and found.state in states and "more iterations help" not in found.text, found


@pytest.mark.parametrize("swings", [0.0, 3.0, 8.0, 20.0, 40.0])
@pytest.mark.parametrize("count", [100, 400, 3001])
def test_a_fall_with_swings_falls(count: int, swings: float) -> None:
    s = np.linspace(0.0, 1.0, count)
    for phase in np.linspace(0.0, 2.0 * np.pi, 12, endpoint=False):
        found = judged("rms", 10.0 ** (-2.0 * s + 0.18 * np.sin(2.0 * np.pi * swings * s + phase)))
        assert found is not None and found.state == FALLING, (phase, found)


def test_a_fall_after_a_bump_to_less_than_before_falls() -> None:
    """Also where the first residuals, before the flow has begun to move, were less than all that came after."""
    s = np.linspace(0.0, 1.0, 400)
    for points, logs in (([0, 0.25, 0.5, 1], [0, -1.5, -0.8, -2.5]), ([0, 0.05, 1], [0, 4.0, 2.0])):
        found = judged("rms", 10.0 ** np.interp(s, points, logs))
        assert found is not None and found.state == FALLING, found


def test_a_cure_is_added() -> None:
    found = judged("rms", np.ones(40))
    assert found is not None and found.with_cure("shorter steps help").text.endswith("; shorter steps help")
    assert found.with_cure("") == found
