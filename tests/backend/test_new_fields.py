"""New fields are zero: none of their values goes to a device, unless somebody has had their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cuda.backend import CudaBackend
from meshloom.backend.cuda.engine import Device


class Memory(Device):
    """Counts what is brought to it."""

    def __init__(self) -> None:
        self.brought: list[str] = []

    def upload(self, array: np.ndarray) -> Any:
        self.brought.append("upload")
        return np.array(array)

    def zeros(self, array: np.ndarray) -> Any:
        self.brought.append("zeros")
        assert not array.any()
        return np.zeros(array.shape, array.dtype)


class Backend(CudaBackend):
    name = "cuda in host memory"

    def __init__(self) -> None:
        super().__init__()
        self.engine = Memory()


def brought(one: ml.Field | ml.Global) -> list[str]:
    backend = Backend()
    backend.bring(one)
    assert isinstance(backend.engine, Memory)
    return backend.engine.brought


@ml.kernel
def write(u: ml.Write):
    u[...] = 3.0


TOUCHED: dict[str, Callable[[ml.Field], Any]] = {
    "fill": lambda u: u.fill(3.0),
    "assign": lambda u: u.assign(np.full((6, 2), 3.0)),
    "loop": lambda u: write(u.set, u),
    "program": lambda u: ml.program(lambda: write(u.set, u)).run(1),
    "memory": lambda u: u.memory().fill(3.0),
    "storage": lambda u: u.storage.fill(3.0),
}


@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4"])
def test_a_new_field_is_made_there(layout: str) -> None:
    cells = ml.Set(6, "cells")
    u = cells.field("u", 2, layout=layout)
    for one in (u, u.like("v"), ml.Grid((3, 3)).field("w")):
        before = one._storage
        assert brought(one) == ["zeros"] and one._storage is not before and not one.numpy().any()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("how", TOUCHED)
def test_what_somebody_has_had_is_brought(how: str, backend: str) -> None:
    ml.use(backend)
    u = ml.Set(6, "cells").field("u", 2)
    TOUCHED[how](u)
    u.stays = u.lent = False
    assert brought(u) == ["upload"]
    np.testing.assert_array_equal(u.numpy(), 3.0)


def test_values_and_copies_are_brought() -> None:
    u = ml.Set(6, "cells").field("u", data=2.0)
    assert brought(u.copy()) == brought(u) == ["upload"] and (u.numpy() == 2.0).all()
    assert brought(ml.Global(0.0, "total")) == ["upload"]
