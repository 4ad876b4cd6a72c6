"""Kernels and programs that read something besides their parameters, while it changes: what do they say?"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import meshloom as ml
from meshloom.errors import KernelError, ProgramError


class Held:
    """Holds a value."""

    def __init__(self, value: Any):
        self.value = value


def held(value: Any) -> Held:
    return Held(value)


@ml.kernel
def put(x: ml.Read, out: ml.Write):
    out[...] = x


def kernel_that_reads(read: Callable[[], float], out: ml.Field) -> Callable[[], None]:
    @ml.kernel
    def apply(out: ml.Write):
        out[...] = float(read())

    return lambda: apply(out.set, out)


def program_that_reads(read: Callable[[], float], out: ml.Field) -> Callable[[], None]:
    return ml.program(lambda: put(out.set, float(read()), out))


def program_of_arguments(read: Callable[[], float], out: ml.Field) -> Callable[[], None]:
    """Which finds what it recorded before by the values that it reads, as a kernel its traces."""
    return partial(ml.program(lambda given: put(given.set, float(read()), given)), out)


READERS = {"kernel": kernel_that_reads, "program": program_that_reads, "program of arguments": program_of_arguments}


def followed(kind: str, read: Callable[[], float], changes: Iterator[Any]) -> str:
    """How a kernel or program follows what changes: "" (quietly), or what it said; AssertionError where it did not."""
    ml.use("numpy")
    out = ml.Set(1, "cells").field("out")
    run, seen = READERS[kind](read, out), []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            for _ in changes:
                run()
                seen.append(float(read()))
                assert out.numpy()[0] == seen[-1], (kind, seen)
        except (KernelError, ProgramError) as refusal:
            assert re.match(r"\S+\.py:\d+: ", str(refusal)), refusal
            return str(refusal)
    assert len(set(seen)) > 1, "nothing has changed"
    found = [str(one.message) for one in said if str(one.message).startswith(kind.split()[0])]
    assert len(found) <= 1 and all(re.search(r"\.py:\d+\)", one) for one in found), found
    return "".join(found)


def changed_between(change: Callable[[], Any]) -> Iterator[None]:
    """Twice as it is, then changed, and changed once more."""
    yield
    yield
    for _ in range(2):
        change()
        yield
