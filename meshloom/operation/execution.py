"""How an operation runs, as far as it is known by now: what was asked for, cached, made ready and measured. The
operation itself never changes; all that does is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from meshloom.backend.lowering import Launches
from meshloom.exclusion import PREPARING, Mutex, belong
from meshloom.kernel.state import State
from meshloom.operation.body import Traced
from meshloom.recording import outside_program

if TYPE_CHECKING:
    from meshloom.operation.operation import Operation
    from meshloom.operation.policy import ExecutionPolicy

T = TypeVar("T")
_MISSING = object()


class Spent(NamedTuple):
    """Seconds of something so far, and how often it ran."""

    seconds: float = 0.0
    calls: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.calls + other.calls)

    def minus(self, other: Spent) -> Spent:
        return Spent(self.seconds - other.seconds, self.calls - other.calls)


class Execution:
    """By a ``policy``; fields and maps tell it when they have moved.

    ``launches``: what runs, once it is made ready. ``cache``: what was derived so far, by name. ``states``: of the
    kernels, for which all of that holds. ``layout_pending``: is a layout wished for that the fields have not got yet?
    """

    _mutex: Mutex | None = None

    def __init__(self, name: str, policy: ExecutionPolicy):
        self.name = name
        self.launches: Launches | None = None
        self.cache: dict[str, Any] = {}
        self.states: tuple[State, ...] = ()
        self.seconds, self.calls = 0.0, 0  # so far, as the host saw it
        self._preparing = False
        self.go_on_by(policy)
        belong(self)

    def go_on_by(self, policy: ExecutionPolicy) -> None:
        """Run so from now on."""
        self.policy, self.layout_pending = policy, bool(policy.wish.layout)
        self.invalidate()

    def invalidate(self) -> None:
        """A field moved, or a kernel changed: all that depends on it is made again when it is next needed."""
        self.launches = None
        self.cache.clear()

    def refresh(self, kernels: Sequence[Traced]) -> None:
        """Forget what is cached if a kernel reads other values now."""
        if self._preparing:
            return
        states = tuple([one.state for one in kernels])
        if states != self.states:
            if self.states:
                self.invalidate()
            self.states = states

    def with_the_same_values(self, action: Callable[[], T]) -> T:
        """What an action gives; what kernels read does not change meanwhile."""
        with PREPARING:
            before, self._preparing = self._preparing, True
            try:
                with outside_program():
                    return action()
            finally:
                self._preparing = before

    def add(self, seconds: float, calls: int = 1) -> None:
        """It has run."""
        self.seconds += seconds
        self.calls += calls


class cached(Generic[T]):
    """A cached property of an operation, made again when a field has moved or a kernel reads other values."""

    def __init__(self, make: Callable[[Any], T]):
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, one: None, owner: type) -> cached[T]: ...
    @overload
    def __get__(self, one: Operation, owner: type) -> T: ...

    def __get__(self, one: Operation | None, owner: type) -> Any:
        if one is None:
            return self
        one.refresh()
        found = one.cache_of(self.name).get(self.name, _MISSING)
        if found is _MISSING:
            with PREPARING:
                cache = one.cache_of(self.name)
                found = cache[self.name] if self.name in cache else self.make(one)
                cache[self.name] = found
        return found
