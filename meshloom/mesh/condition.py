"""A condition: a comparison of a Global that a program can ask for after each of its runs."""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshloom.errors import ProgramError
from meshloom.mesh.array_interop import ArrayInterop
from meshloom.mesh.stored import on_host
from meshloom.recording import READ_LATER, refuse_in_program

if TYPE_CHECKING:
    from meshloom.mesh.core import Global

#: The comparisons, in the order in which compiled code counts them.
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: As NumPy's functions are asked for the same.
UFUNCS = {np.less: "<", np.less_equal: "<=", np.greater: ">", np.greater_equal: ">="}


class Comparison(NamedTuple):
    """The same in memory: two buffers that hold one number each, wherever they are, and the sign between them."""

    left: Any
    sign: str
    right: Any

    def holds(self) -> bool:
        """Whole numbers compare as such, all others in double precision, on every back end."""
        pair = [on_host(one)[0].item() for one in (self.left, self.right)]
        numbers = pair if all(isinstance(one, int) for one in pair) else map(float, pair)
        return SIGNS[self.sign](*numbers)


class Condition:
    """``left`` sign ``right``, such as ``residual < 1e-6``: evaluated lazily. Not a number is
    neither less than anything nor greater. Made by comparing a Global with a number or with another Global."""

    __slots__ = ("left", "right", "sign")

    def __init__(self, left: Global, sign: str, right: Global | float):
        self.left, self.sign, self.right = left, sign, right

    def __bool__(self) -> bool:
        refuse_in_program(f"asking whether {self}", READ_LATER)
        return self.in_memory().holds()

    def __and__(self, other: object) -> Condition:
        raise ProgramError(f"{self}: a condition is one comparison; join several in a kernel that sets one Global")

    __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __and__

    def __invert__(self) -> Condition:
        raise ProgramError(f"{self}: a condition is one comparison; turn its sign around instead of ~")

    @property
    def globals(self) -> tuple[Global, ...]:
        """Those that it looks at."""
        return (self.left,) if isinstance(self.right, int | float) else (self.left, self.right)

    @property
    def known_by(self) -> tuple[object, ...]:
        """What tells it from others: equal for those that compare the same."""
        return self.left.serial, self.sign, repr(self.right) if len(self.globals) == 1 else self.globals[1].serial

    def in_memory(self) -> Comparison:
        """As it is until one of its Globals moves."""
        right = self.right
        return Comparison(
            self.left.storage, self.sign, np.array([right]) if isinstance(right, int | float) else right.storage
        )

    def __repr__(self) -> str:
        right = self.right if isinstance(self.right, int | float) else self.right.name
        return f"{self.left.name} {self.sign} {right}"


def plain_number(value: object) -> int | float | None:
    """A number to compare with, as one that buffers hold; None for what is no single real number."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) or -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class Compared(ArrayInterop):
    """What a Global compares as: with one number, or with another Global, it makes a condition."""

    __slots__ = ()

    @property
    @abstractmethod
    def dim(self) -> int:
        """How many values it has."""

    def _compared(self, sign: str, other: object) -> Condition:
        self.check_visible()
        number = other if isinstance(other, Compared) else plain_number(other)
        if number is None:
            self._refuse("compares with a number or another Global; for arrays, compare its value")
        for one in (self, other):
            if isinstance(one, Compared) and one.dim != 1:
                one._refuse(f"has {one.dim} values, so it does not compare; reduce them to one number in a kernel")
        return Condition(self, sign, number)  # type: ignore[arg-type]

    def _compared_by(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        if ufunc not in UFUNCS or len(inputs) != 2:
            return super()._compared_by(ufunc, inputs)
        sign = UFUNCS[ufunc]
        return self._compared(sign, inputs[1]) if inputs[0] is self else self._compared(MIRRORED[sign], inputs[0])

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)
