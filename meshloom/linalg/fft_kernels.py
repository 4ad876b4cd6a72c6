"""What is done with waves that go opposite ways, so that the waves of reordered cells become cosines: kernels.

``u``: a wave and the one that goes the other way along the first axis, each a real and an imaginary part. ``turn``: the
phase of the first axis' cosines, ``phase``: that of the last one's; 1 where an axis has waves.
"""

from __future__ import annotations

from typing import Any

from meshloom.kernel.access import Read, ReadWrite
from meshloom.operation.loop import kernel


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _conjugate(a: Any) -> tuple[Any, Any]:
    return a[0], -a[1]


def _plus(a: Any, b: Any) -> tuple[Any, Any]:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Any, b: Any) -> tuple[Any, Any]:
    return a[0] - b[0], a[1] - b[1]


def _times_i(a: Any) -> tuple[Any, Any]:
    return -a[1], a[0]


def _half(a: Any) -> tuple[Any, Any]:
    return 0.5 * a[0], 0.5 * a[1]


@kernel
def mix_cosines(u: ReadWrite, turn: Read, phase: Read):
    own, back = _product(turn, u[0]), _product(_conjugate(turn), u[1])
    here, there = _product(phase, _plus(own, back)), _product(phase, _times_i(_minus(own, back)))
    u[0, 0], u[0, 1] = here
    u[1, 0], u[1, 1] = there


@kernel
def mix_waves(u: ReadWrite, turn: Read, phase: Read):
    one, other = _product(phase, u[0]), _conjugate(_product(phase, u[1]))
    here, there = _half(_plus(one, other)), _half(_times_i(_minus(other, one)))
    u[0, 0], u[0, 1] = here
    u[1, 0], u[1, 1] = there


@kernel
def mix_alone(u: ReadWrite, turn: Read, phase: Read):
    u[0, 0], u[0, 1] = _product(phase, u[0])


@kernel
def separate_cosines(u: ReadWrite, turn: Read, phase: Read):
    back, second = _conjugate(phase), _times_i(u[1])
    here = _half(_product(_product(_conjugate(turn), back), _minus(u[0], second)))
    there = _half(_product(_product(turn, back), _plus(u[0], second)))
    u[0, 0], u[0, 1] = here
    u[1, 0], u[1, 1] = there


@kernel
def separate_constant(u: ReadWrite, turn: Read, phase: Read):
    """The first of the cosines, which has no second part."""
    u[0, 0], u[0, 1] = _half(_product(_product(_conjugate(turn), _conjugate(phase)), u[0]))


@kernel
def separate_waves(u: ReadWrite, turn: Read, phase: Read):
    back, one, other = _conjugate(phase), u[0], u[1]
    here = _product(back, _plus(one, _times_i(other)))
    there = _product(back, _plus(_conjugate(one), _times_i(_conjugate(other))))
    u[0, 0], u[0, 1] = here
    u[1, 0], u[1, 1] = there


@kernel
def separate_alone(u: ReadWrite, turn: Read, phase: Read):
    u[0, 0], u[0, 1] = _product(_conjugate(phase), u[0])
