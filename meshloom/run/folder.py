"""The output folder of a run: claimed before anything starts, never taken from another run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

from meshloom.errors import UserError, is_text
from meshloom.io.files import writing

CONFIG, MONITORS, CHECKPOINT, SERIES, PICTURE = "run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd", "picture.png"
_OWN_FILES = (CONFIG, MONITORS, CHECKPOINT, SERIES, PICTURE)
_PATTERNS = ("chart_*.csv", "chart_*.png", "map_*.png", "fields_[0-9]*.vt[iru]")
_NOT_IN_FILES = '%/\\:*?"<>|'  # of names; on one system or another
_LONGEST_NAME = 200  # bytes of a name in the name of a file, which may have 255
DEFAULT_PARENT = Path("runs")


@dataclass(frozen=True)
class RunFolder:
    """Where one run writes; the names of its files."""

    path: Path
    created: bool = False  # made for this run
    marked: bool = False  # the marker was put down for this run
    replaces: bool = False  # an earlier run's files go when this one begins
    lock: int | None = None  # handle that keeps other runs out

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def monitors(self) -> Path:
        return self.path / MONITORS

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def series(self) -> Path:
        return self.path / SERIES

    @property
    def picture(self) -> Path:
        return self.path / PICTURE

    def map(self, name: str) -> Path:
        return self.path / f"map_{file_name(name)}.png"

    def chart(self, name: str, suffix: str) -> Path:
        return self.path / f"chart_{file_name(name)}.{suffix}"

    def fields(self, iteration: int) -> Path:
        """Where the fields go; the ending depends on what they live on."""
        return self.path / f"fields_{iteration:07d}"

    def files(self) -> list[Path]:
        """The files of a run that are there now."""
        known = [self.path / name for name in _OWN_FILES]
        return [path for path in known if path.exists()] + [p for one in _PATTERNS for p in sorted(self.path.glob(one))]

    def begin(self) -> None:
        """The run starts: the files of the run it replaces go, and nothing else."""
        if self.replaces:
            for path in self.files():
                with writing(path):
                    path.unlink()

    def release(self) -> None:
        """Let other runs in again."""
        if self.lock is not None:
            with suppress(OSError):
                os.close(self.lock)

    def abandon(self) -> None:
        """Undo the claim of a run that did not begin."""
        with suppress(OSError):
            if self.marked:
                self.config.unlink(missing_ok=True)
            if self.created:
                self.path.rmdir()


def file_name(name: str) -> str:
    """Any name as part of the name of a file: an ordinary one is itself, and different ones stay different."""
    text = "".join(c if c.isprintable() and c not in _NOT_IN_FILES else _percent(c) for c in name)
    if len(text.encode()) <= _LONGEST_NAME:
        return text
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text.encode()[:_LONGEST_NAME].decode(errors='ignore')}-{digest}"


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return RunFolder(path).files() != []


def claim(case: str, out: Path | None, *, overwrite: bool = False, goes_on: bool = False) -> RunFolder:
    """The folder ``out``, or the next free ``runs/<case>-001``, created and writable.

    A folder that holds a run is refused, unless ``overwrite`` (its files are removed) or ``goes_on`` (this run
    continues that one). Two runs that start at the same time never get the same folder.
    """
    if out is None:
        return _next_free(case)
    if not is_text(str(out)):
        raise UserError(f"cannot write to the output folder {out}: its name is not UTF-8 text, or has a NUL in it")
    with _clear_refusal(out):
        created = _make(out)
        if is_run(out) and not (overwrite or goes_on):
            raise UserError(
                f"{out} already holds a run; give --overwrite, another --out, or --restart {out / CHECKPOINT} to go on"
            )
        if is_run(out) or goes_on:
            _probe(out)
            return RunFolder(out, created, replaces=not goes_on, lock=_lock(out))
        return _marked(out, created)


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
            return _marked(path, created=True)


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
        raise UserError(f"{path} is being written by another run; wait for it or choose another --out") from None
    except OSError:
        os.close(handle)
        return None
    return handle


def _marked(path: Path, created: bool) -> RunFolder:
    """Put the marker down; of two runs that try, one fails."""
    os.close(os.open(path / CONFIG, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return RunFolder(path, created, marked=True, lock=_lock(path))


def _probe(path: Path) -> None:
    """Raise OSError unless files can be made here."""
    probe = path / f".probe.{os.getpid()}"
    os.close(os.open(probe, os.O_CREAT | os.O_WRONLY, 0o666))
    probe.unlink()


@contextmanager
def _clear_refusal(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write to the output folder {path}: {error.strerror}; choose another with --out"
        ) from error
