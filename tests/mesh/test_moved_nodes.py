"""After nodes have moved every geometric quantity of a mesh and its parts is that of a new mesh with these nodes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ProgramError
from meshloom.mesh.measured import Measured
from meshloom.mesh.parts import _MEASURES, MeshPart
from tests.one_line import one_line_from

LENGTHS = ("volume", "centroid", "normal", "centre", "shift", "distance", "to_face", "heights")


def quantities(mesh: ml.Mesh) -> dict[str, Callable[[], Any]]:
    """All that is measured: properties of the mesh, and fields of its parts, found by looking for them."""
    names = [name for name, one in vars(Measured).items() if isinstance(one, property) and name != "dim"]
    assert all(any(word in name for word in LENGTHS) for name in names), names
    found: dict[str, Callable[[], Any]] = {name: lambda name=name: getattr(mesh, name) for name in names}
    for where, part in _parts(mesh):
        for name in _MEASURES[part.outermost.name]:
            found[f"{where}.{name}"] = lambda part=part, name=name: getattr(part, name).numpy()
    group = next(iter(mesh.groups), None)
    if group is not None:
        found["wall_distance"] = lambda: mesh.wall_distance(group)
    return found


def _parts(mesh: ml.Mesh) -> Iterator[tuple[str, MeshPart]]:
    for elements in (mesh.cells, mesh.faces, mesh.boundary_faces):
        half = elements.subset(np.arange(0, len(elements), 2), "half")
        yield f"{elements.name}.subset", half
        yield f"{elements.name}.subset.subset", half.subset(np.arange(0, len(half), 2), "quarter")
        for kind in elements.kinds:
            yield f"{elements.name}.of({kind})", elements.of(kind)
    for name in mesh.groups:
        yield f"boundary({name})", mesh.boundary(name)
    for name in mesh.cell_groups:
        yield f"region({name})", mesh.region(name)


def _moved(x: np.ndarray, *, bent: bool) -> np.ndarray:
    """Stretched and sheared, and bent a little, which periodic sides are not."""
    found = 1.5 * x
    found[:, 0] += 0.1 * x[:, 1] ** 2 if bent else 0.0
    found[:, 1] += 0.2 * x[:, 0]
    return found


def _mesh(case: str, *, moved: bool) -> ml.Mesh:
    mesh = ml.generate.box((2, 2, 2) if case == "hexahedra" else (4, 3))
    if moved:
        mesh.coordinates.assign(_moved(mesh.coordinates.numpy(), bent=case != "periodic"))
    names = list(mesh.groups)
    return mesh.periodic({names[0]: names[1]}) if case == "periodic" else mesh


@pytest.mark.parametrize("case", ["quads", "hexahedra", "periodic"])
def test_what_is_measured_follows_the_nodes(case: str) -> None:
    mesh, new = _mesh(case, moved=False), _mesh(case, moved=True)
    asked = quantities(mesh)
    before = {name: np.array(ask()) for name, ask in asked.items()}
    mesh.coordinates.assign(new.coordinates.numpy())
    fresh = {name: np.array(ask()) for name, ask in quantities(new).items()}
    for name, ask in asked.items():
        assert np.allclose(ask(), fresh[name], rtol=1e-14, atol=1e-14), name
        same = name == "face_shifts" and case != "periodic"  # 0 where nothing is joined
        assert same == np.array_equal(before[name], fresh[name]), f"{name} would not notice"


def test_a_field_of_a_part_stays_the_same_one() -> None:
    """So loops that have it see the new values, once somebody has asked for it."""
    mesh = ml.generate.box((3, 3))
    part = mesh.boundary(next(iter(mesh.groups)))
    normal = part.normal
    mesh.coordinates.assign(2.0 * mesh.coordinates.numpy())
    assert part.normal is normal and part.normal is normal
    assert np.allclose(np.linalg.norm(normal.numpy(), axis=1), 2.0 / 3.0)


# ----- programs: they ask for a measure when they are recorded, their replays never ----------------------------------
BACK_ENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
every_backend = pytest.mark.parametrize("backend", BACK_ENDS)


@ml.kernel
def copied(of: ml.Read, into: ml.Write):
    into[...] = of


@ml.kernel
def tripled(x: ml.ReadWrite):
    x[...] = 3.0 * x


@ml.kernel
def counted(n: ml.Sum):
    n += 1.0


class Part:
    """A part of a mesh, a measure of it, and what programs make of that."""

    def __init__(self, kind: str) -> None:
        self.mesh = mesh = ml.generate.box((3, 3))
        parts = {"boundary": lambda: mesh.boundary(next(iter(mesh.groups))), "cells": lambda: mesh.cells.subset([1, 2]),
                 "faces": lambda: mesh.faces.subset([0, 3])}  # fmt: skip
        self.part = parts[kind]()
        self.name = "volume" if kind == "cells" else "normal"
        dim = getattr(self.part, self.name).dim
        self.out, self.n = self.part.field("out", dim), ml.Global(0.0, "n")

    def copies(self) -> None:
        copied(self.part, getattr(self.part, self.name), self.out)
        counted(self.part, self.n)

    def copies_to(self, out: ml.Field) -> None:
        copied(self.part, getattr(self.part, self.name), out)

    def moves(self) -> None:
        tripled(self.mesh.nodes, self.mesh.coordinates)

    def assert_followed(self) -> None:
        self.found = self.out.numpy()
        self.out.fill(0.0)
        self.copies()
        assert np.array_equal(self.found, self.out.numpy())


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("numpy", "cells"), ("numpy", "faces"), ("numpy", "boundary"), ("cpu", "boundary"), ("emulated", "boundary"),
     pytest.param("cuda", "boundary", marks=pytest.mark.gpu)],
)  # fmt: skip
def test_programs_follow_the_nodes(backend: str, kind: str) -> None:
    """Whoever runs them: one without arguments, one with, a condition; one that is bound, one inside another."""
    ml.use(backend)
    one = Part(kind)
    plain, given = ml.program(one.copies), ml.program(one.copies_to)
    bound, around = given.bind(one.out), ml.program(lambda: given(one.out))
    runs: tuple[Callable[[], Any], ...] = (plain, lambda: given(one.out), bound, around,
        lambda: plain.repeat(until=one.n > 0.5, at_most=2), lambda: plain.run(2))  # fmt: skip
    for run in runs:
        run()
    for run in runs:
        before = one.out.numpy()
        one.mesh.coordinates.assign(3.0 * one.mesh.coordinates.numpy())
        run()
        one.assert_followed()
        assert np.allclose(one.found, before * (9.0 if kind == "cells" else 3.0), rtol=1e-13)


@every_backend
def test_a_program_follows_nodes_that_a_call_moves(backend: str) -> None:
    ml.use(backend)
    one = Part("boundary")
    x = one.mesh.coordinates
    for move in (ml.program(one.moves), lambda: x.assign(3.0 * x.numpy())):
        moving, first = ml.program(lambda move=move: (one.copies(), ml.call(move))), one.part.normal.numpy()
        moving.run(3)
        assert np.allclose(one.out.numpy(), 9.0 * first, rtol=1e-13)  # moved twice before the last replay
        moving.run(1)
        assert np.allclose(one.out.numpy(), 27.0 * first, rtol=1e-13)


def test_a_program_that_moves_nodes_and_uses_what_is_measured_of_them_is_refused() -> None:
    one = Part("boundary")

    @ml.program
    def both() -> None:
        one.moves()
        one.copies()

    with one_line_from(ProgramError, "both moves the nodes .*normal.*copy"):
        both.run(2)
    old = one.part.normal.copy()

    @ml.program
    def of_old() -> None:
        one.moves()
        copied(one.part, old, one.out)

    of_old.run(2)
    assert np.array_equal(one.out.numpy(), old.numpy())


def test_what_is_measured_goes_with_its_mesh() -> None:
    """Whatever is kept of a program that was given a part of it."""

    @ml.program
    def measured(part: Any, out: ml.Field) -> None:
        copied(part, part.normal, out)

    one = Part("boundary")
    measured(one.part, one.out)
    gone = ref(one.part)
    del one
    gc.collect()
    assert gone() is None
