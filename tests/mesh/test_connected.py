"""Meshes for people: parts as sets with their maps and measures, regions, edges, and the cells round a node."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.connected import local_edges
from meshloom.mesh.mesh import Mesh
from tests.mesh.mixed_samples import plane, space
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip


def plate(order: str = "given") -> Mesh:
    """A square of triangles: the lower half is of steel, a corner of copper, and nothing is of lead."""
    box = ml.generate.box((6, 4), cells="triangle")
    high = box.cell_centroids[:, 1]
    groups = {"steel": np.flatnonzero(high < 0.5), "copper": [0, 1, 2], "lead": np.zeros(0, int)}
    sides = {name: box.boundary_nodes.indices[box.group(name)] for name in box.groups}
    return Mesh.from_cells(box.coordinates.numpy(), box.cell_nodes.indices, "triangle", sides, cell_groups=groups,
                           order=order)  # fmt: skip


@ml.kernel
def gather(volume: ml.Read, x: ml.Read, mass: ml.Inc, total: ml.Sum):
    for corner in range(len(x)):
        mass[corner] += volume / len(x)
    total += volume


@pytest.mark.parametrize("order", ["given", "hilbert"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_region_is_a_set_with_its_maps_and_measures(backend: str, order: str) -> None:
    ml.use(backend)
    mesh = plate(order)
    steel = mesh.region("steel")
    assert steel is mesh.region("steel") and len(steel) == len(mesh.cell_group("steel")) == 24
    mass, total = mesh.nodes.field("mass"), ml.Global(0.0, "total")
    gather(steel, steel.volume, mesh.coordinates[steel.nodes], mass[steel.nodes], total)
    expected = np.zeros(len(mesh.nodes))
    np.add.at(expected, mesh.cell_nodes.indices[mesh.cell_group("steel")], 1 / 144)
    np.testing.assert_allclose(mass.numpy(), expected, atol=1e-15)
    assert abs(float(total) - 0.5) < 1e-14 and (steel.centre.numpy()[:, 1] < 0.5).all()
    heat = mesh.cells.field("heat")
    ml.kernel(lit)(steel, heat)
    assert heat.numpy().sum() == 24 and (heat.numpy()[mesh.cell_group("steel")] == 1).all()


def lit(heat: ml.Write):
    heat[...] = 1.0


def test_an_empty_region_and_parts_of_parts() -> None:
    mesh = plate()
    lead, warm = mesh.region("lead"), mesh.region("steel").subset([0, 5], "warm")
    heat = mesh.cells.field("heat")
    ml.kernel(lit)(lead, heat)
    assert len(lead) == 0 and lead.nodes.indices.shape == (0, 3) and not heat.numpy().any()
    numbers = mesh.cell_group("steel")[[0, 5]]
    assert (warm.nodes.indices == mesh.cell_nodes.indices[numbers]).all()
    assert (warm.volume.numpy() == mesh.cell_volumes[numbers]).all()


def test_parts_of_faces_have_normals_and_cells() -> None:
    mesh = plate("hilbert")
    wide = np.linalg.norm(mesh.face_normals, axis=1) > 0.2
    some = mesh.faces.subset(wide, "long")
    assert (some.cells.indices == mesh.face_cells.indices[wide]).all()
    assert (some.normal.numpy() == mesh.face_normals[wide]).all() and some.nodes.arity == 2
    left = mesh.boundary_faces.subset(mesh.group("xmin"))
    assert (left.normal.numpy() == mesh.boundary("xmin").normal.numpy()).all() and left.cells.arity == 1
    assert (left.centre.numpy()[:, 0] == 0.0).all()


def test_misuse_is_told() -> None:
    mesh = plate()
    with one_line_from(MeshError, "unknown cell group 'stel'; did you mean 'steel'.*copper|stel.*steel"):
        mesh.region("stel")
    with one_line_from(MeshError, "boundary group 'hole'.*xmin"):
        mesh.boundary("hole")
    with one_line_from(MeshError, r"a mask of cells has the shape \(48,\), got \(47,\)"):
        mesh.cells.subset(np.ones(47, bool))
    with one_line_from(MeshError, "cells has no element 48"):
        mesh.cells.subset([48])
    with pytest.raises(AttributeError, match="steel, a part of cells, has no normal; it has nodes, volume, centre"):
        _ = mesh.region("steel").normal
    with one_line_from(MeshError, "no file has told this mesh which sides belong together"):
        mesh.periodic()


@pytest.mark.parametrize("ending", ["msh", "vtu"])
def test_regions_are_written_and_read(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("meshio")
    mesh = plate()
    if ending == "msh":  # where a cell is in one group
        mesh = Mesh.from_cells(mesh.coordinates.numpy(), mesh.cell_nodes.indices, "triangle",
                               cell_groups={"steel": mesh.cell_group("steel"), "lead": []})  # fmt: skip
    ml.write(tmp_path / f"plate.{ending}", mesh)
    with pytest.warns(UserWarning, match=f"plate.{ending}: no cell carries the name: group lead is empty"):
        back = ml.read(tmp_path / f"plate.{ending}")
    for name in mesh.cell_groups:
        assert (back.region(name).members.indices == mesh.region(name).members.indices).all()


def test_what_is_pickled_together_fits_together() -> None:
    mesh = plate("hilbert")
    fields = [mesh.region("steel").field("a", data=1.0), mesh.boundary("xmin").field("b"), mesh.edges.field("c")]
    again, (a, b, c) = pickle.loads(pickle.dumps((mesh, fields)))
    assert a.set is again.region("steel") and b.set is again.boundary("xmin") and c.set is again.edges
    assert again.digest == mesh.digest and a.numpy().sum() == 24.0
    mass, total = again.nodes.field("mass"), ml.Global(0.0, "total")
    steel = again.region("steel")
    gather(steel, steel.volume, again.coordinates[steel.nodes], mass[steel.nodes], total)
    assert abs(float(total) - 0.5) < 1e-14


def meshes() -> dict[str, Mesh]:
    boxes = {kind: ml.generate.box((3, 2, 2)[: KINDS[kind].dimension], cells=kind) for kind in KINDS}
    mixed = {name: Mesh.from_cells(*make(0)) for name, make in (("plane", plane), ("space", space))}
    return boxes | mixed | {"arranged": plate("hilbert")}


ALL = meshes()


@pytest.mark.parametrize("name", ALL)
def test_edges_are_those_of_the_cells(name: str) -> None:
    mesh = ALL[name]
    pairs: dict[tuple[int, ...], list[int]] = {}
    rows = [[] for _ in range(len(mesh.cells))]
    for block in mesh.lists.cells.blocks:
        for cell, nodes in zip(block.listed(len(mesh.cells)).tolist(), block.nodes.tolist(), strict=True):
            rows[cell] = [tuple(sorted((nodes[i], nodes[j]))) for i, j in local_edges(block.kind)]
    for cell, row in enumerate(rows):
        for pair in row:
            pairs.setdefault(pair, []).append(cell)
    expected = sorted(pairs)
    assert mesh.edge_nodes.indices.tolist() == [list(pair) for pair in expected]
    cells, of_cells = mesh.edge_cells, mesh.cell_edges
    assert cells.entries.tolist() == [cell for pair in expected for cell in pairs[pair]]
    number = {pair: k for k, pair in enumerate(expected)}
    wanted = [number[pair] for row in rows for pair in row]
    got = of_cells.indices.ravel() if isinstance(of_cells, ml.Map) else of_cells.entries
    assert got.tolist() == wanted
    if mesh.dim == 2:
        assert len(mesh.edges) == len(mesh.faces) + len(mesh.boundary_faces)
    else:  # the number of Euler: a ball without holes
        faces = len(mesh.faces) + len(mesh.boundary_faces)
        assert len(mesh.nodes) - len(mesh.edges) + faces - len(mesh.cells) == 1


@ml.kernel
def node_average(value: ml.Read, mean: ml.Write):
    mean[...] = np.sum(value) / np.maximum(value.shape[0], 1)  # a polygon hides a node that no cell has


@ml.kernel
def slope(u: ml.Read, x: ml.Read, steepest: ml.Max):
    step = x[1] - x[0]
    steepest[...] = np.abs(u[1] - u[0]) / np.sqrt(step @ step)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["triangle", "hexahedron", "arranged", "plane", "space"])
def test_a_node_average_and_a_slope_along_edges(name: str, backend: str) -> None:
    ml.use(backend)
    mesh = ALL[name]
    values = np.random.default_rng(0).random(len(mesh.cells))
    value, mean = mesh.cells.field("value", data=values), mesh.nodes.field("mean")
    node_average(mesh.nodes, value[mesh.node_cells], mean)
    starts, entries = mesh.node_cells.starts, mesh.node_cells.entries
    expected = [values[entries[a:b]].sum() / max(b - a, 1) for a, b in pairwise(starts)]
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-14)
    x, steepest = mesh.coordinates, ml.Global(0.0, "steepest")
    slope(mesh.edges, mean[mesh.edge_nodes], x[mesh.edge_nodes], steepest)
    ends = mesh.edge_nodes.indices
    apart = np.linalg.norm(np.diff(x.numpy()[ends], axis=1)[:, 0], axis=1)
    assert abs(float(steepest) - (np.abs(np.diff(mean.numpy()[ends])[:, 0]) / apart).max()) < 1e-12


def test_more_cells_round_a_node_than_a_kernel_takes() -> None:
    angle = np.linspace(0.0, 2 * np.pi, 80, endpoint=False)
    points = np.concatenate((np.zeros((1, 2)), np.stack((np.cos(angle), np.sin(angle)), axis=1)))
    fan = Mesh.from_cells(points, [[0, 1 + k, 1 + (k + 1) % 80] for k in range(80)], "triangle")
    with one_line_from(MeshError, "node_cells: element 0 leads to 80 others.*loop over a set of the pairs"):
        _ = fan.node_cells
    total, count = fan.nodes.field("total"), fan.nodes.field("count")
    value = fan.cells.field("value", data=np.arange(80.0))

    @ml.kernel
    def hand_out(value: ml.Read, total: ml.Inc, count: ml.Inc):
        for corner in range(3):
            total[corner] += value
            count[corner] += 1.0

    hand_out(fan.cells, value, total[fan.cell_nodes], count[fan.cell_nodes])
    assert total.numpy()[0] / count.numpy()[0] == 39.5
