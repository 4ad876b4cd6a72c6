"""The paper's algorithms 5 to 11, each as it prints them, on one mesh: run, checked, and timed.

Those that Meshloom's own strategy ``color`` also expresses are among its strategies (``bench.coloring``): 5 and 6 are
``color`` on the mesh as it is, 9 and 10 on the mesh renumbered. It has pairs of cells in one table where the paper has
two, owner and neighbor; and for 11 it numbers the faces themselves by color, which makes owner and neighbor contiguous
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from bench.coloring_mesh import Faces, Groups, Numbering, as_given, for_largest_color
from bench.peers.colored import Kernels
from bench.race_loop import TOLERANCE

FLUX_SUM, LOCAL_MAXIMUM = "flux_sum", "local_maximum"
LOOPS = (FLUX_SUM, LOCAL_MAXIMUM)


@dataclass(frozen=True)
class Algorithm:
    """A variant of the paper: ``number``, which loop it is, its kernel, and what is done to the mesh or data first."""

    number: int
    loop: str
    kernel: str
    words: str
    renumbered: bool = False
    in_color_order: bool = False

    @property
    def name(self) -> str:
        return f"alg{self.number}"

    @property
    def plain(self) -> int:
        """The algorithm that the paper compares it with."""
        return 5 if self.loop == FLUX_SUM else 6


ALGORITHMS = {one.name: one for one in (
    Algorithm(5, FLUX_SUM, "plain_sum", "plain color"),
    Algorithm(6, LOCAL_MAXIMUM, "plain_max", "plain color"),
    Algorithm(7, FLUX_SUM, "shared_sum", "through shared memory"),
    Algorithm(8, LOCAL_MAXIMUM, "shared_max", "through shared memory"),
    Algorithm(9, FLUX_SUM, "plain_sum", "renumbered for the largest color", renumbered=True),
    Algorithm(10, LOCAL_MAXIMUM, "plain_max", "renumbered for the largest color", renumbered=True),
    Algorithm(11, FLUX_SUM, "ordered_sum", "face data in color order", in_color_order=True),
)}  # fmt: skip


class Values:
    """Random numbers on the faces and cells of a mesh, and what both loops must make of them from zero: (n, k)."""

    def __init__(self, faces: Faces, components: int):
        rng = np.random.default_rng(1)
        self.faces, self.components = faces, components
        self.flux, self.ps = rng.random((faces.n, components)), rng.random((faces.cells, components))

    @cached_property
    def expected(self) -> dict[str, np.ndarray]:
        (own, ngb), cells = self.faces.pairs.T, self.faces.cells
        sums, most = np.empty((cells, self.components)), np.zeros((cells, self.components))
        for k in range(self.components):
            flux = self.flux[:, k]
            sums[:, k] = np.bincount(own, flux, minlength=cells) - np.bincount(ngb, flux, minlength=cells)
            np.maximum.at(most[:, k], own, self.ps[ngb, k])
            np.maximum.at(most[:, k], ngb, self.ps[own, k])
        return {FLUX_SUM: sums, LOCAL_MAXIMUM: most}

    def error(self, loop: str, found: np.ndarray) -> float:
        """Largest difference of (cells, k), as a share of the largest value."""
        return float(np.abs(found - self.expected[loop]).max() / np.abs(self.expected[loop]).max())


class Forms:
    """All algorithms on one mesh and its groups; ``values`` under its own numbers."""

    def __init__(self, faces: Faces, groups: Groups):
        self.faces, self.groups = faces, groups

    @cached_property
    def for_largest(self) -> Numbering:
        return for_largest_color(self.faces, self.groups)

    def ready(self, algorithm: Algorithm, values: Values, kernels: Kernels) -> BoundAlgorithm:
        numbering = self.for_largest if algorithm.renumbered else as_given(self.faces)
        groups = self.groups.renumbered(numbering.old_faces) if algorithm.renumbered else self.groups
        return BoundAlgorithm(algorithm, numbering, groups, values, kernels)


class BoundAlgorithm:
    """An algorithm with its tables and data where it runs."""

    def __init__(self, algorithm: Algorithm, numbering: Numbering, groups: Groups, values: Values, kernels: Kernels):
        self.algorithm, self.numbering, self.groups, self.values = algorithm, numbering, groups, values
        self.kernels, faces, precision = kernels, numbering.faces, kernels.precision
        owner, neighbor = (np.ascontiguousarray(side) for side in faces.pairs.T)
        self.tables = [kernels.put(one) for one in (groups.faces, owner, neighbor)]
        old = values.flux[numbering.old_faces] if algorithm.loop == FLUX_SUM else values.ps[numbering.old_cells]
        self.given = kernels.put(np.ascontiguousarray(old.T, precision))
        self.changed = kernels.put(np.zeros((values.components, faces.cells), precision))
        self.sizes = [int(one) for one in groups.sizes]
        self.starts = [int(one) for one in groups.starts]
        self._launch, self.before = kernels.launch(algorithm.kernel), None
        if algorithm.in_color_order:
            ordered = kernels.put(np.zeros((values.components, faces.n), precision))
            self.before = self._pass(kernels.launch("in_color_order"), self.given, ordered)
            self.given = ordered

    def _pass(self, launch: Callable[..., None], given: Any, target: Any) -> Callable[[], None]:
        numbers = (0, self.numbering.faces.n, self.numbering.faces.n, self.numbering.faces.cells)
        return lambda: launch((*self.tables, given, target), numbers)

    def group(self, color: int) -> None:
        """The launch of one color."""
        numbers = (self.starts[color], self.sizes[color], self.numbering.faces.n, self.numbering.faces.cells)
        self._launch((*self.tables, self.given, self.changed), numbers)

    def run(self) -> None:
        """All colors, one launch after the other."""
        for color in range(len(self.sizes)):
            self.group(color)

    def error(self) -> float:
        """Of one run from zero."""
        self.changed[...] = 0
        if self.before:
            self.before()
        self.run()
        found = np.empty((self.numbering.faces.cells, self.values.components))
        found[self.numbering.old_cells] = self.kernels.get(self.changed).T
        return self.values.error(self.algorithm.loop, found)


def rows_of(forms: Forms, names: Sequence[str], values: Values, kernels: Kernels, seconds: Callable[[Any], float],
            by_group: Sequence[str] = ()) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Each algorithm checked, then timed: ``s_per_1000`` of its launches; for those of ``by_group`` also of every
    group by itself (``groups_s_per_1000``), and of what comes before the launches (``before_s_per_1000``)."""
    for algorithm in (ALGORITHMS[name] for name in names):
        ready = forms.ready(algorithm, values, kernels)
        row = {"algorithm": algorithm.name, "loop": algorithm.loop, "precision": kernels.precision,
               "components": values.components}  # fmt: skip
        if not (error := ready.error()) <= TOLERANCE[kernels.precision]:
            yield row | {"wrong": error}
            continue
        row |= {"error": error, "s_per_1000": 1e3 * seconds(ready.run)}
        if ready.before:
            row["before_s_per_1000"] = 1e3 * seconds(ready.before)
        if algorithm.name in by_group:
            each = [seconds(partial(ready.group, color)) for color in range(len(ready.sizes))]
            row["groups_s_per_1000"] = [1e3 * one for one in each]
        yield row
