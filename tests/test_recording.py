"""Everything public inside a program is recorded, harmless, or refused in one line: a table of all of it.

A name that is new and stands in no row of the table fails ``test_every_public_name_has_a_category``.
"""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MemberDescriptorType
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import meshloom as ml
from meshloom.errors import MeshloomError
from meshloom.mesh.box import Box
from meshloom.mesh.globals import Condition
from meshloom.recording import recorder
from meshloom.target.limit import Peaks
from tests.recorded_world import World, add, halve, scale, spread

BACK_ENDS = ["numpy", "cpu"]


class Into:
    """A field that was made before, to write something that was made inside to."""

    def __init__(self, w: World):
        self.w = w

    def sum_up(self, made: ml.Field) -> None:
        """A field made inside takes part in a loop, twice: it must begin at zero every time."""
        spread(self.w.edges, self.w.u[self.w.ends], made[self.w.ends])
        scale(self.w.cells, made, self.w.factor, self.w.total)


def with_new_field(w: World) -> None:
    Into(w).sum_up(w.cells.field("new"))


def with_new_global(w: World) -> None:
    sums = ml.Global(3.0, "sums")
    scale(w.cells, w.u, ml.Global(0.5, "new"), sums)
    scale(w.cells, w.v, sums, w.total)


def with_new_vector(w: World) -> None:
    @ml.kernel
    def use(u: ml.ReadWrite, v: ml.Read):
        u[...] = u + v[2]

    use(w.cells, w.u, ml.Global([2.0, 2.0, 2.0]))


def set_attribute(holder: Any, name: str, value: Any) -> None:
    setattr(holder, name, value)


Action = Callable[[World], Any]

#: What is done again at every replay.
RECORDED: dict[str, Action] = {
    "Kernel.__call__": lambda w: scale(w.cells, w.u, w.factor, w.total),
    "Kernel.__call__ with a number, by name": lambda w: scale(w.cells, total=w.total, factor=0.25, u=w.u),
    "Kernel.loop with a number": lambda w: scale.loop(w.cells, w.u, 0.25, total=w.total)(),
    "Operation.__call__ of a loop": lambda w: w.loop(),
    "Kernel.loop": lambda w: spread.loop(w.edges, w.u[w.ends], w.v[w.ends])(),
    **{f"Field.{name}": (lambda w, name=name: scale(w.cells, w.u, getattr(w.v, name)(), w.total))
       for name in ("sum", "min", "max", "mean", "norm")},
    "Field.dot": lambda w: scale(w.cells, w.u, w.v.dot(w.u), w.total),
    "Field.fill": lambda w: (w.u.fill(3.0), scale(w.cells, w.u, w.factor, w.total)),
    "Field.assign of a number": lambda w: (w.u.assign(3), scale(w.cells, w.u, w.factor, w.total)),
    "Global.value set": lambda w: (set_attribute(w.total, "value", 2.0), scale(w.cells, w.u, w.factor, w.total)),
    "Global.assign": lambda w: (w.total.assign(2.0), scale(w.cells, w.u, w.factor, w.total)),
    "Global.assign to all entries": lambda w: w.vector.assign([4.0, 4.0, 4.0]),
    "Field": with_new_field,
    "Set.field": with_new_field, "Field.like": lambda w: Into(w).sum_up(w.u.like("new")),
    "Set.field with a number": lambda w: Into(w).sum_up(w.cells.field("new", data=2.0)),
    "Grid.field": lambda w: ml.fill_ghosts(w.grid.field("new"), w.f),
    "Global": with_new_global,
    "Global of a vector": with_new_vector,
    "Program.__call__": lambda w: w.inner(),
    "Program.run": lambda w: (w.inner.run(3), w.u.fill(1.0)),
    "Program.run, numpy count": lambda w: w.inner.run(np.int32(2)),
    "Program.repeat": lambda w: w.inner.repeat(until=w.total > 100.0, at_most=5),
    "Program.run, never": lambda w: (w.inner.run(0), w.step()),
    "Program.__call__ with arguments": lambda w: w.scaled(w.u, w.total),
    "Program.run with arguments": lambda w: w.scaled.run(2, w.v, total=w.total),
    "Program.bind": lambda w: w.scaled.bind(w.u, w.total).run(2),
    "Operation.__call__ of a fill": lambda w: w.inner.loops[1](),
    "Matrix.fill": lambda w: (w.matrix.fill(2.0), w.matrix(w.v, w.u)),
    "Matrix.inverse_diagonal": lambda w: w.matrix.inverse_diagonal(blocks=False, into=w.v),
    "Matrix.multiply": lambda w: w.matrix.multiply(w.v, w.u), "Matrix.__call__": lambda w: w.matrix(w.v, w.u),
    "locate": lambda w: ml.locate(w.u, w.factor, w.where),
    "fill_ghosts": lambda w: (ml.fill_ghosts(w.f), add(w.grid.everything, w.f, w.g)),
    "call": lambda w: ml.program(lambda: ml.call(lambda: w.u.assign(w.u.numpy() + 1.0))).run(),
    "linalg.cg": lambda w: ml.linalg.cg(w.matrix, w.u, w.v),
    "linalg.bicgstab": lambda w: ml.linalg.bicgstab(w.matrix, w.u, w.v),
    "linalg.gmres": lambda w: ml.linalg.gmres(w.matrix, w.u, w.v),
    "linalg.line_loop": lambda w: ml.linalg.line_loop(w.grid, 1, w.line, w.f, w.f, before=halve, values=1),
    "Operation.__call__ along lines": lambda w: w.lines(),
    "linalg.tridiagonal.solve": lambda w: ml.linalg.tridiagonal.solve(w.line.matrix, w.f, w.g, 0),
    "compact.d": lambda w: ml.compact.d(w.f, 0, w.g, after=add),
    "compact.d, new field": lambda w: add(w.grid, ml.compact.d(w.f, 0), w.g),
    "compact.d, stretched": lambda w: add(w.stretched, ml.compact.d(w.h, 0), w.h),
    "compact.d2": lambda w: ml.compact.d2(w.h, 0, w.h),
    "compact.filter": lambda w: ml.compact.filter(w.f, 1, w.f),
}

