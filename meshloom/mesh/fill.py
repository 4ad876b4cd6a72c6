"""A fill: the one assignment that a program records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshloom.native.threads import check_device
from meshloom.recording import recorder

if TYPE_CHECKING:
    from meshloom.mesh.core import Field, Global


@dataclass(frozen=True, eq=False)
class Fill:
    """A recorded assignment of one number to a whole field or global."""

    target: Field | Global
    value: float | int

    @property
    def name(self) -> str:
        return f"{self.target.name} = {self.value:g}"

    @property
    def reads(self) -> tuple[Field | Global, ...]:
        return ()

    @property
    def writes(self) -> tuple[Field | Global, ...]:
        return (self.target,)

    def __call__(self) -> None:
        record = recorder.get()
        if record is not None:
            record(self)
            return
        storage = self.target.storage
        if not isinstance(storage, np.ndarray):
            check_device()
        storage.fill(self.value)
        self.target.undefined_after = ""
        self.target.changed()
