# %% [markdown]
# # Your first loop
# A mesh is sets (nodes, cells, faces) and maps between them. A field has values on a set. A kernel says what happens at
# one element; Meshloom runs it over all of them, in parallel, without races.

# %%
import numpy as np

import meshloom as ml

mesh = ml.generate.box((40, 30), cells="triangle", extent=(4.0, 3.0))
mesh

# %% [markdown]
# A field on the cells, with a bump in it. A notebook shows its name, its range and a small picture.

# %%
x, y = mesh.cell_centroids.T
u = mesh.cells.field("u", data=np.exp(-4.0 * ((x - 1.0) ** 2 + (y - 1.5) ** 2)))
change = mesh.cells.field("change")
u

# %% [markdown]
# Heat flows from the warmer to the colder of the two cells of a face. `Read` and `Inc` say what the kernel does with
# each argument; that two faces add to one cell at the same time is not your concern.


# %%
@ml.kernel
def conduct(u: ml.Read, change: ml.Inc):
    flow = u[1] - u[0]  # the two cells of a face
    change[0] += flow
    change[1] -= flow


@ml.kernel
def warm(change: ml.Read, u: ml.ReadWrite):
    u += 0.2 * change


# %% [markdown]
# `field[map]` is access through a map: here from a face to its two cells. One round by hand:

# %%
conduct(mesh.faces, u[mesh.face_cells], change[mesh.face_cells])
print(f"largest change {float(change.max()):.4f}, sum of all changes {abs(float(change.sum())):.1e}")

# %% [markdown]
# How did it run, and why? The answer for every loop is a text.

# %%
loop = conduct.loop(mesh.faces, u[mesh.face_cells], change[mesh.face_cells])
loop.explain()

# %% [markdown]
# A program records loops once and replays them without Python in between.


# %%
@ml.program
def step():
    change.fill(0.0)
    conduct(mesh.faces, u[mesh.face_cells], change[mesh.face_cells])
    warm(mesh.cells, change, u)


before = float(u.sum())
step.run(300)
print(f"heat before {before:.6f}, after {float(u.sum()):.6f}")

# %%
ml.plot(u, label="temperature")
