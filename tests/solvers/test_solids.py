"""Solid blocks in incompressible flow: as walls where both can be had, and alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case.even_steps import EvenSteps
from meshloom.errors import ConfigError, MeshError
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Condition, Inflow, Outflow, Wall
from meshloom.solvers.fractional_step.cells import Block, CellGrid, graded_edges
from meshloom.solvers.fractional_step.flow import IncompressibleFlow
from meshloom.solvers.fractional_step.pressure import PressureSolver
from meshloom.solvers.fractional_step.schemes import SCHEMES
from meshloom.solvers.fractional_step.staggered import StaggeredFlow
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip
FRAME = 2  # solid cells round the cavity


def flow_of(
    cells: CellGrid, sides: dict[tuple[int, str], Condition], scheme: str = "rk3", convection: str = "central",
    step: float = 0.02,
) -> Any:  # fmt: skip
    walls: dict[tuple[int, str], Condition] = dict.fromkeys(product(range(cells.rank), (LOW, HIGH)), Wall())
    clock = EvenSteps(step, 10.0)
    how: Any = {"scheme": SCHEMES[scheme], "convection": convection}
    return IncompressibleFlow(cells, walls | sides, 0.02, clock, force=0.3, **how)


def uneven(count: int, seed: int) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(np.random.default_rng(seed).uniform(0.05, 0.15, count))])


def framed(edges: Sequence[np.ndarray], *, alike: bool) -> tuple[list[np.ndarray], list[Block]]:
    """More cells beyond all ends but the upper one of y, and the blocks that they are; ``alike``: as wide as the ones
    before them."""
    found, blocks = [], []
    for axis, one in enumerate(edges):
        widths = np.diff(one)[[0, -1]] if alike else (0.08, 0.11)
        ends = widths[0] * np.arange(FRAME, 0, -1), widths[1] * np.arange(1, FRAME + 1)
        behind = [] if axis == 1 else [one[-1] + ends[1]]
        found.append(np.concatenate([one[0] - ends[0], one, *behind]))
    shape = [len(one) - 1 for one in found]
    for axis, n in enumerate(shape):
        low, high = [0] * len(shape), list(shape)
        high[axis] = FRAME
        blocks.append((low, high))
        if axis != 1:
            blocks.append(([n - FRAME if a == axis else 0 for a in range(len(shape))], shape))
    return found, blocks


@pytest.mark.parametrize(("rank", "scheme"), [(2, ("rk3", "central")), (2, ("euler", "central")),
                                              (2, ("abcn", "central")), (2, ("rk3", "quick")),
                                              (3, ("rk3", "central"))])  # fmt: skip
def test_a_cavity_between_solids_is_one_between_walls(rank: int, scheme: tuple[str, str]) -> None:
    """Whatever the widths of solid cells; parabolas through three cells, one of them behind a wall, see it."""
    ml.use("numpy")
    edges = [uneven(n, n) for n in (9, 8, 5)[:rank]]
    outer, blocks = framed(edges, alike=scheme[1] == "quick")
    lid = {(1, HIGH): Wall((1.0,))}
    plain = flow_of(CellGrid(edges, [False] * rank), lid, *scheme)
    around = flow_of(CellGrid(outer, [False] * rank, blocks=blocks), lid, *scheme)
    assert np.isclose(plain.cells.volume, around.cells.volume)
    inside = tuple(slice(FRAME, None if a == 1 else -FRAME) for a in range(rank))
    for flow in (plain, around):
        flow.start(0.0)
    for _ in range(2):
        plain.step.run(4)
        around.step.run(4)
        for name in ("velocity", "faces", "pressure"):
            one, other = getattr(plain, name).numpy(), getattr(around, name).numpy()
            np.testing.assert_allclose(other[inside], one, rtol=0.0, atol=1e-11 * np.abs(one).max())
            rest = other.copy()
            rest[inside] = 0.0
            assert name == "faces" or not rest.any(), "inside of solids everything is 0"
        np.testing.assert_allclose(around.energy.value, plain.energy.value, rtol=1e-11)
        np.testing.assert_allclose(around.change.value, plain.change.value, rtol=1e-9)
    assert np.abs(plain.velocity.numpy()).max() > 0.1


def past_a_block(dtype: str = "float64") -> Any:
    """A channel with one block amid the flow, and one beside the way out, of which it closes a part."""
    edges = [uneven(14, 0), uneven(9, 1)]
    cells = CellGrid(edges, [False, False], blocks=[((4, 3), (6, 5)), ((12, 0), (14, 2))], dtype=dtype)
    return flow_of(cells, {(0, LOW): Inflow(lambda x, y: (1.0 + 0.0 * y, 0.0)), (0, HIGH): Outflow()}, step=0.01)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.slow
def test_flow_past_a_block_goes_round_it(backend: str) -> None:
    ml.use(backend)
    flow = past_a_block()
    flow.start(np.random.default_rng(0).uniform((0.6, -0.2), (1.0, 0.2), (14, 9, 2)))
    recorded = flow.step.run(20, record=flow.recorded)
    assert (recorded[:, 2] < 1e-12).all(), "no divergence"
    u, solid = flow.velocity.numpy(), flow.cells.solid
    faces = flow.cells.grid.shaped(flow.faces, ghosts=True)[2:-1, 2:-1]  # the last ones of each axis too
    assert not u[solid].any() and np.abs(u[~solid]).min() > 0.0
    for axis in range(2):  # closed are the faces of solid cells on both sides
        through, here = np.moveaxis(faces[..., axis], axis, 0)[:, :-1], np.moveaxis(solid, axis, 0)
        closed = np.pad(here, ((0, 1), (0, 0))) | np.pad(here, ((1, 0), (0, 0)))
        assert not through[closed].any() and np.abs(through[1:-1][~closed[1:-1]]).min() > 0.0
    heights = flow.cells.axes[1].widths
    assert not faces[14, :2, 0].any()
    np.testing.assert_allclose(faces[14, :9, 0] @ heights, faces[0, :9, 0] @ heights, rtol=1e-13)
    np.testing.assert_allclose(faces[0, :9, 0], 1.0)


def test_every_back_end_gives_the_same_past_a_block() -> None:
    found = []
    for backend in ("numpy", "cpu"):
        ml.use(backend)
        flow = past_a_block()
        flow.start(1.0)
        found.append(flow.step.run(5, record=flow.recorded))
    np.testing.assert_allclose(*found, rtol=1e-10, atol=1e-13)


@pytest.mark.slow
def test_single_precision_past_a_block() -> None:
    ml.use("numpy")
    flow = past_a_block("float32")
    flow.start(0.0)
    assert (flow.step.run(20, record=flow.recorded)[:, 2] < 1e-4).all()


def test_without_blocks_kernels_are_asked_nothing_more() -> None:
    ml.use("numpy")
    edges = [uneven(4, 0), uneven(5, 1)]
    for blocks, more in (((), 0), ([((1, 1), (2, 2))], 1)):
        cells = CellGrid(edges, [False, False], blocks=blocks)
        assert len(cells.widths) == 2 + more and len(cells.fluid_within(2)) == more
        assert (cells.solid is None) == (not more)


def test_what_is_refused() -> None:
    ml.use("numpy")
    edges = [uneven(4, 0), uneven(5, 1)]
    for block, words in (
        (((1, 1), (5, 2)), "leaves the"), (((-1, 1), (2, 2)), "leaves the"), (((2, 1), (2, 2)), "is empty"),
    ):  # fmt: skip
        with one_line_from(MeshError, words):
            CellGrid(edges, [False, False], blocks=[block])
    with one_line_from(ConfigError, "multigrid does not know of solid cells"):
        PressureSolver(CellGrid(edges, [False, False], blocks=[((1, 1), (2, 2))]), "multigrid")
    with one_line_from(ConfigError, "staggered does not know of solid cells"):
        StaggeredFlow(CellGrid(edges, [False, False], blocks=[((1, 1), (2, 2))]))
    with one_line_from(MeshError, "5 fluid cells are cut off"):
        PressureSolver(CellGrid(edges, [False, False], blocks=[((1, 0), (2, 5))]))
    with one_line_from(MeshError, "all cells are solid"):
        PressureSolver(CellGrid(edges, [False, False], blocks=[((0, 0), (4, 5))]))


def test_cells_grow_up_to_the_widest_and_end_where_they_must() -> None:
    edges = graded_edges(10.0, 0.1, 1.1, 0.5)
    widths = np.diff(edges)
    assert edges[0] == 0.0 and np.isclose(edges[-1], 10.0) and 0.09 < widths[0] <= 0.1 and widths.max() <= 0.5
    ratios = widths[1:] / widths[:-1]
    assert np.isclose(ratios[0], 1.1) and np.isclose(ratios[-1], 1.0) and ratios.max() < 1.1 + 1e-9
    np.testing.assert_allclose(np.diff(graded_edges(2.0, 0.25, 1.0, 0.1)), 0.25)
