"""Which outside values the code of a function reads by name, and which of their attributes."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from types import CodeType

_IGNORED = ("CACHE", "EXTENDED_ARG", "NOP")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_LOCALS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_LOAD_FAST",
           "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST")  # fmt: skip
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


@dataclass(frozen=True)
class ReadOfName:
    """``name.a.b``: ``kind`` is "global", "free" (of a closure), "first" (the first parameter) or "import". ``line`` is
    that of the first such read."""

    kind: str
    name: str
    chain: tuple[str, ...]
    line: int = field(default=0, compare=False)


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> tuple[ReadOfName, ...]:
    """What the code reads, and the code of the functions, lambdas and comprehensions inside it; each once."""
    first = code.co_varnames[0] if code.co_argcount else ""
    return tuple(dict.fromkeys(_reads(code, frozenset(code.co_freevars), first)))


def _reads(code: CodeType, free: frozenset[str], first: str) -> Iterator[ReadOfName]:
    """``free``: cells that come from outside of the whole function; ``first``: its first parameter, as a local."""
    steps = [one for one in dis.get_instructions(code) if one.opname not in _IGNORED]
    module, line = "", code.co_firstlineno
    for number, step in enumerate(steps):
        line = (step.positions and step.positions.lineno) or line
        module = str(step.argval) if step.opname == "IMPORT_NAME" else module
        for kind, name, alone in _roots(step, free, first, module):
            following = () if alone else takewhile(lambda one: one.opname in _ATTRIBUTES, steps[number + 1 :])
            start = (str(step.argval),) if step.opname == "IMPORT_FROM" else ()
            yield ReadOfName(kind, name, (*start, *(str(one.argval) for one in following)), line)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _reads(inner, free & set(inner.co_freevars), first if first in inner.co_freevars else "")


def _roots(step: dis.Instruction, free: frozenset[str], first: str, module: str) -> Iterator[tuple[str, str, bool]]:
    """(kind, name, is it not followed by its attributes) of what an instruction loads from outside."""
    if step.opname in _GLOBALS:
        yield "global", str(step.argval), False
        if step.argval == "super" and "__class__" in free:  # finds them by itself
            yield "free", "__class__", True
            yield "first", first, True
    elif step.opname in _CELLS and step.argval in free:
        yield "free", str(step.argval), False
    elif step.opname in (*_CELLS, *_LOCALS) and first:
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)  # newer Pythons load two at a time
        for place, name in enumerate(names):
            if name == first:
                yield "first", first, place + 1 < len(names)
    elif step.opname in ("IMPORT_NAME", "IMPORT_FROM"):
        yield "import", module, False
