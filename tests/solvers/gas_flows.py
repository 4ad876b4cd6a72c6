"""Flows that tests of finite volumes share: distorted meshes of every kind, and a manufactured solution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.spatial import Delaunay

import meshloom as ml
from bench.shock_tubes import run_until
from meshloom.solvers.finite_volume.conditions import GivenState
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.kernels import FlowScheme
from tests.mesh.mixed_samples import space

KINDS = ("triangle", "quad", "mixed plane", "tetrahedron", "hexahedron", "mixed space")


def distorted(kind: str, n: int, jitter: float = 0.15, seed: int = 0) -> ml.Mesh:
    """A unit box of n cells along each axis whose inner nodes are moved at random, by that share of a cell at most.

    The mixed ones have quadrilaterals and triangles, and hexahedra, pyramids, prisms and tetrahedra.
    """
    if kind == "mixed space":
        return ml.Mesh.from_cells(*space(seed, n))
    if kind == "mixed plane":
        quads, triangles = (distorted(one, n, jitter, seed) for one in ("quad", "triangle"))
        left = [mesh.cell_centroids[:, 0] < (n // 2) / n for mesh in (quads, triangles)]
        cells = {"quad": quads.cell_nodes.indices[left[0]], "triangle": triangles.cell_nodes.indices[~left[1]]}
        return ml.Mesh.from_cells(quads.coordinates.numpy(), cells)
    dim = 2 if kind in ("triangle", "quad") else 3
    mesh = ml.generate.box((n,) * dim, cells=kind)
    x = mesh.coordinates.numpy()
    inner = ((x > 1e-9) & (x < 1.0 - 1e-9)).all(axis=1)
    shift = np.random.default_rng(seed).uniform(-jitter / n, jitter / n, x.shape)
    faces = {name: mesh.boundary_nodes.indices[mesh.group(name)] for name in mesh.groups}
    return ml.Mesh.from_cells(x + inner[:, None] * shift, mesh.cell_nodes.indices, kind, faces)


def irregular(dim: int, n: int, seed: int = 0) -> ml.Mesh:
    """Triangles or tetrahedra by Delaunay between points of a box that are moved at random, n along each axis."""
    x = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, n)] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    inner = (x > 0.0) & (x < 1.0)
    x = x + inner * np.random.default_rng(seed).uniform(-0.3, 0.3, x.shape) / (n - 1)
    cells = Delaunay(x).simplices
    size = np.linalg.det(x[cells[:, 1:]] - x[cells[:, :1]])
    cells[size < 0.0, :2] = cells[size < 0.0, 1::-1]
    flat = np.abs(size) < 1e-2 / (n - 1) ** dim  # at the sides of the box
    return ml.Mesh.from_cells(x, cells[~flat], "triangle" if dim == 2 else "tetrahedron")


def waves(x: np.ndarray) -> np.ndarray:
    """A smooth state V (d + 2, n) at places (n, d): subsonic, all components vary along all axes."""
    dim = x.shape[1]
    phase = math.pi * (x @ np.array([0.9, 0.7, 0.5])[:dim])
    other = math.pi * (x @ np.array([-0.4, 0.8, 0.6])[:dim])
    velocity = [0.5 + 0.1 * np.sin(phase), 0.3 + 0.1 * np.cos(other), 0.2 - 0.1 * np.sin(phase + other)][:dim]
    return np.stack([1.0 + 0.1 * np.sin(other), *velocity, 1.0 + 0.1 * np.cos(phase)])


class Waves(GivenState):
    """A boundary that holds the smooth state."""

    def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
        return waves(centres).T


def _pieces(x: np.ndarray, nodes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Places (n, d), area vectors (n, d) and weights of a rule of fourth order or better on faces with these nodes."""
    if x.shape[1] == 2:
        a, b = x[nodes[:, 0]], x[nodes[:, 1]]
        d = a - b
        area = np.stack([d[:, 1], -d[:, 0]], axis=1)
        root = math.sqrt(0.6)
        return [
            (0.5 * (a + b) + 0.5 * s * (b - a), area, w) for s, w in ((-root, 5 / 18), (0.0, 8 / 18), (root, 5 / 18))
        ]
    middle, found = x[nodes].mean(axis=1), []
    for k in range(nodes.shape[1]):
        corners = np.stack([middle, x[nodes[:, k]], x[nodes[:, (k + 1) % nodes.shape[1]]]])
        area = 0.5 * np.cross(corners[1] - corners[0], corners[2] - corners[0])
        for heavy in range(3):  # the rule of second degree inside the triangle
            share = np.full(3, 1 / 6)
            share[heavy] = 2 / 3
            found.append((np.einsum("k,knd->nd", share, corners), area, 1 / 3))
    return found


