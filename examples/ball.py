"""ball: a warm ball cools in a box of tetrahedra: a case of one's own in space, for the command line.

meshloom run examples/ball.py                                       bar, monitors, fields, picture, report.html
meshloom run examples/ball.py --set 'probes.middle=[0.5, 0.5, 0.5]' with a thermometer in the middle
meshloom study examples/ball.py --over 'ball.radius=[0.3, 0.4]'     one run for each
"""

from dataclasses import dataclass

import numpy as np

import meshloom as ml
from meshloom.case import Case, CaseConfig, RunOptions, SpacePicture, on_surface, option, section


@dataclass(frozen=True)
class Ball:
    cells: int = option(8, "boxes along a side, six tetrahedra each", low=2)
    radius: float = option(0.5, "of the ball", above=0.0)


@dataclass(frozen=True)
class Settings(CaseConfig):
    run: RunOptions = section(RunOptions, "How long, and on what.", iterations=100)
    ball: Ball = section(Ball, "The ball.")


@ml.kernel
def conduct(t: ml.Read, ratio: ml.Read, heat: ml.Inc):
    flow = ratio * (t[0] - t[1])
    heat[0] -= flow
    heat[1] += flow


@ml.kernel
def advance(heat: ml.Read, volume: ml.Read, dt: ml.Read, t: ml.ReadWrite, hottest: ml.Max):
    t += dt * heat / volume
    hottest[...] = t


class WarmBall(Case):
    name = "ball"
    title = "a warm ball cools in a box"
    Config = Settings
    monitors = ("hottest",)

    def __init__(self, config: Settings):
        self.config, n = config, config.ball.cells
        self.mesh = mesh = ml.generate.box((n, n, n), cells="tetrahedron")
        away = np.linalg.norm(mesh.cell_centroids - 0.5, axis=1)
        self.t = t = mesh.cells.field("t", dtype=self.dtype, data=np.where(away < config.ball.radius, 1.0, 0.0))
        volume = mesh.cells.field("volume", dtype=self.dtype, data=mesh.cell_volumes)
        heat, hottest = mesh.cells.field("heat", dtype=self.dtype), ml.Global(0.0, "hottest", dtype=self.dtype)
        area, apart = (np.linalg.norm(v, axis=1) for v in (mesh.face_normals, mesh.cell_distances))
        ratio = mesh.faces.field("ratio", dtype=self.dtype, data=area / apart)
        self.state, self.recorded = (t,), (hottest,)

        @ml.program
        def step() -> None:
            heat.fill(0.0)
            hottest.value = 0.0
            conduct(mesh.faces, t[mesh.face_cells], ratio, heat[mesh.face_cells])
            advance(mesh.cells, heat, volume, 0.01 / n**2, t, hottest)

        self.program = step

    def cell_fields(self) -> dict[str, ml.Field]:
        return {"temperature": self.t}

    def picture(self) -> SpacePicture:
        return on_surface(self.mesh, self.t, "temperature")
