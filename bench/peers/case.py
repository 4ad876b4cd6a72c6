"""What all peers share: the arrays of the mesh, the constants, the free stream and the shape of a peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from meshloom.mesh.mesh import Mesh

# The originals write these as float literals, also in double precision.
GAM, CFL, EPS, MACH = (float(np.float32(c)) for c in (1.4, 0.9, 0.05, 0.4))
GM1 = GAM - 1.0
WALL, FAR = 1, 2


def free_stream() -> np.ndarray:
    """(rho, rho u, rho v, rho E) far away, at pressure 1 and density 1, without incidence."""
    u = MACH * np.sqrt(GAM)
    return np.array([1.0, u, 0.0, 1.0 / GM1 + 0.5 * u * u])


@dataclass(frozen=True)
class Airfoil:
    """The mesh as plain arrays: int32 maps, float64 coordinates, ``bound`` 1 on the wall and 2 far away."""

    x: np.ndarray  # (nodes, 2)
    cell_nodes: np.ndarray  # (cells, 4), around the cell
    edge_nodes: np.ndarray  # (edges, 2)
    edge_cells: np.ndarray  # (edges, 2): (dy, -dx) of first minus second node points from the first to the second
    bedge_nodes: np.ndarray  # (boundary edges, 2)
    bedge_cells: np.ndarray  # (boundary edges,)
    bound: np.ndarray  # (boundary edges,)

    @classmethod
    def from_mesh(cls, mesh: Mesh) -> Airfoil:
        """The arrays of a Meshloom mesh whose boundary groups include ``wall``."""
        group = mesh.boundary_group.numpy()
        maps = (mesh.cell_nodes, mesh.face_nodes, mesh.face_cells, mesh.boundary_nodes, mesh.boundary_cells)
        cells, nodes, sides, bnodes, bcells = (np.ascontiguousarray(m.indices, np.int32) for m in maps)
        bound = np.where(group == mesh.groups["wall"], WALL, FAR).astype(np.int32)
        return cls(mesh.coordinates.numpy(), cells, nodes, sides, bnodes, bcells.reshape(-1), bound)

    @property
    def cells(self) -> int:
        return len(self.cell_nodes)

    @property
    def edges(self) -> int:
        return len(self.edge_nodes)


@dataclass(frozen=True)
class State:
    """The fields on the cells: q, qold, res (cells, 4) and adt (cells,)."""

    q: np.ndarray
    qold: np.ndarray
    adt: np.ndarray
    res: np.ndarray

    @classmethod
    def initial(cls, cells: int) -> State:
        return cls(np.tile(free_stream(), (cells, 1)), np.zeros((cells, 4)), np.zeros(cells), np.zeros((cells, 4)))

    def reset(self) -> None:
        """Back to the free stream, in place."""
        self.q[:] = free_stream()
        self.res[:] = 0.0


class Peer(Protocol):
    """One way to run the step."""

    name: str

    def reset(self) -> None:
        """Back to the initial condition."""

    def advance(self, iterations: int) -> np.ndarray:
        """Run on from the present state; the rms of every iteration, shape (iterations,)."""


def check_agreement(peers: list[Peer], iterations: int = 10, tolerance: float = 1e-10) -> float:
    """Every peer from the start: the largest relative difference of any rms from the first peer's.

    Raises AssertionError above ``tolerance``: times of different answers are not compared.
    """
    worst, reference = 0.0, np.empty(0)
    for peer in peers:
        peer.reset()
        history = peer.advance(iterations)
        if not reference.size:
            reference = history
        difference = float(np.max(np.abs(history / reference - 1.0)))
        if not difference <= tolerance:
            raise AssertionError(f"{peer.name} differs from {peers[0].name} by {difference:.1e} in rms")
        worst = max(worst, difference)
    return worst
