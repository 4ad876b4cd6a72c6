"""Which operations know what a recorded program has spent: loops that run by themselves, steps of what is fused, and
over ranks, where something else is replayed in its place, those of what runs here."""

from __future__ import annotations

from meshloom.operation.operation import Operation
from meshloom.operation.past_times import Timed
from meshloom.operation.tape import Tape


def executed(tape: Tape) -> tuple[Tape, ...]:
    """What of a recorded program is replayed without a call in between, each with its times: its segments, or over
    ranks what of them runs here between exchanges."""
    return tuple([part for one in tape.segments for part in (one.lowered.segments if one.lowered else (one,))])


def timed_loops(tape: Tape) -> tuple[Operation, ...]:
    """The operations that keep their times themselves, where they run by themselves."""
    return (*tape.loops, *[loop for one in tape.segments if one.lowered for loop in one.lowered.loops])


def fused_times(tape: Tape) -> list[Timed]:
    """What the steps of the fused program have spent so far; nothing where a device replays all of it as one graph."""
    return [step for one in executed(tape) for made in one.made for step in made.timed()]
