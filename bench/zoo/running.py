"""Running settings of the zoo: one after the other, or prepared by processes side by side and measured in turn."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import meshloom as ml
from bench import exclusive
from bench.race import check_time
from bench.race_loop import Device
from bench.zoo.design import CHOSEN, PRECISIONS, Setting, settings
from bench.zoo.loops import LOOPS, Contest
from bench.zoo.programs import PROGRAMS, Timed, scene_of
from bench.zoo.scene import Scene
from meshloom.errors import MeshloomError

Row = dict[str, Any]


@lru_cache(maxsize=1)
def scene(loop: str, family: str, size: int, order: str) -> Scene:
    """The mesh of the last setting, which the next one may have, too."""
    return LOOPS[loop].scene(family, size, order)


@dataclass(frozen=True)
class ProgramSetting:
    """A program on one mesh, in both precisions, fused and loop by loop, by what is chosen."""

    program: str
    family: str
    size: int

    @property
    def key(self) -> str:
        return f"{self.program} {self.family}"


Task = Setting | ProgramSetting


def tasks_of(chosen: Sequence[str], size: int) -> list[Task]:
    """All that is run of some loops and programs."""
    found: list[Task] = [*settings([name for name in chosen if name in LOOPS], size)]
    families = LOOPS["p1_tetrahedron"].families
    return found + [ProgramSetting(name, family, size) for name in chosen if name in PROGRAMS for family in families]


def rows_of(task: Task, device: Device, copy: float, blocks: Sequence[int | None]) -> Iterator[Row]:
    """Every variant of a loop or a program on a mesh; without ``blocks`` what is chosen alone."""
    if isinstance(task, ProgramSetting):
        yield from _rows_of_program(task, device)
        return
    contest = Contest(LOOPS[task.loop], scene(task.loop, task.family, task.size, task.order), task.precision, device)
    for layout in task.layouts() if blocks else (None,):
        for row in contest.rows(layout, task.wishes(blocks, layout), copy):
            yield task.columns() | row
        device.clear()


def _rows_of_program(task: ProgramSetting, device: Device) -> Iterator[Row]:
    timed = Timed(task.program, scene_of(task.family, task.size, "good"))
    expected = timed.expected()
    for precision in PRECISIONS:
        about = {"loop": task.program, "family": task.family, "order": "good", "precision": precision,
                 "size": task.size}  # fmt: skip
        for schedule, fuse in product(CHOSEN, (True, False)):
            try:
                yield about | timed.row(precision, schedule, fuse, expected, device)
            except MeshloomError as refusal:
                yield about | {"strategy": schedule, "fused": fuse, "declined": str(refusal)}
        device.clear()


def side_by_side(tasks: Iterable[Task], device: Device, copy: float, blocks: Sequence[int | None], until: float,
                 processes: int) -> Iterator[tuple[Task, list[Row]]]:  # fmt: skip
    """All rows of each task that is begun in time. Some processes make meshes, plans and kernels side by side, and
    measure in turn."""
    if processes == 1:
        for task in tasks:
            check_time(until)
            yield task, [*rows_of(task, device, copy, blocks)]
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ[exclusive.VARIABLE] = str(Path(folder) / "turn")
        pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (type(device), device.backend))
        try:
            waiting = {pool.submit(_rows_in_time, task, copy, blocks, until): task for task in tasks}
            for done in as_completed(waiting):
                if (found := done.result()) is not None:
                    yield waiting[done], found
            check_time(until)
        finally:
            pool.shutdown(cancel_futures=True)
            del os.environ[exclusive.VARIABLE]


_device: Device  # of a process of several


def _begin(kind: type[Device], backend: str) -> None:
    global _device
    _device = kind()
    ml.use(backend)


def _rows_in_time(task: Task, copy: float, blocks: Sequence[int | None], until: float) -> list[Row] | None:
    """None: it was not done in time."""
    found: list[Row] = []
    rows = rows_of(task, _device, copy, blocks)
    while time.monotonic() <= until:
        if (row := next(rows, None)) is None:
            return found
        found.append(row)
    return None