#: Of a case that runs where nothing is recorded: who asks what it changes need not wait for its flow.
FEW_CELLS = {"mesh.i": 8, "mesh.j": 12, "run.iterations": 2}

#: What would happen once only.
REFUSED: dict[str, Action] = {
    "Field.numpy": lambda w: w.u.numpy(), "Field.local": lambda w: w.u.local(),
    "Field.saved": lambda w: w.u.saved(),
    "Field.rows": lambda w: w.u.rows(),
    "Field.numbered": lambda w: w.u.numbered(),
    "Field.restore": lambda w: w.u.restore(np.ones(6)),
    "Field.assign of a number, not to ghosts": lambda w: w.f.assign(2.0),
    "Global.restore": lambda w: w.vector.restore(np.arange(3.0)),
    "Field.unpacked": lambda w: w.u.unpacked(),
    "Field.check_readable": lambda w: w.u.check_readable(),
    "Field.assign": lambda w: w.u.assign(np.ones(6)),
    "Field.assign_rows": lambda w: w.u.assign_rows(np.ones((6, 1))),
    "Field.repack": lambda w: w.u.repack(np.ones((6, 1))),
    "Global.repack": lambda w: w.total.repack(np.ones((1, 1))),
    "Field.relayout": lambda w: w.pair.relayout("soa"),
    "Field.storage": lambda w: w.u.storage,
    "Field.storage set": lambda w: set_attribute(w.u, "storage", np.zeros(6)),
    "Field.move": lambda w: w.u.move(np.zeros(6)),
    "Field.__dlpack__": lambda w: np.from_dlpack(w.u),
    "Field.__dlpack_device__": lambda w: w.u.__dlpack_device__(),
    "Field.__cuda_array_interface__": lambda w: w.u.__cuda_array_interface__,
    "Set.field with data": lambda w: w.cells.field("new", data=np.arange(6.0)),
    "Global.value": lambda w: w.total.value,
    "Global.value in a decision": lambda w: w.u.fill(1.0) if w.total.value > 0 else w.v.fill(1.0),
    "Global.value set to a vector": lambda w: set_attribute(w.vector, "value", [1.0, 2.0, 3.0]),
    "Global of different values": lambda w: ml.Global([1.0, 2.0]),
    "Global.numpy": lambda w: w.total.numpy(),
    "Global.saved": lambda w: w.total.saved(),
    "Global.rows": lambda w: w.total.rows(),
    "Global.unpacked": lambda w: w.total.unpacked(),
    "Global.assign_rows": lambda w: w.vector.assign_rows(np.arange(3.0).reshape(1, 3)),
    "Global.storage": lambda w: w.total.storage,
    "Global.storage set": lambda w: set_attribute(w.total, "storage", np.zeros(1)),
    "Global.move": lambda w: w.total.move(np.zeros(1)),
    "Global.__bool__": lambda w: bool(w.total),
    "Field.__setitem__": lambda w: operator.setitem(w.u, 0, 1.0),
    "Global.__setitem__": lambda w: operator.setitem(w.total, 0, 1.0),
    "Global.__float__": lambda w: float(w.total),
    "Global.__int__": lambda w: int(w.total),
    "Grid.shaped": lambda w: w.grid.shaped(w.f),
    "Mesh": lambda w: ml.generate.box((2, 2)),
    "generate.box": lambda w: ml.generate.box((2, 2)),
    "generate.ramp": lambda w: ml.generate.ramp((2, 2, 2)),
    "generate.naca0012": lambda w: ml.generate.naca0012(20, 30),
    "generate.naca0012_ogrid": lambda w: ml.generate.naca0012_ogrid(16, 4),
    "generate.cylinder": lambda w: ml.generate.cylinder(16, 4),
    "generate.flat_plate": lambda w: ml.generate.flat_plate(8, 4),
    "generate.bump": lambda w: ml.generate.bump(6, 4),
    "generate.onera_m6": lambda w: ml.generate.onera_m6(cells=3000),
    "generate.quality": lambda w: ml.generate.quality(w.mesh),
    "Mesh.from_cells": lambda w: ml.Mesh.from_cells([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]], "triangle"),
    "Mesh.from_parts": lambda w: ml.Mesh.from_parts(
        w.mesh.nodes.points, *(m.indices for m in (w.mesh.cell_nodes, w.mesh.face_nodes, w.mesh.face_cells,
                                                   w.mesh.boundary_nodes, w.mesh.boundary_cells)), kind=w.mesh.kind),
    "Mesh.from_table": lambda w: ml.Mesh.from_table(w.mesh.coordinates.numpy(), w.mesh.lists.cells),
    "Mesh.periodic": lambda w: w.mesh.periodic({"xmin": "xmax"}), "Mesh.opened": lambda w: w.mesh.opened(),
    "Mesh.cell_distances": lambda w: w.mesh.cell_distances, "Mesh.cell_to_face": lambda w: w.mesh.cell_to_face,
    "Mesh.face_shifts": lambda w: w.mesh.face_shifts, "Mesh.arranged": lambda w: w.mesh.arranged("given"),
    "Mesh.reordered": lambda w: w.mesh.reordered("given"),
    "Mesh.digest": lambda w: w.mesh.digest,
    "Mesh.check": lambda w: w.mesh.check(),
    "Mesh.group": lambda w: w.mesh.group(next(iter(w.mesh.groups))),
    "Mesh.cell_volumes": lambda w: w.mesh.cell_volumes,
    "Mesh.cell_centroids": lambda w: w.mesh.cell_centroids,
    "Mesh.face_normals": lambda w: w.mesh.face_normals,
    "Matrix": lambda w: ml.Matrix(w.cells, through=w.ends), "Matrix.to_scipy": lambda w: w.matrix.to_scipy(),
    "Matrix.from_scipy": lambda w: ml.Matrix.from_scipy(sparse.eye(3)),
    "Matrix.assign": lambda w: w.matrix.assign(np.zeros(len(w.matrix.entries))),
    "linalg.ColoredSGS": lambda w: ml.linalg.ColoredSGS(w.matrix),
    "linalg.Poisson": lambda w: ml.linalg.Poisson(w.grid), "linalg.Multigrid": lambda w: ml.linalg.Multigrid(w.poisson),
    "linalg.FastPoisson": lambda w: ml.linalg.FastPoisson(w.poisson),
    "linalg.LineSystems": lambda w: ml.linalg.LineSystems(w.grid, 0, 0.0, 1.0, 0.0),
    "linalg.PICCG": lambda w: ml.linalg.PICCG(w.poisson),
    "Mesh.face_centres": lambda w: w.mesh.face_centres, "Mesh.boundary_centres": lambda w: w.mesh.boundary_centres,
    "Mesh.boundary_normals": lambda w: w.mesh.boundary_normals, "Mesh.boundary": lambda w: w.mesh.boundary("xmin"),
    "Mesh.wall_distance": lambda w: w.mesh.wall_distance("xmin"),
    "Kernel.python": lambda w: scale.python(w.cells, w.u, w.factor, w.total),
    "Operation.run_plainly": lambda w: w.loop.run_plainly(), "Operation.inspect": lambda w: w.loop.inspect(0),
    "Operation.apply_layout": lambda w: (
        add.loop(w.cells, w.pair.like("more"), w.pair, schedule={"layout": "soa"}).apply_layout()),
    "Program.run, recording": lambda w: w.inner.run(2, record=(w.total,)),
    "Condition.__bool__": lambda w: bool(w.total < 1.0),
    "Condition in a decision": lambda w: w.u.fill(1.0) if w.total > w.factor else w.v.fill(1.0),
    "Condition.in_memory": lambda w: (w.total < 1.0).in_memory(),
    "Condition.__and__": lambda w: (w.total < 1.0) & (w.factor < 1.0),
    "Condition.__invert__": lambda w: ~(w.total < 1.0),
    "Condition.__or__": lambda w: (w.total < 1.0) | (w.factor < 1.0),
    "Condition.__xor__": lambda w: (w.total < 1.0) ^ (w.factor < 1.0),
    **{f"Condition.{name}": (lambda w, name=name: getattr(w.total < 1.0, name)(True))
       for name in ("__rand__", "__ror__", "__rxor__")},
    "Matrix.__matmul__": lambda w: w.matrix @ w.u,
    "use": lambda w: ml.use("numpy"), "using": lambda w: ml.using("numpy").__enter__(),
    "read": lambda w: ml.read("no_such_file.msh"),
    "write": lambda w: ml.write("never_written.vtu", w.mesh, {"u": np.zeros(6)}),
    "save": lambda w: ml.save("never_written.h5", w.u), "load": lambda w: ml.load("no_such_file.h5", w.u),
    "march": lambda w: ml.march(w.inner, steps=2), "debug": lambda w: ml.debug(nan=True),
    "run_case": lambda w: ml.run_case("airfoil", FEW_CELLS), "plot": lambda w: ml.plot(w.u),
    "study": lambda w: ml.study("airfoil", {"flow.mach": [0.3, 0.4]}, FEW_CELLS),
    "Map.assign": lambda w: w.ends.assign(w.ends.indices), "Mesh.region": lambda w: w.mesh.region("left"),
}  # fmt: skip

