"""Operations on plain memory: every place of a field or global set to a number, or copied from another field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from meshloom.backend.lowering import Launch, Launches, copy_memory, fill_memory
from meshloom.kernel.access import Read, Write
from meshloom.kernel.expr import const, load
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field, Global
from meshloom.mesh.layout import Layout
from meshloom.operation.body import Body, BodyGraph
from meshloom.operation.domain import AllPlaces
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.operation.policy import ExecutionPolicy
from meshloom.recording import outside_program
from meshloom.records import dataclass
from meshloom.schedule.choice.explain import amount
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec, SpecParam
from meshloom.schedule.strategies import ELEMENTS, serving


def fill(target: Field | Global, value: float | int, name: str = "") -> Operation:
    """Set all of a field or global to one number; ``name``: what people are told that is done, if not just that."""
    name, operands = name or f"{target.name} = {value:g}", (Operand(target, Write),)
    return Operation(name, AllPlaces(target), operands, _Constant(value), _HERE)


def copy(source: Field, target: Field) -> Operation:
    """Copy the values of a field, in another one's memory, back to its own."""
    operands = Operand(target, Write), Operand(source, Read)
    return Operation(f"{target.name} copied back", AllPlaces(target), operands, _Copied(), _HERE)


@dataclass(frozen=True)
class _Constant(Body):
    """One number for every component."""

    value: float | int

    @property
    def known_by(self) -> Hashable:
        return repr(self)

    def graph(self, of: Operation) -> BodyGraph:
        number = const(self.value, of.storages[0].dtype)
        return BodyGraph(tuple([Output(0, 0, c, number) for c in range(of.storages[0].dim)]))


@dataclass(frozen=True)
class _Copied(Body):
    """Each component of the second operand for that of the first."""

    @property
    def known_by(self) -> Hashable:
        return repr(self)

    def graph(self, of: Operation) -> BodyGraph:
        target, source = of.storages
        return BodyGraph(tuple([Output(0, 0, c, load(1, 0, c, source.dtype)) for c in range(target.dim)]))


class InMemory(ExecutionPolicy):
    """Wherever the memory is, place after place: whose value it is does not matter."""

    def spec(self, of: Operation) -> LoopSpec:
        params = []
        for one in of.operands:
            layout = one.storage.layout if isinstance(one.storage, Field) else Layout("aos")
            params.append(SpecParam(one.storage.name, one.mode, one.storage.dim, one.storage.dtype, layout, None,
                                    one.is_global))  # fmt: skip
        return LoopSpec(of.name, tuple(params), (), of.graph.outputs)

    def chosen(self, of: Operation) -> tuple[Schedule, str]:
        return Schedule(serving(ELEMENTS).name), "every place of memory by itself"

    def plan(self, of: Operation, schedule: Schedule | None = None) -> Plan:
        return Plan(serving(ELEMENTS).name, 1)

    def compulsory(self, of: Operation) -> int:
        with outside_program():  # sizes are no values
            return sum(int(one.storage.nbytes) for one in of.storages)

    def flops(self, of: Operation) -> float:
        return 0.0

    def instructions(self, of: Operation) -> Counter[tuple[str, str]]:
        return Counter()

    def launches(self, of: Operation) -> Launches:
        target, *sources = of.storages
        one = (Launch.here(copy_memory, sources[0].storage, target.storage) if sources
               else Launch.here(fill_memory, target.storage, of.graph.outputs[0].value.value))  # fmt: skip
        return Launches((one,), needed=float(target.storage.size))  # a thread for each value

    def words(self, of: Operation) -> str:
        return "in memory"

    def explain(self, of: Operation) -> str:
        return f"{of.name}: {amount(of.compulsory)} of memory, place after place"


_HERE = InMemory()
