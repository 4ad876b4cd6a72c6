"""Heat leaves a hot hole in a plate: linear finite elements on a gmsh mesh, with all that a run wants around it.

    python examples/heat.py                 a bar; monitors, fields, checkpoints, report.html in runs/heat; heat.png
    python examples/heat.py plate.msh       the same on a mesh of yours, with the groups "wall" (hot) and "far" (cold)

Stopped by Ctrl-C or done, the same command goes on from the last checkpoint.
"""

import sys

import numpy as np

import meshloom as ml

if len(sys.argv) < 2:  # what a gmsh of yours would write
    ml.write("plate.msh", ml.generate.cylinder(64, 24, far=2.0, cells="triangle"), overwrite=True)
mesh = ml.read(sys.argv[1] if len(sys.argv) > 1 else "plate.msh")
nodes, corners = mesh.nodes, mesh.cell_nodes
hot, cold = nodes.subset(mesh.boundary("wall").nodes), nodes.subset(mesh.boundary("far").nodes)
u, heat, mass, clock = nodes.field("u"), nodes.field("heat"), nodes.field("mass"), ml.Set(1, "clock")
t, dt, change = ml.Global(0.0, "t"), ml.Global(2e-4, "dt"), ml.Global(0.0, "change")


@ml.kernel
def conduct(x: ml.Read, u: ml.Read, heat: ml.Inc, mass: ml.Inc):
    area = 0.5 * ((x[1, 0] - x[0, 0]) * (x[2, 1] - x[0, 1]) - (x[2, 0] - x[0, 0]) * (x[1, 1] - x[0, 1]))
    slope = np.stack([x[[1, 2, 0], 1] - x[[2, 0, 1], 1], x[[2, 0, 1], 0] - x[[1, 2, 0], 0]]) / (2.0 * area)
    heat -= area * (slope.T @ (slope @ u))
    mass += area / 3.0


@ml.kernel
def warm(heat: ml.Read, mass: ml.Read, dt: ml.Read, u: ml.ReadWrite, change: ml.Max):
    u += dt * heat / mass
    change[...] = np.abs(heat / mass)


@ml.kernel
def hold(value: ml.Read, u: ml.Write):
    u[...] = value


@ml.kernel
def tick(dt: ml.Read, t: ml.ReadWrite):
    t += dt


@ml.program
def step():
    heat.fill(0.0), mass.fill(0.0)
    change.value = 0.0
    conduct(mesh.cells, mesh.coordinates[corners], u[corners], heat[corners], mass[corners])
    warm(nodes, heat, mass, dt, u, change)
    hold(hot, 1.0, u)
    hold(cold, 0.0, u)
    tick(clock, dt, t)


done = ml.march(step, until=(t, 0.05, dt), every=50, show=(change,), out="runs/heat", fields={"u": u}, restart=True)
print(f"{done.steps} steps until {t.value}, mean {float(u.mean()):.4f}")
ml.plot(u, label="temperature", cmap="inferno", save="heat.png")
