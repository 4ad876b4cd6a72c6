"""Random stencils, each over the result of the one before, computed again wherever that is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from tests.test_fusion_recompute import Case, always, compare

__all__ = ["always"]  # a fixture
Stencil = list[tuple[tuple[int, int], float]]


@st.composite
def stencils(draw: st.DrawFn) -> Stencil:
    points = draw(st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=4, unique=True))
    return [(point, draw(st.sampled_from([0.5, -1.0, 0.25]))) for point in points]


CHAINS = st.lists(stencils(), min_size=2, max_size=3)


def stencil_kernel(stencil: Stencil) -> ml.Kernel:
    @ml.kernel
    def blend(a: ml.Read, own: ml.Read, b: ml.Write) -> None:
        b[...] = sum(weight * a[point] for point, weight in stencil) + own * a[stencil[0][0]]

    return blend


def compare_stencils(chain: list[Stencil], kind: int, boxed: bool, back: bool) -> None:
    """Each over the result of the one before; on a grid that is periodic, closed or has ghosts; all or a part of it.
    ``back``: the last one writes what the first one has read."""
    of_grid = ({"periodic": True}, {}, {"ghosts": 2}, {"periodic": (True, False), "ghosts": (0, 1)})[kind]
    kernels = [stencil_kernel(stencil) for stencil in chain]

    def make(case: Case) -> Callable[[], None]:
        grid, u, own = case.grid, case.field("u", 11), case.field("own", 12)
        last = u if back else case.field("last", 13)
        widths = [2 * (k + 1) for k in range(len(chain))]

        def step() -> None:
            source = u
            for k, (kernel, stencil, width) in enumerate(zip(kernels, chain, widths, strict=True)):
                target = last if k == len(chain) - 1 else grid.field(f"made{k}")
                if target is not last:
                    target.fill(0.25)
                part = grid.interior(width)
                if boxed:
                    low = tuple(a + (k if p else 0) for a, p in zip(part.low, grid.periodic, strict=True))
                    part = grid.box(low, part.high)
                kernel(part, source[grid.offsets(*(point for point, _ in stencil))], own, target)
                source = target

        return step

    compare(make, shape=(17, 14), **of_grid)


@pytest.mark.usefixtures("always")
@given(CHAINS, st.integers(0, 3), st.booleans(), st.booleans())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_chain_of_stencils_gives_the_same(chain: list[Stencil], kind: int, boxed: bool, back: bool) -> None:
    compare_stencils(chain, kind, boxed, back)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@given(CHAINS, st.integers(0, 3), st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_eighty_chains_of_stencils_give_the_same(chain: list[Stencil], kind: int, boxed: bool, back: bool) -> None:
    compare_stencils(chain, kind, boxed, back)