def _exact_flux(gas: IdealGas, x: np.ndarray, area: np.ndarray) -> np.ndarray:
    """Of the smooth state through area vectors (n, d) at places (n, d), by formulas of its own: (n, d + 2)."""
    dim, V = x.shape[1], waves(x)
    pressure, velocity, temperature = V[0], V[1:-1], V[-1]
    density = pressure / (gas.gas_constant * temperature)
    mass = density * np.einsum("dn,nd->n", velocity, area)
    enthalpy = gas.gamma / (gas.gamma - 1.0) * pressure / density + 0.5 * (velocity**2).sum(axis=0)
    flux = np.stack([mass, *(mass * velocity + pressure * area.T), mass * enthalpy], axis=1)
    if gas.viscous:
        h = 1e-5
        slope = np.stack([(waves(x + h * e) - waves(x - h * e)) / (2 * h) for e in np.eye(dim)], axis=1)
        du = slope[1:-1]  # velocity, axis, place
        spread = np.einsum("aan->n", du)
        stress = gas.reference_viscosity * (du + du.transpose(1, 0, 2) - 2.0 / 3.0 * spread * np.eye(dim)[:, :, None])
        force = np.einsum("abn,nb->an", stress, area)
        heat = gas.cp_enthalpy * gas.reference_viscosity / gas.prandtl * np.einsum("bn,nb->n", slope[-1], area)
        flux[:, 1:-1] -= force.T
        flux[:, -1] -= np.einsum("an,an->n", force, velocity) + heat
    return flux


def balancing_source(mesh: ml.Mesh, gas: IdealGas) -> np.ndarray:
    """What must come into every cell (n, d + 2) for the smooth state to stay: the flux of it out of the cell."""
    x, source = mesh.coordinates.numpy(), np.zeros((len(mesh.cells), mesh.dim + 2))
    for faces, cells in ((mesh.lists.faces, mesh.face_cells.indices),
                         (mesh.lists.boundary_faces, mesh.boundary_cells.indices)):  # fmt: skip
        flux = np.zeros((len(cells), mesh.dim + 2))
        for block in faces.sizes:
            for place, area, weight in _pieces(x, block.nodes):
                flux[block.numbers] += weight * _exact_flux(gas, place, area)
        np.add.at(source, cells[:, 0], flux)
        if cells.shape[1] == 2:
            np.add.at(source, cells[:, 1], -flux)
    return source


def smooth_flow(mesh: ml.Mesh, gas: IdealGas, scheme: FlowScheme, **options: Any) -> CompressibleFlow:
    """The smooth state with its source, held at all sides."""
    start = gas.conserved(waves(mesh.cell_centroids)).T
    source = mesh.cells.field("source", mesh.dim + 2, data=balancing_source(mesh, gas))
    stream = waves(np.zeros((1, mesh.dim)))[:, 0]
    return CompressibleFlow(
        mesh, gas, scheme, dict.fromkeys(mesh.groups, Waves()), start, stream, source=source, **options
    )


def error_at(mesh: ml.Mesh, gas: IdealGas, scheme: FlowScheme, end: float) -> np.ndarray:
    """Mean error of every component of V (d + 2,) at a time, by volume."""
    flow = smooth_flow(mesh, gas, scheme)
    run_until(flow, end, cfl=0.6)
    found, volume = gas.primitives(flow.u.numpy().T), mesh.cell_volumes
    return np.asarray(np.abs(found - waves(mesh.cell_centroids)) @ volume / volume.sum())
