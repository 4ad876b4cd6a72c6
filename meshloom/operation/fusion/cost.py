"""What the steps of a fused program take, to weigh fused programs against each other; no prediction.

There are two estimates because they answer different questions. Which loops become one changes what is moved, and how
often chunks evaluate an element: ``seconds_by_count`` has bytes and operations. Whether points compute again what
others could store changes formulas inside of a loop: there it matters which operations they are, that points of a line
go in vectors, and what they ask of caches, which ``seconds_at_points`` adds.
"""

from __future__ import annotations

from meshloom.kernel.count import flops_by_kind, live_registers, loads
from meshloom.operation.operation import Operation
from meshloom.schedule.choice.cost import Cost
from meshloom.target import Rates


def seconds_by_count(step: Operation, rates: Rates) -> float:
    """Estimated seconds of an operation, by its bytes, operations and registers."""
    return Cost(step.compulsory * register_slowdown(step), step.flops).seconds(rates)


def register_slowdown(step: Operation) -> float:
    """So many times longer does its traffic take than at full speed: register pressure lowers occupancy, and few
    threads have few loads under way (Little's law)."""
    if not step.domain.visits_elements or not step.backend.target.is_simt:
        return 1.0
    numbers, values = step.backend.target.gpu.fused, live_registers(tuple([o.value for o in step.spec.outputs]))
    return max(1.0, (numbers.other_registers + numbers.registers_per_value * values) / numbers.full_speed_registers)


def seconds_at_points(step: Operation, rates: Rates) -> float:
    """Estimated seconds of loops of which one computes what another would store: operations are weighed, half as much
    in single precision, loads are operations, and points ask caches for them. On a CPU a place is read before it is
    written."""
    if not step.domain.visits_elements or step.spec.racy_maps:
        return seconds_by_count(step, rates)
    roots, params = [o.value for o in step.spec.outputs], step.spec.params
    loaded, numbers = loads(roots), step.backend.target.numbers.fusion
    asked = sum(params[param].dtype.itemsize for param, _, _ in loaded if not params[param].is_global)
    weighed = sum(count * numbers.weights.get(kind, 1.0) for kind, count in flops_by_kind(roots).items()) + len(loaded)
    width = max((o.value.dtype.itemsize for o in step.spec.outputs), default=8) / 8
    replaced = [o.param for o in step.spec.other_outputs if (o.param, 0, o.comp) not in loaded]
    stored = sum(params[param].dtype.itemsize for param in replaced if not params[param].is_global)
    stored = 0 if step.backend.target.is_simt else stored
    bytes_moved, operations = step.compulsory + step.elements * stored, step.elements * weighed * width
    operations *= numbers.in_vectors  # points of a line go in vectors
    return Cost(float(bytes_moved), operations, requests=float(step.elements * asked)).seconds(rates)
