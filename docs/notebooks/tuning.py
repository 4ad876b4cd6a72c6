# %% [markdown]
# # Tuning a loop
# Meshloom chooses how a loop runs and says why. Here you overrule it, and look at what that does.

# %%
import numpy as np

import meshloom as ml

mesh = ml.generate.box((150, 150), cells="triangle")
q = mesh.cells.field("q", 4, data=1.0 + np.random.default_rng(0).random((len(mesh.cells), 4)))
res = mesh.cells.field("res", 4)


@ml.kernel
def exchange(q: ml.Read, res: ml.Inc):
    flow = np.sqrt(q[0] * q[1]) * (q[1] - q[0])
    res[0] += flow
    res[1] -= flow


def made(schedule=None):
    return exchange.loop(mesh.faces, q[mesh.face_cells], res[mesh.face_cells], schedule=schedule)


loop = made()
loop()
loop.explain()

# %% [markdown]
# What the loop must do at least, counted from its formula and its maps:

# %%
loop.counts

# %% [markdown]
# Every strategy that applies gives the same answer; they differ in time. Those that do not apply say why.

# %%
res.fill(0.0)
loop()
expected = res.numpy()
for name in ml.strategies():
    try:
        other = made(name)
        for _ in range(4):
            res.fill(0.0)
            other()
    except ml.errors.ScheduleError as refused:
        print(f"{name:<13} does not apply: {str(refused).split(':')[-1].strip()[:70]}")
        continue
    error = np.abs(res.numpy() - expected).max()
    print(f"{name:<13} {1e3 * other.seconds:6.2f} ms, differs by {error:.0e}")

# %% [markdown]
# The order of the cells in memory matters, too. `arranged` changes it without changing a number that you see.

# %%
for order in ("given", "random", "hilbert"):
    same = mesh.arranged(order)
    a, b = same.cells.field("q", 4, data=q.numpy()), same.cells.field("res", 4)
    moved = exchange.loop(same.faces, a[same.face_cells], b[same.face_cells])
    for _ in range(4):
        b.fill(0.0)
        moved()
    lines = moved.counts.bytes.cache_lines / moved.counts.bytes.compulsory
    print(f"{order:<8} {1e3 * moved.seconds:6.2f} ms, {lines:.1f} x the compulsory bytes as cache lines")

# %% [markdown]
# And the layout: all values of a cell together (`aos`), or each component by itself (`soa`).

# %%
for layout in ("aos", "soa"):
    q.relayout(layout)
    res.relayout(layout)
    again = made()
    for _ in range(4):
        again()
    print(f"{layout}: {1e3 * again.seconds:.2f} ms by {again.schedule}")
