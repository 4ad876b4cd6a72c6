"""Bodies: what an operation computes, as a graph. Some are traced from kernels when they are first needed, and again
when these read other values; others are given as they are. All answer the same questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

from meshloom.errors import KernelError
from meshloom.kernel.count import loads
from meshloom.kernel.expr import Node, topological, written
from meshloom.kernel.model import Output, Param
from meshloom.kernel.sameness import Distinct
from meshloom.kernel.state import State
from meshloom.operation.plain import run_plainly
from meshloom.records import dataclass
from meshloom.schedule.lines.along import OperatorAlong, SystemsAlong

if TYPE_CHECKING:
    from meshloom.operation.operation import Operation


class Traced(Protocol):
    """A kernel, as far as it matters here."""

    name: str
    function: Callable[..., None]
    strict: bool
    serial: int

    @property
    def state(self) -> State: ...
    def outputs(self, params: tuple[Param, ...], *, strict: bool) -> tuple[Output, ...]: ...


@dataclass(frozen=True)
class BodyGraph:
    """What happens at one element: outputs over loads, where a load (k, slot, component) is of operand k.

    Along a line there is more: ``operands`` at each point (behind them the coefficients of ``systems`` there), of which
    the operators make results; in ``outputs`` loads of
    the operand behind the last are these results, and ``combines`` says for each output how it is merged into what is
    there ("" stored, "add" added).

    Of loops that became one, ``starts_from`` are globals (by operand) that begin with a number of their own, and
    ``starts`` what sums over elements of other sets begin with.
    """

    outputs: tuple[Output, ...]
    operands: tuple[Node, ...] = ()
    combines: tuple[str, ...] = ()
    starts_from: tuple[tuple[int, float], ...] = ()
    starts: tuple[Output, ...] = ()

    @property
    def _roots(self) -> list[Node]:
        return [*self.operands, *(o.value for o in (*self.outputs, *self.starts))]

    @cached_property
    def content(self) -> tuple[object, ...]:
        """The same for graphs of the same form, whichever kernels they were traced from."""
        roots = self._roots
        numbers = {node: k for k, node in enumerate(topological(roots))}
        places = tuple([(o.param, o.slot, o.comp) for o in (*self.outputs, *self.starts)])
        return written(roots), tuple([numbers[one] for one in roots]), places, self.combines, self.starts_from

    @cached_property
    def loaded(self) -> frozenset[int]:
        """The operands whose values are looked at, by number."""
        return frozenset(k for k, *_ in loads(self._roots))


class Body(Distinct, ABC):
    """What an operation computes. ``of`` in its answers is the operation, which it does not hold."""

    kernels: tuple[Traced, ...] = ()  # whose captured values count
    strict: bool = False  # formulas as written, every operation rounded by itself
    tells_failures: ClassVar[bool] = False  # does it say itself where numbers break, as solvers do?
    composed: tuple[Operation, ...] = ()  # what it was put together from
    operators: tuple[OperatorAlong, ...] = ()  # of each operand along a line
    systems: SystemsAlong | None = None  # or, for all of them, systems with coefficients of their own at every point
    given_as: tuple[Body, ...] = ()  # what tells it from others, where no kernel does

    @property
    def known_by(self) -> Hashable:
        """What tells it from others, without holding fields or sets."""
        return self.serial

    @property
    def beyond_graph(self) -> Hashable:
        """What it does that the graph does not tell."""
        return repr(self.operators), self.systems

    @abstractmethod
    def graph(self, of: Operation) -> BodyGraph:
        """The graph, in terms of the operation's operands."""

    def loaded(self, of: Operation) -> Collection[int]:
        """The operands whose values from before are looked at, by number."""
        return of.graph.loaded

    def as_written(self) -> Body:
        """The same with formulas as written; itself where they are."""
        return self

    def run_plainly(self, of: Operation) -> None:
        """Its kernel called element by element on plain arrays."""
        raise KernelError(f"{of.name} has no kernel to be called element by element; call it as it is")


@dataclass(frozen=True)
class KernelBody(Body):
    """A kernel at every element, traced."""

    kernel: Traced
    strict: bool = False

    @property
    def kernels(self) -> tuple[Traced, ...]:  # type: ignore[override]
        return (self.kernel,)

    @property
    def known_by(self) -> Hashable:
        return self.kernel.serial, self.strict

    def graph(self, of: Operation) -> BodyGraph:
        return BodyGraph(self.kernel.outputs(of.params, strict=self.strict))

    def as_written(self) -> KernelBody:
        return self if self.strict else replace(self, strict=True)

    def run_plainly(self, of: Operation) -> None:
        run_plainly(self.kernel.function, self.kernel.name, of.operands, of.elements, of.box)


@dataclass(frozen=True)
class SameBody(Body):
    """That of another operation, which has other fields for its operands, one for one."""

    other: Operation

    @property
    def kernels(self) -> tuple[Traced, ...]:  # type: ignore[override]
        return self.other.kernels

    @property
    def strict(self) -> bool:  # type: ignore[override]
        return self.other.strict

    @property
    def operators(self) -> tuple[OperatorAlong, ...]:  # type: ignore[override]
        return self.other.body.operators

    @property
    def systems(self) -> SystemsAlong | None:  # type: ignore[override]
        return self.other.body.systems

    @property
    def given_as(self) -> tuple[Body, ...]:  # type: ignore[override]
        return (self,)

    def graph(self, of: Operation) -> BodyGraph:
        return self.other.graph

    def loaded(self, of: Operation) -> Collection[int]:
        return self.other.body.loaded(self.other)

    def as_written(self) -> SameBody:
        return self if self.strict else SameBody(self.other.as_written())


@dataclass(frozen=True)
class GivenBody(Body):
    """A graph that is known: what loops that became one compute. It holds for the values that their kernels read then;
    where these change, the program puts another one together."""

    given: BodyGraph
    strict: bool = False
    composed: tuple[Operation, ...] = ()

    @property
    def given_as(self) -> tuple[Body, ...]:  # type: ignore[override]
        return (self,)

    def graph(self, of: Operation) -> BodyGraph:
        return self.given
