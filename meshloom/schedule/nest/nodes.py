"""The loop nest as data: what a strategy builds and a target prints.

Two families of frozen, comparable nodes. Values (``Expr``) are combined with Python's operators: ``row[t] + 1``,
``x < end``; comparison by content stays ``==``, so equality in the nest is ``a.equals(b)``. Statements hold values and
other statements. Nothing here knows how any of it is spelled; ``printer.py`` does, and the targets for what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import ClassVar

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.nest.types import BOOL, INDEX, INT, UNSIGNED, PairOf, PointerTo, RowOf, Type  # noqa: F401


class NestNode:
    """Anything in a nest. ``kind`` is the name of the method of a printer that spells it."""

    __slots__ = ()
    kind: ClassVar[str] = ""

    def __str__(self) -> str:
        """As C spells it."""
        return text_of(self)


@singledispatch
def text_of(node: NestNode) -> str:
    """The text of a node; ``printer.py`` says what it is."""
    return repr(node)


# ----- values -----------------------------------------------------------------------------------------------------
class Expr(NestNode):
    """A value, without effects."""

    __slots__ = ()
    __iter__ = None  # indexing makes a node, so nothing may try to unpack one by it
    __contains__ = None

    def __bool__(self) -> bool:
        raise TypeError("a value of a nest is known when the loop runs: make an If or a Select")

    def __getitem__(self, place: Value) -> Item:
        return Item(self, value(place))

    def __add__(self, other: Value) -> Binary:
        return Binary("+", self, value(other))

    def __radd__(self, other: Value) -> Binary:
        return Binary("+", value(other), self)

    def __sub__(self, other: Value) -> Binary:
        return Binary("-", self, value(other))

    def __rsub__(self, other: Value) -> Binary:
        return Binary("-", value(other), self)

    def __mul__(self, other: Value) -> Binary:
        return Binary("*", self, value(other))

    def __rmul__(self, other: Value) -> Binary:
        return Binary("*", value(other), self)

    def __truediv__(self, other: Value) -> Binary:
        """C's division: of whole numbers it leaves the fraction away."""
        return Binary("/", self, value(other))

    def __mod__(self, other: Value) -> Binary:
        return Binary("%", self, value(other))

    def __lshift__(self, other: Value) -> Binary:
        return Binary("<<", self, value(other))

    def __rlshift__(self, other: Value) -> Binary:
        return Binary("<<", value(other), self)

    def __rshift__(self, other: Value) -> Binary:
        return Binary(">>", self, value(other))

    def __and__(self, other: Value) -> Binary:
        return Binary("&", self, value(other))

    def __lt__(self, other: Value) -> Binary:
        return Binary("<", self, value(other))

    def __le__(self, other: Value) -> Binary:
        return Binary("<=", self, value(other))

    def __gt__(self, other: Value) -> Binary:
        return Binary(">", self, value(other))

    def __ge__(self, other: Value) -> Binary:
        return Binary(">=", self, value(other))

    def __neg__(self) -> Unary:
        return Unary("-", self)

    def equals(self, other: Value) -> Binary:
        """Are the two equal when the loop runs?"""
        return Binary("==", self, value(other))

    def differs(self, other: Value) -> Binary:
        """The opposite of ``equals``."""
        return Binary("!=", self, value(other))


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """A variable, array or size: one that the nest declares or that the code receives."""

    kind = "name"
    name: str


@dataclass(frozen=True, slots=True)
class Number(Expr):
    """A whole number; with a type a constant that is exact in it."""

    kind = "number"
    value: float | int | bool
    dtype: np.dtype | None = None


@dataclass(frozen=True, slots=True)
class Item(Expr):
    """The entry of an array at a place: a load, or where something is stored."""

    kind = "item"
    array: Expr
    place: Expr


@dataclass(frozen=True, slots=True)
class Piece(Expr):
    """A number of a row that was loaded at once."""

    kind = "piece"
    row: Expr
    place: Expr


@dataclass(frozen=True, slots=True)
class LoadRow(Expr):
    """So many numbers side by side, loaded at once from an address (``AddressOf`` the first, or array + place)."""

    kind = "load_row"
    ctype: str
    width: int
    address: Expr


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """``operator``: - ~ !"""

    kind = "unary"
    operator: str
    of: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """``operator``: one of C's between two values, with C's meaning."""

    kind = "binary"
    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """One of two values, by a condition."""

    kind = "select"
    condition: Expr
    yes: Expr
    no: Expr


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """The value in another type."""

    kind = "cast"
    ctype: Type
    of: Expr


