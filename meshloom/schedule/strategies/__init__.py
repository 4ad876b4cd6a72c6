"""The strategies, one file each; importing this package registers them in the order of the documentation."""

from meshloom.schedule.plan.emitter import AUTOMATIC  # isort: skip
from meshloom.schedule.strategies.direct import Direct  # isort: skip
from meshloom.schedule.strategies.box import BoxStrategy  # isort: skip
from meshloom.schedule.strategies.atomic import AtomicStrategy  # isort: skip
from meshloom.schedule.strategies.warp_atomic import WarpAtomic  # isort: skip
from meshloom.schedule.strategies.strip import Strip  # isort: skip
from meshloom.schedule.strategies.color import Color  # isort: skip
from meshloom.schedule.strategies.block_color import BlockColor  # isort: skip
from meshloom.schedule.strategies.block_atomic import BlockAtomic  # isort: skip
from meshloom.schedule.strategies.staged import Staged  # isort: skip
from meshloom.schedule.strategies.owner import Owner  # isort: skip
from meshloom.schedule.strategies.tile import Tile  # isort: skip
from meshloom.schedule.strategies.block_staged import BlockStaged  # isort: skip
from meshloom.schedule.strategies.base import (
    ASSIGNED,
    CHUNKS,
    ELEMENTS,
    GATHERS,
    POINTS,
    SERIAL,
    Strategy,
    check_variant,
    names,
    serving,
    strategy,
    variants,
    verify,
)

__all__ = [
    "ASSIGNED",
    "AUTOMATIC",
    "CHUNKS",
    "ELEMENTS",
    "GATHERS",
    "POINTS",
    "SERIAL",
    "AtomicStrategy",
    "BlockAtomic",
    "BlockColor",
    "BlockStaged",
    "BoxStrategy",
    "Color",
    "Direct",
    "Owner",
    "Staged",
    "Strategy",
    "Strip",
    "Tile",
    "WarpAtomic",
    "check_variant",
    "names",
    "serving",
    "strategy",
    "variants",
    "verify",
]
