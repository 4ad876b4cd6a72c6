"""Whatever several Python threads call at once is right: on data of their own, and where they share one object.

The work of each thread has a result that is known from doing it alone. Objects with work space are found by looking for
methods that say so (``exclusion.exclusive``): one that is not tried here is a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.linalg.colored_sgs import ColoredSGS
from meshloom.linalg.gmres import GMRES
from meshloom.linalg.krylov import BiCGStab, ConjugateGradients
from meshloom.mesh.reduced import Reduced
from tests.at_once import THREADS, at_once

TURNS, N = 2, 6
Work = Callable[[int], np.ndarray]


@ml.kernel
def halve(u: ml.Read, t: ml.Write):
    t[...] = 0.5 * u


@ml.kernel
def shift(t: ml.Read, by: ml.Read, v: ml.Write):
    v[...] = t + by


@ml.kernel
def greatest(u: ml.Read, most: ml.Max):
    most[...] = u


@ml.kernel
def add(number: ml.Read, total: ml.ReadWrite):
    total += number


# --- data of their own ------------------------------------------------------------------------------------------------


def own_data() -> dict[str, Work]:
    """Operations on fields of each thread's own; sets and grids are shared."""
    numbers = np.random.default_rng(1)
    grid = ml.Grid((N, N), periodic=False, coordinates=[np.linspace(0.0, 1.0, N) ** 1.2, np.linspace(0.0, 1.0, N)],
                   ghosts=1)  # fmt: skip
    cells = ml.Set(300, "cells")
    on_grid = [grid.field(f"u{k}", data=numbers.normal(size=(N, N))) for k in range(THREADS)]
    on_set = [cells.field(f"w{k}", 2, data=numbers.normal(size=(300, 2))) for k in range(THREADS)]
    out = [one.like("out") for one in on_grid]
    half, shifted = [one.like("half") for one in on_set], [one.like("shifted") for one in on_set]

    def reduced(name: str) -> Work:
        others = {"dot": lambda k: (on_set[k],)}.get(name, lambda k: ())
        return lambda k: getattr(on_set[k], name)(*others(k)).numpy()

    def along(what: Callable[..., Any], **options: Any) -> Work:
        return lambda k: (what(on_grid[k], 0, out[k], **options), out[k].numpy())[1]

    def loops(k: int) -> np.ndarray:
        halve(cells, on_set[k], half[k])
        shift(cells, half[k], float(k), shifted[k])
        return shifted[k].numpy()

    def ghosts(k: int) -> np.ndarray:
        ml.fill_ghosts(on_grid[k])
        return np.asarray(on_grid[k].saved())

    def place(k: int) -> np.ndarray:
        where, wanted = ml.Global(0, dtype=np.int64), on_grid[k].max()
        ml.locate(on_grid[k], wanted, where)
        return where.numpy()

    reductions = [name for name in vars(Reduced) if not name.startswith("_")]
    return {
        **{name: reduced(name) for name in reductions},
        "d": along(ml.compact.d), "d by thomas": along(ml.compact.d, method="thomas"),
        "d2": along(ml.compact.d2), "loops": loops, "ghosts": ghosts, "locate": place,
    }  # fmt: skip


def test_threads_with_compiled_loops_reductions_and_programs_get_what_each_gets_alone() -> None:
    ml.use("cpu")
    cells = ml.Set(30, "cells")
    fields = [[cells.field(name, data=np.arange(30.0) + k) for name in "uv"] for k in range(THREADS)]
    both = ml.program(lambda u, v: halve(cells, u, v))

    def work(k: int) -> np.ndarray:
        u, v = fields[k]
        both(u, v)
        shift(cells, u, float(k), v)
        return np.append(v.numpy(), v.sum().value)

    alone = [work(k) for k in range(THREADS)]
    for k, found in enumerate(at_once(work, 10)):
        assert all(np.array_equal(one, alone[k]) for one in found)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cpu", marks=pytest.mark.slow),
                                     pytest.param("emulated", marks=pytest.mark.slow),
                                     pytest.param("cuda", marks=pytest.mark.gpu)])  # fmt: skip
def test_threads_with_data_of_their_own_get_what_each_gets_alone(backend: str) -> None:
    ml.use(backend)
    for name, work in own_data().items():
        alone = [work(k) for k in range(THREADS)]
        for k, found in enumerate(at_once(work, 20 if name in vars(Reduced) else TURNS)):
            assert all(np.array_equal(one, alone[k]) for one in found), (backend, name)


# --- files ------------------------------------------------------------------------------------------------------------


