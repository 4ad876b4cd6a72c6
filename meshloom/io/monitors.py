"""Monitors as CSV: one row per iteration, complete after every chunk, the same digits whoever wrote them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from meshloom.errors import RunError, UserError, one_line
from meshloom.io.files import write_atomically, writing
from meshloom.process.ranks import by_root, on_root


class MonitorLog:
    """A CSV file ``iteration,<name>,...`` that grows by rows.

    ``history`` (n, names) are the rows of iterations 1 to n that are known already: a restarted run begins
    with those of its checkpoint, and what an earlier run wrote past it is dropped. Of several ranks the root has it,
    and all call it.
    """

    @by_root
    def __init__(self, path: Path, names: tuple[str, ...], history: np.ndarray):
        self.path = path
        self._written = len(history)
        write_atomically(path, (_header(("iteration", *names)) + _rows(1, history)).encode())
        with writing(path):
            self._file = open(path, "a", encoding="ascii")  # noqa: SIM115  closed by ``close``

    @by_root
    def append(self, values: np.ndarray) -> None:
        """The next rows, shape (n, names), on the disk when this returns."""
        with writing(self.path):
            self._file.write(_rows(self._written + 1, values))
            self._file.flush()
        self._written += len(values)

    def close(self, *, failed: bool = False) -> None:
        """No more rows. After a write that ``failed`` closing tries once more and fails again: the first error is the
        one to tell, and no rank waits for others, which may not have come to it."""
        on_root(lambda: self._close(failed), told=not failed)

    def _close(self, failed: bool) -> None:
        with suppress(*((RunError,) if failed else ())), writing(self.path):
            self._file.close()


def read_monitors(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and values (n, names) of what a ``MonitorLog`` wrote; a last row that is not complete is left out."""
    import csv

    try:
        with open(path, encoding="utf-8", newline="") as file:
            head, *rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as monitors: {one_line(str(error))}") from None
    names = tuple(head[1:])
    if rows and len(rows[-1]) != len(head):
        rows.pop()
    try:
        values = np.array([[float(value) for value in row[1:]] for row in rows]).reshape(len(rows), len(names))
        if head[:1] != ["iteration"] or [row[0] for row in rows] != [str(k) for k in range(1, len(rows) + 1)]:
            raise ValueError
    except ValueError:
        raise UserError(f"{path}: not the monitors of a run: expected iterations from 1 on, and numbers") from None
    return names, values


class SampleLog:
    """A CSV file ``iteration,<name>,...`` that grows by a row now and then.

    ``after``: go on with the rows of iterations up to this one that are there; what an earlier run wrote past it is
    dropped. None: begin anew. ``keep_last``: that of this iteration itself stays, too. UserError where the file has
    other columns. Nothing is written before ``open``. Of several ranks the root has it, and all call it.
    """

    @by_root
    def __init__(self, path: Path, names: tuple[str, ...], after: int | None = None, *, keep_last: bool = True):
        self.path, self.last = path, -1
        head = _header(("iteration", *names))
        self._begins = head + ("" if after is None else self._kept(head, after if keep_last else after - 1))

    @by_root
    def open(self) -> None:
        """Rows may come."""
        write_atomically(self.path, self._begins.encode())
        with writing(self.path):
            self._file = open(self.path, "a", encoding="ascii")  # noqa: SIM115  closed by ``close``

    def _kept(self, head: str, after: int) -> str:
        if not self.path.is_file():
            return ""
        with writing(self.path):
            found = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if found[:1] != [head]:
            before, now = (set(one.strip().split(",")) for one in ("".join(found[:1]), head))
            odd = ", ".join(sorted(before ^ now)) or "their order"
            raise UserError(f"{self.path}: the run that is continued has other columns ({odd}); give another folder, or"
                            " put that file elsewhere")  # fmt: skip
        try:
            numbered = [(int(row.partition(",")[0]), row) for row in found[1:] if row.endswith("\n")]
        except ValueError:
            raise UserError(f"{self.path}: a row does not begin with its iteration; put that file elsewhere") from None
        rows = [(number, row) for number, row in numbered if number <= after]
        self.last = rows[-1][0] if rows else -1
        return "".join(row for _, row in rows)

    @by_root
    def append(self, iteration: int, values: np.ndarray) -> None:
        """A row, on the disk when this returns; none where the iteration has one."""
        if iteration <= self.last:
            return
        with writing(self.path):
            numbers = (repr(float(value)) for value in values)
            self._file.write(",".join((str(iteration), *numbers)) + "\n")
            self._file.flush()
        self.last = iteration

    @by_root
    def sync(self) -> None:
        """All rows outlive a loss of power, too: for whatever relies on them."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self, *, failed: bool) -> None:
        """No more rows, and all are on the disk; ``failed``: as with a ``MonitorLog``."""
        on_root(lambda: self._close(failed), told=not failed)

    def _close(self, failed: bool) -> None:
        with suppress(*((RunError,) if failed else ())), writing(self.path):
            os.fsync(self._file.fileno())
            self._file.close()


def write_table(path: Path, names: tuple[str, ...], values: np.ndarray) -> None:
    """A CSV file of named columns, ``values`` (n, names), replaced in one step."""
    text_lines = (",".join(repr(float(value)) for value in row) for row in values)
    write_atomically(path, (_header(names) + "\n".join((*text_lines, ""))).encode())


@by_root
def read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns that ``write_table`` wrote, (n,) each; none where there is no such file, or something else in it."""
    import csv

    with suppress(OSError, ValueError, csv.Error), open(path, encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file))
        return dict(zip(head, np.array(rows, np.float64).reshape(len(rows), len(head)).T, strict=True))
    return {}


def _header(names: tuple[str, ...]) -> str:
    """The first row: names in one line, quoted where a comma or a quotation mark asks for it."""
    plain = (one_line(name) for name in names)
    return ",".join('"' + x.replace('"', '""') + '"' if {",", '"'} & {*x} or not x else x for x in plain) + "\n"


def _rows(first: int, values: np.ndarray) -> str:
    """CSV rows; numbers in the shortest form that reads back to the same bits."""
    return "".join(
        ",".join((str(iteration), *(repr(float(value)) for value in row))) + "\n"
        for iteration, row in enumerate(values, start=first)
    )
