"""Arrangement in memory: nothing a person sees depends on it, and it happens where it pays and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from bench.airfoil import shuffled
from meshloom.errors import CompilerError, KernelError, MeshError, ScheduleError
from meshloom.mesh import arrange
from meshloom.mesh.generate import box, naca0012
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.permutation import SETS
from meshloom.order import follow, order_elements
from tests.mesh import samples

MAPS = ("cell_nodes", "face_nodes", "face_cells", "boundary_nodes", "boundary_cells")
LARGE = {
    "airfoil": lambda: naca0012(60, 80),
    "quadrilaterals": lambda: box((130, 120)),
    "long rows": lambda: box((1500, 12)),
    "triangles": lambda: box((90, 90), cells="triangle"),
    "hexahedra": lambda: box((26, 25, 24)),
    "tetrahedra": lambda: box((15, 14, 14), cells="tetrahedron"),
}
SMALL = {
    "airfoil": lambda: naca0012(8, 6),
    "triangles": lambda: Mesh.from_cells(*samples.shuffled(*samples.triangulation(120, 3), 4), "triangle"),
    "hexahedra": lambda: box((4, 3, 3)),
    "tetrahedra": lambda: box((2, 2, 2), cells="tetrahedron"),
}


def parts(mesh: Mesh) -> dict[str, np.ndarray]:
    """The arguments of ``Mesh.from_parts``."""
    arrays = {name: getattr(mesh, name).indices for name in MAPS}
    return arrays | {"coordinates": mesh.coordinates.numpy(), "boundary_group": mesh.boundary_group.numpy()}


# --- the rule ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["given", "rcm", "gps", "hilbert", "rcb", "greedy"])
@pytest.mark.parametrize("which", LARGE)
def test_good_orders_are_left_alone(which: str, order: str) -> None:
    mesh = LARGE[which]().reordered(order).arranged()
    assert mesh.arrangement.order == "given" and mesh.cells.numbering is None
    assert str(mesh.arrangement).startswith("as given: blocks of 1024 ") and "good enough" in mesh.arrangement.reason


@pytest.mark.parametrize("which", LARGE)
def test_bad_orders_are_found_and_mended(which: str) -> None:
    mesh = LARGE[which]()
    for bad in (mesh.reordered("random"), shuffled(mesh)):
        better = bad.arranged()
        assert better.arrangement.order == "hilbert"
        assert str(better.arrangement).startswith("renumbered by hilbert: blocks of 1024 ")
        as_it_lies = Mesh.from_parts(
            better.coordinates.rows(), *(getattr(better, name).positions for name in MAPS), kind=bad.kind
        )
        assert as_it_lies.arranged().arrangement.order == "given"


@pytest.mark.parametrize("on", ["nodes", "cells", "faces"])
def test_one_bad_set_is_enough(on: str) -> None:
    mesh, rng = box((300, 150)), np.random.default_rng(1)
    arrays, new = parts(mesh), rng.permutation(getattr(mesh, on).total)
    for name in MAPS:  # renumber one set: its rows move, and entries that name it change
        if getattr(mesh, name).source.name == on:
            arrays[name] = arrays[name][np.argsort(new)]
        if getattr(mesh, name).target.name == on:
            arrays[name] = new[arrays[name]]
    if on == "nodes":
        arrays["coordinates"] = arrays["coordinates"][np.argsort(new)]
    bad = Mesh.from_parts(kind="quad", groups=mesh.groups, **arrays)
    assert bad.arrangement.order == "given" and bad.arranged().arrangement.order == "hilbert"


def test_what_fits_into_a_cache_is_left_alone() -> None:
    assert shuffled(box((40, 40))).arranged().arrangement.order == "given"


def test_without_a_compiler_it_stays_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object, **options: object) -> None:
        raise CompilerError("no C++ compiler found")

    monkeypatch.setattr(arrange, "ordering", none)
    mesh = box((130, 120)).reordered("random").arranged()
    assert mesh.arrangement.order == "given" and "needs a C++ compiler" in str(mesh.arrangement)


def test_the_same_mesh_is_arranged_the_same_way() -> None:
    bad = box((130, 120)).reordered("random")
    first, second = bad.arranged(), bad.arranged()
    for name in SETS:
        np.testing.assert_array_equal(getattr(first, name).numbering, getattr(second, name).numbering)


def test_an_unknown_order_is_named() -> None:
    with pytest.raises(ScheduleError, match="hilbrt"):
        box((3, 3)).arranged("hilbrt")


# --- what a person sees -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["random", "hilbert", "rcm", "greedy"])
@pytest.mark.parametrize("which", SMALL)
def test_every_number_stays(which: str, order: str) -> None:
    old = SMALL[which]()
    new = old.arranged(order, block=16, seed=3)
    assert new.digest == old.digest and new.arrangement.order == order
    for name in MAPS:
        one = getattr(new, name)
        np.testing.assert_array_equal(one.indices, getattr(old, name).indices)
        assert one.indices.dtype == one.positions.dtype and not one.indices.flags.writeable
        np.testing.assert_array_equal(
            one.target.numbering[one.positions], getattr(old, name).indices[one.source.numbering]
        )
    for name in SETS:
        np.testing.assert_array_equal(getattr(new, name).points, getattr(old, name).points)
    for values in ("cell_volumes", "cell_centroids", "face_normals", "boundary_normals", "face_centres"):
        np.testing.assert_array_equal(getattr(new, values), getattr(old, values))
    for group in old.groups:
        np.testing.assert_array_equal(new.group(group), old.group(group))
    back = new.arranged("given")
    assert back.cells.numbering is None and back.digest == old.digest


def test_renumbering_an_arranged_mesh_goes_by_its_numbers() -> None:
    mesh = box((9, 8), cells="triangle")
    assert mesh.arranged("random").reordered("hilbert").digest == mesh.reordered("hilbert").digest


def test_halo_stays_last() -> None:
    mesh, halo = box((6, 5)), {"nodes": 6, "cells": 5, "faces": 4, "boundary_faces": 3}
    new = Mesh.from_parts(kind="quad", groups=mesh.groups, halo=halo, **parts(mesh)).arranged("random")
    for name, copies in halo.items():
        on = getattr(new, name)
        assert on.halo == copies and set(on.numbering[-copies:]) == set(range(on.owned, on.total))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 5),
    st.integers(1, 4),
    st.sampled_from(["aos", "soa", "aosoa4"]),
    st.sampled_from(["float32", "float64", "int32", "int64"]),
    st.integers(0, 99),
)
def test_values_by_number(size: int, halo: int, dim: int, layout: str, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbering = np.concatenate((rng.permutation(size), size + rng.permutation(halo)))
    on = ml.Set(size, "things", halo=halo, numbering=numbering)
    values = rng.integers(0, 1000, (size + halo, dim) if dim > 1 else size + halo).astype(dtype)
    field = on.field("f", dim, data=values, layout=layout)
    np.testing.assert_array_equal(field.numpy(), values)
    np.testing.assert_array_equal(field.rows().reshape(field.shape), values[numbering])
    field.relayout("soa")
    field.assign(values[::-1])
    np.testing.assert_array_equal(field.numpy(), values[::-1])
    np.testing.assert_array_equal(np.asarray(field.memory()).reshape(field.shape), values[::-1][numbering])


@pytest.mark.parametrize(
    ("numbering", "message"),
    [
        ([0, 1, 2], r"numbering must be 4 integers, got shape \(3,\)"),
        ([0.0, 1.0, 2.0, 3.0], "numbering must be integers, got float64"),
        ([0, 1, 1, 3], "owned elements, 0 to 2, once at positions 0 to 2; number 2 is missing there"),
        ([3, 1, 2, 0], "owned elements, 0 to 2, once at positions 0 to 2; number 0 is missing there"),
        ([0, 2, 1, 7], "halo elements, 3 to 3, once at positions 3 to 3; number 3 is missing there"),
    ],
)
def test_wrong_numberings(numbering: list, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        ml.Set(3, "things", halo=1, numbering=numbering)


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["msh", "su2", "dat"])
def test_files_keep_their_numbers(tmp_path: Path, extension: str) -> None:
    file = tmp_path / f"mesh.{extension}"
    ml.write(file, shuffled(box((130, 120))))
    mesh, plain = ml.read(file), ml.read(file, order="given")
    assert mesh.arrangement.order == "hilbert" and plain.arrangement.order == "given" and mesh.digest == plain.digest
    for name, one in (("mesh", mesh), ("plain", plain)):
        ml.write(tmp_path / f"{name} again.{extension}", one)
    assert (tmp_path / f"mesh again.{extension}").read_bytes() == (tmp_path / f"plain again.{extension}").read_bytes()


def test_cells_in_a_bad_order() -> None:
    x, cells = samples.triangulation(8000, 1)  # points at random: the numbers of the nodes are too
    assert Mesh.from_cells(x, cells, "triangle").arrangement.order == "hilbert"
    assert Mesh.from_cells(x, cells, "triangle", order="given").arrangement.order == "given"


# --- loops ------------------------------------------------------------------------------------------------------


@ml.kernel
def exchange(x: ml.Read, u: ml.Read, flux: ml.Write, gain: ml.Inc, most: ml.Max, total: ml.Sum) -> None:
    """A flux with the sign of the face's direction, kept on the face and given to both sides."""
    dx, dy = x[0] - x[1]
    f = (u[1, 0] - u[0, 0]) * dy - (u[0, 1] + u[1, 1]) * dx
    flux[...] = f
    gain[0] += f
    gain[1] -= f
    most[0] = u[1, 1]
    most[1] = u[0, 1]
    total += f**2


