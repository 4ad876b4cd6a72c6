"""The ONERA M6 wing in its five sizes: how many triangles and layers, and how high they are."""

from __future__ import annotations

import numpy as np

from meshloom.errors import MeshError, whole_number, yes_or_no
from meshloom.mesh.generators import m6_wing as wing
from meshloom.mesh.generators.arrays import CellArrays, real_number
from meshloom.mesh.generators.extrude import check_volumes, extruded
from meshloom.mesh.generators.field_lines import lines_from
from meshloom.mesh.generators.spacing import geometric
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.numbering import once_on_node
from meshloom.records import dataclass

#: Cells of the five meshes of the graph-coloring paper, and layers of prisms and tetrahedra with which the number of
#: faces comes close to the paper's, too (a prism has 2.5 faces to itself, a tetrahedron 2).
LEVELS = {
    1: (460_000, 30, 13),
    2: (890_000, 22, 20),
    3: (1_960_000, 10, 34),
    4: (3_920_000, 8, 42),
    5: (9_760_000, 20, 44),
}
_FEWEST, _MOST_CELLS = 3_000, 100_000_000
#: Nodes round a section for each row along the span: cells at half chord and half span are then twice as long as wide.
_AROUND = 2.75
#: Height of the first cell in mean chords for level 1; others go with the cube root of the number of cells.
_FIRST = 6e-4 / wing.MEAN_CHORD
#: Re = 11.72e6 and cf = 0.0027: a wall unit in mean chords. The centre of a viscous mesh's first cell is one away.
_WALL_UNIT = 1 / (11.72e6 * np.sqrt(0.0027 / 2))
#: Cells folded in some of 150 random meshes where layers grew by more than 3, and never below.
_MOST_GROWTH = 2.0
#: Layers of a viscous mesh: 32 that grow by 1.25 are 15 mm high together, as the boundary layer at the tail.
_VISCOUS_LAYERS, _VISCOUS_GROWTH, _OUTER_LAYERS = 32, 1.25, 20


@dataclass(frozen=True)
class Sizes:
    """Columns on each side of the wing, rows along the span, layers of prisms and of tetrahedra, and the first height
    in metres; prisms grow by ``growth``, or, where it is None, like the tetrahedra.
    """

    side: int
    span: int
    prism_layers: int
    outer_layers: int
    first_height: float
    growth: float | None

    @property
    def cells(self) -> int:
        return 4 * self.side * self.span * (self.prism_layers + 3 * self.outer_layers)

    def heights(self, far: float) -> np.ndarray:
        """Lengths (layers + 1,) along the lines to the layers. MeshError where they grow too fast to be filled."""
        if self.growth is None:
            heights = geometric(far, self.first_height, self.prism_layers + self.outer_layers, "onera_m6")
        else:
            steps = self.first_height * self.growth ** np.arange(self.prism_layers + 1)
            prisms = np.concatenate(([0.0], np.cumsum(steps[:-1])))
            if prisms[-1] + steps[-1] >= far:
                high = f"{self.prism_layers} layers of prisms that grow by {self.growth:g} are {prisms[-1]:.3g} m high"
                raise MeshError(f"onera_m6: {high}; ask for fewer, or for less growth or first_height")
            outside = geometric(far - prisms[-1], steps[-1], self.outer_layers, "onera_m6")
            heights = np.concatenate((prisms, prisms[-1] + outside[1:]))
        ratio = float(np.exp(np.abs(np.diff(np.log(np.diff(heights)))).max()))
        if ratio > _MOST_GROWTH:
            reach = (
                f"{len(heights) - 1} layers from {self.first_height:g} m to {far:.3g} m would grow by {ratio:.2f} each"
            )
            raise MeshError(f"onera_m6: {reach}; ask for more cells, more layers of prisms or more first_height")
        return heights


