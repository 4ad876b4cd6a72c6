# %% [markdown]
# # Finite elements on a gmsh mesh
# Laplace's equation in a ring, 1 on the inner circle and 0 on the outer one, by linear elements: a sparse matrix that a
# kernel assembles, and conjugate gradients.

# %%
import numpy as np

import meshloom as ml

# What your gmsh would have written: triangles, with the physical groups "wall" and "far".
ml.write("ring.msh", ml.generate.cylinder(40, 11, far=2.0, first_height=0.06, cells="triangle"), overwrite=True)
mesh = ml.read("ring.msh")
mesh

# %%
ml.plot(mesh, title="the mesh and its groups")

# %% [markdown]
# The stiffness matrix: every triangle adds nine numbers. That many triangles share a node is handled by the loop.

# %%
stiffness = ml.Matrix(mesh.nodes, through=mesh.cell_nodes)


@ml.kernel
def assemble(x: ml.Read, stiffness: ml.Inc):
    a, b = x[1] - x[0], x[2] - x[0]
    twice = a[0] * b[1] - a[1] * b[0]
    sides = [x[2] - x[1], x[0] - x[2], x[1] - x[0]]
    for i in range(3):
        for j in range(3):
            stiffness[i, j] += (sides[i][0] * sides[j][0] + sides[i][1] * sides[j][1]) / (2.0 * twice)


assemble(mesh.cells, mesh.coordinates[mesh.cell_nodes], stiffness[mesh.cell_nodes])
print(f"{stiffness.to_scipy().nnz} entries; rows add up to {abs(stiffness.to_scipy().sum(axis=1)).max():.0e}")

# %% [markdown]
# Known values at both circles: an operator that leaves these nodes alone, as a program, is all that conjugate gradients
# need.

# %%
x = mesh.coordinates.numpy()
wall, far = (np.unique(mesh.boundary(name).nodes.indices) for name in ("wall", "far"))
is_free = mesh.nodes.field("is_free", data=1.0)
known = mesh.nodes.field("known")
free, values = np.ones(len(x)), np.zeros(len(x))
free[wall], free[far], values[wall] = 0.0, 0.0, 1.0
is_free.assign(free)
known.assign(values)


@ml.kernel
def mask(is_free: ml.Read, given: ml.Read, masked: ml.Write):
    masked[...] = is_free * given


@ml.kernel
def finish(is_free: ml.Read, given: ml.Read, result: ml.ReadWrite):
    result[...] = is_free * result + (1.0 - is_free) * given


inner, u, right = mesh.nodes.field("inner"), mesh.nodes.field("u"), mesh.nodes.field("right")


@ml.program
def operator(given, result):
    mask(mesh.nodes, is_free, given, inner)
    stiffness(inner, result)
    finish(mesh.nodes, is_free, given, result)


stiffness(known, right)
right.assign(np.where(free > 0.0, -right.numpy(), values))
report = ml.linalg.cg(operator, u, right, tol=1e-10)
print(f"converged in {report.iterations} iterations")

# %% [markdown]
# The exact solution is a logarithm of the radius.

# %%
radius = np.hypot(*x.T)
exact = np.log(radius / radius[far[0]]) / np.log(radius[wall[0]] / radius[far[0]])
print(f"largest error {np.abs(u.numpy() - exact).max():.1e}")
ml.plot(u, label="potential")
