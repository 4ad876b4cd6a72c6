"""Going on from a checkpoint: does it fit, and then its values in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshloom.errors import UserError
from meshloom.io.checkpoint import Checkpoint
from meshloom.io.field_rows import restore, saved_shape
from meshloom.run.files import Start
from meshloom.run.task import RunTask
from meshloom.toml import toml_key


def put_in(task: RunTask, start: Start) -> None:
    """Give a task the state of a checkpoint; UserError, and nothing is changed, where it has another one. What
    ``task.added`` names, and an old checkpoint lacks, stays as it is."""
    check_fits(task, start)
    for name, one in task.checkpointed.items():
        if name in start.checkpoint.state or name not in task.added:
            restore(one, start.checkpoint.state[name])


def history(task: RunTask, saved: Checkpoint) -> np.ndarray:
    """The monitors (iteration, names) of a checkpoint that fits as the task has them; NaN where it has them not yet."""
    if saved.monitor_names == task.monitors:
        return saved.monitors
    found = np.full((saved.iteration, len(task.monitors)), np.nan)
    for column, name in enumerate(task.monitors):
        if name in saved.monitor_names:
            found[:, column] = saved.monitors[:, saved.monitor_names.index(name)]
    return found


def check_fits(task: RunTask, start: Start) -> None:
    """UserError unless a checkpoint has the state and the monitors of a task."""
    saved = start.checkpoint
    for name, one in task.checkpointed.items():
        values, shape = saved.state.get(name), saved_shape(one)
        if values is None and name in task.added:
            continue
        if values is None or values.dtype != one.dtype or values.shape != shape:
            raise UserError(f"{start.path}: the checkpoint does not fit: field {name} {shape} {one.dtype}"
                            f" is {'missing' if values is None else f'{values.shape} {values.dtype}'}")  # fmt: skip
    if saved.monitor_names != tuple(
        name for name in task.monitors if name in saved.monitor_names or name not in task.added
    ):
        raise UserError(f"{start.path}: the checkpoint has other monitors:"
                        f" {_other_names(saved.monitor_names, task.monitors)}; run anew to change them")  # fmt: skip


def _other_names(saved: Sequence[str], now: Sequence[str]) -> str:
    """How two lists of monitors differ."""
    parts = {"not in it": [name for name in now if name not in saved],
             "not in this run": [name for name in saved if name not in now]}  # fmt: skip
    texts = [f"{what}: {', '.join(toml_key((name,)) for name in names)}" for what, names in parts.items() if names]
    return "; ".join(texts) or "the same in another order"