@dataclass(frozen=True, slots=True)
class AddressOf(Expr):
    """Where an entry of an array lies."""

    kind = "address"
    place: Expr


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function of the prelude or the language; ``of_types``: types and numbers that choose it."""

    kind = "call"
    function: str
    arguments: tuple[Expr, ...]
    of_types: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Shuffle(Expr):
    """What a lane of the same warp has for a value; all lanes ask at the same time."""

    kind = "shuffle"
    of: Expr
    lane: Expr


@dataclass(frozen=True, slots=True)
class Thread(Expr):
    """The number of the thread in its block."""

    kind = "thread"


@dataclass(frozen=True, slots=True)
class Threads(Expr):
    """How many threads a block has."""

    kind = "threads"


@dataclass(frozen=True, slots=True)
class Grouped(Expr):
    """The same value, in parentheses that readers want and C does not need."""

    kind = "grouped"
    of: Expr


Value = Expr | int


# ----- statements -------------------------------------------------------------------------------------------------
class Statement(NestNode):
    """Something that is done."""

    __slots__ = ()


Body = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Let(Statement):
    """Names for values, all of one type; not ``fixed``: variables that change later."""

    kind = "let"
    ctype: Type
    named: tuple[tuple[str, Expr], ...]
    fixed: bool = True


@dataclass(frozen=True, slots=True)
class Room(Statement):
    """An array of the thread itself, nothing in it yet."""

    kind = "room"
    ctype: Type
    name: str
    size: Expr


@dataclass(frozen=True, slots=True)
class SharedArray(Statement):
    """An array that the threads of a block share, of a size known when the code is compiled."""

    kind = "shared_array"
    ctype: Type
    name: str
    size: Expr


@dataclass(frozen=True, slots=True)
class Store(Statement):
    """Set an entry or a variable; with an ``operator`` (+ - * /) to what that makes of what was there."""

    kind = "store"
    place: Expr
    value: Expr
    operator: str = ""


@dataclass(frozen=True, slots=True)
class StoreRow(Statement):
    """Numbers side by side, stored at once; ``place``: that of the first."""

    kind = "store_row"
    ctype: str
    place: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Accumulate(Statement):
    """Merge a value into an entry or variable that nobody else changes; ``combine``: as modes say it, "" sets it."""

    kind = "accumulate"
    place: Expr
    combine: str
    value: Expr
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Deposit(Statement):
    """Add a number to the bins of a sum whose order does not matter; nobody else changes them."""

    kind = "deposit"
    bins: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Atomic(Statement):
    """The same, where others may do so at the same time."""

    kind = "atomic"
    place: Expr
    combine: str
    value: Expr


@dataclass(frozen=True, slots=True)
class For(Statement):
    """The body for each ``variable`` from ``first`` up to ``last`` (not included), or, ``down``, from ``first`` down to
    ``last`` (included).

    ``bound``: the name of a variable that holds ``last``, for ends that are not looked up every time. ``also``: what
    else must hold to go on. ``unroll``: 0 all of it, else how many turns at a time, 1 none. ``independent``: no turn
    writes what another touches. ``bare``: the body is one statement, written without braces.
    """

    kind = "for_"
    variable: str
    first: Expr
    last: Expr
    body: Body
    ctype: str = INDEX
    step: Expr | None = None
    bound: str = ""
    also: Expr | None = None
    unroll: int | None = None
    independent: bool = False
    down: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class If(Statement):
    """``given``: a name for a value that the condition speaks of. ``bare``: bodies of one statement, on one line."""

    kind = "if_"
    condition: Expr
    body: Body
    otherwise: Body = ()
    bare: bool = False
    given: Let | None = None


@dataclass(frozen=True, slots=True)
class Switch(Statement):
    """The body whose number ``of`` is; numbered from 0. ``total``: it is always one of them, so the first may stand for
    all numbers that have none."""

    kind = "switch"
    of: Expr
    bodies: tuple[Body, ...]
    total: bool = False


@dataclass(frozen=True, slots=True)
class Block(Statement):
    """Statements whose names nobody else sees."""

    kind = "block"
    body: Body


@dataclass(frozen=True, slots=True)
class Barrier(Statement):
    """All threads of the block wait for each other."""

    kind = "barrier"


@dataclass(frozen=True, slots=True)
class Prefetch(Statement):
    """Ask for ``count`` numbers from a place on, which will be needed later."""

    kind = "prefetch"
    place: Expr
    count: Expr
    ctype: Type


@dataclass(frozen=True, slots=True)
class Do(Statement):
    """A call for its effect."""

    kind = "do"
    call: Call


@dataclass(frozen=True, slots=True)
class Comment(Statement):
    """Words for the reader of the text; nothing in them can end the comment."""

    kind = "comment"
    words: str


# ----- short ways to say it ---------------------------------------------------------------------------------------
def value(given: Value) -> Expr:
    """A value of a nest; Python's whole numbers become one."""
    return given if isinstance(given, Expr) else Number(int(given))


def let(name: str, given: Value, ctype: Type = INDEX) -> Let:
    """A name for a value, a place or a number of an element unless said otherwise."""
    return Let(ctype, ((name, value(given)),))


def variable(name: str, given: Value, ctype: Type = INDEX) -> Let:
    """The same, to be changed later."""
    return Let(ctype, ((name, value(given)),), fixed=False)


def call(function: str, *arguments: Value, of_types: tuple[str | int, ...] = ()) -> Call:
    return Call(function, tuple(map(value, arguments)), of_types)


def least(a: Value, b: Value) -> Call:
    """The smaller one."""
    return call("ml_min", a, b)


def greatest(a: Value, b: Value) -> Call:
    """The larger one."""
    return call("ml_max", a, b)


def summed(terms: Iterable[Value]) -> Expr:
    """All of some terms, at least one, from left to right."""
    first, *rest = map(value, terms)
    for one in rest:
        first = first + one
    return first


def all_of(conditions: Iterable[Expr]) -> Expr:
    """Every one of some conditions, at least one; later ones are asked only where the earlier hold."""
    first, *rest = conditions
    for one in rest:
        first = Binary("&&", first, one)
    return first


def no(condition: Expr) -> Unary:
    return Unary("!", condition)


def offset_by(start: Expr, offset: int) -> Expr:
    """``start`` and so many more."""
    return start + offset if offset else start


@dataclass(frozen=True, slots=True)
class UnsignedThread(Expr):
    """``Thread``, as a number that divides cheaply."""

    kind = "unsigned_thread"


@dataclass(frozen=True, slots=True)
class Leave(Statement):
    """The loop around this is done."""

    kind = "leave"


@dataclass(frozen=True, slots=True)
class Skip(Statement):
    """This turn of the loop around is done."""

    kind = "skip"
