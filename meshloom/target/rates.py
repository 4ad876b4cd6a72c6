"""What work costs on a machine, by the piece: the figures of the cost model."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

#: What takes as long on a machine with more multiprocessors.
_AS_LONG = ("per_launch", "per_round")


@dataclass(frozen=True)
class Rates:
    """Seconds per unit on one machine; the defaults are those of one core of a current server CPU."""

    per_byte: float = 1 / 12e9
    per_flop: float = 1 / 8e9
    per_atomic: float = 7e-9
    per_update: float = 0.02e-9
    per_launch: float = 3e-6
    per_visit: float = 0.0
    per_request: float = 0.0
    per_round: float = 0.0
    per_crowded: float = 0.0
    busy: float = 8.0  # blocks that have to run at the same time to keep it busy
    full_speed_registers: float = math.inf  # of a thread: with more, too few threads wait for memory at a time
    registers_beside: float = 0.0  # what a kernel needs besides values of its formulas
    registers_per_value: float = 1.0  # registers of 4 bytes for 4 bytes that are alive in a formula

    def slower(self, times: float) -> Rates:
        """Those of a machine that needs so many times as long for everything but launches and waiting."""
        pieces = [f.name for f in fields(self) if f.name.startswith("per_") and f.name not in _AS_LONG]
        return replace(self, **{name: times * getattr(self, name) for name in pieces})


CPU_CORE = Rates(per_round=3e-6)
#: A current data-centre GPU as a whole: arithmetic is nearly free, launches and atomics are what costs besides bytes.
GPU = Rates(
    per_byte=1 / 4e12, per_flop=1 / 20e12, per_atomic=2e-12, per_update=5e-12, per_launch=3e-6, per_visit=5e-12,
    per_request=1 / 12e12, per_round=12e-6, per_crowded=5e-12, full_speed_registers=69.0, registers_beside=24.0,
    registers_per_value=1.2,
)  # fmt: skip
