"""The peers of the benchmark give one answer, and the right one."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from bench.peers import cpp, numpy_airfoil
from bench.peers.case import Airfoil, Peer, check_agreement

RMS_20x30 = {1: 0.0065196961366282, 10: 0.0017886967281040, 100: 0.0002074220547521}  # published recipe, in double


@pytest.fixture(scope="module")
def case() -> Airfoil:
    return Airfoil.from_mesh(ml.generate.naca0012(20, 30))


def everyone(case: Airfoil) -> list[Peer]:
    peers: list[Peer] = [cpp.CppBlockColor(case, 2, block) for block in (64, 512)]
    peers += [cpp.CppFused(case, 2, chunk) for chunk in (100, 512)]
    peers += [cpp.CppGather(case, 2), *(numpy_airfoil.NumPy(case, s) for s in numpy_airfoil.SCATTERS)]
    return peers


def test_reference_history(case: Airfoil) -> None:
    history = cpp.CppGather(case, 2).advance(100)
    for iteration, rms in RMS_20x30.items():
        assert history[iteration - 1] == pytest.approx(rms, rel=1e-9)


def test_peers_agree(case: Airfoil) -> None:
    assert check_agreement(everyone(case), 20) < 1e-11


@pytest.mark.slow  # a peer: numba compiles for ten seconds
def test_numba_agrees(case: Airfoil) -> None:
    pytest.importorskip("numba")
    from bench.peers.numba_airfoil import NumbaBlockColor, NumbaGather

    check_agreement([cpp.CppGather(case, 1), NumbaBlockColor(case, 2, 128), NumbaGather(case, 2)], 20)


def test_disagreement_is_found(case: Airfoil) -> None:
    class Wrong(cpp.CppGather):
        name = "wrong"

        def advance(self, iterations: int) -> np.ndarray:
            return super().advance(iterations) * (1.0 + 1e-8)

    with pytest.raises(AssertionError, match="wrong differs"):
        check_agreement([cpp.CppGather(case, 2), Wrong(case, 2)], 3)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_colors_of_blocks_are_proper(case: Airfoil, block: int) -> None:
    rng = np.random.default_rng(block)
    shuffled = rng.permutation(case.edges)
    case = Airfoil(case.x, case.cell_nodes, case.edge_nodes[shuffled], case.edge_cells[shuffled], case.bedge_nodes,
                   case.bedge_cells, case.bound)  # fmt: skip
    peer = cpp.CppBlockColor(case, 2, block)
    colors = cpp.block_colors(case.edge_cells, case.cells, block)
    assert len(colors) == -(-case.edges // block) and colors.min() == 0
    owner = np.repeat(np.arange(len(colors)), block)[: case.edges]
    pairs = {(int(c), int(colors[b])): int(b) for b, row in zip(owner, case.edge_cells, strict=True) for c in row}
    for b, row in zip(owner, case.edge_cells, strict=True):
        for c in row:
            assert pairs[int(c), int(colors[b])] == b, "two blocks of one color share a cell"
    check_agreement([cpp.CppGather(case, 1), peer], 5)
