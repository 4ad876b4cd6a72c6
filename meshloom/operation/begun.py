"""Programs that run one after the other are compiled at the same time: what the later ones need is begun before the
first of them waits for a compiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from meshloom.errors import UserError
from meshloom.native.together import together
from meshloom.operation.program import Program


@contextmanager
def begun(programs: Iterable[Program], *arguments: Any) -> Iterator[None]:
    """A block in which some programs run in this order, each with these arguments: before it they are recorded, fused
    and begun, as far as each finds things then as it will when it runs. Behind it nothing is held for them that has
    not run."""
    listed = tuple(programs)
    try:
        with together():
            with suppress(UserError, MemoryError):  # which running it will tell, where it is needed at all
                all(one._begin_to_prepare(*arguments) for one in listed)
            yield
    finally:
        for one in listed:
            one._begun.clear()
