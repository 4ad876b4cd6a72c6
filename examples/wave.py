"""A wave on a membrane: one cell is pushed up, and ripples run over an unstructured mesh of triangles.

    python examples/wave.py                    writes wave_000.vtu ... for ParaView
    python examples/wave.py --backend numpy    the same answer, slower

Two loops per time step: over the faces (springs between neighbouring cells), and over the cells (Newton's law). The
membrane is free at its rim and loses nothing, so its energy must stay what it was; the script checks that.
"""

from __future__ import annotations

import argparse

import numpy as np

import meshloom as ml

STEP = 0.4  # in units of (mass of a cell / stiffness of a face)**0.5


@ml.kernel
def pull(u: ml.Read, force: ml.Inc, stretch: ml.Sum):
    """Two neighbouring cells pull each other to the same height."""
    d = u[1] - u[0]
    force[0] += d
    force[1] -= d
    stretch += 0.5 * d**2


@ml.kernel
def move(force: ml.Read, v: ml.ReadWrite, u: ml.ReadWrite, motion: ml.Sum):
    """Velocities live half a step before heights; the energy takes them at the time of the heights."""
    new = v + STEP * force
    motion += 0.5 * (0.5 * (v + new)) ** 2
    v[...] = new
    u[...] = u + STEP * new


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=sorted(ml.backends()), default=ml.backend())
    parser.add_argument("--size", type=int, default=60, help="the mesh has 2 size^2 triangles")
    options = parser.parse_args()
    ml.use(options.backend)

    mesh = ml.generate.box((options.size, options.size), cells="triangle", alternate=True).reordered("hilbert")
    cells, sides = mesh.cells, mesh.face_cells
    place = mesh.coordinates.numpy()[mesh.cell_nodes.indices].mean(axis=1)
    bump = np.exp(-200.0 * ((place - [0.3, 0.4]) ** 2).sum(axis=1))
    u, v = cells.field("u", data=bump), cells.field("v")
    stretch, motion = ml.Global(0.0, "stretch"), ml.Global(0.0, "motion")

    @ml.program
    def step() -> None:
        force = cells.field("force")
        force.fill(0.0)
        stretch.value = 0.0
        motion.value = 0.0
        pull(mesh.faces, u[sides], force[sides], stretch)
        move(cells, force, v, u, motion)

    for frame in range(5):
        energy = step.run(100, record=(stretch, motion)).sum(axis=1)
        ml.write(f"wave_{frame:03d}.vtu", mesh, {"height": u, "velocity": v}, overwrite=True)
        print(f"step {100 * (frame + 1)}: energy between {energy.min():.6f} and {energy.max():.6f}")
        assert np.ptp(energy) < 0.02 * energy.mean(), "energy is not kept"
    print("OK")


if __name__ == "__main__":
    main()
