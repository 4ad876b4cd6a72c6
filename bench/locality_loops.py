"""The five loops of the locality paper: the case that each belongs to, the loop itself, and the paper's figures.

A. A. Sulyok, G. D. Balogh, I. Z. Reguly, G. R. Mudalige: Locality optimized unstructured mesh algorithms on GPUs,
Journal of Parallel and Distributed Computing 134 (2019). Useful bytes are counted as there: each datum once, maps
included, what is read and written twice.

Where a shipped case has the paper's loop, that loop is taken from its program. Where the case has fused it with others
(BookLeaf, LULESH) or does it another way (Volna), the paper's loop is made here from the physics and the fields of the
case, and the case's own loop is a contest by itself (``..._own``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.case import Case
from meshloom.config import build, parse_set
from meshloom.solvers import find_case
from meshloom.solvers.bookleaf.quad import CORNERS, corner_volumes
from meshloom.solvers.lulesh.hexahedron import centre_gradient, corner_normals
from meshloom.solvers.volna.flux import Water, hll, sides

STREAM = {"P100": 495.0, "V100": 742.0}  # GB/s, the paper's own measurement


@dataclass(frozen=True)
class Paper:
    """What the paper says. ``share``: best useful bandwidth of its own schemes as a share of stream, by GPU; ``GBps``:
    the same where it is printed; ``ms``: times on the P100; ``goal``: what we want, as a share of copy."""

    loop: str
    touches: str
    goal: float
    share: Mapping[str, float]
    GBps: Mapping[str, float]
    ms: Mapping[str, float] = field(default_factory=dict)
    notes: str = ""

    def best(self) -> str:
        return ", ".join(f"{gpu} {share:.2f}" for gpu, share in self.share.items())


@dataclass(frozen=True)
class Contest:
    """A loop to be run in every way, on the data that its case has after some steps."""

    case: str
    sizes: Mapping[str, tuple[str, ...]]  # settings of the case by name of the size
    loop: Callable[[Any], ml.Loop]
    paper: Paper
    differs: str  # from the paper's loop
    steps: int = 20

    def make(self, size: str) -> Case:
        """The case at its start."""
        case = find_case(self.case)
        return case(build(case.Config, [parse_set(one) for one in self.sizes[size]]))


def own(name: str) -> Callable[[Case], ml.Loop]:
    """The first loop of that name in the program of a case, with what it then sees: all before it have run."""

    def find(case: Case) -> ml.Loop:
        for operation in case.program.loops:
            if operation.domain.visits_elements and operation.name == name:
                return operation
            operation()
        raise LookupError(f"{case.name} has no loop {name}")

    return find


# --- the paper's loops that the cases have not ----------------------------------------------------------------------


@ml.kernel
def space_discretization(area: ml.Read, flux: ml.Read, push: ml.Read, normal: ml.Read, wall: ml.Read, change: ml.Inc):
    """Volna: fluxes and bed slopes of an edge, computed before, go to its two cells."""
    for cell, sign in ((0, -1.0), (1, 1.0)):
        momentum = flux[1:] + push[cell] * normal
        gain = np.stack([sign * flux[0], sign * momentum[0], sign * momentum[1], np.abs(flux[0])]) / area[cell]
        change[cell] += gain if cell == 0 else np.where(wall == 0, gain, 0.0)


def edge_fluxes(water: Water) -> ml.Kernel:
    """What ``space_discretization`` distributes: the flux of an edge, and the push of the bed on either side."""

    @ml.kernel
    def fluxes(normal: ml.Read, length: ml.Read, w: ml.Read, flux: ml.Write, push: ml.Write):
        left, right = sides(w[0], w[1], normal, water.gravity)
        crossing = hll(left, right, normal, water)
        pressure = 0.5 * water.gravity * left.h**2
        momentum = crossing.from_left + pressure * normal
        flux[...] = length * np.stack([crossing.water, *momentum])
        push[0] = -length * pressure
        push[1] = length * ((crossing.to_right - momentum) @ normal)

    return fluxes


def volna_loop(case: Any) -> ml.Loop:
    """SpaceDiscretization on the water of a case."""
    mesh, flow, at = case.mesh, case.flow, case.flow.geometry
    cells, faces, dtype = mesh.face_cells, mesh.faces, flow.dtype
    flux, push = faces.field("flux", 3, dtype=dtype), faces.field("push", 2, dtype=dtype)
    edge_fluxes(flow.water)(faces, at.normal, at.length, flow.w[cells], flux, push)
    wall, change = faces.field("wall", dtype=np.int32), mesh.cells.field("change", 4, dtype=dtype)
    return space_discretization.loop(faces, at.area[cells], flux, push, at.normal, wall, change[cells])


@ml.kernel
def getacc_scatter(force: ml.Read, corner_mass: ml.Read, weight: ml.Read, density: ml.Read, node: ml.Inc):
    """BookLeaf: mass, volume and force of a cell's corners go to its nodes."""
    for k in CORNERS:
        mass = np.where(corner_mass[k] > 0.0, corner_mass[k], density * weight[k])
        node[k] += np.stack([mass, weight[k], force[2 * k], force[2 * k + 1]])