#: What neither changes nor reads values; the same inside and outside. Plain attributes belong here by themselves.
HARMLESS: dict[str, Action] = {
    "Set": lambda w: ml.Set(3), "Program.dataflow": lambda w: (w.inner.dataflow, w.inner.dataflow.versions),
    "Map": lambda w: ml.Map(w.edges, w.cells, np.zeros((5, 1), int)),
    "Grid": lambda w: ml.Grid((4, 4)),
    "Arg": lambda w: w.u[w.ends],
    "Kernel": lambda w: ml.Kernel(halve.function),
    "kernel": lambda w: ml.kernel(halve.function),
    "Operation": lambda w: ml.Operation("again", w.loop.domain, w.loop.operands, w.loop.body, w.loop.policy),
    "Loop": lambda w: ml.Loop("again", w.lines.domain, w.lines.operands, w.lines.body, w.lines.policy),
    "Program": lambda w: ml.Program(w.step),
    "Random": lambda w: ml.Random(seed=3),
    "program": lambda w: ml.program(w.step),
    "Schedule": lambda w: ml.Schedule("atomic"),
    "Done": lambda w: ml.Done(1, 0.0, {}, "steps", None),
    "jacobian": lambda w: ml.jacobian(np.sin, 1.0),
    "backend": lambda w: ml.backend(), "backends": lambda w: ml.backends(), "threads": lambda w: ml.threads(),
    "orderings": lambda w: ml.orderings(), "strategies": lambda w: ml.strategies(),
    "partitioners": lambda w: ml.partitioners(),
    "variants": lambda w: ml.variants("owner"), "world": lambda w: ml.world,
    "Set.size": lambda w: w.cells.size, "Set.total": lambda w: w.cells.total, "Set.__len__": lambda w: len(w.cells),
    "Set.choices": lambda w: w.grid.choices, "Set.outermost": lambda w: w.edges.subset([1]).outermost,
    "Set.mine": lambda w: w.cells.mine, "Set.placement": lambda w: w.cells.placement,
    "Set.padding": lambda w: w.cells.padding, "Set.numbers": lambda w: w.cells.numbers,
    "Set.position": lambda w: w.cells.position, "Set.by_position": lambda w: w.cells.by_position(np.arange(6)),
    "Set.numbers_at": lambda w: w.cells.numbers_at(np.arange(2)),
    "Set.by_number": lambda w: w.cells.by_number(np.arange(6)), "Set.array_shape": lambda w: w.grid.array_shape,
    "Set.shows_all": lambda w: w.grid.shows_all, "Set.shown": lambda w: w.grid.shown(np.zeros((w.grid.total, 1))),
    "Set.points_of": lambda w: w.grid.points_of(np.zeros(w.grid.total)),
    "Set.with_shown": lambda w: w.cells.with_shown(np.zeros((6, 1)), lambda: np.zeros((6, 1))),
    "Set.usual_layout": lambda w: w.cells.usual_layout, "Set.layout_is_free": lambda w: w.cells.layout_is_free,
    "Map.watch": lambda w: w.ends.watch(w.loop), "Map.kept_for": lambda w: w.ends.kept_for("a test"),
    "Set.part": lambda w: w.cells.part(np.arange(2), "two"),
    **{f"Mesh.{name}": (lambda w, name=name: getattr(w.mesh, name)) for name in (
        "cell_edges", "edge_cells", "edge_nodes", "edges", "node_cells")},
    "Map.ascends": lambda w: w.ends.ascends, "Map.rows": lambda w: w.ends.rows(0, 1),
    "Map.distinct_targets": lambda w: w.ends.distinct_targets,
    "Map.indices": lambda w: w.ends.indices, "Map.arity": lambda w: w.ends.arity, "Map.digest": lambda w: w.ends.digest,
    "Map.indices_digest": lambda w: w.ends.indices_digest, "Map.index_type": lambda w: w.ends.index_type,
    "Matrix.__getitem__": lambda w: w.matrix[w.ends], "Matrix.shape": lambda w: w.matrix.shape,
    "Matrix.dtype": lambda w: w.matrix.dtype, "Matrix.diagonal": lambda w: w.matrix.diagonal,
    "linalg.ConjugateGradients": lambda w: ml.linalg.ConjugateGradients(w.matrix),
    "linalg.BiCGStab": lambda w: ml.linalg.BiCGStab(w.matrix), "linalg.GMRES": lambda w: ml.linalg.GMRES(w.matrix),
    "linalg.Dirichlet": lambda w: ml.linalg.Dirichlet(1.0), "linalg.Neumann": lambda w: ml.linalg.Neumann(1.0),
    "linalg.Report": lambda w: ml.linalg.Report(True, 0, 0.0, np.zeros(1), "for a test"),
    "Map.computed": lambda w: ml.Map.computed(w.cells, w.cells, lambda e: e),
    "Map.varying": lambda w: w.u[ml.Map.varying(w.edges, w.cells, [0, 1, 1, 3, 3, 3], [0, 5, 2])],
    "Field.shape": lambda w: w.u.shape, "Field.__getitem__": lambda w: w.u[w.ends],
    "Field.direct": lambda w: w.u.direct, "Field.watch": lambda w: w.u.watch(w.loop),
    "Global.dim": lambda w: w.vector.dim, "Global.watch": lambda w: w.total.watch(w.loop),
    "Mesh.dim": lambda w: w.mesh.dim, "Mesh.owner_first": lambda w: w.mesh.owner_first,
    "Mesh.cell_cells": lambda w: w.mesh.cell_cells, "Mesh.permutation": lambda w: w.mesh.permutation,
    "Grid.rank": lambda w: w.grid.rank, "Grid.axis": lambda w: w.grid.axis(-1), "Grid.wraps": lambda w: w.grid.wraps,
    "Grid.offsets": lambda w: w.grid.offsets((1, 0)), "Grid.star": lambda w: w.grid.star(),
    "Grid.box": lambda w: w.grid.box((0, 0), (2, 2)), "Grid.inside": lambda w: w.grid.inside,
    "Grid.everything": lambda w: w.grid.everything, "Grid.interior": lambda w: w.grid.interior(),
    "Grid.boundary": lambda w: w.grid.boundary(0, "low"), "Grid.ghost": lambda w: w.grid.ghost(0, "low"),
    "Grid.metric": lambda w: w.stretched.metric(0), "Grid.meshgrid": lambda w: w.grid.meshgrid(),
    "Grid.index_of": lambda w: w.grid.index_of(3), "Grid.index_at": lambda w: w.grid.index_at(3),
    "Grid.place_of": lambda w: w.grid.place_of((1, 1)),
    "Grid.digest": lambda w: w.grid.digest, "Grid.inner": lambda w: w.grid.inner, "Grid.axis_names": lambda w: "xyz",
    "Box.shape": lambda w: w.grid.inside.shape, "Box.size": lambda w: w.grid.inside.size,
    "Box.__len__": lambda w: len(w.grid.inside), "Box.covers_inside": lambda w: w.grid.inside.covers_inside,
    "Box.stored_low": lambda w: w.grid.inside.stored_low, "Box.stored_high": lambda w: w.grid.inside.stored_high,
    "Box.rows": lambda w: w.grid.inside.rows(), "Box.reaches_out": lambda w: w.grid.inside.reaches_out(0, 1),
    "Box.touched": lambda w: w.grid.inside.touched([(0, 0)]),
    "Kernel.counts": lambda w: scale.counts(w.cells, w.u, w.factor, w.total).flops,
    "Kernel.state": lambda w: scale.state, "Kernel.trace": lambda w: scale.trace(w.loop.params),
    "Kernel.outputs": lambda w: scale.outputs(w.loop.params, strict=False),
    **{f"Program.{name}": (lambda w, name=name: getattr(w.inner, name)) for name in (
        "fused_steps", "graph", "launches", "layouts", "loops", "operations", "parameters", "segments",
        "called_functions")},
    "Program.explain": lambda w: w.inner.explain(),
    "Program.explain with arguments": lambda w: w.scaled.explain(w.u, w.total),
    "Program.steps": lambda w: w.inner.steps,
    "Program.timed": lambda w: w.inner.timed(), "Program.past_times": lambda w: w.inner.past_times(),
    "Program.bind, not run": lambda w: w.scaled.bind(w.u, w.total).loops,
    **{f"Global.{name}": (lambda w, name=name: getattr(w.total, name)(1.0)) for name in ("__lt__", "__le__", "__gt__",
                                                                                          "__ge__")},
    "Condition.globals": lambda w: (w.total < w.factor).globals,
    "Condition.known_by": lambda w: ((w.total < w.factor).known_by, (w.total < 1.0).known_by),
    **{f"{kind}.{name}": (lambda w, find=find, name=name: getattr(find(w), name)) for name in ("version", "changed")
       for kind, find in (("Field", lambda w: w.u), ("Global", lambda w: w.total))},
    "linalg.LineLoop": lambda w: ml.linalg.LineLoop(w.grid, 1, w.line, w.f, w.g),
    "linalg.LineOperator": lambda w: ml.linalg.LineOperator(w.line.matrix),
    "linalg.LineStencil": lambda w: ml.linalg.LineStencil({0: 1.0}),
    "linalg.Stencil": lambda w: ml.linalg.Stencil({0: 1.0}),
    "linalg.Tridiagonal": lambda w: ml.linalg.Tridiagonal(0.0, 1.0, 0.0),
    "linalg.tridiagonal.methods": lambda w: ml.linalg.tridiagonal.methods(),
    "compact.metric": lambda w: ml.compact.metric(w.stretched, 0),
    "compact.operator": lambda w: ml.compact.operator(ml.compact.LELE6, w.grid, 0),
    "__repr__": lambda w: [*map(repr, (w.cells, w.ends, w.u, w.total, w.mesh, w.grid, w.kernel, w.inner, w.lines))],
}  # fmt: skip