@once_on_node
def onera_m6(
    level: int = 1,
    *,
    cells: int | None = None,
    viscous: bool = False,
    first_height: float | None = None,
    growth: float | None = None,
    prism_layers: int | None = None,
    far: float = 15.0,
) -> Mesh:
    """The ONERA M6 half wing, in metres (x downstream, y along the span, z up), in prisms at the wall and tetrahedra
    outside: 0.46, 0.89, 1.96, 3.92 or 9.76 million cells for ``level`` 1 to 5, or about ``cells``.

    Symmetric about z = 0, trailing edge sharp, tip rounded. Lines leave the wall at right angles and end ``far``
    semi-spans away. Layers grow by one ratio from ``first_height`` (0.6 mm at level 1, finer with the cube root of the
    cells); ``viscous`` makes it 3e-6 m, which puts the first centres at y+ = 1 for Re = 11.72e6 on the mean chord, with
    at least 32 layers of prisms that grow by ``growth`` = 1.25. ``prism_layers`` can be given. Prisms come first, from
    the wall outwards. Groups: "wing", "symmetry" (quadrilaterals and triangles), "far".
    """
    sizes = planned(level, cells, viscous, first_height, growth, prism_layers)
    distance = real_number("onera_m6: far", far, 1.0, 1e4) * wing.SEMI_SPAN
    return half_wing(sizes, distance).mesh()


def half_wing(sizes: Sizes, far: float) -> CellArrays:
    """The cells of the half wing to ``far`` metres from it; every one of them was found the right way around."""
    surface = wing.wing_surface(sizes.side, sizes.span)
    places = lines_from(surface, sizes.heights(far))
    names = ("wing", "far", "symmetry")
    made = extruded(surface.triangles, surface.rank, surface.root, places, sizes.prism_layers, names)
    check_volumes(made, "onera_m6", "ask for more cells or layers of prisms, or for a lower first height")
    return made


def planned(
    level: int,
    cells: int | None,
    viscous: bool,
    first_height: float | None,
    growth: float | None,
    prism_layers: int | None,
) -> Sizes:
    """The sizes for what a person asks for."""
    whole_number("onera_m6: level", level, 1, len(LEVELS), error=MeshError)
    target = LEVELS[level][0] if cells is None else cells
    target = whole_number("onera_m6: cells", target, _FEWEST, _MOST_CELLS, error=MeshError)
    layers = _usual_layers(target)
    first = _FIRST * wing.MEAN_CHORD * (LEVELS[1][0] / target) ** (1 / 3)
    if yes_or_no("onera_m6: viscous", viscous, error=MeshError):
        layers = max(layers[0], _VISCOUS_LAYERS), max(layers[1], _OUTER_LAYERS)
        first, growth = 2 * _WALL_UNIT * wing.MEAN_CHORD, _VISCOUS_GROWTH if growth is None else growth
    if prism_layers is not None:
        prisms = whole_number("onera_m6: prism_layers", prism_layers, 1, 1000, error=MeshError)
        layers = prisms, max(layers[1], sum(layers) - prisms)
    if first_height is not None:
        first = real_number("onera_m6: first_height", first_height, 0.0, 0.02)
    if growth is not None:
        growth = real_number("onera_m6: growth", growth, 1.0 - 1e-12, _MOST_GROWTH)
    side, span = _columns_and_rows(target / (layers[0] + 3 * layers[1]) / 4)
    sizes = Sizes(side, span, *layers, first, growth)
    if sizes.cells > 1.1 * target:
        raise MeshError(f"onera_m6: {target} cells are too few for {sum(layers)} layers; ask for {sizes.cells} or more")
    return sizes


def _usual_layers(cells: int) -> tuple[int, int]:
    """Layers of prisms and tetrahedra: those of the levels, between them by logarithm, fewer for fewer cells."""
    counts, *layers = (np.array(column, float) for column in zip(*LEVELS.values(), strict=True))
    scale = min(1.0, (cells / counts[0]) ** 0.25)
    prisms, outer = (float(np.interp(np.log(cells), np.log(counts), column)) * scale for column in layers)
    return max(3, round(prisms)), max(6, round(outer))


def _columns_and_rows(product: float) -> tuple[int, int]:
    """Columns and rows whose product comes closest, in about the usual ratio."""
    rows = max(4.0, np.sqrt(product * 2 / _AROUND))
    candidates = [(max(6, round(product / n)), n) for n in range(max(4, round(0.9 * rows)), round(1.1 * rows) + 2)]
    return min(candidates, key=lambda pair: abs(pair[0] * pair[1] - product))
