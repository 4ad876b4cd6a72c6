"""Sets of several kinds: the elements of each are a set with maps of its own arity."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
CORNERS = {"triangle": [[1, 4, 2], [4, 5, 2]], "quad": [[0, 1, 2, 3]]}


@ml.kernel
def measure(x: ml.Read, area: ml.Write, at_nodes: ml.Inc):
    n = len(x)
    whole = 0.5 * sum(x[k, 0] * x[(k + 1) % n, 1] - x[(k + 1) % n, 0] * x[k, 1] for k in range(n))
    area[...] = whole
    for k in range(n):
        at_nodes[k] += whole / n


@pytest.mark.parametrize("numbering", [None, [2, 0, 1]])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_kernel_for_the_cells_of_each_kind(backend: str, numbering: Any) -> None:
    ml.use(backend)
    nodes = ml.Set(6, "nodes")
    cells = ml.Set(3, "cells", kinds={"triangle": [2, 0], "quad": [1]}, numbering=numbering)
    x, area, at_nodes = nodes.field("x", 2, data=PLACES), cells.field("area"), nodes.field("at nodes")
    for kind, rows in CORNERS.items():
        part = cells.of(kind)
        assert part is cells.of(kind) and isinstance(part, ml.Subset) and part.whole is cells and part.name == kind
        corners = ml.Map(part, nodes, rows, f"nodes of {kind}")
        for wish in [one for one in ml.strategies() if measure.loop(
                part, x[corners], area, at_nodes[corners]).can_run(one)] or ["auto"]:  # fmt: skip
            at_nodes.fill(0.0)
            measure(part, x[corners], area, at_nodes[corners], schedule=wish)
            expected = np.zeros(6)
            np.add.at(expected, np.array(rows), (0.5 if kind == "triangle" else 1.0) / len(rows[0]))
            np.testing.assert_allclose(at_nodes.numpy(), expected, rtol=1e-14)
    assert area.numpy().tolist() == [0.5, 1.0, 0.5]
    assert {kind: list(numbers) for kind, numbers in cells.kinds.items()} == {"triangle": [0, 2], "quad": [1]}


@pytest.mark.parametrize("order", ["given", "random"])
@pytest.mark.parametrize("kind", ["triangle", "quad", "tetrahedron", "hexahedron"])
def test_the_cells_of_a_mesh_have_their_nodes(kind: str, order: str) -> None:
    ml.use("numpy")
    mesh = ml.generate.box((3, 2, 2)[: 2 if kind in ("triangle", "quad") else 3], cells=kind).arranged(order)
    part = mesh.cells.of(kind)
    assert list(mesh.cells.kinds) == [kind] and len(part) == len(mesh.cells)
    np.testing.assert_array_equal(part.nodes.indices, mesh.cell_nodes.indices)
    if kind in ("triangle", "quad"):
        area, at_nodes = mesh.cells.field("area"), mesh.nodes.field("at nodes")
        measure(part, mesh.coordinates[part.nodes], area, at_nodes[part.nodes])
        np.testing.assert_allclose(area.numpy(), mesh.cell_volumes, rtol=1e-13)
    with one_line_from(MeshError, f"unknown kind of cells 'prism'; (allowed: {kind}|did you mean)"):
        mesh.cells.of("prism")


def test_meshes_go_at_once_unless_kinds_were_asked_for() -> None:
    gc.disable()
    try:
        mesh = ml.generate.box((3, 2))
        cells, corners = mesh.cells, weakref.ref(mesh.cell_nodes)
        del mesh
        assert corners() is None
    finally:
        gc.enable()
    with one_line_from(MeshError, "the mesh of these cells is gone, and with it the nodes of its quad cells"):
        cells.of("quad")


@pytest.mark.parametrize(("kinds", "why"), [
    (3, "kinds are names and the numbers of their elements, got 3"), ({3: [0]}, "kinds are names"),
    ({"a": [0, 1]}, "every element is of one kind, and element 2 of 0"),
    ({"a": [0, 1], "b": [1, 2]}, "and element 1 of 2"), ({"a": [0, 0, 1, 2]}, "and element 0 of 2"),
    ({"a": [0, 1, 3]}, "a list of numbers from 0 to 2; there is no element 3"), ({"a": [-1]}, "there is no element -1"),
    ({"a": [[0, 1, 2]]}, r"got shape \(1, 3\)"), ({"a": [0.5]}, "must be integers"), ({"a": None}, "kind a"),
])  # fmt: skip
def test_wrong_kinds_are_one_line(kinds: Any, why: str) -> None:
    with one_line_from(MeshError, why):
        ml.Set(3, "cells", kinds=kinds)


def test_a_set_without_kinds_says_so() -> None:
    plain, mixed = ml.Set(3, "plain"), ml.Set(3, "mixed", kinds={"a": [0], "b": [1, 2]})
    with one_line_from(MeshError, "unknown kind of plain 'a'; there is none"):
        plain.of("a")
    with one_line_from(MeshError, "unknown kind of mixed 'c'; allowed: a, b"):
        mixed.of("c")
