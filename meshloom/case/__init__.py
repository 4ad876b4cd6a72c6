"""What a case is, whatever its physics: what it answers, the settings that all share, what it gives to be drawn."""

from meshloom.case.base import Case, CaseSource, is_ready, keeping_registry, registry
from meshloom.case.even_steps import Clock
from meshloom.case.on_grid import GridCase
from meshloom.case.schedules import UnknownLoop, loops_text, schedule_table
from meshloom.case.settings import (
    MOST_ITERATIONS,
    PRECISIONS,
    CaseConfig,
    FamilyConfig,
    OutputOptions,
    RunOptions,
    defaults,
    order_option,
)
from meshloom.config import option, section, table
from meshloom.run.own_rows import by_root_from_all, own_values_at, rows_at, values_at
from meshloom.run.task import Limit
from meshloom.run.verdict import BROKEN, GROWING, STALLED
from meshloom.run.views import Chart, Image, Picture, SpacePicture, Streamlines, cut_planes, on_surface

__all__ = [
    "BROKEN",
    "GROWING",
    "MOST_ITERATIONS",
    "PRECISIONS",
    "STALLED",
    "Case",
    "CaseConfig",
    "CaseSource",
    "Chart",
    "Clock",
    "FamilyConfig",
    "GridCase",
    "Image",
    "Limit",
    "OutputOptions",
    "Picture",
    "RunOptions",
    "SpacePicture",
    "Streamlines",
    "UnknownLoop",
    "by_root_from_all",
    "cut_planes",
    "defaults",
    "is_ready",
    "keeping_registry",
    "loops_text",
    "on_surface",
    "option",
    "order_option",
    "own_values_at",
    "registry",
    "rows_at",
    "schedule_table",
    "section",
    "table",
    "values_at",
]
