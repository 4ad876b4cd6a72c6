"""Whatever is given to a public callable of sets, maps, fields, grids, meshes, matrices, programs and solvers: it does
something with it, or says in one line what is wrong, and has changed nothing then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import meshloom as ml
from meshloom.errors import MeshloomError
from tests.recorded_world import World, scale

Call = Callable[..., Any]
Attack = tuple[Call, dict[str, Any]]  # a callable, and arguments that are right


def odd_values(w: World) -> dict[str, Any]:
    """What nobody expects, by name."""
    other = ml.Set(4, "other")
    return {
        "None": None, "True": True, "3": 3, "-1": -1, "huge": 2**70, "2.5": 2.5, "nan": np.nan, "-inf": -np.inf,
        "complex": 1j, "text": "x", "no text": "", "NUL": "a\0b",
        "a file with NUL": "a\0b.png", "half a character": "a\udc80b", "half of it": "a\ud800.h5",
        "two lines": "a\nb", "bytes": b"x", "list": [], "texts": ["a", "b"],
        "ragged": [[0], [1, 2]], "nested None": [None], "numbers": [0, 1], "negative": [-1, 0], "far": [2**40],
        "nans": [np.nan, 1.0], "complex numbers": np.array([1j, 2.0]), "objects": np.array([None, "a", {}], object),
        "cube": np.zeros((2, 3, 4)), "0-d": np.array(2), "0-d text": np.array("x"), "dates": np.zeros(1, "M8[D]"),
        "dict": {}, "names": {"a": 1}, "wild dict": {3: None}, "object": object(), "type": int, "function": _nothing,
        "raises": _raises, "generator": (k for k in (0, 1)), "other set": other, "other field": other.field("other"),
        "other map": ml.Map(other, other, np.zeros((4, 1), int), "stay"), "global": ml.Global(1.0), "grid": w.stretched,
        "box": w.grid.interior(0), "offsets": w.stretched.star(1), "arg": w.u[w.ends], "matrix": w.matrix,
        "program": w.inner, "mesh": w.mesh, "sparse": sparse.eye(2), "integer field": other.field("whole", dtype=int),
    }  # fmt: skip


def _nothing(*_: Any) -> None:
    """Of any arguments."""


def _raises(*_: Any) -> None:
    raise ZeroDivisionError("of a test")


def sets_and_fields(w: World) -> dict[str, Attack]:
    new = {"name": "new", "dim": 2, "dtype": np.float64, "data": np.zeros((6, 2)), "layout": "soa", "temporary": False}
    return {
        "Set": (ml.Set, {"size": 3, "name": "s", "halo": 1, "points": np.zeros((4, 2)), "numbering": [0, 2, 1, 3],
                         "kinds": {"a": [0], "b": [1, 2]}}),
        "Set.of": (w.mesh.cells.of, {"kind": "quad"}),
        "Set.subset": (w.cells.subset, {"which": [0, 2], "name": "part"}),
        "Set.field": (w.cells.field, new), "Field": (ml.Field, {"on": w.cells, **new}),
        "Map": (ml.Map, {"source": w.edges, "target": w.cells, "indices": w.ends.indices, "name": "m", "dtype": "i4"}),
        "Map.computed": (ml.Map.computed, {"source": w.edges, "target": w.cells, "formula": lambda e: e, "name": "m"}),
        "Map.computed, a slot": (lambda slot: ml.Map.computed(w.edges, w.cells, lambda e: [e, slot], "m"), {"slot": 0}),
        "Map.varying": (ml.Map.varying, {"source": w.edges, "target": w.cells, "starts": [0, 1, 1, 2, 2, 3],
                                         "entries": [0, 5, 2], "name": "m"}),
        "Field.__getitem__": (w.u.__getitem__, {"through": w.ends}), "Field.fill": (w.u.fill, {"value": 1.0}),
        "Field.assign": (w.u.assign, {"data": np.ones(6)}), "Field.restore": (w.u.restore, {"saved": np.ones(6)}),
        "Field.dot": (w.u.dot, {"other": w.v}), "Field.copy": (w.u.copy, {"name": "other"}),
        "Field that wraps": (w.cells.field, {"name": "new", "dim": 2, "wrap": np.zeros((6, 2))}),
        "Field.relayout": (w.pair.relayout, {"layout": "soa", "free": True}),
        "Field.move": (w.v.move, {"storage": np.zeros(6)}),
        "Global": (ml.Global, {"value": 1.0, "name": "g", "dtype": np.float32}),
        "Global.assign": (w.total.assign, {"data": 2.0}), "Global.restore": (w.vector.restore, {"saved": np.ones(3)}),
        "Global.value": (lambda value: setattr(w.total, "value", value), {"value": 3.0}),
        "Subset.restricted": (w.edges.subset([1]).restricted, {"map_": w.ends}),
        "Subset.members_of": (w.edges.subset([1]).members_of, {"other": w.edges}),
        "locate": (ml.locate, {"values": w.u, "wanted": w.total, "where": w.where}),
    }  # fmt: skip


def grids(w: World) -> dict[str, Attack]:
    made = {"shape": (3, 4), "extent": (1.0, 2.0), "periodic": (True, False), "coordinates": [None, None], "ghosts": 1,
            "name": "g", "aligned": True}  # fmt: skip
    return {
        "Grid": (ml.Grid, made), "Grid.axis": (w.grid.axis, {"axis": 1}),
        "Grid.offsets": (lambda one: w.grid.offsets(one), {"one": (1, 0)}), "Grid.star": (w.grid.star, {"radius": 1}),
        "Grid.box": (w.grid.box, {"low": (0, 0), "high": (2, 2)}), "Grid.interior": (w.grid.interior, {"width": 1}),
        "Grid.boundary": (w.grid.boundary, {"axis": 0, "side": "low", "width": 1}),
        "Grid.ghost": (w.grid.ghost, {"axis": 0, "side": "low"}), "Grid.metric": (w.grid.metric, {"axis": 0}),
        "Grid.index_of": (w.grid.index_of, {"number": 3}), "Grid.index_at": (w.grid.index_at, {"row": 3}),
        "Grid.shaped": (w.grid.shaped, {"field": w.f, "ghosts": True}),
        "Grid.subset": (w.grid.subset, {"which": [0, 2], "name": "part"}),
        "fill_ghosts": (lambda field, closed: ml.fill_ghosts(field, closed=closed), {"field": w.f, "closed": "copy"}),
    }  # fmt: skip


def meshes(w: World) -> dict[str, Attack]:
    m, x = w.mesh, w.mesh.coordinates.numpy()
    grouped = ml.Mesh.from_cells(x, m.cell_nodes.indices, "quad", cell_groups={"some": [0]})
    parts = {"coordinates": x, "cell_nodes": m.cell_nodes.indices, "face_nodes": m.face_nodes.indices,
             "face_cells": m.face_cells.indices, "boundary_nodes": m.boundary_nodes.indices,
             "boundary_cells": m.boundary_cells.indices, "boundary_group": m.boundary_group.numpy(), "kind": "quad",
             "groups": m.groups, "cell_groups": {"some": [0]}, "halo": {"cells": 1}}  # fmt: skip
    cells = {"coordinates": x, "cell_nodes": m.cell_nodes.indices, "kind": "quad",
             "boundary": {"side": m.boundary_nodes.indices[:1]}, "groups": {"side": 4}, "cell_groups": {"some": [0]},
             "order": "given"}  # fmt: skip
    return {
        "Mesh": (ml.Mesh, parts), "Mesh.from_parts": (ml.Mesh.from_parts, parts),
        "Mesh.from_cells": (ml.Mesh.from_cells, cells), "Mesh.group": (m.group, {"name": "xmin"}),
        "Mesh.boundary": (m.boundary, {"name": "xmin"}), "Mesh.cell_group": (grouped.cell_group, {"name": "some"}),
        "Mesh.arranged": (m.arranged, {"order": "rcm", "block": 4, "seed": 0}),
        "Mesh.reordered": (m.reordered, {"name": "rcm", "block": 4, "seed": 0}),
        "generate.box": (ml.generate.box, {"shape": (2, 2), "cells": "quad"}),
    }


def algebra(w: World) -> dict[str, Attack]:
    eye, star = sparse.eye(6).tocsr(), w.grid.star(1)
    on_grid = ml.Matrix(w.grid, through=star, name="on grid")
    b = w.cells.field("b", data=np.ones(6))
    w.matrix.assign(np.arange(16.0))
    made = {"rows": w.cells, "through": w.ends, "columns": w.ends, "block": 2, "dtype": np.float32, "name": "m"}
    solve = {"operator": ml.Matrix.from_scipy(eye, w.cells), "x": w.v, "b": b, "tol": 1e-6, "at_most": 3,
             "preconditioner": "jacobi"}  # fmt: skip
    known = {f"linalg.{one}": (getattr(ml.linalg, one), solve) for one in ("cg", "bicgstab", "gmres")}
    return {
        "Matrix": (ml.Matrix, made), "Matrix on a grid": (ml.Matrix, {"rows": w.grid, "through": star, "block": 2}),
        "Matrix.from_scipy": (ml.Matrix.from_scipy, {"given": eye, "rows": w.cells, "columns": w.cells, "block": 1,
                                                     "name": "m"}),
        "Matrix.__getitem__": (w.matrix.__getitem__, {"through": w.ends}),
        "Matrix.__getitem__ of a pair": (lambda one: w.matrix[w.ends, one], {"one": w.ends}),
        "Matrix.fill": (w.matrix.fill, {"value": 2.0}), "Matrix.assign": (w.matrix.assign, {"values": np.ones(16)}),
        "Matrix.multiply": (w.matrix.multiply, {"x": w.u, "y": w.v}),
        "Matrix.inverse_diagonal": (w.matrix.inverse_diagonal, {"blocks": False, "into": w.v}),
        "GridMatrix.__getitem__": (on_grid.__getitem__, {"through": star}),
        "GridMatrix.multiply": (on_grid.multiply, {"x": w.f, "y": w.g}),
        "GridMatrix.assign": (on_grid.assign, {"values": np.ones((12, 10, 5))}),
        **known, "linalg.GMRES": (ml.linalg.GMRES, {"operator": w.matrix, "preconditioner": None, "restart": 3}),
        "linalg.Tridiagonal": (ml.linalg.Tridiagonal, {"lower": 0.1, "diag": 1.0, "upper": 0.1, "periodic": True}),
    }  # fmt: skip


def poisson(w: World) -> dict[str, Attack]:
    ends = [None, ml.linalg.Dirichlet(1.0)]
    given = {"grid": w.poisson.grid, "low": "neumann", "high": ["neumann", "dirichlet"], "dtype": "float64",
             "name": "p", "edges": [None, [-0.25, 0.25, 0.75, 1.25]]}  # fmt: skip
    on, ring = ml.linalg.Poisson(w.grid), ml.Grid((3, 4), periodic=(True, False))
    multigrid, fast, piccg = ml.linalg.Multigrid(on), ml.linalg.FastPoisson(on), ml.linalg.PICCG(on)
    solid = np.arange(w.poisson.grid.size).reshape(w.poisson.grid.shape) == 0
    return {
        "Poisson": (ml.linalg.Poisson, given),
        "Poisson, a value": (lambda value: ml.linalg.Poisson(w.stretched, ml.linalg.Dirichlet(value)), {"value": 1.0}),
        "Poisson, a slope": (lambda slope: ml.linalg.Poisson(w.poisson.grid, "neumann", [ml.linalg.Neumann(slope)] * 2),
                             {"slope": 1.0}),
        "Poisson, ends of a periodic axis": (lambda low: ml.linalg.Poisson(ring, low), {"low": ends}),
        "Poisson.__call__": (on, {"x": w.f, "y": w.g}), "Poisson.check": (on.check, {"field": w.f, "what": "x"}),
        "Poisson.right_hand_side": (on.right_hand_side, {"f": w.f, "b": w.g}),
        "Multigrid": (ml.linalg.Multigrid, {"poisson": w.poisson, "accelerated": False, "lines": True, "smoothing": 2}),
        "Multigrid.__call__": (multigrid, {"r": w.f, "z": w.g}),
        "Multigrid.solve": (multigrid.solve, {"x": w.g, "b": w.f, "tol": 1e-3, "at_most": 2}),
        "FastPoisson": (ml.linalg.FastPoisson, {"poisson": w.poisson, "solid": solid}),
        "FastPoisson.solve": (fast.solve, {"x": w.g, "b": w.f, "tol": 1e-6}),
        "PICCG": (ml.linalg.PICCG, {"A": w.poisson, "colors": "auto", "block": 1, "fill": 0, "drop": None, "shift": 0.0,
                                    "storage": "sell", "chunk": 4, "sigma": 8, "precision": None, "eisenstat": None}),
        "PICCG.__call__": (piccg, {"r": w.f, "z": w.g}),
        "PICCG.solve": (piccg.solve, {"x": w.g, "b": w.f, "tol": 1e-3, "at_most": 2}),
    }  # fmt: skip


def programs(w: World) -> dict[str, Attack]:
    return {
        "Program": (ml.Program, {"function": w.step, "fuse": True, "branches": False}),
        "program": (ml.program, {"function": w.step, "fuse": True, "branches": False}),
        "Program.run": (w.inner.run, {"times": 1, "record": (w.total,)}),
        "Program.run with arguments": (w.scaled.run, {"times": 1, "field": w.u, "total": w.total}),
        "Program.bind": (w.scaled.bind, {"field": w.u, "total": w.total}),
        "Program.repeat": (w.inner.repeat, {"until": w.total > 1.0, "at_most": 2}),
        "Kernel.__call__": (lambda on, u, factor, total: scale(on, u, factor, total),
                            {"on": w.cells, "u": w.u, "factor": w.factor, "total": w.total}),
        "Kernel.python": (lambda on, u, factor, total: scale.python(on, u, factor, total),
                          {"on": w.cells, "u": w.u, "factor": w.factor, "total": w.total}),
        "march": (ml.march, {"program": w.inner, "steps": 2, "until": None, "every": 1, "show": (w.total,), "out": None,
                             "fields": (), "checkpoint": None, "stop": None, "restart": False, "overwrite": False,
                             "checkpoint_every": 1, "checkpoint_seconds": 1.0, "watch": True, "progress": False,
                             "probes": None, "lines": None, "integrals": None, "surface": (), "probe_every": 0}),
        "Condition": (lambda other: w.total < other, {"other": 1.0}),
    }  # fmt: skip


def around(w: World) -> dict[str, Attack]:
    """What a person does with the results of loops."""
    m = w.mesh
    on_cells, cube = m.cells.field("on_cells", 2), ml.generate.box((2, 2, 2))
    in_space = cube.cells.field("in_space")
    tiny = {"mesh.i": 4, "mesh.j": 4, "run.iterations": 1, "output.plot": False, "output.vtu": False,
            "run.backend": "numpy"}  # fmt: skip
    ml.save("there.h5", w.u, w.total)
    ml.write("there.su2", m, overwrite=True)
    w.kept = cube  # type: ignore[attr-defined]  # which would go
    return {
        "plot": (ml.plot, {"what": on_cells, "component": None, "arrows": True, "limits": (0.0, 1.0), "cmap": None,
                           "label": "u", "title": "t", "window": (0.0, 1.0, 0.0, 1.0), "ax": None}),
        "plot a cut": (ml.plot, {"what": in_space, "cut": ("x", 0.5)}),
        "plot a surface": (ml.plot, {"what": in_space, "surface": ["xmin"], "view": (1.0, 1.0, 1.0)}),
        "plot to a file": (ml.plot, {"what": on_cells, "save": "plot.png"}),
        "read": (ml.read, {"path": "there.su2", "order": "given"}),
        "write": (partial(ml.write, overwrite=True), {"path": "new.vtu", "mesh": m, "cell_fields": {"u": on_cells},
                                                      "node_fields": None}),
        "save": (lambda path, value, named: ml.save(path, value, named=named),
                 {"path": "new.h5", "value": w.u, "named": w.total}),
        "load": (lambda path, value: ml.load(path, value), {"path": "there.h5", "value": w.u}),
        "run_case": (partial(ml.run_case, settings=tiny), {"case": "airfoil", "out": None, "restart": None,
                                                           "overwrite": False, "changed": False, "progress": False}),
        "run_case, a setting": (lambda value: ml.run_case("airfoil", tiny | {"flow.mach": value}), {"value": 0.3}),
        "Mesh.region": (m.region, {"name": "left"}), "Mesh.cell_group": (m.cell_group, {"name": "left"}),
        "Mesh.periodic": (m.periodic, {"pairs": {"xmin": "xmax"}, "tolerance": 1e-4}),
        "Mesh.wall_distance": (lambda name: m.wall_distance(name), {"name": "xmin"}),
        "debug": (lambda nan: ml.debug(nan=nan).__exit__(), {"nan": True}),
        "Loop.inspect": (lambda element: w.loop.inspect(element), {"element": 1}),
    }  # fmt: skip


def test_a_kernel_wants_a_set_and_decorators_a_function() -> None:
    for wrong in (scale, scale.loop, scale.counts, scale.python, lambda: ml.program(None), lambda: ml.kernel(None)):
        with pytest.raises(MeshloomError) as caught:
            wrong()
        assert "NoneType" in str(caught.value)


ROOMS = (sets_and_fields, grids, meshes, algebra, poisson, programs, around)


def state(w: World) -> list[tuple[str, int, bytes]]:
    """All values, as they lie, and how often they were written."""
    stored = [w.u, w.v, w.pair, w.total, w.factor, w.vector, w.where, w.f, w.g, w.matrix.values]
    return [(one.name, one.version, one.storage.tobytes()) for one in stored]


@pytest.mark.parametrize("room", ROOMS)
def test_every_argument_of_every_callable(
    room: Callable[[World], dict[str, Attack]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some texts are paths to write to
    ml.use("numpy")
    names, wrong = list(room(World())), []
    for name in names:
        w = World()
        call, given = room(w)[name]
        call(**given)  # what is right is taken
        for argument in given:
            for what, value in odd_values(w).items():
                before = state(w)
                told = _told(call, given | {argument: value})
                if told is not None and (told or state(w) != before):
                    wrong.append(f"{name}({argument}={what}): {told or 'something has changed'}")
    assert not wrong, f"{len(wrong)} of them:\n" + "\n".join(wrong)


def of_its_own(error: Exception) -> bool:
    """Does it come from a function that was given, which is not ours to explain?"""
    return "of a test" in str(error) or "cannot be interpreted as an integer" in str(error)  # int(x, y)


def _told(call: Call, given: dict[str, Any]) -> str | None:
    """None where it was taken, '' where it was refused in one line, else what is wrong with the answer."""
    try:
        call(**given)
    except MeshloomError as error:
        text = str(error)
        return "" if text and len(text.splitlines()) == 1 and text.isprintable() else f"not one line: {text!r}"
    except Exception as error:
        return None if of_its_own(error) else f"{type(error).__name__}: {error}"
    return None