def bookleaf_loop(case: Any) -> ml.Loop:
    """getacc_scatter on the gas of a case."""
    mesh, dtype = case.mesh, case.density.dtype
    forces = own("corner_forces")(case)
    forces()  # what they are is there between two loops of a step only
    force = next(one for one in forces.writes if one.name == "force")
    corners = np.moveaxis(case.node_positions()[mesh.cell_nodes.indices], 0, -1)
    weight = mesh.cells.field("weight", 4, dtype=dtype, data=corner_volumes(corners).T)
    node = mesh.nodes.field("node", 4, dtype=dtype)
    return getacc_scatter.loop(mesh.cells, force, case.corner_mass, weight, case.density, node[mesh.cell_nodes])


@ml.kernel
def integrate_stress(x: ml.Read, stress: ml.Read, volume: ml.Write, force: ml.Inc):
    """LULESH: the stress of an element, normal components, pushes its eight nodes."""
    volume[...] = centre_gradient(x)[1]
    push = -stress * corner_normals(x)
    for corner in range(8):
        force[corner] += push[corner]


def lulesh_loop(case: Any) -> ml.Loop:
    """IntegrateStressForElems on the gas of a case; far from the blast there is no stress, so some noise is added."""
    mesh, dtype = case.mesh, case.dtype
    noise = 1.0 + np.random.default_rng(0).random((len(mesh.cells), 3))
    values = -(case.p.numpy() + case.q.numpy())[:, None] - noise
    stress, volume = mesh.cells.field("stress", 3, dtype=dtype, data=values), mesh.cells.field("det", dtype=dtype)
    force = mesh.nodes.field("force", 3, dtype=dtype)
    return integrate_stress.loop(mesh.cells, case.x[mesh.cell_nodes], stress, volume, force[mesh.cell_nodes])


# --- the contests ---------------------------------------------------------------------------------------------------

_AIRFOIL = Paper("res_calc", "reads 5 and increments 4 doubles on 2 cells, reads 2 doubles on 2 nodes", 0.88,
                 {"P100": 0.55, "V100": 0.60}, {"P100": 239.0, "V100": 446.0},
                 {"global coloring AoS": 6.12, "global coloring SoA": 4.65, "global coloring SoA, GPS": 4.15,
                  "global coloring SoA, partition": 6.64, "hierarchical AoS": 2.07, "hierarchical SoA": 2.03,
                  "hierarchical AoS, partition": 1.92, "hierarchical SoA, partition": 1.83,
                  "original, hierarchical": 1.91}, "P100: 239 GB/s in the table, 55 % in the text")  # fmt: skip
