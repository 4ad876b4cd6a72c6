"""What a case is, whatever its physics: what it answers, the settings that all share, what it gives to be drawn."""

from meshloom.case.base import Case, registry
from meshloom.case.on_grid import GridCase
from meshloom.case.schedules import UnknownLoop, loops_text, schedule_table
from meshloom.case.settings import MOST_ITERATIONS, PRECISIONS, OutputOptions, RunOptions, order_option
from meshloom.run.limit import Limit
from meshloom.run.views import Chart, Image, Picture, SpacePicture, Streamlines, cut_planes

__all__ = [
    "MOST_ITERATIONS",
    "PRECISIONS",
    "Case",
    "Chart",
    "GridCase",
    "Image",
    "Limit",
    "OutputOptions",
    "Picture",
    "RunOptions",
    "SpacePicture",
    "Streamlines",
    "UnknownLoop",
    "cut_planes",
    "loops_text",
    "order_option",
    "registry",
    "schedule_table",
]
