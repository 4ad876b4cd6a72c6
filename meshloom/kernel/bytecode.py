"""Which outside values the code of a function reads by name, and which of their attributes."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import takewhile
from types import CodeType

from meshloom.records import dataclass

_IGNORED = ("CACHE", "EXTENDED_ARG", "NOP")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_LOCALS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_LOAD_FAST",
           "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST")  # fmt: skip
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME")
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT")
_CALL, _PARTIAL = "call", "partial"  # as ``ml.call`` and ``functools.partial`` are known
_MAKES_FUNCTION = ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE")


@dataclass(frozen=True)
class ReadOfName:
    """``name.a.b``: ``kind`` is "global", "free" (of a closure), "first" (the first parameter) or "import". ``line`` is
    that of the first such read. ``given_to``: something of the name ``call`` is called with it as the first argument;
    ``inside``: or with a lambda that reads it."""

    kind: str
    name: str
    chain: tuple[str, ...]
    line: int = field(default=0, compare=False)
    given_to: ReadOfName | None = None
    inside: bool = False


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> tuple[ReadOfName, ...]:
    """What the code reads, and the code of the functions, lambdas and comprehensions inside it; each once."""
    first = code.co_varnames[0] if code.co_argcount else ""
    return tuple(dict.fromkeys(_reads(code, frozenset(code.co_freevars), first, {})))


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes in code, and in that of the functions inside it."""
    inner = [names_in(one) for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(code.co_names).union(*inner)


@lru_cache(maxsize=4096)
def identities_asked(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """What code, and that of functions inside it, asks other objects to be (``a is b``), as names: (name, attributes
    ...), empty for what no names lead to. Without constants (``a is None``) and classes (``type(a) is type(b)``)."""
    steps, found = _steps(code), []
    for number, one in enumerate(steps):
        if one.opname == "IS_OP" and steps[number - 1].opname not in _CONSTANTS:
            operand = _last_operand(steps[:number])
            found += [] if operand[-1:] == ("__class__",) or operand == ("type()",) else [operand]
    inner = [each for one in code.co_consts if isinstance(one, CodeType) for each in identities_asked(one)]
    return tuple(dict.fromkeys((*found, *inner)))


def _last_operand(steps: Sequence[dis.Instruction]) -> tuple[str, ...]:
    """(name, attributes ...) of what the last instructions load; ("type()",) where they ask for the class of that."""
    loads, chain = list(steps), list[str]()
    calls = False
    while loads and loads[-1].opname in ("CALL", "PRECALL"):
        calls, _ = True, loads.pop()
    while loads and loads[-1].opname in _ATTRIBUTES:
        chain.insert(0, str(loads.pop().argval))
    root = loads.pop() if loads else None
    if calls:
        asks_type = loads and loads[-1].opname in _GLOBALS and loads[-1].argval == "type"
        return ("type()",) if asks_type else ()
    named = root is not None and root.opname in (*_GLOBALS, *_CELLS)
    return (str(root.argval) if root is not None and named else "", *chain)


@lru_cache(maxsize=16)  # what code reads, and what it asks to be the same, is looked for one after the other
def _steps(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple([one for one in dis.get_instructions(code) if one.opname not in _IGNORED])


def _reads(code: CodeType, free: frozenset[str], first: str, imported: Mapping[str, str]) -> Iterator[ReadOfName]:
    """``free``: cells that come from outside of the whole function; ``first``: its first parameter, as a local;
    ``imported``: modules that the function around it imports itself, by what it calls them."""
    steps, imported = _steps(code), dict(imported)
    module, line = "", code.co_firstlineno
    given_to: dict[int | CodeType, ReadOfName] = {}  # by the numbers of steps, and the code that they load
    for number, step in enumerate(steps):
        line = (step.positions and step.positions.lineno) or line
        if step.opname == "IMPORT_NAME":
            module, next_step = str(step.argval), steps[number + 1]
            if next_step.opname in _STORES:  # import a.b: what is kept is a
                imported[str(next_step.argval)] = module.partition(".")[0]
            if next_step.opname in (*_STORES, "IMPORT_FROM"):
                continue
        for kind, name, alone in _roots(step, free, first, module, imported):
            following = () if alone else takewhile(lambda one: one.opname in _ATTRIBUTES, steps[number + 1 :])
            start = (str(step.argval),) if step.opname == "IMPORT_FROM" else ()
            chain = (*start, *(str(one.argval) for one in following))
            found = ReadOfName(kind, name, chain, line, given_to.get(number))
            yield found
            if (name, *chain)[-1] == _CALL:
                for place in _first_argument(steps, number + 1 + len(chain)):
                    loaded = steps[place].argval
                    given_to |= {place: found} | ({loaded: found} if isinstance(loaded, CodeType) else {})
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            seen = {name: one for name, one in imported.items() if name in inner.co_freevars}
            read = _reads(inner, free & set(inner.co_freevars), first if first in inner.co_freevars else "", seen)
            of_call = given_to.get(inner)
            yield from read if of_call is None else (replace(one, given_to=of_call, inside=True) for one in read)


def _first_argument(steps: Sequence[dis.Instruction], start: int) -> Iterator[int]:
    """The steps that name the function which is given to a call, whose own name has been loaded before ``start``, or
    that load the code of a lambda; of ``partial`` what it is given. None where something is called that gives the
    function: what is read there decides which. The argument's steps lie, in the text, within the longest one that
    begins where their first does."""
    places = [(k, one.positions) for k, one in enumerate(steps) if k >= start and one.opname != "PUSH_NULL"]
    spans = [(k, (at.lineno or 0, at.col_offset or 0), (at.end_lineno or 0, at.end_col_offset or 0))
             for k, at in places if at is not None]  # fmt: skip
    if any(at is None or at.col_offset is None for _, at in places):  # Python was told to leave columns out
        return
    end = max((end for _, begin, end in spans if begin == spans[0][1]), default=(0, 0))
    inside = [k for k, begin, until in spans if spans[0][1] <= begin and until <= end]
    names = [*inside[:1], *takewhile(lambda k: steps[k].opname in _ATTRIBUTES, inside[1:])]
    if len(names) == len(inside):
        yield from inside[:1]
    elif steps[inside[-1]].opname in _MAKES_FUNCTION:
        yield from (k for k in inside if isinstance(steps[k].argval, CodeType))
    elif steps[names[-1]].argval == _PARTIAL:
        yield from _first_argument(steps, names[-1] + 1)
    elif not any("CALL" in steps[k].opname for k in inside):  # an item, or one of two
        yield from inside


def _roots(
    step: dis.Instruction, free: frozenset[str], first: str, module: str, imported: Mapping[str, str]
) -> Iterator[tuple[str, str, bool]]:
    """(kind, name, is it not followed by its attributes) of what an instruction loads from outside."""
    if step.opname in _GLOBALS:
        yield "global", str(step.argval), False
        if step.argval == "super" and "__class__" in free:  # finds them by itself
            yield "free", "__class__", True
            yield "first", first, True
    elif step.opname in _CELLS and step.argval in free:
        yield "free", str(step.argval), False
    elif step.opname in (*_CELLS, *_LOCALS):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)  # newer Pythons load two at a time
        for place, name in enumerate(names):
            if name == first or name in imported:
                kind, root = ("first", first) if name == first else ("import", imported[name])
                yield kind, root, place + 1 < len(names)
    elif step.opname in ("IMPORT_NAME", "IMPORT_FROM"):
        yield "import", module, False
