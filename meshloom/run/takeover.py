"""How a run takes a folder, so that a kill at any moment leaves the run of before whole or a new one that can go on.

A run that begins sets the files of the one that it replaces aside, into the hidden folder ``.replaced``, and removes
them when its own first checkpoint is on the disk. Where there is nothing to replace, ``.replaced`` is empty, and says
the same: what lies here cannot go on yet. Whoever opens a folder, and has locked it, settles first what a kill left:

| found | meaning | what settling does |
|---|---|---|
| ``.replacing`` | files of before are on their way there or back; of the new run there is nothing | puts them back |
| ``.replaced`` and a checkpoint | the new run can go on | removes what it replaced |
| ``.replaced`` alone | the new run was cut off too early | removes its files, then as with ``.replacing`` |

Every step is one rename or one removal, and leaves one of these states. What ``.replaced`` holds besides files of a run
is not ours to remove, or cannot be: network file systems keep a file that somebody has open, under another name. Then
the folder gets a name that means nothing, and goes when it is empty.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from meshloom.run.names import CHECKPOINT, CONFIG, half_written, own_files

_ASIDE, _MOVING, _LEFT = ".replaced", ".replacing", ".left-over-"


def _is_ours(path: Path) -> bool:
    """A folder, and no link to one: what lies elsewhere is nobody's to move or remove."""
    return os.path.isdir(path) and not os.path.islink(path)  # of a Path, they fail for names that are too long


def mark(folder: Path) -> None:
    """A run begins where there is none; FileExistsError where another has done so."""
    (folder / _ASIDE).mkdir()


def unmark(folder: Path) -> None:
    """It did not begin after all."""
    (folder / _ASIDE).rmdir()


def set_aside(folder: Path) -> None:
    """A run begins where there is another, whose files are kept for now."""
    moving = folder / _MOVING
    moving.mkdir()
    for path in own_files(folder):
        path.rename(moving / path.name)
    moving.rename(folder / _ASIDE)


def keep_new(folder: Path) -> None:
    """The run can go on: what it replaced is not needed any more."""
    aside = folder / _ASIDE
    if _is_ours(aside):
        for path in own_files(aside) + half_written(aside):
            path.unlink()
        try:
            aside.rmdir()
        except OSError:  # something else is in it
            aside.rename(folder / f"{_LEFT}{uuid.uuid4().hex}")


def is_open(folder: Path) -> bool:
    """Whether a run has begun here, and cannot go on yet."""
    return _is_ours(folder / _ASIDE) or _is_ours(folder / _MOVING)


def is_cut_off(folder: Path) -> bool:
    """Whether a run has begun here that replaces nothing, and has no checkpoint: there is nothing to put in order."""
    aside = folder / _ASIDE
    return _is_ours(aside) and not (folder / CHECKPOINT).exists() and not any(aside.iterdir())


def recover(folder: Path) -> bool:
    """Make one run, or none, of what a kill has left; whether the run of before is back.

    The folder must be locked: a living run is not to be undone.
    """
    for path in half_written(folder):
        path.unlink()
    for path in folder.glob(f"{_LEFT}*"):
        with suppress(OSError):
            path.rmdir()
    if _is_ours(folder / _ASIDE):
        if (folder / CHECKPOINT).exists():
            keep_new(folder)
            return False
        for path in own_files(folder):
            path.unlink()
        (folder / _ASIDE).rename(folder / _MOVING)
    before = sorted((folder / _MOVING).iterdir()) if _is_ours(folder / _MOVING) else None
    for path in before or ():
        path.rename(folder / path.name)
    if before is not None:
        (folder / _MOVING).rmdir()
    own = own_files(folder)
    if [path.name for path in own] == [CONFIG] and own[0].stat().st_size == 0:  # how earlier versions marked a folder
        own[0].unlink()
    return bool(before)
