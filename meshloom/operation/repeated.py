"""A program that another one repeats until a condition holds. How often that is nobody knows while the outer one is
recorded, so it becomes an operation of that, whose body is the program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from meshloom.mesh.core import Field, Global
from meshloom.mesh.globals import Condition
from meshloom.mesh.number import PlainNumber
from meshloom.operation.call import CalledFunction, Later, called
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation
from meshloom.operation.parameters import Given
from meshloom.operation.passes import check_defined, complete_calls
from meshloom.operation.run_arguments import check_decides


class Repeatable(Protocol):
    """A program, as far as it matters here."""

    name: str
    serial: int

    @property
    def called_functions(self) -> tuple[Callable[..., Any], ...]: ...
    def bind(self, *arguments: Any, **named: Any) -> Any: ...
    def repeat(self, *arguments: Any, until: Condition, at_most: int, **named: Any) -> int: ...


@dataclass(frozen=True)
class RepeatedProgram:
    """What is called at every replay of the outer program."""

    program: Repeatable
    given: Given
    until: Condition
    at_most: int

    def __call__(self) -> None:
        self.program.repeat(*self.given.values, until=self.until, at_most=self.at_most, **self.given.named)

    @property
    def _bound(self) -> Any:
        return self.program.bind(*self.given.values, **self.given.named)

    @property
    def loops(self) -> tuple[Operation, ...]:
        """Those of the program."""
        found: tuple[Operation, ...] = self._bound.loops
        return found

    @property
    def called_functions(self) -> tuple[Callable[..., Any], ...]:
        """What the program may call."""
        return self.program.called_functions

    def explain(self) -> str:
        """How the program runs."""
        return f"at most {self.at_most:,} times in every replay:\n{self._bound.explain()}"

    def recorded(self, into: Any, loops: Sequence[Operation], made: Collection[Field | Global]) -> Any:
        """Record it. ``loops``: what the program calls now; ``made``: fields that the outer function has made so far.
        Those that the program makes are other ones when it runs, and temporary ones end with it."""
        own = {one for one in into.made if one not in made}
        for one in own:
            del into.made[one]
        written = {one for each in loops for one in each.writes}
        vague = any(one.domain.everything for one in loops)
        check_decides(self.program.name, None if vague else self.until, written)
        check_defined(complete_calls(Dataflow(loops)))
        used = dict.fromkeys((*self.until.globals, *[one for each in loops for one in each.storages]))
        listed = [one for one in used if one not in own and not isinstance(one, PlainNumber)]
        temporary = [one for one in listed if isinstance(one, Field) and one.temporary]
        read = {*self.until.globals, *[one for each in loops for one in each.reads]} - {*temporary}
        reads, writes = (tuple([one for one in listed if one in these]) for these in (read, written - {*temporary}))
        key = self.program.serial, self.given.key, self.until.known_by, self.at_most
        body = CalledFunction(self, None if vague else reads, None if vague else writes, key)
        into(called(body, f"{self.program.name} until {self.until}", temporary))
        return Later(f"how often {self.program.name} is repeated", "count it in a Global that its loops set")
