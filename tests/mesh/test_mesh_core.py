"""Set, Map, Field and Global: what they hold, and one clear line for what they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.errors import MeshError
from meshloom.mesh.core import Global, Map, Set


@pytest.fixture
def nodes() -> Set:
    return Set(5, "nodes")


@pytest.fixture
def edges() -> Set:
    return Set(3, "edges")


def test_set_knows_owned_and_halo() -> None:
    cells = Set(7, "cells", halo=2)
    assert (len(cells), cells.size, cells.owned, cells.halo, cells.total) == (7, 7, 7, 2, 9)
    assert cells.field("q", 3).numpy().shape == (9, 3)


@pytest.mark.parametrize("size, halo", [(-1, 0), (3, -2)])
def test_negative_set_sizes_are_refused(size: int, halo: int) -> None:
    with pytest.raises(MeshError, match=r"set cells: (size|halo) must be a whole number from 0 to 1099511627"):
        Set(size, "cells", halo=halo)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_map_keeps_indices_in_the_asked_width(nodes: Set, edges: Set, dtype: str) -> None:
    ends = Map(edges, nodes, [(0, 1), (1, 2), (4, 3)], "ends", dtype=dtype)
    assert ends.indices.dtype == dtype and ends.arity == 2
    with pytest.raises(ValueError):
        ends.indices[0, 0] = 3


@pytest.mark.parametrize(
    "indices, message",
    [
        (
            [(0, 1), (1, 5), (2, 3)],
            r"map ends: index 5 at row 1, slot 1 is out of range; nodes has 5 elements \(0 to 4\)",
        ),
        ([(0, 1), (-1, 2), (2, 3)], "index -1 at row 1, slot 0"),
        ([(0, 1), (1, 2)], r"shape \(2, 2\), but edges has 3 elements: expected \(3, arity\)"),
        ([(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)], "indices must be integers, got float64"),
        (np.zeros((3, 0), dtype=int), "expected"),
        (np.zeros((3, 2, 2), dtype=int), "expected"),
    ],
)
def test_wrong_indices_are_named(nodes: Set, edges: Set, indices: object, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        Map(edges, nodes, indices, "ends")


def test_unsupported_index_type_is_named(nodes: Set, edges: Set) -> None:
    with pytest.raises(MeshError, match="index type int16 is not supported; allowed: int32, int64"):
        Map(edges, nodes, np.zeros((3, 1), dtype=int), "ends", dtype="int16")


def test_digest_depends_on_content_and_target(nodes: Set, edges: Set) -> None:
    rows = [(0, 1), (1, 2), (4, 3)]
    assert Map(edges, nodes, rows).digest == Map(edges, nodes, np.array(rows)).digest
    assert Map(edges, nodes, rows).digest != Map(edges, nodes, rows[::-1]).digest
    assert Map(edges, nodes, rows).digest != Map(edges, Set(6), rows).digest


@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4", "aosoa3"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_field_values_do_not_depend_on_layout(nodes: Set, layout: str, dtype: str) -> None:
    values = np.arange(15).reshape(5, 3).astype(dtype)
    field = nodes.field("u", 3, data=values, dtype=dtype, layout=layout)
    np.testing.assert_array_equal(field.numpy(), values)
    field.relayout("aosoa2")
    np.testing.assert_array_equal(field.numpy(), values)
    field.fill(7)
    assert (field.numpy() == 7).all() and field.numpy().dtype == dtype


def test_field_of_dim_one_is_flat(nodes: Set) -> None:
    assert nodes.field("p", data=np.arange(5.0)).numpy().shape == (5,)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"dim": 2, "data": np.zeros((4, 2))}, r"data has shape \(4, 2\), expected \(5, 2\)"),
        ({"dim": 0}, "dim must be a whole number from 1 to 65536, got 0"),
        ({"dtype": "complex128"}, "type complex128 is not supported"),
    ],
)
def test_wrong_fields_are_named(nodes: Set, arguments: dict, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        nodes.field("u", **arguments)


def test_field_through_a_map_to_another_set_is_refused(nodes: Set, edges: Set) -> None:
    to_nodes = Map(edges, nodes, [(0,), (1,), (2,)], "ends")
    with pytest.raises(MeshError, match="field weight lives on edges, but map ends leads to nodes"):
        edges.field("weight")[to_nodes]
    with pytest.raises(MeshError, match=r"index it with a Map or a grid's offsets, got int; use .numpy\(\)"):
        nodes.field("x")[0]  # type: ignore[index]
    assert nodes.field("x")[to_nodes].map is to_nodes


def test_globals_are_numbers_or_vectors() -> None:
    total = Global(0.0)
    total.value = 2.5
    assert total.value == 2.5 and isinstance(total.value, float)
    vector = Global([1.0, 2.0])
    assert vector.dim == 2
    np.testing.assert_array_equal(vector.value, [1.0, 2.0])
    with pytest.raises(MeshError, match="a scalar or a vector"):
        Global(np.zeros((2, 2)))
