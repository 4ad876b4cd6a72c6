# %% [markdown]
# # GPU and torch through DLPack
# The same program runs on a GPU, and other libraries use its fields without a copy. This notebook runs anywhere: where
# there is no GPU, or no torch, it says so and goes on with what there is.

# %%
import importlib.util

import numpy as np

import meshloom as ml

for name, why_not in ml.backends().items():
    print(f"{name:<9} {why_not or 'can be used'}")
back_end = "cuda" if not ml.backends()["cuda"] else "cpu"
ml.use(back_end)
print("in use:", ml.backend())

# %%
grid = ml.Grid((96, 96), periodic=True)
x, y = grid.meshgrid()
u = grid.field("u", data=np.sin(2.0 * np.pi * x) * np.cos(4.0 * np.pi * y))
v = grid.field("v")


@ml.kernel
def smooth(u: ml.Read, v: ml.Write):
    v[...] = 0.2 * (u[0, 0] + u[1, 0] + u[-1, 0] + u[0, 1] + u[0, -1])


smooth(grid, u[grid.star(1)], v)
ml.plot(v)

# %% [markdown]
# `np.from_dlpack` and `torch.from_dlpack` look at the memory of a field itself, on a GPU too: what one writes, the
# other reads. Where a field does not lie in your numbering, that is refused, and `field.numpy()` is the copy.

# %%
has_torch = importlib.util.find_spec("torch") is not None
if has_torch:
    import torch

    shared = torch.from_dlpack(v)
    print("torch sees a tensor on", shared.device.type)
elif back_end == "cuda":
    import cupy

    shared = cupy.from_dlpack(v)
    print("no torch here: CuPy sees the memory of the GPU")
else:
    shared = np.from_dlpack(v)
    print("no torch and no GPU here: NumPy sees the same memory")
print("shape", tuple(shared.shape), "of", str(shared.dtype).rpartition(".")[2])

# %% [markdown]
# It is the same memory: a loop of Meshloom changes what the other library sees.

# %%
before = float(shared[3, 5])
smooth(grid, v[grid.star(1)], u)
v.fill(2.0)
print(f"before {before:.6f}, now {float(shared[3, 5]):.1f}")

# %% [markdown]
# The other way around: a field that lives in an array of somebody else, here of NumPy, wrapped without a copy.

# %%
ml.use("cpu")
theirs = np.linspace(0.0, 1.0, 1000)
points = ml.Set(1000, "points")
field = points.field("theirs", wrap=theirs)


@ml.kernel
def square(theirs: ml.ReadWrite):
    theirs *= theirs


square(points, field)
print(f"their array was changed in place: last but one is {theirs[-2]:.6f}")
field
