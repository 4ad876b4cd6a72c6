"""A script that ``ranks`` attacks: a stencil program on a grid with checkpoints, fields, monitors, a probe and an
integral. Started again it goes on from its last checkpoint."""

from __future__ import annotations

import numpy as np

import meshloom as ml

STEPS, POINTS = 120, (24, 10)


def main() -> None:
    ml.use("cpu", threads=1, reproducible=True)
    grid = ml.Grid(POINTS, periodic=(True, False))
    u = grid.field("u", data=np.random.default_rng(5).random(POINTS))
    v, norm = grid.field("v"), ml.Global(0.0, "norm")
    box, reach = grid.interior((0, 1)), grid.offsets((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))

    @ml.program
    def step() -> None:
        norm.value = 0.0
        spread(box, u[reach], v)
        spread(box, v[reach], u)
        squared(grid, u, norm)

    ml.march(step, steps=STEPS, every=40, show=norm, fields=u, checkpoint=(u, v, norm), out="run", restart=True,
             checkpoint_every=10, checkpoint_seconds=0.0, probes={"middle": (0.4, 0.6)}, integrals={"all": "u"},
             probe_every=20, progress=False)  # fmt: skip


@ml.kernel
def spread(u: ml.Read, v: ml.Write):
    v[...] = 0.92 * u[0, 0] + 0.02 * (u[1, 0] + u[-1, 0] + u[0, 1] + u[0, -1])


@ml.kernel
def squared(u: ml.Read, norm: ml.Sum):
    norm += u * u


if __name__ == "__main__":
    main()
