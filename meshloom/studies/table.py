"""A study as a table, on paper and as CSV, and as a picture."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import one_line
from meshloom.io.files import write_atomically
from meshloom.studies.axes import Axes
from meshloom.studies.record import StudyRow

TABLE, PICTURE = "study.csv", "study.png"
VERDICT = "converged"  # a column of studies whose runs seek a steady state
OWN = (VERDICT, "iterations", "seconds", "run", "failed")  # other columns that a study may have
_LONGEST_WHY = 100  # letters of a reason on paper


def number_names(rows: Sequence[StudyRow]) -> list[str]:
    """Of what came out of all runs, in their order."""
    return list(dict.fromkeys(name for row in rows for name in row.numbers))


def write_csv(path: Path, axes: Axes, rows: Sequence[StudyRow]) -> None:
    """One row for each run: settings, what came out, iterations, seconds, its folder, and why it failed."""
    names, text = number_names(rows), io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    own_names = [name for name in OWN if name != VERDICT or _has_verdicts(rows)]
    out.writerow([*axes.values, *names, *own_names])
    for row in rows:
        numbers = row.numbers
        values = [row.settings[key] for key in axes.values]
        own = dict(zip(OWN, (_verdict(row), row.iterations, round(row.seconds, 3), row.run, one_line(row.why)),
                       strict=True))  # fmt: skip
        out.writerow([*values, *(numbers.get(name, "") for name in names), *(own[name] for name in own_names)])
    write_atomically(path, text.getvalue().encode())


def _has_verdicts(rows: Sequence[StudyRow]) -> bool:
    return any(row.converged is not None for row in rows)


def _verdict(row: StudyRow) -> str:
    """As in TOML and JSON; '' where there is none."""
    return "" if row.converged is None else str(row.converged).lower()


def as_text(axes: Axes, rows: Sequence[StudyRow]) -> str:
    """The same for people, in columns."""
    names, verdicts = number_names(rows), _has_verdicts(rows)
    heads = [*axes.values, *names, *([VERDICT] if verdicts else []), "seconds", "run", ""]
    cells = [heads, *(_cells(axes, names, row, verdicts=verdicts) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(heads) - 1)]
    texts = (
        "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in cells
    )
    return "\n".join(text.rstrip() for text in texts)


def _cells(axes: Axes, names: Sequence[str], row: StudyRow, *, verdicts: bool) -> list[str]:
    values = [_short(row.settings[key]) for key in axes.values]
    numbers = row.numbers
    texts = [_short(numbers[name]) if name in numbers else "-" for name in names]
    why = one_line(row.why)
    why = why if len(why) <= _LONGEST_WHY else f"{why[: _LONGEST_WHY - 3]}..."
    verdict = [_verdict(row) or "-"] if verdicts else []
    return [*values, *texts, *verdict, f"{row.seconds:.1f}", row.run, why]


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else one_line(str(value))


def values_of(axes: Axes, rows: Sequence[StudyRow], name: str) -> np.ndarray:
    """What has that name at the end of every run, with one axis for each setting; NaN where a run failed."""
    found = [float(row.numbers.get(name, math.nan)) if row.is_done else math.nan for row in rows]
    return np.array(found).reshape(axes.shape)


def draw(path: Path, title: str, axes: Axes, rows: Sequence[StudyRow], name: str) -> bool:
    """A PNG: over one setting a curve, over two tiles, over more curves over the first. False where there is nothing to
    compare. UserError where matplotlib is missing."""
    from meshloom.io.plots import save_curves, save_tiles

    values = values_of(axes, rows, name)
    keys = [key for key, several in axes.values.items() if len(several) > 1]
    if not keys or not np.isfinite(values).any():
        return False
    sorted_by = [_order(axes.values[key]) for key in keys]
    values = values.reshape([len(one) for one in sorted_by])[np.ix_(*sorted_by)]
    named = [[_short(axes.values[key][k]) for k in order] for key, order in zip(keys, sorted_by, strict=True)]
    if len(keys) == 2:
        save_tiles(path, values, (named[0], named[1]), labels=(keys[0], keys[1]), label=name, title=title)
        return True
    x, label = _places(keys[0], [axes.values[keys[0]][k] for k in sorted_by[0]])
    curves = {name: values}
    if len(keys) > 2:
        each = (zip(keys[1:], one, strict=True) for one in product(*named[1:]))
        names = [", ".join(f"{key} = {value}" for key, value in one) for one in each]
        curves = dict(zip(names, values.reshape(len(x), -1).T, strict=True))
    save_curves(path, x, curves, labels=(label, name), title=title)
    return True


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _order(values: Sequence[Any]) -> list[int]:
    """Numbers ascend; words stay as they were given."""
    return sorted(range(len(values)), key=lambda k: values[k]) if _are_numbers(values) else list(range(len(values)))


def _places(key: str, values: Sequence[Any]) -> tuple[np.ndarray, str]:
    """Where values stand along an axis, and what is written there: words stand one after the other."""
    if _are_numbers(values):
        return np.array(values, float), key
    return np.arange(len(values), dtype=float), f"{key}: {', '.join(f'{k} {_short(v)}' for k, v in enumerate(values))}"