#: Operators read values, compare or change what cannot be changed so: whatever they do, not inside a program.
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
REFUSED |= {
    f"{kind}.{method}": (lambda w, kind=kind, method=method: getattr(w.u if kind == "Field" else w.total, method)(1.0))
    for kind in ("Field", "Global")
    for method in (*(f"__{side}{op}__" for op in BINARY for side in ("", "r", "i")),
                   *(("__lt__", "__le__", "__gt__", "__ge__") if kind == "Field" else ()))
} | {
    f"{kind}.{method}": (lambda w, kind=kind, method=method: getattr(w.u if kind == "Field" else w.total, method)())
    for kind in ("Field", "Global")
    for method in ("__abs__", "__neg__", "__pos__", "__bool__", "__iter__", "__array__")
}  # fmt: skip
REFUSED |= {
    "Field.memory": lambda w: w.u.memory(), "Field.view": lambda w: w.u.view(), "Field.copy": lambda w: w.u.copy("v"),
    "Field that wraps": lambda w: w.cells.field("new", wrap=np.zeros(6)),
    "Field.sum by NumPy": lambda w: np.sum(w.u), "Field.max along an axis": lambda w: w.u.max(axis=0),
    "Operation.reschedule": lambda w: w.loop.reschedule("color"),
}
NOUNS: dict[str, Action] = {
    "Set": lambda w: w.cells, "Map": lambda w: w.ends, "Mesh": lambda w: w.mesh, "Grid": lambda w: w.grid,
    "Box": lambda w: w.grid.inside, "Field": lambda w: w.u, "Global": lambda w: w.total, "Operation": lambda w: w.loop,
    "Program": lambda w: w.inner, "Matrix": lambda w: w.matrix,
}
REFUSED |= {f"{kind}.__reduce_ex__": (lambda w, find=find: pickle.dumps(find(w))) for kind, find in NOUNS.items()}
for kind, find in NOUNS.items():
    if kind not in ("Operation", "Program", "Matrix"):
        table = REFUSED if kind in ("Field", "Global") else HARMLESS
        table[f"{kind}.__copy__"] = lambda w, find=find: copy.copy(find(w))
        table[f"{kind}.__deepcopy__"] = lambda w, find=find: copy.deepcopy(find(w))
