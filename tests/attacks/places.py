"""Fields that wrap pieces of one array, and files that are written where links, pipes, devices and folders are."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import KernelError, MeshloomError, ProgramError
from tests.attacks.campaign import Broken, Campaign
from tests.io.test_links import WRITERS
from tests.test_shared_memory import CELLS, NEXT, N, compared, doubled, shifted

_REFUSED = "lie in the same memory, and one of them is written; pass one field for both"
#: Kernels with what they do to arrays; the last argument is written, the first of ``shifted`` read through a map.
_KERNELS: dict[ml.Kernel, Callable[..., np.ndarray]] = {
    shifted: lambda a: np.roll(a, -1) + 1.0,
    doubled: lambda a: 2.0 * a,
    compared: lambda a, b: a - b,
}


# ---- pieces of one array --------------------------------------------------------------------------------------------


def wraps(dice: random.Random, folder: Path) -> str:
    """A few loops on fields that wrap pieces of one array, one after the other or as a program."""
    used = ml.backend()
    ml.use(dice.choice(("numpy", "numpy", "cpu", "emulated")))
    try:
        array = np.random.default_rng(dice.randrange(2**32)).uniform(-1.0, 1.0, 4 * N)
        begins = dice.sample((0, N, 2 * N, 3 * N), 4)
        if dice.random() < 0.5:
            begins[dice.randrange(4)] = dice.randrange(3 * N + 1)
        fields = [CELLS.field(f"f{k}", wrap=array[begin : begin + N]) for k, begin in enumerate(begins)]
        if dice.random() < 0.2:
            fields[1], begins[1] = CELLS.field("f1", wrap=fields[0].view()), begins[0]
        calls = [_some_call(dice) for _ in range(dice.randrange(1, 5))]
        if dice.random() < 0.5:
            return _one_by_one(array, begins, fields, calls)
        return _as_a_program(array, begins, fields, calls, fuse=dice.random() < 0.7)
    finally:
        ml.use(used)


_Call = tuple[ml.Kernel, tuple[int, ...]]


def _some_call(dice: random.Random) -> _Call:
    kernel = dice.choice([*_KERNELS])
    return kernel, tuple(dice.sample(range(4), 3 if kernel is compared else 2))


def _do(fields: list[ml.Field], call: _Call) -> None:
    kernel, numbers = call
    given: list[Any] = [fields[k] for k in numbers]
    if kernel is shifted:
        given[0] = given[0][NEXT]
    kernel(CELLS, *given)


def _meets(begins: list[int], calls: list[_Call]) -> bool:
    """Do two of the fields of these calls lie in the same memory, of which one is written?"""
    written = {numbers[-1] for _, numbers in calls}
    pairs = combinations(sorted({k for _, numbers in calls for k in numbers}), 2)
    return any(abs(begins[a] - begins[b]) < N and {a, b} & written for a, b in pairs)


def _after(array: np.ndarray, begins: list[int], calls: list[_Call]) -> np.ndarray:
    """What the calls make of an array, by NumPy, one after the other."""
    made = array.copy()
    for kernel, numbers in calls:
        *read, into = [made[begins[k] : begins[k] + N] for k in numbers]
        into[...] = _KERNELS[kernel](*read)
    return made


def _check_same(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    if not np.array_equal(found, wanted):
        raise Broken(f"{what}: {np.count_nonzero(found != wanted)} of {len(wanted)} numbers are others")


def _one_by_one(array: np.ndarray, begins: list[int], fields: list[ml.Field], calls: list[_Call]) -> str:
    refused = 0
    for call in calls:
        meets, before = _meets(begins, [call]), array.copy()
        try:
            _do(fields, call)
        except KernelError as error:
            if not meets or _REFUSED not in str(error):
                raise
            refused += 1
            _check_same(array, before, "a loop that was refused")
            continue
        if meets:
            raise Broken(f"{call[0]} of fields at {[begins[k] for k in call[1]]} was taken")
        fields[0].numpy()  # what lies on a device comes back
        _check_same(array, _after(before, begins, [call]), f"{call}")
    return "some loops refused" if refused else "same answer"


def _as_a_program(array: np.ndarray, begins: list[int], fields: list[ml.Field], calls: list[_Call], fuse: bool) -> str:
    @ml.program(fuse=fuse)
    def step() -> None:
        for call in calls:
            _do(fields, call)

    before = array.copy()
    try:
        step.run(2)
    except (ProgramError, KernelError) as error:
        if not _meets(begins, calls) or _REFUSED not in str(error):
            raise
        _check_same(array, before, "a program that was refused")
        return "program refused"
    if _meets(begins, calls):
        raise Broken(f"a program of {calls} on fields at {begins} was taken")
    _check_same(array, _after(before, begins, [*calls, *calls]), f"a program of {calls}")
    return "same answer"


# ---- where a file should go -----------------------------------------------------------------------------------------


def links(dice: random.Random, folder: Path) -> str:
    """A tree of files, folders, pipes and links to each other, to devices and to nothing; one of them is written to."""
    name = dice.choice([*WRITERS, "a.h5", "a.vtu"])
    places = [folder, folder / "one", folder / "one" / "two"]
    for place in places[1:]:
        place.mkdir()
    made = [Path("/dev/null"), folder / "nowhere" / "file", *places]
    for k in range(dice.randrange(2, 8)):
        path = dice.choice(places) / f"{k}-{name}"
        _make(dice, path, made)
        made.append(path)
    path = dice.choice(made[5:])
    if dice.random() < 0.3:
        (folder / "way").symlink_to(path.parent)
        path = folder / "way" / path.name
    before, target = _tree(folder), Path(os.path.realpath(path))
    may = target.parent.is_dir() and (not _leads_somewhere(path) or target.is_file())
    try:
        WRITERS[name](path)
    except MeshloomError as error:
        if may or "\n" in str(error) or str(path) not in str(error):
            raise Broken(f"{name}: {error}") from error
        if _tree(folder) != before:
            raise Broken(f"{name} was refused, and something has changed: {error}") from error
        return "refused"
    if not may:
        raise Broken(f"{name}: written to what is no file")
    after, key = _tree(folder), str(target.relative_to(os.path.realpath(folder)))
    if after.pop(key)[0] != "a file" or after != {one: what for one, what in before.items() if one != key}:
        raise Broken(f"{name}: more than {key} has changed")
    WRITERS[name](folder / name)
    if target.stat().st_size != (folder / name).stat().st_size:
        raise Broken(f"{name}: {key} is not what a plain file is")
    return "written to the end of links" if path.is_symlink() else "written"


def _make(dice: random.Random, path: Path, made: list[Path]) -> None:
    """Something at a path: mostly a link, to one of those that were made, to itself, or to what comes later."""
    kind = dice.random()
    if kind < 0.3:
        path.write_bytes(b"old")
    elif kind < 0.36:
        os.mkfifo(path)
    elif kind < 0.4:
        path.mkdir()
    elif kind < 0.45 and (files := [one for one in made if one.is_file() and not one.is_symlink()]):
        os.link(dice.choice(files), path)
    else:
        target = dice.choice([*made, path, path.with_name("later-" + path.name)])
        relative = dice.random() < 0.5 and target.is_absolute() and target.parts[1] != "dev"
        path.symlink_to(os.path.relpath(target, path.parent) if relative else target)


def _leads_somewhere(path: Path) -> bool:
    """Is there anything at the end? A link in a circle has none."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _tree(folder: Path) -> dict[str, tuple[str, str | bytes]]:
    """All there is below a folder: kinds, where links lead, and what files hold."""
    found: dict[str, tuple[str, str | bytes]] = {}
    for path in folder.rglob("*"):
        mode, key = path.lstat().st_mode, str(path.relative_to(folder))
        if stat.S_ISLNK(mode):
            found[key] = "a link", os.readlink(path)
        else:
            found[key] = ("a file", path.read_bytes()) if stat.S_ISREG(mode) else (str(stat.S_IFMT(mode)), "")
    return found


CAMPAIGNS = (
    Campaign("wraps", "loops and programs on fields that wrap pieces of one array, which overlap or not",
             "refused in one line where one that is written overlaps another, and NumPy's numbers elsewhere",
             wraps, few=3, many=200),
    Campaign("links", "states, meshes and pictures written to chains of links, circles, pipes, devices and folders",
             "the file at the end has the data and nothing else has changed; or refused in one line", links,
             few=5, many=300),
)  # fmt: skip
