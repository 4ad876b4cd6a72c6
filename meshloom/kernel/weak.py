"""Python's numbers that are known only at run time: symbols that take the type of what they meet.

In NumPy ``2.0 * x`` is of the type of x, whatever x is, because 2.0 is Python's own; ``np.float64(2.0) * x`` is not. A
number that a loop is given by its caller is the one or the other as well, and what Python computes of its own numbers
stays its own.
"""

from __future__ import annotations

from typing import Any

from meshloom.kernel import expr
from meshloom.kernel.expr import BOOL, INT32, INT64, Kind, Node
from meshloom.kernel.symbols import Symbol
from meshloom.kernel.values import fail

#: What kinds of plain numbers there are besides those of NumPy; see ``Param.number``.
WEAK: dict[str, type] = {"bool": bool, "int": int, "large int": int, "float": float}
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift")
_LOGIC = ("and", "or", "xor")


class PythonNumber(Symbol):
    """A number of Python's: ``python`` is bool, int or float. ``large``: it may be one that int32 does not hold."""

    __slots__ = ("large", "python")

    def __init__(self, node: Node, python: type, *, large: bool = False):
        super().__init__(expr.cast(node, BOOL) if python is bool else node)
        self.python, self.large = python, large

    @property
    def kind(self) -> Kind:
        return BOOL if self.python is bool else self.python

    def to(self, dtype: Any) -> Symbol:
        if self.large and dtype == INT32:
            fail("a Python integer that int32 does not hold meets int32 here, which NumPy refuses; use np.int64(...)")
        return Symbol(expr.cast(self.node, dtype))

    def _as_integer(self) -> PythonNumber:
        """Python computes with True as with 1."""
        return PythonNumber(expr.cast(self.node, INT64), int) if self.python is bool else self


def _own(value: Any) -> bool:
    return isinstance(value, PythonNumber) or type(value) in (bool, int, float)


def _of_python(result: Any, operands: tuple[Any, ...]) -> Any:
    """What Python's numbers give by Python's operators is Python's; comparisons are truth values in any case."""
    if not isinstance(result, Symbol) or result.node.dtype == BOOL:
        return result
    large = any(isinstance(v, PythonNumber) and v.large for v in operands)
    return PythonNumber(result.node, float if result.node.dtype.kind == "f" else int, large=large)


def _binary(name: str) -> Any:
    of_symbols = getattr(Symbol, f"__{name}__")
    logic = name.removeprefix("r") in _LOGIC

    def operator(self: PythonNumber, other: Any) -> Any:
        if not _own(other):
            return of_symbols(self, other)
        truths = logic and self.python is bool and (type(other) is bool or getattr(other, "python", None) is bool)
        if truths:
            return PythonNumber(of_symbols(self, other).node, bool)
        one = self._as_integer()
        two = other._as_integer() if isinstance(other, PythonNumber) else int(other) if type(other) is bool else other
        return _of_python(of_symbols(one, two), (self, other))

    return operator


def _unary(name: str) -> Any:
    of_symbols = getattr(Symbol, f"__{name}__")
    return lambda self: _of_python(of_symbols(self._as_integer()), (self,))


for _name in (*_ARITHMETIC, *_LOGIC):
    setattr(PythonNumber, f"__{_name}__", _binary(_name))
    setattr(PythonNumber, f"__r{_name}__", _binary(f"r{_name}"))
for _name in ("neg", "abs", "invert", "pos"):
    setattr(PythonNumber, f"__{_name}__", _unary(_name))


def symbol(node: Node, number: str) -> Symbol:
    """The symbol of a value of a parameter that is a plain number of some kind, or none ("")."""
    if number in WEAK:
        return PythonNumber(node, WEAK[number], large=number.startswith("large"))
    return Symbol(expr.cast(node, BOOL)) if number == "np.bool" else Symbol(node)
