"""What a study knows, on the disk: ``study.json``, replaced in one step after every run. A study that was killed goes
on from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from meshloom.errors import UserError, shown
from meshloom.io.files import write_atomically
from meshloom.studies.axes import Values, as_key

RECORD = "study.json"
_FORMAT = 1


@dataclass(frozen=True)
class StudyRow:
    """One run: what was set, where it is, and what came out."""

    settings: Values
    run: str  # name of its folder in that of the study
    monitors: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)  # by probes and integrals
    iterations: int = 0
    seconds: float = 0.0
    converged: bool | None = None  # to a steady state; None where the case seeks none
    why: str = "not run yet"  # it failed, in one line; '' where it did not

    @property
    def numbers(self) -> dict[str, float]:
        """All that came out, by name; a monitor comes before a coefficient of the case that is called the same."""
        return self.monitors | {name: value for name, value in self.measured.items() if name not in self.monitors}

    @property
    def is_done(self) -> bool:
        return not self.why


@dataclass
class Record:
    """A study: its case, the settings that all runs share, and its runs by combination."""

    head: dict[str, str]  # of the case: what finds it again
    shared: Values  # every one of them, defaults included
    keys: list[str]  # of what varies
    rows: dict[str, StudyRow]

    def row(self, values: Values) -> StudyRow:
        """The run of a combination; a new one where there is none."""
        key = as_key(values)
        if key not in self.rows:
            self.rows[key] = StudyRow(values, f"run-{len(self.rows) + 1:04d}")
        return self.rows[key]

    def put(self, row: StudyRow) -> None:
        self.rows[as_key(row.settings)] = row

    def write(self, folder: Path) -> None:
        content = {"format": _FORMAT, **asdict(self), "rows": [asdict(row) for row in self.rows.values()]}
        write_atomically(folder / RECORD, (json.dumps(content, indent=1) + "\n").encode())


def opened(folder: Path, begun: Record) -> Record:
    """The study in a folder, or the one that is ``begun`` there; UserError where anything else is."""
    path = folder / RECORD
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(f"{folder} holds other files, and no study; choose another out")
        return begun
    found = _read(path)
    if begun.head["case"] != found.head.get("case"):
        raise UserError(f"{path}: a study of {shown(found.head.get('case'))}; choose another out")
    if begun.head != found.head:
        raise UserError(f"{path}: {begun.head['case']} has changed since the study began, and runs would not be alike;"
                        " choose another out")  # fmt: skip
    if sorted(begun.keys) != sorted(found.keys):
        raise UserError(f"{path}: a study over {', '.join(found.keys)}; choose another out")
    for key in {**found.shared, **begun.shared}:
        before, now = found.shared.get(key), begun.shared.get(key)
        if before != now:
            raise UserError(f"{path}: a study with {key} = {shown(before)}, not {shown(now)}; choose another out")
    return found


def _read(path: Path) -> Record:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise ValueError("not a file")
        content: Any = json.loads(path.read_bytes())
        if content.pop("format") != _FORMAT:
            raise ValueError("another format")
        rows = [StudyRow(**row) for row in content.pop("rows")]
        return Record(**content, rows={as_key(row.settings): row for row in rows})
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: not the record of a study, or a damaged one ({error}); choose another out") from None
