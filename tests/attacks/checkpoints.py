"""Checkpoint files that something has happened to."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from meshloom.errors import UserError
from meshloom.io import checkpoint as checkpoints
from meshloom.io.checkpoint import Checkpoint
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.damage import damaged


@cache
def _whole() -> tuple[Checkpoint, bytes]:
    dice = np.random.default_rng(0)
    state = {"flow": dice.random((40, 4)), "a/b é": dice.random((7, 1)).astype(np.float32), "time": np.ones((1, 1))}
    one = Checkpoint("airfoil", 3, "double", "0123", 'case = "airfoil"\n', state, ("rms", "t,1"), dice.random((3, 2)))
    with TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.h5")
        checkpoints.save(path, one)
        return one, path.read_bytes()


def attempt(dice: random.Random, folder: Path) -> str:
    """A damaged file is refused in one line, or holds what was written."""
    whole, data = _whole()
    path = folder / "checkpoint.h5"
    path.write_bytes(damaged(dice, data))
    try:
        found = checkpoints.load(path)
    except UserError as refusal:
        if "\n" in str(refusal) or str(path) not in str(refusal):
            raise Broken(f"not one line that names the file: {refusal}") from None
        return "refused"
    if found.digest() != whole.digest():
        raise Broken("a damaged checkpoint was believed")
    return "same content"


CAMPAIGNS = (
    Campaign("checkpoints", "bits turned over, pieces cut out, doubled or zeroed in a checkpoint",
             "refused in one line, or read as it was written", attempt, few=60, many=1000, seconds=15.0),
)  # fmt: skip
