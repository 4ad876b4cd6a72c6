"""What goes wrong on ranks, by name: ``python -m tests.dist.on_ranks_wrong NAME`` for ``test_disagreement.py``. What
comes to its end prints "done"."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import meshloom as ml
from tests.dist.on_ranks_given import given, loop, moved, run


def nothing() -> None:
    of = given()
    loop(*of)
    assert np.isfinite(of[2].numpy()).all()


# ----- calls ----------------------------------------------------------------------------------------------------------
def gathered_on_one() -> None:
    mesh, u, rate = given()
    loop(mesh, u, rate)
    moved(mesh.cells, rate, u)
    if ml.world.rank == 0:
        u.numpy()
    loop(mesh, u, rate)


def other_fields() -> None:
    mesh, u, rate = given()
    loop(mesh, u, rate)
    (rate if ml.world.rank else u).numpy()


def left_early() -> None:
    of = given()
    loop(*of)
    if ml.world.rank == 1:
        sys.exit()
    of[2].numpy()


def written_on_one() -> None:
    of = given()
    loop(*of)
    if ml.world.rank == 0:
        with TemporaryDirectory() as folder:
            ml.write(Path(folder) / "rate.vtu", of[0], cell_fields={"rate": of[2]})


def one_step_more() -> None:
    mesh, u, _ = given()
    step = loops_of(mesh, u)
    step.run(2)
    if ml.world.rank == 0:
        step.run(1)


def late_by_seconds() -> None:
    """Rank 1 comes late to a gather, and rank 0 to its end."""
    of = given()
    loop(*of)
    if ml.world.rank == 1:
        time.sleep(8)
    of[2].numpy()
    if ml.world.rank == 0:
        time.sleep(8)


def globals_are_read_by_one() -> None:
    """No rank waits for another to read a Global, whoever has reduced it: a program, a loop by itself, a field."""
    for backend in ("numpy", "cpu", "emulated"):
        ml.use(backend, reproducible=True)
        mesh, u, rate = given()
        total, found = ml.Global(0.0, "total"), []

        def look(*more: ml.Global, total: ml.Global = total, found: list[Any] = found) -> None:
            if ml.world.rank == 1:
                for one in (total, *more):
                    found.append((float(one), one.value, one.numpy().tolist(), repr(one), bool(one < 1e9)))
            step.run(1)

        @ml.program
        def step(u: ml.Field = u, mesh: ml.Mesh = mesh, total: ml.Global = total) -> None:
            total.value = 0.0
            summed(mesh.cells, u, total)

        step.run(3)
        look()
        summed(mesh.cells, u, total)
        look()
        loop(mesh, u, rate)
        look(u.norm(), u.sum(), u.max(), u.dot(u))
        step.repeat(until=total < 1e9, at_most=2)
        look()
        assert len(found) == (ml.world.rank == 1) * 8


@ml.kernel
def summed(u: ml.Read, total: ml.Sum):
    total += u


def late() -> None:
    of = given()
    loop(*of)
    if ml.world.rank == 1:
        time.sleep(150)  # the others come to that at different times, on a busy machine
    of[2].numpy()


def loops_of(mesh: ml.Mesh, u: ml.Field) -> ml.Program:
    """A step that exchanges the halos of ``u``."""
    rate = mesh.cells.field(f"rate of {u.name}", u.dim)

    @ml.program
    def step() -> None:
        loop(mesh, u, rate)
        moved(mesh.cells, rate, u)

    return step


def other_step(longer: int) -> None:
    """Messages of one rank are longer than those of the others, all of which know both steps."""
    mesh, u, _ = given()
    steps = loops_of(mesh, u), loops_of(mesh, mesh.cells.field("pair", 2, data=lambda points: points[:, :2]))
    for step in steps:
        step.run(2)
    steps[ml.world.rank == longer].run(3)


def shorter_message() -> None:
    other_step(0)


def longer_message() -> None:
    other_step(1)


def other_rows() -> None:
    ml.world.gathered(np.zeros((3, 2 + ml.world.rank)), "rows of a script")


def other_sums() -> None:
    """What rank 0 adds up is longer."""
    ml.world.stacked(np.zeros(3 if ml.world.rank else 4), "sums of a script")


def sums_of_another() -> None:
    """As long, by the same call."""
    ml.world.stacked(np.zeros(4), "sums of b" if ml.world.rank else "sums of a")


def fields_of_another() -> None:
    mesh, u, rate = given()
    loop(mesh, u, rate)
    moved(mesh.cells, rate, u)
    (rate if ml.world.rank else u).numpy()


def compared_with_another() -> None:
    ml.world.allgathered(1, "b" if ml.world.rank else "a")


# ----- errors ---------------------------------------------------------------------------------------------------------
def raised_on_one() -> None:
    of = given()
    if ml.world.rank == 1:
        print("now", flush=True)
        raise ZeroDivisionError("on purpose")
    loop(*of)


def raised_on_some() -> None:
    """By themselves, at the same time by the clock of their node."""
    of = given()
    loop(*of)
    if ml.world.rank >= 3:
        print("now", flush=True)
        time.sleep(-time.time() % 4.0)
        raise ZeroDivisionError("on purpose")
    of[2].numpy()


def refused_on_one() -> None:
    of = given()
    if ml.world.rank == 1:
        of[1].assign([1.0, 2.0])
    loop(*of)


def refused_on_all() -> None:
    given()[1].assign([1.0, 2.0])


def raised_on_all() -> None:
    raise ZeroDivisionError("on purpose")


def refused_and_caught() -> None:
    """An error that a script catches ends nobody."""
    try:
        given()[1].memory()
    except ml.errors.UserError:
        nothing()


def left_by(end: Callable[[], None], rank: int = 1) -> None:
    """One rank ends, and the others wait for it."""
    of = given()
    loop(*of)
    if ml.world.rank == rank:
        print("now", flush=True)
        end()
    of[2].numpy()


def exit_with_words() -> None:
    left_by(lambda: sys.exit("no such file"))


def exit_with_code() -> None:
    left_by(lambda: sys.exit(3))


def exit_by_prompt() -> None:
    left_by(lambda: quit(4))


def exit_raised() -> None:
    """Nothing but a check of calls sees it. A launcher of MPICH has the bits of all exit codes in its own."""
    of = given()
    loop(*of)
    if ml.world.rank == 1:
        raise SystemExit(2)
    of[2].numpy()


def exit_on_all() -> None:
    sys.exit(3)


def exit_on_all_with_words() -> None:
    sys.exit("no such file")


def exit_as_it_should() -> None:
    """What a script catches ends nobody."""
    for code in (3, "no such file"):
        try:
            sys.exit(code)
        except SystemExit as error:
            assert error.code == code
    nothing()
    if ml.world.rank == 0:
        print("done", flush=True)
    sys.exit(256 * ml.world.rank)  # no error, as 0: nobody waits for anybody


def waiting() -> None:
    """For a signal: rank 1 computes, the others wait for it."""
    of = given()
    loop(*of)
    print("now", flush=True)
    if ml.world.rank == 1:
        time.sleep(120)
    of[2].numpy()


def killed() -> None:
    of = given()
    if ml.world.rank == 1:
        print("now", flush=True)
        os.kill(os.getpid(), 9)
    loop(*of)


# ----- runs -----------------------------------------------------------------------------------------------------------
def run_case(case: str = "airfoil", out: str = "nowhere", **flow: float) -> None:
    """It must be refused before there is a folder."""
    small: dict[str, Any] = {"run.backend": "numpy", "run.iterations": 1}
    if case == "airfoil":
        small |= {"mesh.i": 3, "mesh.j": 3, **{f"flow.{name}": value for name, value in flow.items()}}
    try:
        ml.run_case(case, small, out=out, progress=False)
    finally:
        assert not Path(out).exists()


def other_settings() -> None:
    run_case(cfl=0.9 if ml.world.rank == 0 else 0.8)


def other_case() -> None:
    run_case("lulesh" if ml.world.rank else "airfoil")


def other_folder() -> None:
    run_case(out=f"nowhere_{ml.world.rank}")


def other_folder_of_a_script() -> None:
    """As ``tempfile.mkdtemp()`` makes them."""
    mesh, u, rate = given()
    ml.march(ml.program(lambda: moved(mesh.cells, rate, u)), steps=1, out=f"nowhere_{ml.world.rank}", progress=False)


def other_steps() -> None:
    mesh, u, rate = given()
    ml.march(ml.program(lambda: moved(mesh.cells, rate, u)), steps=1 + ml.world.rank, out="nowhere", progress=False)


def other_file() -> None:
    """Nothing is written to any of them."""
    try:
        ml.save(f"nowhere_{ml.world.rank}.h5", given()[1])
    finally:
        assert not Path("nowhere_0.h5").exists()


def other_file_to_load() -> None:
    ml.load(f"nowhere_{ml.world.rank}.h5", given()[1])


def too_many_planes() -> None:
    grid = ml.Grid((2, 4))
    u = grid.field("u")
    moved(grid, u, grid.field("v"))


@ml.kernel
def seen_from_far(u: ml.Read, v: ml.Write):
    v[...] = u[-3, 0] + u[3, 0]


def too_thin() -> None:
    """Three slabs of a stencil that reaches further than they are thick."""
    grid = ml.Grid((8, 4))
    reach = grid.offsets((-3, 0), (3, 0))
    seen_from_far(grid.interior((3, 0)), grid.field("u")[reach], grid.field("v"))


# ----- partitions -----------------------------------------------------------------------------------------------------
def cut_by(partition: np.ndarray) -> None:
    ml.use("numpy", partition=partition)
    loop(*given())


def partition_too_short() -> None:
    cut_by(np.zeros(7, int))


def partition_too_short_on_one() -> None:
    cut_by(np.zeros(7 if ml.world.rank == 1 else 24, int))


def partition_of_no_rank() -> None:
    cut_by(np.full(24, ml.world.size))


# ----- halos ----------------------------------------------------------------------------------------------------------
def no_exchange() -> None:
    """Exchanges inside of a program are left out."""
    from meshloom.dist.exchange import Exchange

    Exchange.__call__ = lambda self: None
    mesh, u, rate = given()

    @ml.program
    def step() -> None:
        loop(mesh, u, rate)
        moved(mesh.cells, rate, u)

    step.run(3)
    poisoned = np.isnan(rate.numpy()).any()
    assert poisoned == (os.environ["MESHLOOM_POISON_HALOS"] == "1")


RUNS: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (
        nothing, gathered_on_one, other_fields, left_early, written_on_one, one_step_more,
        late_by_seconds, globals_are_read_by_one, late, shorter_message, longer_message, other_rows,
        other_sums, sums_of_another, fields_of_another, compared_with_another, raised_on_one, raised_on_some,
        refused_on_one, refused_on_all, raised_on_all, refused_and_caught,
        exit_with_words, exit_with_code, exit_by_prompt, exit_raised, exit_on_all, exit_on_all_with_words,
        exit_as_it_should, waiting, killed, other_settings, other_case, other_folder, other_folder_of_a_script,
        other_steps, other_file, other_file_to_load, too_many_planes, too_thin, partition_too_short,
        partition_too_short_on_one, partition_of_no_rank, no_exchange,
    )
}  # fmt: skip


if __name__ == "__main__":
    run(RUNS)
