"""A program that another one repeats until a condition holds. How often that is nobody knows while the outer one is
recorded, so it becomes an operation of that, whose body is the program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import cached_property
from typing import Any, Protocol

from meshloom.errors import KernelError
from meshloom.mesh.core import Field
from meshloom.mesh.globals import Condition
from meshloom.mesh.number import PlainNumber
from meshloom.operation.call import CalledFunction, Later, called
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.domain import Extent
from meshloom.operation.measures import check_nodes_stay
from meshloom.operation.operation import Operation
from meshloom.operation.parameters import Given
from meshloom.operation.passes import RECORDED_PASSES, check_defined, passed
from meshloom.operation.run_arguments import check_decides
from meshloom.recording import Recorder, outside_program
from meshloom.records import dataclass


class Repeatable(Protocol):
    """A program, as far as it matters here."""

    name: str
    serial: int

    @property
    def called_functions(self) -> tuple[Callable[..., Any], ...]: ...
    @property
    def loops(self) -> tuple[Operation, ...]: ...
    def bind(self, *arguments: Any, **named: Any) -> Repeatable: ...
    def explain(self) -> str: ...
    def repeat(self, *arguments: Any, until: Condition, at_most: int, **named: Any) -> int: ...


@dataclass(frozen=True)
class RepeatedProgram:
    """What is called at every replay of the outer program."""

    program: Repeatable
    given: Given
    until: Condition
    at_most: int

    @cached_property
    def bound(self) -> Repeatable:
        """The program with its arguments: the one that runs, and that tells how."""
        with outside_program():
            return self.program.bind(*self.given.values, **self.given.named)

    def __call__(self) -> None:
        self.bound.repeat(until=self.until, at_most=self.at_most)

    @property
    def loops(self) -> tuple[Operation, ...]:
        """Those of the program."""
        return self.bound.loops

    @property
    def called_functions(self) -> tuple[Callable[..., Any], ...]:
        """What the program may call."""
        return self.program.called_functions

    def recorded(self, into: Recorder, loops: Sequence[Operation], own: Collection[Any]) -> Any:
        """Record it. ``loops``: what the program calls now; ``own``: fields that it has made for that, which are other
        ones when it runs; temporary ones end with it."""
        called_now = Dataflow(loops)
        written = called_now.written
        vague = any(one.domain.everything for one in loops)
        check_decides(self.program.name, None if vague else self.until, written)
        graph = self._checked(loops, own)
        used = dict.fromkeys((*self.until.globals, *called_now.storages))
        listed = [one for one in used if one not in own and not isinstance(one, PlainNumber)]
        temporary = [one for one in listed if isinstance(one, Field) and one.temporary]
        lasting = [one for one in listed if one not in temporary]
        changed = tuple([one for one in lasting if one in written])
        # it runs once at least: what it sets before it looks at it, it does not read
        anew = [(one, where) for one in changed for where in Extent if not graph.is_read_first(one, where)]
        sets = [] if vague else anew
        reads = tuple([one for one in lasting if one not in dict(sets)])
        body = RepeatedBody(self, None if vague else reads, None if vague else changed)
        into(called(body, f"{self.program.name} until {self.until}", temporary, sets))
        return Later(f"how often {self.program.name} is repeated", "count it in a Global that its loops set")

    def _checked(self, loops: Sequence[Operation], own: Collection[Any]) -> Dataflow:
        """The graph of what it calls; KernelError where it would look for values of a temporary field that the outer
        program has written, and whatever else is refused when it runs."""
        check_nodes_stay(self.program.name, tuple(loops))
        graph = passed(Dataflow(loops), RECORDED_PASSES)
        for _, one in graph.undefined():
            if one not in own and graph.ended_by(one) is None:
                raise KernelError(
                    f"program {self.program.name} runs by itself, also where another one repeats it, and has no values"
                    f" of the temporary field {one.name}, which it reads before it writes it; make the field an"
                    " ordinary one"
                )
        return check_defined(graph)


@dataclass(frozen=True)
class RepeatedBody(CalledFunction):
    """A program for a body."""

    function: RepeatedProgram
    tells_failures = False
    what = "a program, repeated in one call from Python"

    @property
    def inside(self) -> tuple[Callable[..., Any], ...]:
        return self.function.called_functions

    @property
    def known_by(self) -> Hashable:
        one = self.function
        return one.program.serial, one.given.key, one.until.known_by, one.at_most, self.reads is None

    @property
    def blame(self) -> str:
        vague = "calls a function that has not said what it reads and writes"
        return f"program {self.function.program.name}, which {vague if self.reads is None else 'runs by itself'};"

    def explain(self, name: str) -> str:
        most = f"at most {self.function.at_most:,} times in every replay"
        return f"{super().explain(name)}, {most}:\n{self.function.bound.explain()}"