def own_files(folder: Path) -> dict[str, Work]:
    """What leaves files, each thread at a place of its own; meshes, sets and kernels are shared."""
    mesh = ml.generate.box((4, 3))

    def values(k: int) -> ml.Field:
        return mesh.cells.field("u", data=np.arange(12.0) + k)

    def march(k: int) -> np.ndarray:
        u = values(k)
        history = marched(u, folder / f"run{k}").history["largest"]
        rows = np.loadtxt(folder / f"run{k}" / "monitors.csv", delimiter=",", skiprows=1)
        return np.concatenate([u.numpy(), history, rows.ravel()])

    def save(k: int) -> np.ndarray:
        loaded = mesh.cells.field("loaded")
        ml.save(folder / f"state{k}.h5", u=values(k))
        ml.load(folder / f"state{k}.h5", u=loaded)
        return loaded.numpy()

    def write(k: int) -> np.ndarray:
        ml.write(folder / f"mesh{k}.vtu", mesh, {"u": values(k)}, overwrite=True)
        return np.fromfile(folder / f"mesh{k}.vtu", np.uint8)

    def picture(k: int) -> np.ndarray:
        ml.plot(values(k), save=folder / f"{k}.png")
        return np.fromfile(folder / f"{k}.png", np.uint8)

    return {"march": march, "save": save, "write": write, "picture": picture}


def marched(u: ml.Field, out: Path) -> Any:
    """Six steps of a program of its own, with checkpoints."""
    largest = ml.Global(0.0, "largest")

    @ml.program
    def advance() -> None:
        add(u.set, 0.5, u)
        greatest(u.set, u, largest)

    return ml.march(advance, steps=6, show=largest, out=out, overwrite=True, checkpoint_every=2, progress=False)


@pytest.mark.parametrize("name", ["march", "save", "write", pytest.param("picture", marks=pytest.mark.slow)])
def test_threads_that_leave_files_of_their_own_leave_what_each_leaves_alone(name: str, tmp_path: Path) -> None:
    ml.use("numpy")
    work = own_files(tmp_path)[name]
    alone = [work(k) for k in range(THREADS)]
    for k, found in enumerate(at_once(work)):
        assert all(np.array_equal(one, alone[k]) for one in found), name


def test_one_folder_is_of_one_march_at_a_time_and_one_file_is_written_whole(tmp_path: Path) -> None:
    ml.use("numpy")
    cells = ml.Set(2000, "cells")

    def march(k: int) -> str:
        try:
            marched(cells.field("u", data=float(k)), tmp_path / "run")
        except ml.errors.UserError as error:
            return str(error)
        return ""

    def save(k: int) -> np.ndarray:
        loaded = cells.field("loaded")
        ml.save(tmp_path / "state.h5", u=cells.field("u", data=float(k)))
        ml.load(tmp_path / "state.h5", u=loaded)
        return np.unique(loaded.numpy())

    said = [text for texts in at_once(march) for text in texts]
    assert "" in said and {text for text in said if text} <= {
        f"{tmp_path}/run is being written by another run; wait for it or take another folder"
    }
    assert (tmp_path / "run" / "monitors.csv").read_text().count("\n") == 7
    assert all(len(one) == 1 for found in at_once(save) for one in found)


# --- one object for all -----------------------------------------------------------------------------------------------


def shared_objects() -> dict[str, tuple[type, Work]]:
    """Every class with work space, and what threads do with one object of it; each has its own x and b."""
    numbers = np.random.default_rng(2)
    grid = ml.Grid((N, N), periodic=False)
    poisson = ml.linalg.Poisson(grid, "dirichlet", "dirichlet")
    with_ghosts = ml.Grid((N, N), periodic=False, ghosts=1)
    beyond = ml.linalg.Poisson(with_ghosts, "dirichlet", "dirichlet")
    matrix = ml.Matrix.from_scipy(poisson.to_scipy())
    places: dict[Any, list[tuple[ml.Field, ml.Field]]] = {}
    for on, shape in ((grid, (N, N)), (with_ghosts, (N, N)), (matrix.rows, (N * N,))):
        places[on] = [(on.field("x"), on.field("b", data=numbers.normal(size=shape))) for _ in range(THREADS)]

    def solving(solver: Any, on: Any) -> Work:
        def solve(k: int) -> np.ndarray:
            x, b = places[on][k]
            x.fill(0.0)
            assert solver.solve(x, b).converged
            return x.numpy()

        return solve

    def applied(operator: Any, on: Any) -> Work:
        def apply(k: int) -> np.ndarray:
            x, b = places[on][k]
            operator(b, x)
            return x.numpy()

        return apply

    multigrid, sgs = ml.linalg.Multigrid(poisson), ColoredSGS(matrix)
    between, before = grid.field("between", temporary=True), grid.field("before")

    @ml.program
    def shared_room(u: Any, v: Any) -> None:
        halve(grid, u, between)
        shift(grid, between, 1.0, v)

    def smooth(u: Any, v: Any) -> None:
        multigrid(u, before)
        shift(grid, before, 0.0, v)

    smooths = [ml.program(smooth) for _ in range(THREADS)]  # of each its own, and all have the same work space
    total = ml.Global(0.0, "total")
    counted = ml.program(lambda: (total.assign(1.0), ml.call(lambda: total.assign(total.value + 1.0))))

    def rounds(_: int) -> np.ndarray:
        return counted.run(1, record=(total,))

    return {
        "cg": (ConjugateGradients, solving(ConjugateGradients(poisson), grid)),
        "bicgstab": (BiCGStab, solving(BiCGStab(poisson), grid)),
        "gmres": (GMRES, solving(GMRES(matrix, preconditioner="lu_sgs"), matrix.rows)),
        "multigrid": (ml.linalg.Multigrid, solving(multigrid, grid)),
        "a cycle": (ml.linalg.Multigrid, applied(multigrid, grid)),
        "cycles alone": (type(ml.linalg.Multigrid(poisson, accelerated=False)._solver),
                         solving(ml.linalg.Multigrid(poisson, accelerated=False), grid)),
        "fast_poisson": (ml.linalg.FastPoisson, solving(ml.linalg.FastPoisson(beyond), with_ghosts)),
        "piccg": (ml.linalg.PICCG, solving(ml.linalg.PICCG(poisson), grid)),
        "piccg by rows": (ml.linalg.PICCG, applied(ml.linalg.PICCG(poisson, fill=1), grid)),
        "poisson": (ml.linalg.Poisson, applied(beyond, with_ghosts)),
        "sgs": (ColoredSGS, applied(sgs, matrix.rows)),
        "program": (ml.Program, applied(shared_room, grid)),
        "programs of one cycle": (ml.Program, lambda k: applied(smooths[k], grid)(k)),
        "program with calls": (ml.Program, rounds),
    }  # fmt: skip