_VOLNA = Paper("SpaceDiscretization", "reads 1 and increments 4 floats on 2 cells; 7 floats and 1 int direct", 0.80,
               {"P100": 0.30, "V100": 0.62}, {"P100": 146.0, "V100": 462.0})  # fmt: skip
_BOOKLEAF = Paper("getacc_scatter", "reads 17 doubles direct, increments 4 doubles on 4 nodes", 0.90,
                  {"P100": 0.83, "V100": 0.85}, {"V100": 631.0})  # fmt: skip
_LULESH = Paper("IntegrateStressForElems",
                "reads 3 and increments 3 doubles on 8 nodes; 3 doubles read and 1 written direct", 0.60,
                {"P100": 0.35, "V100": 0.36, "V100 atomics": 0.76},
                {"P100": 172.0, "V100": 270.0, "V100 atomics": 561.0},
                {"AoS": 8.48, "SoA": 3.90, "partition AoS": 8.10, "partition SoA": 4.31, "original, two-step": 6.98},
                "goal 0.80 in the end")  # fmt: skip
_MINIAERO = Paper("compute_face_flux", "reads 28 and increments 5 doubles on 2 cells; 12 doubles read direct", 0.75,
                  {"P100": 0.34, "V100": 0.36}, {"P100": 168.0, "V100": 268.0},
                  {"GPS AoS": 19.09, "GPS SoA": 15.38, "partition AoS": 11.04, "partition SoA": 11.38,
                   "original": 13.39})  # fmt: skip

_VOLNA_SIZES = {"paper": ("mesh.nx=2000", "mesh.ny=600"), "small": ("mesh.nx=12", "mesh.ny=7")}
_BOOKLEAF_SIZES = {"paper": ("mesh.cells=[4000,1000]",), "small": ("mesh.cells=[16,9]",)}
_LULESH_SIZES = {"paper": ("mesh.size=170",), "small": ("mesh.size=5",)}

CONTESTS: dict[str, Contest] = {
    "airfoil": Contest("airfoil", {"paper": ("mesh.i=800", "mesh.j=1200"), "small": ("mesh.i=9", "mesh.j=6")},
                       own("res_calc"), _AIRFOIL, "the same loop, on interior edges"),
    "volna": Contest("volna_hump", _VOLNA_SIZES, volna_loop, _VOLNA,
                     "the same data; the fourth sum is of the water that passes; interior edges alone"),
    "bookleaf": Contest("bookleaf_sod", _BOOKLEAF_SIZES, bookleaf_loop, _BOOKLEAF, "the same data"),
    "lulesh": Contest("lulesh", _LULESH_SIZES, lulesh_loop, _LULESH,
                      "the same data; the volume written is the determinant at the centre of the element"),
    "miniaero": Contest("miniaero_ramp",
                        {"paper": ("mesh.cells=[128,128,128]", "time.dt=2e-6"), "small": ("mesh.cells=[6,5,4]",)},
                        own("face_flux"), _MINIAERO,
                        "second order, inviscid; reads 6 doubles direct, not 12: it computes the tangents"),
    "volna_own": Contest("volna_hump", _VOLNA_SIZES, own("fluxes"), _VOLNA,
                         "more: reconstructs and computes the fluxes here; reads 12 floats on 2 cells, 7 direct"),
    "bookleaf_own": Contest("bookleaf_sod", _BOOKLEAF_SIZES, own("corner_forces"), _BOOKLEAF,
                            "more: computes the forces here; reads 4 doubles on 4 nodes, writes 8 direct,"
                            " increments 3 on 4 nodes"),
    "lulesh_own": Contest("lulesh", _LULESH_SIZES, own("forces"), _LULESH,
                          "more: the hourglass filter is in it; reads 6 doubles on 8 nodes, 5 direct, writes none"),
}  # fmt: skip
PAPERS = tuple(name for name in CONTESTS if not name.endswith("_own"))
