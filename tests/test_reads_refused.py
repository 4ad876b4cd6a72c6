"""What kernels and programs refuse to read, and what a refusal calls it."""

from __future__ import annotations

import collections
import decimal
import gc
import io
import logging
import operator
import re
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, ProgramError
from tests.one_line import one_line_from
from tests.readers import READERS, Held, followed, held, put


def clock_imported_inside() -> float:
    import time

    return time.perf_counter()


def numbers_imported_inside() -> float:
    import numpy as numeric

    return numeric.random.rand()


REFUSED = {
    "time": (clock_imported_inside, "reads the time"), "random": (numbers_imported_inside, "draws random numbers"),
    "np.geterr": (lambda: len(np.geterr()), "reads settings of numpy"),
    "decimal": (lambda: decimal.getcontext().prec, "reads settings of decimal"),
}  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_each_time_is_refused_in_kernels_and_programs(name: str, kind: str) -> None:
    read, words = REFUSED[name]
    word, error = kind.split()[0], KernelError if kind == "kernel" else ProgramError
    with one_line_from(error, rf"^{__file__}:\d+: {word} .*{words}"):
        READERS[kind](read, ml.Set(1).field("out"))()


def changed_by_its_reader() -> dict[str, Callable[[], Any]]:
    """Functions that change what they read, by what a person calls that."""
    count, table, deep, queue = [0], {"a": 0}, held([{"b": [1, 3, 2]}]), collections.deque([1, 2, 3])
    array, objects, settings = np.zeros(2), np.array([0, None], object), held(1)

    def entry() -> int:
        count[0] += 1
        return count[0]

    def inner_entry() -> int:
        deep.value[0]["b"][1] += 1
        return int(deep.value[0]["b"][1])

    return {
        "count[0]": entry,
        "table['a']": lambda: operator.setitem(table, "a", table["a"] + 1) or table["a"],
        "deep.value[0]['b'][1]": inner_entry,
        "queue": lambda: queue.pop(),
        "array": lambda: operator.setitem(array, 1, array[1] + 1) or array[1],
        "objects[0]": lambda: operator.setitem(objects, 0, objects[0] + 1) or objects[0],
        "settings.value": lambda: setattr(settings, "value", settings.value + 1) or settings.value,
    }


@pytest.mark.parametrize("name", changed_by_its_reader())
def test_a_refusal_names_what_was_changed_as_the_user_calls_it(name: str) -> None:
    read, out = changed_by_its_reader()[name], ml.Set(1).field("out")
    step = ml.program(lambda: put(out.set, float(read()), out))
    line = read.__code__.co_firstlineno
    with one_line_from(ProgramError, f"^{__file__}:({line}|{line + 1}): program .* reads {re.escape(f'({name})')}"):
        step()


def test_a_function_that_can_be_called_but_once_is_refused() -> None:
    stream, out = io.StringIO("1"), ml.Set(1).field("out")
    step = ml.program(lambda: put(out.set, float(stream.read()), out))
    with (
        pytest.warns(UserWarning, match=r"reads an object of type _io\.StringIO \(stream, \S*_refused\.py:\d+\)"),
        one_line_from(ProgramError, r"fails when it is called again \(ValueError: could not convert"),
    ):
        step()


def said_by(one: Held, level: Held) -> float:
    one.value[0].info("a step of %s", level.value)
    return level.value


def test_what_is_said_to_the_log_is_no_state() -> None:
    """Though where messages go is a file, which nobody compares."""
    log = logging.getLogger("meshloom.tests.refused")
    level = held(1.0)

    one = held((log, sys.__stderr__))

    def read() -> float:
        log.debug("a step of %s", level.value)
        return said_by(one, level)

    for kind in READERS:
        assert not followed(kind, read, (setattr(level, "value", k) for k in (1.0, 1.0, 2.0)))


def test_captured_values_keep_nothing_alive_that_is_referred_to_weakly() -> None:
    one, out = held(1), ml.Set(1).field("out")
    reference = weakref.ref(one)
    step = ml.program(lambda: put(out.set, float(reference() is None), out))
    with pytest.warns(UserWarning, match="reads a weak reference"):
        step()
    del one
    gc.collect()
    step()
    assert reference() is None and out.numpy()[0] == 1.0