def classes_with_work_space() -> set[type]:
    """Those whose methods are ``exclusive``, among what the package has loaded."""
    found = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("meshloom."):
            for one in vars(module).values():
                if isinstance(one, type) and one.__module__.startswith("meshloom.") and any(
                    getattr(method, "exclusive", False) for method in vars(one).values()
                ):  # fmt: skip
                    found.add(one)
    return found


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cpu", marks=pytest.mark.slow),
                                     pytest.param("emulated", marks=pytest.mark.slow),
                                     pytest.param("cuda", marks=pytest.mark.gpu)])  # fmt: skip
def test_an_object_that_threads_share_gives_each_what_it_gets_alone(backend: str) -> None:
    ml.use(backend)
    for name, (_, work) in shared_objects().items():
        alone = [work(k) for k in range(THREADS)]
        for k, found in enumerate(at_once(work, TURNS if backend != "numpy" else 1)):
            assert all(np.array_equal(one, alone[k]) for one in found), (backend, name)


def test_every_class_with_work_space_is_tried() -> None:
    tried = {one for kind, _ in shared_objects().values() for one in kind.__mro__}
    assert classes_with_work_space() >= {ml.Program, ml.linalg.Multigrid, ml.linalg.FastPoisson}
    assert not classes_with_work_space() - tried


def test_one_loop_of_all_threads_on_one_field_loses_no_update() -> None:
    ml.use("numpy")
    cells = ml.Set(50, "cells")
    total = cells.field("total")
    at_once(lambda k: add(cells, float(k), total), 40)
    assert (total.numpy() == 40 * sum(range(THREADS))).all()


def test_a_first_run_of_one_program_by_all_threads_records_it_once_for_each_argument() -> None:
    """It was refused as one that calls itself."""
    cells = ml.Set(20, "cells")
    fields = [(cells.field("u", data=np.full(20, float(k))), cells.field("v")) for k in range(THREADS)]

    @ml.program
    def both(u: Any, v: Any) -> None:
        halve(cells, u, v)

    for u, v in (fields[0], *fields):
        v.fill(0.0)
        found = at_once(lambda _, u=u, v=v: (both(u, v), v.numpy())[1], 1)
        assert all(np.array_equal(one, 0.5 * u.numpy()) for (one,) in found)


# --- random numbers ---------------------------------------------------------------------------------------------------


@ml.kernel
def draw(a: ml.Write, r: ml.Random):
    a[...] = r.uniform()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_threads_that_share_a_source_draw_different_numbers(backend: str) -> None:
    ml.use(backend)
    cells, source, turns = ml.Set(4, "cells"), ml.Random(seed=5), 10
    fields = [cells.field(f"a{k}") for k in range(THREADS)]
    programs = [ml.program(lambda k=k: draw(cells, fields[k], source)) for k in range(THREADS)]
    found = at_once(lambda k: (programs[k]() if k else draw(cells, fields[k], source), fields[k].numpy())[1], turns)
    assert len({one.tobytes() for each in found for one in each}) == THREADS * turns == source.calls


def test_a_loop_that_draws_is_not_called_by_itself_and_a_source_is_not_a_number() -> None:
    ml.use("numpy")
    cells, source = ml.Set(4, "cells"), ml.Random(seed=5)
    a = cells.field("a")
    program = ml.program(lambda: draw(cells, a, source))
    with pytest.raises(ml.errors.KernelError, match=r"^loop draw draws random numbers, and by itself would not count"):
        program.loops[0]()
    for wrong in (5, [5], [1, 2, 3], [1, -1], [0.5, 1.0]):
        with pytest.raises(ml.errors.MeshError, match=r"^random random"):
            source.value = wrong
    assert (source.seed, source.calls) == (5, 0)
    source.assign([7, 3])
    assert (source.seed, source.calls) == (7, 3)
