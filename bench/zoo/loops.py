"""The loops of the zoo by name, and one of them held against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import meshloom as ml
from bench.race_loop import TOLERANCE, Device, measured, wish_entries
from bench.zoo import elements, graphs, volumes
from bench.zoo.elements import Made
from bench.zoo.scene import Scene, families, graph, mesh_of


@dataclass(frozen=True)
class ZooLoop:
    """``kind``: of the cells that it visits, or of the mesh over whose faces or edges it goes; or "graph"."""

    name: str
    kind: str
    make: Callable[[Scene], Made]
    pure: bool = False  # does it need a mesh of that kind alone?

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(one for one in families(self.kind) if not (self.pure and one == "mixed"))

    def scene(self, family: str, size: int, order: str) -> Scene:
        """``size``: cells, or links of a graph."""
        made = graph(family, size, order) if self.kind == "graph" else mesh_of(family, self.kind, size, order)
        return Scene(made, self.kind)


def _all() -> dict[str, ZooLoop]:
    found = [ZooLoop(name, kind, partial(elements.scalar, one)) for name, (kind, one) in elements.KERNELS.items()]
    found += [ZooLoop(name, kind, partial(elements.on_edges, one), True)
              for name, (kind, one) in elements.QUADRATIC.items()]  # fmt: skip
    found += [ZooLoop(name, kind, partial(elements.displaced, one)) for name, (kind, one) in elements.ELASTIC.items()]
    found += [ZooLoop(name, kind, elements.stored) for name, kind in elements.STORED.items()]
    between = {
        "green_gauss": volumes.gradient,
        "least_squares": volumes.gradients,
        "limiter_bounds": volumes.bounds,
        "dg_face": volumes.upwind,
        "block_assembly": volumes.blocks,
        "edge_flux": volumes.between_nodes,
        "smoothing": graphs.smoothing,
    }
    found += [ZooLoop(name, "tetrahedron", make) for name, make in between.items()]
    found += [ZooLoop(f"{one.name}_over_links", "graph", partial(graphs.over_links, one))
              for one in (graphs.sent, graphs.exchanged)]  # fmt: skip
    return {one.name: one for one in found}


LOOPS = _all()


class Contest:
    """One loop on one mesh in one precision: what must come out, and any variant against that."""

    def __init__(self, loop: ZooLoop, scene: Scene, precision: str, device: Device):
        self.loop, self.scene, self.precision, self.device = loop, scene, precision, device
        ml.use("numpy")
        reference = self._made("float64", None)()
        reference()
        self.expected = [one.numpy() for one in reference.writes]
        ml.use(device.backend)

    def _made(self, precision: str, layout: str | None) -> Callable[..., ml.Operation]:
        kernel, visited, arguments = self.loop.make(self.scene.with_fields(precision, layout))
        return lambda **schedule: kernel.loop(visited, *arguments, **schedule)

    def rows(self, layout: str | None, wishes: list[ml.Schedule], copy: float) -> list[dict[str, Any]]:
        """Every schedule in a layout, None for that which fields have by themselves, checked, then timed."""
        make, found = self._made(self.precision, layout), []
        for wish in wishes:
            make = make if layout else self._made(self.precision, layout)  # whose layouts nobody has chosen yet
            loop = make(schedule=wish)
            row = {"layout": layout or "auto", **wish_entries(wish)}
            found.append(row | measured(loop, partial(self.error, loop), TOLERANCE[self.precision], self.device, copy))
        return found

    def error(self, loop: ml.Operation) -> float:
        """Largest difference, as a share of the largest value of the field."""
        pairs = zip((one.numpy() for one in loop.writes), self.expected, strict=True)
        return max(float(np.abs(found - e).max() / max(np.abs(e).max(), 1e-300)) for found, e in pairs)