HARMLESS["Kernel.__reduce__"] = lambda w: copy.deepcopy(w.kernel)
HARMLESS |= {
    "Field.__len__": lambda w: len(w.u),
    "Field.check_visible": lambda w: w.u.check_visible(),
    "Global.check_visible": lambda w: w.total.check_visible(),
    "Field.check_movable": lambda w: w.u.check_movable(), "Global.check_movable": lambda w: w.total.check_movable(),
    "Field.placement": lambda w: w.u.placement(), "Global.placement": lambda w: w.total.placement(),
    "Field.put_back": lambda w: w.u.put_back(w.u.placement()),
    "Global.put_back": lambda w: w.total.put_back(w.total.placement()),
    "Mesh.cell_group": lambda w: list(w.mesh.cell_groups),
    "Subset": lambda w: ml.Subset(w.cells, np.array([1, 2]), "some"), "Set.subset": lambda w: w.cells.subset([1, 2]),
    "Set.of": lambda w: w.mesh.cells.of("quad"),
    "Subset.members_of": lambda w: w.cells.subset([1, 2]).members_of(w.cells),
    "Subset.restricted": lambda w: w.edges.subset([1, 2]).restricted(w.ends),
    "Operation.source": lambda w: None if ml.backend() == "numpy" else w.loop.source,  # which has no text
}
#: Every question about an operation, whatever it runs over.
OPERATIONS: dict[str, Action] = {
    "of a loop": lambda w: w.loop, "along lines": lambda w: w.lines, "of a fill": lambda w: w.inner.loops[1]
}
ASKED: dict[str, Callable[[Any, World], Any]] = {
    **{name: (lambda o, w, name=name: getattr(o, name)) for name in (
        "applies", "box", "calls", "candidates", "chosen", "chunking", "composed", "compulsory", "content", "counts",
        "elements", "estimate", "flops", "graph", "kernels", "limit", "maps", "maps_and_offsets", "over", "params",
        "parts", "plan", "policy", "reads", "reason", "schedule", "seconds", "set", "shared_cache", "spec", "spent",
        "storages", "strict", "temporary_fields", "uncut", "wish", "work", "writes", "written")},
    "explain": lambda o, w: o.explain(), "prepare": lambda o, w: o.prepare(),
    "ready": lambda o, w: o.ready(), "refresh": lambda o, w: o.refresh(),
    "begin_to_prepare": lambda o, w: o.begin_to_prepare(),
    "on": lambda o, w: o.on(o.backend),
    "needs": lambda o, w: o.needs(w.u), "defines": lambda o, w: o.defines(w.v), "by": lambda o, w: o.by(None),
    "cache_of": lambda o, w: o.cache_of("spec"), "plan_of": lambda o, w: o.plan_of(o.schedule),
    "limit_by": lambda o, w: o.limit_by(Peaks(1e9)), "layout_of": lambda o, w: o.layout_of(w.u),
    "check_temporaries": lambda o, w: o.check_temporaries(),
    "as_written": lambda o, w: o.as_written(), "can_run": lambda o, w: o.can_run("color"),
}  # fmt: skip
HARMLESS |= {
    f"Operation.{name} {which}": (lambda w, ask=ask, find=find: ask(find(w), w))
    for which, find in OPERATIONS.items() for name, ask in ASKED.items()
    if which == "of a loop" or name not in ("by", "counts", "uncut", "work")  # which only elements have
}  # fmt: skip
#: Names that are no calls: modes, modules, errors.
NOT_CALLED = {"Inc", "Max", "Min", "Read", "ReadWrite", "Sum", "Write", "compact", "errors", "generate", "linalg"}
#: Defined by Python or by dataclasses for every object; repr is tested for all at once.
USUAL = {"__new__", "__init__", "__init_subclass__", "__repr__", "__eq__", "__hash__", "__str__", "__setattr__",
         "__delattr__", "__replace__", "__getstate__", "__setstate__"}  # fmt: skip
