"""What a case will show at its end, asked for before its first iteration: a mistake costs seconds, not a run.

Everything is asked for and looked at; nothing is drawn and nothing written, so that it costs hardly anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from meshloom.errors import UserError, shown
from meshloom.io.rank_rows import RankRows
from meshloom.run.guard import Guard
from meshloom.run.output import drawn_values
from meshloom.run.report import RunReport
from meshloom.run.task import RunTask
from meshloom.run.views import Chart, Image, Picture, SpacePicture

_NUMBERS = "biuf"  # kinds of types


def rehearse(task: RunTask, history: np.ndarray) -> None:
    """UserError where a method that shows something fails on the state as it is. ``history`` (n, monitors) is what is
    known of before; where that is nothing, charts get one row of monitors, that of now."""
    guard = Guard(task, RunReport())
    with np.errstate(all="ignore"):
        now = task.recorded_now()
        rows = history
        with guard.trying("monitor_rows"):
            row = _monitor_row(task, now)
            rows = history if len(history) else row
        with guard.trying("steps_left"):
            _check_steps(task.steps_left(now))
        with guard.trying("time_span"):
            _check_span(task.time_span(now))
        if task.output.vtu and task.shows_checkpoints:
            with guard.trying(task.fields_method):
                task.try_fields()
        if "monitor_rows" not in guard.failed:
            with guard.trying("charts"):
                for chart in task.charts(dict(zip(task.monitors, rows.T, strict=True))):
                    _check_chart(chart)
        if task.output.plot:
            _try_pictures(task, guard)
    if guard.failures:
        raise UserError(f"{'; '.join(guard.failures)}; found before the first iteration, nothing has been run")


def _monitor_row(task: RunTask, now: np.ndarray) -> np.ndarray:
    row = np.asarray(task.monitor_rows(now[None, :]))
    if row.dtype.kind == "c":
        raise ValueError("it gives complex values where real ones are right")
    row = row.astype(np.float64)
    if row.shape != (1, len(task.monitors)):
        raise ValueError(f"it gives an array of shape {row.shape} where (1, {len(task.monitors)}) is right: one value"
                         f" for each of {', '.join(task.monitors)}")  # fmt: skip
    return row


def _check_steps(left: Any) -> None:
    if left is not None and (isinstance(left, bool) or not isinstance(left, Integral)):
        raise TypeError(f"it gives {shown(left)} where a whole number of iterations, or None, is right")


def _check_span(span: Any) -> None:
    if span is not None and not (isinstance(span, tuple | list) and len(span) == 2 and _are_numbers(span)):
        raise TypeError(f"it gives {shown(span)} where (time now, time at the end), or None, is right")


def _try_pictures(task: RunTask, guard: Guard) -> None:
    with guard.trying("picture"):
        picture = task.picture()
        if picture is not None:
            _check_view(task, picture)
    with guard.trying("maps"):
        for name, view in task.maps().items():
            _check_texts("a name", name)
            _check_view(task, view)


def _check_view(task: RunTask, view: Any) -> None:
    """TypeError or ValueError for what cannot be drawn."""
    if isinstance(view, Chart):
        return _check_chart(view)
    if not isinstance(view, Picture | Image | SpacePicture):
        raise TypeError(f"it gives {shown(view)} where a Picture, a SpacePicture, an Image or a Chart is right")
    _check_texts("its label", view.label)
    if unknown := [name for name in view.curves or () if name not in task.monitors]:
        raise ValueError(f"its curves name {shown(unknown[0])}, which is none of the monitors")
    if isinstance(view, Image):
        _expect("values", view.values, (len(view.x), len(view.y)), "one for each x and y")
        for name in ("along_x", "along_y") if view.flow is not None else ():
            _expect(f"flow.{name}", getattr(view.flow, name), (len(view.x), len(view.y)), "one for each x and y")
    else:
        _check_polygons(task, view)


def _check_polygons(task: RunTask, view: Picture | SpacePicture) -> None:
    over = task.drawn_over()
    if view.polygons is None and over is None:
        raise ValueError("it brings no points and polygons, and the case has no mesh to draw it over")
    polygons = view.polygons if view.polygons is not None or over is None else over[1]
    _expect("values", drawn_values(task, view), (len(polygons),), "one for each cell")  # type: ignore[arg-type]
    if isinstance(view, Picture) and view.window is not None:
        _check_window(view.window)


def _check_window(window: Any) -> None:
    if not (isinstance(window, tuple | list) and len(window) == 4 and _are_numbers(window)):
        raise ValueError(f"its window is {shown(window)} where (xmin, xmax, ymin, ymax) is right")
    if not (window[0] < window[1] and window[2] < window[3]):
        raise ValueError(f"its window is {shown(window)} where xmin < xmax and ymin < ymax is right")


def _check_chart(chart: Any) -> None:
    if not isinstance(chart, Chart):
        raise TypeError(f"it gives {shown(chart)} where a Chart is right")
    _check_texts("its name or label", chart.name, chart.x_label, chart.y_label)
    for name, curve in chart.curves.items():
        _check_texts("the name of a curve", name)
        _expect(f"the curve {shown(name)}", curve, (len(chart.x),), "one value for each x")


def _check_texts(what: str, *texts: Any) -> None:
    if wrong := [one for one in texts if not isinstance(one, str)]:
        raise TypeError(f"{what} is {shown(wrong[0])} where a text is right")


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(one, Real) for one in values)


def _expect(what: str, values: Any, shape: tuple[int, ...], why: str) -> None:
    found = values if isinstance(values, RankRows) else np.asarray(values)
    if found.shape != shape or found.dtype.kind not in _NUMBERS:
        raise ValueError(f"{what}: shape {found.shape} and type {found.dtype} where {shape} is right, {why}")