@ml.kernel
def spread(gain: ml.Read, sums: ml.Inc) -> None:
    for slot in range(4):
        sums[slot] += gain * (slot + 1)


def results(mesh: Mesh, strategy: str = "auto", order: str = "given") -> list[np.ndarray]:
    """Fields on faces, cells and nodes after two loops, and a sum, by number."""
    u = mesh.cells.field("u", 2, data=np.random.default_rng(0).random((len(mesh.cells), 2)))
    flux, gain, most = mesh.faces.field("flux"), mesh.cells.field("gain"), mesh.cells.field("most")
    sums, total = mesh.nodes.field("sums"), ml.Global(0.0, "total")
    at, schedule = mesh.face_cells, ml.Schedule(strategy, order=order)
    own = ml.Map(mesh.cells, mesh.nodes, np.roll(mesh.cell_nodes.indices, 7, axis=0), "own")  # by hand, by number
    exchange(mesh.faces, mesh.coordinates[mesh.face_nodes], u[at], flux, gain[at], most[at], total, schedule=schedule)
    spread(mesh.cells, gain, sums[own], schedule=schedule)
    return [flux.numpy(), gain.numpy(), most.numpy(), sums.numpy(), np.array(total.value)]


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
@pytest.mark.parametrize("strategy", ["auto", "color", "block_color", "staged", "tile"])
def test_loops_give_the_same_by_number(backend: str, strategy: str) -> None:
    before = ml.backend()
    try:
        ml.use("numpy")
        mesh = naca0012(12, 9)
        expected = results(mesh)
        ml.use(backend)
        for order, visit in (("random", "given"), ("hilbert", "given"), ("random", "hilbert")):
            for found, right in zip(results(mesh.arranged(order), strategy, visit), expected, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    finally:
        ml.use(before)


def test_a_bad_mesh_gives_the_same_by_itself() -> None:
    bad = shuffled(box((130, 120)))
    for found, right in zip(results(bad.arranged()), results(bad), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    again = zip(results(bad.arranged()), results(bad.arranged()), strict=True)
    assert all(np.array_equal(one, other) for one, other in again)


def test_the_plain_function_goes_by_number() -> None:
    mesh = box((5, 4)).arranged("random")
    gain, sums = mesh.cells.field("gain", data=np.arange(20.0)), mesh.nodes.field("sums")
    spread.python(mesh.cells, gain, sums[mesh.cell_nodes])
    plain = sums.numpy()
    sums.fill(0.0)
    spread(mesh.cells, gain, sums[mesh.cell_nodes])
    np.testing.assert_allclose(sums.numpy(), plain, rtol=1e-14)


def test_messages_name_numbers() -> None:
    @ml.kernel
    def put(a: ml.Read, b: ml.Write) -> None:
        b[0] = a

    many, few = ml.Set(4, "many", numbering=[2, 0, 3, 1]), ml.Set(5, "few", numbering=[4, 3, 2, 1, 0])
    a, b = many.field("a"), few.field("b")
    with pytest.raises(KernelError, match="element 1 shares few entry 3 with"):
        put(many, a, b[ml.Map(many, few, [0, 3, 2, 3], "twice")])
    with pytest.raises(MeshError, match="index 5 at row 2, slot 0 is out of range"):
        ml.Map(many, few, [0, 1, 5, 2], "outside")


def test_explain_warns_of_a_bad_order_and_names_the_remedy() -> None:
    good = box((130, 120))
    bad = good.reordered("random")
    for mesh in (good, bad, bad.arranged()):
        gain, sums = mesh.cells.field("gain"), mesh.nodes.field("sums")
        text = spread.loop(mesh.cells, gain, sums[mesh.cell_nodes]).explain()
        warned = [line for line in text.splitlines() if line.startswith("  order ")]
        assert len(warned) == (mesh is bad), text
        if warned:
            assert "bad: blocks of 1024 cells load" in warned[0] and "mesh.arranged()" in warned[0]


def test_sets_made_by_hand_are_mended_by_a_numbering() -> None:
    """The remedy that explain names, with a map between two sets and nothing else."""
    rows = box((130, 120)).reordered("random").face_cells.indices
    scattered = rows[np.random.default_rng(0).permutation(len(rows))]
    first = order_elements("greedy", scattered, 130 * 120)
    numberings = {"plain": (None, None), "mended": (first, follow(first, scattered, 130 * 120))}
    found = {}
    for name, (of_links, of_things) in numberings.items():
        links, things = ml.Set(len(rows), "links", numbering=of_links), ml.Set(130 * 120, "things", numbering=of_things)
        ends, weight = ml.Map(links, things, scattered, "ends"), things.field("weight")
        loop = join.loop(links, links.field("length", data=np.arange(len(rows)) % 7 + 1.0), weight[ends])
        assert ("  order " in loop.explain()) == (name == "plain")
        loop()
        found[name] = weight.numpy()
    np.testing.assert_array_equal(found["plain"], found["mended"])


@ml.kernel
def join(length: ml.Read, weight: ml.Inc) -> None:
    weight[0] += length
    weight[1] += length
