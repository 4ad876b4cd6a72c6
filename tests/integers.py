"""Every whole number that a person gives and that becomes one of C, driven with good and bad values.

``python -m tests.integers GROUP``, in a process of its own because the failures it looks for end a process: for each
number and value it prints a line, ``ok`` (it worked and gave the right answer), ``refused`` (one line from
``meshloom.errors``) or ``BAD`` with what happened instead.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import meshloom as ml
import tests.conftest  # noqa: F401 - registers the back end "emulated" where the package does not
from meshloom import linalg
from meshloom.errors import MeshloomError
from meshloom.mesh.layout import Layout
from meshloom.native import algorithms, runtime
from meshloom.order import follow, order_elements, order_targets
from meshloom.schedule.lines.spec import TUNING

VALUES: tuple[Any, ...] = (
    0, -1, 1, 4, np.int64(4), np.uint8(4), 1.5, 4.0, True, np.True_, "8", b"8", "", None, float("nan"), float("inf"),
    [4], 2**31 - 1, 2**31, 2**32 + 1, 2**63 - 1, 2**63, 2**64, 2**64 + 4, -(2**31), -(2**63), 10**30,
    np.uint64(2**64 - 1), 1j,
)  # fmt: skip
MORE: dict[str, tuple[Any, ...]] = {"cpu": (33, 2**24, 2**24 + 1), "lines": (2, 3, 16, 33, 255, 1000, 1024)}
NONE_IS_NOTHING = ("registers", "vector", "shared", "threads", "layout", "follow", "decimals", "values", "block")
MEMORY = 12 * 2**30  # bytes that the process may have: asking for more must be one line, too

Drive = Callable[[Any], object]


def _field(size: Any, **options: Any) -> None:
    field = ml.Set(size, "cells").field("u", **options)
    assert field.storage.size >= len(field) * field.dim


def _dim(dim: Any) -> None:
    field = ml.Set(3).field("u", dim)
    assert field.numpy().reshape(3, -1).shape == (3, int(np.prod(dim)))


def _layout(width: Any) -> None:
    field = ml.Set(3).field("u", 2, data=np.arange(6.0).reshape(3, 2), layout=f"aosoa{width}")
    assert (field.numpy() == np.arange(6.0).reshape(3, 2)).all()


def _layout_object(width: Any) -> None:
    _layout(Layout("aosoa", width).width)


def _map_into(size: Any) -> None:
    """The last element, in 32 bits."""
    target = ml.Set(size, "target")
    ends = ml.Map(ml.Set(1), target, [[len(target) - 1]], "ends", dtype="int32")
    assert ends.indices[0, 0] == len(target) - 1


def _map_index(index: Any) -> None:
    assert ml.Map(ml.Set(1), ml.Set(5), [[index]]).indices[0, 0] == index


def _grid(**options: Any) -> ml.Grid:
    return ml.Grid(**({"shape": (6, 5), "periodic": True} | options))


def _star(radius: Any) -> None:
    grid = _grid()
    assert grid.star(radius).arity == 1 + 4 * radius


@ml.kernel
def add(u: ml.Read, out: ml.Inc, total: ml.Sum):
    out[0] += u[0] + 2.0 * u[1]
    out[1] -= u[1]
    total += u[0]


N = 40
ENDS = np.stack([np.arange(N), (np.arange(N) + 7) % N], axis=1)


def _scheduled(**schedule: Any) -> None:
    """A loop whose elements meet, compared with NumPy."""
    edges, nodes = ml.Set(N, "edges"), ml.Set(N, "nodes")
    ends, values = ml.Map(edges, nodes, ENDS, "ends"), np.random.default_rng(1).random((N, 2))
    u, out, total = nodes.field("u", 2, data=values), nodes.field("out", 2), ml.Global([0.0, 0.0], "total")
    loop = add.loop(edges, u[ends], out[ends], total, schedule=schedule)
    if not loop.applies:
        return
    loop()
    expected = np.zeros((N, 2))
    np.add.at(expected, ENDS[:, 0], values[ENDS[:, 0]] + 2.0 * values[ENDS[:, 1]])
    np.add.at(expected, ENDS[:, 1], -values[ENDS[:, 1]])
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-13)
    np.testing.assert_allclose(total.numpy(), values.sum(axis=0), rtol=1e-13)


def _lines(**options: Any) -> None:
    """A solve along lines, compared with NumPy."""
    grid = ml.Grid((40, 3), periodic=(True, False))
    f, y = grid.field("f", data=np.random.default_rng(2).random((40, 3))), grid.field("y")
    operator = linalg.LineOperator(linalg.Tridiagonal(1.0, 4.0, 1.0, periodic=True))
    linalg.LineLoop(grid, options.pop("axis", 0), operator, f, y, **options)()
    matrix = 4.0 * np.eye(40) + np.roll(np.eye(40), 1, 0) + np.roll(np.eye(40), -1, 0)
    np.testing.assert_allclose(grid.shaped(y), np.linalg.solve(matrix, grid.shaped(f)), rtol=1e-12)


def _threads(count: Any) -> None:
    before = ml.threads()
    try:
        ml.use("cpu", threads=count)
        _scheduled(strategy="block_color", block=3)
    finally:
        ml.use("cpu", threads=before)


def _permutation(order: np.ndarray) -> None:
    assert sorted(order.tolist()) == list(range(N))


def _colors(n_targets: Any) -> None:
    assert algorithms.color_elements([ENDS], [n_targets]).shape == (N,)


def _bandwidth(**options: Any) -> None:
    assert runtime.copy_bandwidth(**({"threads": 1, "megabytes": 1} | options)) > 0


def _airfoil(i: Any = 4, j: Any = 3, **options: Any) -> None:
    assert len(ml.generate.naca0012(i, j, **options).cells) == 3 * i * j


def _box(n: Any) -> None:
    assert len(ml.generate.box((n, 2)).cells) == 2 * n


def _repeated(at_most: Any) -> None:
    one, total = ml.Set(3).field("u"), ml.Global(0.0)
    program = ml.program(lambda: (one.fill(1.0), setattr(total, "value", 1.0)))
    assert program.repeat(until=total > 0.0, at_most=at_most) == 1


def data_numbers() -> dict[str, Drive]:
    """Sizes and places of sets, fields, maps, grids and meshes."""
    mesh = ml.generate.box((4, 4))
    return {
        "set size": lambda v: ml.Set(v, "cells"),
        "set halo": lambda v: ml.Set(3, "cells", halo=v),
        "field size": _field,
        "numbers": lambda v: ml.Set(v, "cells").numbers,
        "field size, many components": lambda v: _field(v, dim=60000),
        "dim": _dim,
        "at_most": _repeated,
        "components": lambda v: _dim((2, v)),
        "layout": _layout,
        "Layout": _layout_object,
        "map target size": _map_into,
        "map index": _map_index,
        "grid shape": lambda v: ml.Grid((v,)).field("u"),
        "grid shapes": lambda v: ml.Grid((2, v, v)).field("u"),
        "grid ghosts": lambda v: _grid(ghosts=v).field("u"),
        "star": _star,
        "interior": lambda v: _grid(periodic=False).interior(v),
        "boundary": lambda v: _grid().boundary(0, "low", v),
        "box": lambda v: _grid(ghosts=1).box((0, 0), (v, 1)),
        "axis": lambda v: _grid().axis(v),
        "metric": lambda v: _grid().metric(v),
        "index_of": lambda v: _grid().index_of(v),
        "index_at": lambda v: _grid(ghosts=1).index_at(v),
        "offsets": lambda v: _grid().offsets((v, 0)),
        "naca0012 i": lambda v: _airfoil(i=v),
        "naca0012 j": lambda v: _airfoil(j=v),
        "decimals": lambda v: _airfoil(decimals=v),
        "box shape": _box,
        "ramp shape": lambda v: ml.generate.ramp((v, 1, 1)),
        "arranged block": lambda v: mesh.arranged("rcb", block=v),
        "arranged seed": lambda v: mesh.arranged("random", seed=v),
        "reordered block": lambda v: mesh.reordered("greedy", block=v),
        "halo of a mesh": lambda v: ml.Mesh.from_parts(
            mesh.coordinates, mesh.cell_nodes.indices, mesh.face_nodes.indices, mesh.face_cells.indices,
            mesh.boundary_nodes.indices, mesh.boundary_cells.indices, kind="quad", halo={"cells": v}),
    }  # fmt: skip


def order_numbers() -> dict[str, Drive]:
    """Numbers of orderings and native algorithms."""
    points = np.random.default_rng(3).random((N, 2))
    offsets = np.arange(0, N + 1, 8)
    return {
        **{f"{name} block": lambda v, name=name: _permutation(order_elements(name, ENDS, N, points=points, block=v))
           for name in ("rcb", "greedy", "rcm", "given")},
        **{f"{name} seed": lambda v, name=name: _permutation(order_targets(name, ENDS, N, points=points, seed=v))
           for name in ("random", "greedy")},
        "order n_targets": lambda v: order_elements("rcm", ENDS, v),
        "follow": lambda v: _permutation(follow(np.arange(N), ENDS, N, block=v)),
        "follow n_targets": lambda v: follow(np.arange(N), ENDS, v),
        "incidence": lambda v: algorithms.incidence(ENDS, v),
        "grow_blocks block": lambda v: _permutation(algorithms.grow_blocks(ENDS, N, v, np.arange(N))),
        "color_elements": _colors,
        "lines_touched row": lambda v: algorithms.lines_touched(ENDS, N, np.arange(N), offsets, row=v, line=64),
        "lines_touched line": lambda v: algorithms.lines_touched(ENDS, N, np.arange(N), offsets, row=8, line=v),
        "element in an order": lambda v: algorithms.color_blocks([0, 1], [v], [ENDS], [N]),
        "block offset": lambda v: algorithms.color_blocks([0, v], np.arange(4), [ENDS], [N]),
        "bandwidth threads": lambda v: _bandwidth(threads=v),
        "bandwidth megabytes": lambda v: _bandwidth(megabytes=v),
    }  # fmt: skip


def line_numbers() -> dict[str, Drive]:
    """Numbers of line loops."""
    tuned = (*TUNING, "levels", "nonsense")
    return {
        "line values": lambda v: _lines(values=v),
        "line axis": lambda v: _lines(axis=v),
        **{f"line {key}": partial(lambda v, key: _lines(tuning={key: v}), key=key) for key in tuned},
    }


def schedule_numbers(backend: str) -> dict[str, Drive]:
    """Numbers of schedules, on one back end."""
    strategies = [s for s in ml.strategies() if s not in ("direct", "box")]
    names = strategies if backend == "cpu" else ["atomic", "tile", "owner"]
    return {
        **{f"{name} block": partial(lambda v, name: _scheduled(strategy=name, block=v), name=name) for name in names},
        "ordered block": lambda v: _scheduled(strategy="block_color", order="greedy", block=v),
        "registers": lambda v: _scheduled(strategy="atomic", registers=v),
        "vector": lambda v: _scheduled(strategy="atomic", vector=v),
        "shared": lambda v: _scheduled(strategy="tile", block=4, shared=v),
        "layout": lambda v: _scheduled(strategy="color", layout=f"aosoa{v}"),
        **({"threads": _threads} if backend == "cpu" else {}),
    }  # fmt: skip


def outcome(name: str, drive: Drive, value: Any) -> str:
    """What came of it, in one line."""
    try:
        drive(value)
    except MeshloomError as error:
        text = str(error)
        return "refused" if text.isprintable() and len(text) < 400 else f"BAD message {text!r}"
    except BaseException as error:
        return f"BAD {type(error).__name__}: {' '.join(str(error).split())[:120]}"
    if value is True and name in ("line shared", "line pair", "line exchange", "line transposed"):
        return "ok"
    if isinstance(value, list) and name == "dim":  # the shape of components
        return "ok"
    if isinstance(value, float | str | bytes | bool | np.bool_ | complex | list) and not name.endswith("layout"):
        return "BAD taken for a whole number"
    return "BAD taken for a whole number" if value is None and not name.endswith(NONE_IS_NOTHING) else "ok"


def main(group: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    ml.use("emulated" if group in ("emulated", "lines") else "cpu")
    tables = {"data": data_numbers, "order": order_numbers, "lines": line_numbers}
    for name, drive in tables.get(group, partial(schedule_numbers, group))().items():
        for value in (*VALUES, *MORE.get(group, ())):
            print(f"{name} = {value!r}:", end=" ", flush=True)
            print(outcome(name, drive, value), flush=True)
    print("all done")


if __name__ == "__main__":
    main(sys.argv[1])