CLASSES = (ml.Set, ml.Subset, ml.Map, ml.Matrix, ml.Field, ml.Global, ml.Mesh, ml.Grid, Box, ml.Kernel,
           ml.Operation, ml.Program, Condition)  # fmt: skip
#: What others may add to make fields arrays: it reads values, so it is refused wherever it exists.
ARRAYS = {f"{kind}.{name}" for kind in ("Field", "Global") for name in ("__array_ufunc__",
          "__array_function__", "__array_priority__", "__complex__", "__index__")}  # fmt: skip


def members(kind: type) -> Iterator[str]:
    """Public methods and properties of a class, and special methods that it defines itself."""
    own = [c for c in kind.__mro__ if c.__module__.startswith("meshloom")]
    for name in sorted({n for c in own for n in vars(c)}):
        value = inspect.getattr_static(kind, name)
        dunder = name.startswith("__") and name.endswith("__")
        special = dunder and (callable(getattr(kind, name, None)) or isinstance(value, property))
        if (special and name not in USUAL) or not name.startswith("_"):
            yield name


def public() -> Iterator[str]:
    """Every public name that can be called or read, as it stands in the table."""
    yield from (name for name in ml.__all__ if name not in NOT_CALLED)
    for kind in CLASSES:
        yield from (f"{kind.__name__}.{name}" for name in members(kind))
    yield from (f"linalg.{name}" for name in ml.linalg.__all__ if name != "tridiagonal")
    yield from (f"linalg.tridiagonal.{n}" for n, f in vars(ml.linalg.tridiagonal).items()
                if inspect.isfunction(f) and f.__module__ == ml.linalg.tridiagonal.__name__)  # fmt: skip
    yield from (f"generate.{name}" for name in ml.generate.__all__)
    yield from (f"compact.{n}" for n in ("d", "d2", "filter", "metric", "operator"))


