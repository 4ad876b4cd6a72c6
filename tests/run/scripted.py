"""A program of a script that is marched in tests of pages and times: a row of cells gets warmer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import meshloom as ml


@ml.kernel
def warm(u: ml.ReadWrite, heat: ml.Sum):
    u[...] = 1.01 * u
    heat += u


class Hot:
    """``step`` warms six cells; ``breaks(at)`` is a function for ``stop=`` that makes the field not finite."""

    def __init__(self) -> None:
        mesh = ml.generate.box((3, 2))
        self.mesh = mesh
        self.u, self.heat = mesh.cells.field("u", data=np.ones(6)), ml.Global(0.0, "heat")

        @ml.program
        def step() -> None:
            self.heat.value = 0.0
            warm(mesh.cells, self.u, self.heat)

        self.step = step

    def breaks(self, at: int) -> Callable[[], bool]:
        asked = iter(range(10**6))

        def spoil() -> bool:
            if next(asked) == at - 1:
                self.u.fill(np.inf)
            return False

        return spoil
