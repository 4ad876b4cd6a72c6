"""A case on a grid: what changes against one on a mesh, in one place.

A subclass sets ``grid`` instead of ``mesh`` and answers ``grid_fields`` instead of ``cell_fields``; VTK files,
checkpoints, progress, pictures and messages follow from that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import meshloom as ml
from meshloom.case.base import Case
from meshloom.run.output import check_sizes, write_on_grid
from meshloom.run.own_rows import AnyRows, as_rows, root_points
from meshloom.run.samples import Sampled
from meshloom.run.task import RunTask
from meshloom.run.views import Chart, Image, Picture, SpacePicture

AXES = ml.Grid.axis_names
#: Of cases whose right-hand sides are compact differences, or whose pressure is solved for: see ``Case.not_on_ranks``.
SOLVES_ALONG_LINES = "whose compact differences solve along the first axis of its grid, which ranks would cut"
SOLVES_FOR_PRESSURE = "whose pressure is solved for by FastPoisson or Multigrid, which need the whole grid"


class GridCase(Case):
    """One problem on a grid. ``pictured`` names the field to draw at the end, one of ``grid_fields``."""

    element_name: ClassVar[str] = "points"
    pictured: ClassVar[str | None] = None

    grid: ml.Grid

    @staticmethod
    def new_grid(*shape_and_extent: Any, **options: Any) -> ml.Grid:
        """``ml.Grid`` as cases want it in memory: nothing in them asks where points lie."""
        return ml.Grid(*shape_and_extent, aligned="auto", **options)

    @abstractmethod
    def grid_fields(self) -> Mapping[str, ml.Field | np.ndarray]:
        """What goes into VTK files: name -> a Field of the grid, or values (*shape,) or (*shape, dim)."""

    def cell_fields(self) -> dict[str, np.ndarray]:
        return {}

    def drawn_over(self) -> None:
        return None

    def drawn_rows(self, values: ml.Field | AnyRows) -> AnyRows:
        return RunTask.drawn_rows(self, values)

    @property
    def elements(self) -> int:
        return self.grid.inside.size

    @property
    def partitioned(self) -> None:
        return None

    def sizes(self) -> dict[str, int]:
        return {"points": self.elements} | {f"points_{AXES[a]}": n for a, n in enumerate(self.grid.shape)}

    def size_text(self) -> str:
        return f"{' x '.join(map(str, self.grid.shape))} points"

    def numbering(self) -> str:
        return "as the grid: the last axis is contiguous"

    def digest(self) -> str:
        return self.grid.digest

    fields_method: ClassVar[str] = "grid_fields"

    def write_fields(self, stem: Path) -> Path:
        return write_on_grid(stem, self.grid, self.grid_fields(), pieces=self.in_pieces)

    def fields_by_name(self) -> dict[str, Any]:
        return dict(self.grid_fields())

    def try_fields(self) -> None:
        check_sizes(self.grid_fields(), self.grid.shape, "one for each point")

    def sampled(self) -> Sampled | None:
        return Sampled(self.grid, points={name: as_rows(one) for name, one in self.grid_fields().items()})

    def location_of(self, on: ml.Set, element: int) -> str:
        return RunTask.location_of(self, on, element)

    def picture(self) -> Picture | Image | SpacePicture | Chart | None:
        """The field ``pictured``: its curve, its map, or that of the plane in the middle of the last axis."""
        return None if self.pictured is None else self.drawing(self.pictured)

    def drawing(self, name: str, label: str = "") -> Image | Chart:
        """A picture of one of ``grid_fields`` with one value at a point."""
        found = self.grid_fields()[name]
        values = root_points(self.grid, found)
        if self.grid.rank == 1:
            return Chart(name, self.grid.coordinates[0], {label or name: values}, AXES[0], label or name)
        return self.plane_image(values, label or name)

    def plane_image(self, values: np.ndarray, label: str, curves: tuple[str, ...] = ()) -> Image:
        """A map of values (*shape,) in the plane, in space of those halfway along the last axis; ``curves``: monitors
        to be drawn next to it."""
        x, y = self.grid.coordinates[:2]
        plane = values if self.grid.rank == 2 else values[:, :, self.grid.shape[2] // 2]
        return Image(x, y, plane, label, curves=curves)