def plain_attribute(name: str) -> bool:
    """Data of a class, such as a default or what its instances hold, that is no call and reads no values."""
    kind, _, member = name.partition(".")
    value = next((inspect.getattr_static(c, member, None) for c in CLASSES if c.__name__ == kind), None)
    return isinstance(value, str | bool | int | float | tuple | MemberDescriptorType | None) and bool(member)


def test_every_public_name_has_a_category() -> None:
    categories = {name.split(" ")[0].rstrip(",") for table in (RECORDED, REFUSED, HARMLESS) for name in table}
    inherited = {f"{kind}.{name.partition('.')[2]}" for name in categories if name.startswith("Set.")
                 for kind in ("Grid", "Subset")}  # fmt: skip
    known = categories | inherited | ARRAYS
    missing = [name for name in public() if name not in known and not plain_attribute(name)]
    assert not missing, f"recorded, refused or harmless inside a program? {missing}"
    assert len(list(public())) > 150


@pytest.fixture(params=BACK_ENDS)
def back_end(request: pytest.FixtureRequest) -> None:
    ml.use(request.param)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_equals_called(name: str, back_end: None) -> None:
    called, recorded = World(), World()
    for _ in range(2):
        RECORDED[name](called)
    program = ml.program(lambda: RECORDED[name](recorded))
    program.loops  # noqa: B018 - recording alone changes nothing
    for before, now in zip(World().values(), recorded.values(), strict=True):
        np.testing.assert_array_equal(now, before)
    program.run(2)
    changed = False
    for a, b, before in zip(called.values(), recorded.values(), World().values(), strict=True):
        np.testing.assert_array_equal(b, a)
        changed |= not np.array_equal(a, before)
    assert changed, "nothing happens here, so nothing is compared"


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line_and_nothing_happened(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    monkeypatch.chdir(tmp_path)
    world = World()

    def body() -> None:
        REFUSED[name](world)
        world.step()

    program = ml.program(body)
    with pytest.raises(MeshloomError) as caught:
        program.run()
    assert "\n" not in str(caught.value) and len(str(caught.value)) > 40
    assert recorder.get() is None and ml.backend() == "numpy" and not list(tmp_path.iterdir())
    for before, now in zip(World().values(), world.values(), strict=True):
        np.testing.assert_array_equal(now, before)
    assert str(world.pair.layout) == "aos"
    with pytest.raises(MeshloomError):  # nothing half-recorded is left to be replayed
        program.run()


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_things_leave_no_trace(name: str) -> None:
    ml.use("cpu")
    world = World()
    world.step()
    world.loop()
    before = world.values()

    def body() -> None:
        HARMLESS[name](world)
        world.v.fill(1.0)

    assert [o.name for o in ml.program(body).loops] == ["v = 1"]
    for a, b in zip(world.values(), before, strict=True):
        np.testing.assert_array_equal(a, b)
