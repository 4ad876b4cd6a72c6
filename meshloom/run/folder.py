"""The output folder of a run: claimed before anything starts, never taken from another run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import overload

from meshloom.records import dataclass

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

from meshloom.errors import RunError, UserError, is_text
from meshloom.io.files import writing
from meshloom.process.ranks import by_root, on_root, ranks
from meshloom.process.signals import forget, held_back, undo_if_stopped
from meshloom.run import names, takeover

DEFAULT_PARENT = Path("runs")


@dataclass(frozen=True)
class Options:
    """What whoever began the run can say about its folder, as messages name it."""

    out: str
    overwrite: str
    restart: str


COMMAND = Options("--out", "--overwrite", "--restart {checkpoint}")
SCRIPT = Options("out", "overwrite=True", "restart=True")


class _File:
    """A file of a run, found by its name in the folder of the run."""

    def __init__(self, name: str):
        self.name = name

    @overload
    def __get__(self, folder: None, kind: type) -> _File: ...
    @overload
    def __get__(self, folder: RunFolder, kind: type) -> Path: ...
    def __get__(self, folder: RunFolder | None, kind: type) -> _File | Path:
        return self if folder is None else folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """Where one run writes; the names of its files."""

    path: Path
    created: bool = False  # made for this run
    marked: bool = False  # the marker was put down for this run
    replaces: bool = False  # an earlier run's files go when this one has its first checkpoint
    goes_on: bool = False  # the run that is there is continued
    lock: int | None = None  # handle that keeps other runs out

    config = _File(names.CONFIG)
    monitors = _File(names.MONITORS)
    checkpoint = _File(names.CHECKPOINT)
    series = _File(names.SERIES)
    probes = _File(names.PROBES)
    integrals = _File(names.INTEGRALS)
    surfaces = _File(names.SURFACES)
    picture = _File(names.PICTURE)
    report = _File(names.REPORT)
    facts = _File(names.FACTS)

    def map(self, name: str) -> Path:
        return self.path / f"map_{names.file_name(name)}.png"

    def chart(self, name: str, suffix: str) -> Path:
        return self.path / f"chart_{names.file_name(name)}.{suffix}"

    def fields(self, iteration: int) -> Path:
        """Where the fields go; the ending depends on what they live on."""
        return self.path / names.fields_name(iteration)

    def surface(self, iteration: int) -> Path:
        """Where the faces of boundary groups go."""
        return self.path / names.surface_name(iteration)

    def files(self) -> list[Path]:
        """The files of a run that are there now."""
        return names.own_files(self.path)

    def __getstate__(self) -> dict[str, object]:
        """Other ranks hold no lock: the root has it, and writes for all."""
        return vars(self) | {"lock": None}

    @by_root
    def check_place(self) -> None:
        """RunError where another folder stands in the place of this one, which the run has locked: it was moved."""
        if self.lock is not None:
            with writing(self.path):
                mine, there = os.fstat(self.lock), os.stat(self.path)
            if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
                raise RunError(f"{self.path} is another folder now: the one in which this run began was moved")

    @by_root
    def begin(self) -> None:
        """The run starts: the files of the run it replaces are set aside, and nothing else. Now its folder stays."""
        forget(self)
        if self.replaces:
            with writing(self.path):
                takeover.set_aside(self.path)

    @by_root
    def keep(self) -> None:
        """The run has a checkpoint: the files of the run it replaces go."""
        with writing(self.path):
            takeover.keep_new(self.path)

    @by_root
    def remove_fields_after(self, iteration: int) -> None:
        """Fields of iterations that are still to come, which a run that was killed had got to."""
        for path in names.fields_after(self.path, iteration):
            with writing(path):
                path.unlink()

    def release(self) -> None:
        """Let other runs in again."""
        forget(self)
        if self.lock is not None:
            with suppress(OSError):
                os.close(self.lock)

    def abandon(self) -> None:
        """Undo the claim of a run that did not begin."""
        on_root(self._abandon, told=False)

    def _abandon(self) -> None:
        with suppress(OSError):
            if self.marked:
                takeover.unmark(self.path)
            if self.created:
                self.path.rmdir()

    def give_back(self) -> None:
        """The run failed: the one that it was to replace is put back, unless there is a checkpoint to go on from.

        What a run that replaces nothing has left stays for a person to look at; the next run takes its place.
        """
        if self.replaces:
            on_root(self._recover, told=False)

    def _recover(self) -> None:
        with suppress(OSError):  # the next one to open the folder tries again
            takeover.recover(self.path)


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, or one has begun there."""
    return names.own_files(path) != [] or takeover.is_open(path)


def shared(folder: RunFolder, options: Options = COMMAND) -> RunFolder:
    """A folder that was claimed, once every rank is known to see it; where one does not, it is given back, and a
    UserError says so."""
    if ranks().size == 1:
        return folder
    with ExitStack() as probing:
        probe = on_root(lambda: probing.enter_context(_probed(folder.path)))
        sees = ranks().allgathered(os.path.exists(probe), "output folders")
        on_root(probing.close)
    if not all(sees):
        folder.abandon()
        folder.release()
        raise UserError(f"the output folder {folder.path} is not the same on rank {sees.index(False)} as on rank 0;"
                        f" choose one that all nodes share with {options.out}")  # fmt: skip
    return folder


@by_root
def claim(
    case: str, out: Path | None, *, overwrite: bool = False, goes_on: bool = False, options: Options = COMMAND
) -> RunFolder:
    """The folder ``out``, or the next free ``runs/<case>-001``, created and writable.

    A folder that holds a run is refused, unless ``overwrite`` (this run takes its place as soon as it could go on) or
    ``goes_on`` (this run continues that one). What a run left that was killed before its first checkpoint is no run: it
    is removed. Two runs that start at the same time never get the same folder. A signal that ends the process before
    the run begins gives it back.
    """
    with held_back():
        folder = _found(case, out, options, overwrite=overwrite, goes_on=goes_on)
        undo_if_stopped(folder, folder.abandon)
    return folder


