"""Poisson's equation on triangles by conjugate gradients: the operator is a loop, and no matrix is stored.

python examples/poisson.py              how many iterations it took, the largest value, and poisson.png
"""

import numpy as np

import meshloom as ml

mesh = ml.generate.box((64, 64), cells="triangle")
inside = np.ones(len(mesh.nodes))
inside[mesh.boundary_nodes.indices] = 0.0  # u is 0 on the rim
u, free, load = (mesh.nodes.field(name) for name in ("u", "free", "load"))
free.assign(inside), load.assign(inside / 64**2)


@ml.kernel
def stiffness(x: ml.Read, free: ml.Read, u: ml.Read, y: ml.Inc):
    twice = (x[1, 0] - x[0, 0]) * (x[2, 1] - x[0, 1]) - (x[2, 0] - x[0, 0]) * (x[1, 1] - x[0, 1])
    slope = np.stack([x[[1, 2, 0], 1] - x[[2, 0, 1], 1], x[[2, 0, 1], 0] - x[[1, 2, 0], 0]]) / twice
    y += 0.5 * twice * free * (slope.T @ (slope @ (free * u)))


@ml.program
def apply(u, y):
    corners = mesh.cell_nodes
    stiffness(mesh.cells, mesh.coordinates[corners], free[corners], u[corners], y[corners])


print(ml.linalg.cg(apply, u, load, tol=1e-10), f"largest {float(u.max()):.4f}")
ml.plot(u, save="poisson.png")
