"""What objects of types written in C hold is followed, or a warning or a refusal says that nobody can compare it."""

from __future__ import annotations

import decimal
import importlib
import io
import operator
import re
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import meshloom as ml
from meshloom.errors import KernelError, ProgramError
from meshloom.kernel import c_state
from meshloom.kernel.captured import captured
from meshloom.kernel.outside import Unrepeatable
from tests.c_types import COMPARED, HIDDEN, ITERATORS, State
from tests.readers import READERS, changed_between, followed


def held(one: Any) -> Any:
    return one.held


def ways(state: State) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """An object, and how to get it from what a function reads: by its name, in an object that is handed on, and the
    same of a class that is derived from its type."""
    yield state.make(state.kind), lambda one: one
    one = state.make(state.kind)
    yield types.SimpleNamespace(held=one), held
    if isinstance(state.kind, type):
        try:
            derived = type("Derived", (state.kind,), {"__module__": __name__})
        except TypeError:  # no type for it
            return
        yield state.make(derived), lambda one: one


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("name", [*COMPARED, *HIDDEN])
def test_state_in_c_is_followed_or_somebody_says_so(name: str, kind: str) -> None:
    state = (COMPARED | HIDDEN)[name]
    for holder, of in ways(state):
        said = seen_through(kind, state, holder, of)
        assert not (said and state.quietly), said


def seen_through(kind: str, state: State, holder: Any, of: Callable[[Any], Any]) -> str:
    """What a kernel or program says that reads an object, got by ``of`` from what holds it."""
    read, object_ = state.read, of(holder)
    return followed(kind, lambda: read(of(holder)), changed_between(lambda: state.change(object_)))


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("name", ITERATORS)
def test_iterators_are_refused_or_somebody_says_so(name: str, kind: str) -> None:
    one, out = ITERATORS[name](), ml.Set(1, "cells").field("out")
    assert isinstance(one, Iterator)
    with pytest.raises((KernelError, ProgramError), match=rf"c_types\.py:\d+: {kind.split()[0]} .* reads an iterator"):
        READERS[kind](lambda: len([next(one)]), out)()
    holder = types.SimpleNamespace(held=one)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        READERS[kind](lambda: len([next(held(holder))]), out)()
    assert len(said) == 1 and re.search(r"holder\.held.*cannot be compared", str(said[0].message)), said


MODULES = (
    "builtins array ast asyncio bz2 collections concurrent.futures configparser contextlib contextvars copy csv "
    "ctypes datetime decimal difflib email.message enum fractions functools gc graphlib hashlib heapq hmac inspect io "
    "itertools json lzma math mmap multiprocessing numbers operator os pathlib pickle queue random re select shelve "
    "shlex socket sqlite3 ssl statistics string struct subprocess symtable tarfile tempfile threading time tokenize "
    "traceback types typing uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo "
)
ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    (), (1,), ("a",), (b"a",), ([],), (io.BytesIO(),), (len, [1]), ([1], 1), ("d", [1.0])
)  # fmt: skip
#: What cannot change, in types that hide what they hold: numbers, texts, times, names of types and of functions.
CONSTANT = (int, float, complex, str, bytes, range, decimal.Decimal, tuple, frozenset, *c_state.CONSTANT,
            types.GenericAlias, type, property, staticmethod, classmethod, types.MethodType, operator.itemgetter,
            operator.attrgetter, operator.methodcaller, time.struct_time)  # fmt: skip


def made_of(kind: type) -> Iterator[Any]:
    """An object of a type, where simple arguments make one."""
    for arguments in ARGUMENTS:
        try:
            yield kind(*arguments)
        except Exception:  # other arguments, or none at all
            continue
        return


@pytest.mark.filterwarnings("ignore")  # of types that are on their way out
def test_every_type_that_hides_state_is_known_or_cannot_be_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python's own types, all of them: one that a later Python adds cannot be compared until somebody says how."""
    monkeypatch.chdir(tmp_path)  # some make files
    followed_quietly = [one.kind for one in COMPARED.values() if one.quietly and isinstance(one.kind, type)]
    known = (*CONSTANT, *c_state.LOCKS, *followed_quietly)
    modules = [importlib.import_module(name) for name in MODULES.split()]
    kinds = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    seen, wrong = 0, []
    for kind in sorted(kinds, key=lambda one: f"{one.__module__}.{one.__qualname__}"):
        for one in made_of(kind) if c_state.hides_state(kind) else ():
            seen += 1
            try:
                comparable = captured(lambda one=one: one).comparable
            except Unrepeatable:
                comparable = False
            wrong += [kind] if comparable and not isinstance(one, known) else []
    assert not wrong and seen > 100, (seen, wrong)