def _found(case: str, out: Path | None, options: Options, *, overwrite: bool, goes_on: bool) -> RunFolder:
    if out is None:
        return _next_free(case)
    if not is_text(str(out)):
        raise UserError(f"cannot write to the output folder {out}: its name is not UTF-8 text, or has a NUL in it")
    with _clear_refusal(out, options):
        return _claimed(out, _make(out), options, overwrite=overwrite, goes_on=goes_on)


THE_ONE_OF_BEFORE = (
    "the run that was to replace this one was cut off before its first checkpoint; this is the one of before"
)


@by_root
def recover(path: Path) -> None:
    """Bring a folder in order that a run may have been killed in, before anything is read from it.

    UserError where a run was cut off that can neither go on nor give way to one of before: what it left stays, for a
    person to look at, until another run takes the folder.
    """
    if takeover.is_open(path):
        with _clear_refusal(path):
            lock = _lock(path)
            try:
                if lock is not None and takeover.is_cut_off(path):
                    raise UserError(f"{path}: this run was cut off before its first checkpoint; start it again with"
                                    " the command that began it")  # fmt: skip
                if _recover(path, lock):
                    warnings.warn(f"{path}: {THE_ONE_OF_BEFORE}", stacklevel=3)
            finally:
                RunFolder(path, lock=lock).release()


@by_root
def can_go_on(path: Path) -> bool:
    """Whether a run with a checkpoint lies there, once what a kill has left is in order: a script that was cut off
    before its first checkpoint begins anew."""
    if takeover.is_open(path):
        with _clear_refusal(path, SCRIPT):
            lock = _lock(path)
            try:
                _recover(path, lock, SCRIPT)
            finally:
                RunFolder(path, lock=lock).release()
    return os.path.isfile(path / names.CHECKPOINT)


def _next_free(case: str) -> RunFolder:
    """The first ``runs/<case>-NNN`` that nobody has; making it is the test, so there is no race."""
    with _clear_refusal(DEFAULT_PARENT):
        DEFAULT_PARENT.mkdir(exist_ok=True)
        number = 1
        while True:
            path = DEFAULT_PARENT / f"{case}-{number:03d}"
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
                continue
            return _claimed(path, True, COMMAND)


def _claimed(
    path: Path, created: bool, options: Options, *, overwrite: bool = False, goes_on: bool = False
) -> RunFolder:
    """The folder locked, in order, and ready for this run."""
    lock = _lock(path)
    try:
        _recover(path, lock, options)
        if goes_on or is_run(path):
            if not (overwrite or goes_on):
                raise UserError(_refusal(path, options))
            with _probed(path):
                pass
            return RunFolder(path, created, replaces=not goes_on, goes_on=goes_on, lock=lock)
        takeover.mark(path)
        return RunFolder(path, created, marked=True, lock=lock)
    except BaseException as error:
        refused = RunFolder(path, created, lock=lock)
        refused.abandon()
        refused.release()
        if isinstance(error, FileExistsError):  # where folders cannot be locked
            raise UserError(f"{path} has been taken by another run; choose another {options.out}") from None
        raise


def _refusal(path: Path, options: Options) -> str:
    checkpoint, another = path / names.CHECKPOINT, f"another {options.out}"
    restart = options.restart.format(checkpoint=checkpoint)
    going_on = f", {another}, or {restart} to go on" if checkpoint.exists() else f" or {another}"
    return f"{path} already holds a run; give {options.overwrite}{going_on}"


def _make(path: Path) -> bool:
    """Create a folder with its parents; False when it was there."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    return True


def _lock(path: Path) -> int | None:
    """Hold the folder as long as this run lives; the system lets go of it when the process ends, however it ends.

    None where folders cannot be locked (some network file systems): then the marker alone keeps runs apart.
    """
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(f"{path} is being written by another run; wait for it or take another folder") from None
    except OSError:
        os.close(handle)
        return None
    return handle


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A folder, made where there is none, that nobody else has locked meanwhile; one that was made and has stayed empty
    goes again."""
    if not is_text(str(path)):
        raise UserError(f"cannot write to the folder {path}: its name is not UTF-8 text, or has a NUL in it")
    with _clear_refusal(path, SCRIPT):
        created = _make(path)
        lock = _lock(path)
    try:
        yield
    finally:
        if created:
            with suppress(OSError):
                path.rmdir()
        RunFolder(path, lock=lock).release()


def _recover(path: Path, lock: int | None, options: Options = COMMAND) -> bool:
    """Whoever holds the folder puts in order what a kill has left; without a lock nobody knows what still lives.

    Whether the run of before is back, in place of one that was cut off.
    """
    if lock is not None:
        return takeover.recover(path)
    if takeover.is_open(path):
        raise UserError(
            f"{path} holds a run without a checkpoint, which may still go on: folders cannot be locked here;"
            f" choose another {options.out}"
        )
    return False


@contextmanager
def _probed(path: Path) -> Iterator[Path]:
    """A file in a folder, for the block; OSError unless files can be made there."""
    probe = path / names.probe_name(os.getpid())
    os.close(os.open(probe, os.O_CREAT | os.O_WRONLY, 0o666))
    yield probe
    probe.unlink()


@contextmanager
def _clear_refusal(path: Path, options: Options = COMMAND) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write to the output folder {path}: {error.strerror}; choose another with {options.out}"
        ) from error
