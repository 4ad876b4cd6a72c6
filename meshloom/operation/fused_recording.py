"""A fused program as a back end made it ready, with the times of its steps."""

from __future__ import annotations

import math

import numpy as np

from meshloom.backend.base import Backend, Replayed
from meshloom.native.together import together
from meshloom.operation.execution import Spent
from meshloom.operation.fusion.fused_program import FusedProgram
from meshloom.operation.past_times import Timed
from meshloom.operation.replay import Replay, StartValue, prepared


class FusedRecording:
    """A fused program prepared by a back end."""

    def __init__(self, program: FusedProgram, backend: Backend, *, branches: bool = True):
        self.program, self.backend = program, backend
        with together():
            prepared((*program.prologue, *program.operations))  # which may bring spare buffers to where it runs
            self.prologue = [step.ready() for step in program.prologue]
            self.body = [step.ready() for step in program.operations]
            self._replay = backend.recording(self.body, program.waits if branches else None)
        self.summary = self._replay.summary
        constants = [StartValue(one, value) for one, value in program.constants.items()]
        self.replay = Replay(self._replay, self.prologue, constants)
        self._seconds, self._replays = np.zeros(len(self.body)), 0

    def noted(self, done: Replayed) -> Replayed:
        """The same; its times are kept."""
        if len(done.seconds) == len(self.body):
            self._seconds, self._replays = self._seconds + done.seconds, self._replays + len(done.history)
        return done

    def timed(self) -> list[Timed]:
        """The steps of the body with their seconds and replays so far; those of which that is known."""
        if not self._replays:
            return []
        found = zip(self.program.operations, self._seconds.tolist(), strict=True)
        return [Timed(step, Spent(took, self._replays)) for step, took in found if math.isfinite(took)]

    @property
    def measured(self) -> list[float]:
        """Seconds of each step of the body, for one replay; empty where nothing is known."""
        return (self._seconds / self._replays).tolist() if self._replays else []
