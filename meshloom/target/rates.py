"""What work costs on a machine, by the piece: the figures of the cost model."""

from __future__ import annotations

from dataclasses import fields, replace

from meshloom.records import dataclass

#: What takes as long on a machine with more multiprocessors.
_AS_LONG = ("per_launch", "per_round")


@dataclass(frozen=True)
class Rates:
    """Seconds per unit on one machine; the values are in the files of ``devices``."""

    per_byte: float
    per_flop: float
    per_atomic: float
    per_update: float
    per_launch: float
    per_target_visit: float
    per_request: float
    per_passed: float
    per_round: float
    per_contended: float
    saturating_blocks: float  # that have to run at the same time to keep it busy

    def slower(self, times: float) -> Rates:
        """Those of a machine that needs so many times as long for everything but launches and waiting."""
        pieces = [f.name for f in fields(self) if f.name.startswith("per_") and f.name not in _AS_LONG]
        return replace(self, **{name: times * getattr(self, name) for name in pieces})

    def on_threads(self, threads: int, bytes_per_second: float) -> Rates:
        """Those of so many threads, where these are one core's: memory moves at most ``bytes_per_second`` for all of
        them. One thread starts no others and waits for nobody; its atomics are what they are, as the code for any
        number has them."""
        shared = replace(self.slower(1 / threads), saturating_blocks=min(self.saturating_blocks, float(threads)))
        bound = max(shared.per_byte, 1 / bytes_per_second)
        alone = dict.fromkeys(_AS_LONG, 0.0) if threads == 1 else {}
        return replace(shared, per_byte=bound, **alone)
