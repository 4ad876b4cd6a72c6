"""What steps of a program cost on a CPU, by the rates of its target: is a fused loop worth it?

On a GPU bytes decide alone, because arithmetic is nearly free. A CPU pays for elements that two chunks evaluate, and a
buffer that has to be brought home may cost more than a loop that is saved.
"""

from __future__ import annotations

from meshloom.operation.fusion.compose import FusedLoop
from meshloom.operation.loop import Runnable
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.choice.counts import flops_per_element
from meshloom.target import Rates


def seconds(step: FusedLoop | Runnable, rates: Rates) -> float:
    """Estimated seconds of a loop: to weigh programs against each other, not to predict."""
    return Cost(float(step.compulsory), _flops(step)).seconds(rates)


def moving(number: float, rates: Rates) -> float:
    """Estimated seconds of a fill or copy that moves so many bytes."""
    return Cost(number, 0.0).seconds(rates)


def _flops(step: FusedLoop | Runnable) -> float:
    if isinstance(step, FusedLoop):
        own = step.elements * flops_per_element(step.spec, step.spec.other_outputs)
        return own + sum(_gathered(step, m) for m in step.spec.racy_maps)
    return step.flops


def _gathered(step: FusedLoop, m: int) -> float:
    """Operations of the elements of a map, each as often as chunks evaluate it."""
    outputs = [o for o in step.spec.racy_outputs if step.spec.params[o.param].map == m]
    return step.evaluations(m) * flops_per_element(step.spec, outputs)
