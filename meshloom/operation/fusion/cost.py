"""What steps of a program cost on a CPU, by the rates of its target: is a fused loop worth it?

On a GPU bytes decide alone, because arithmetic is nearly free. A CPU pays for elements that two chunks evaluate, and a
buffer that has to be brought home may cost more than a loop that is saved.
"""

from __future__ import annotations

from meshloom.kernel.count import flops_by_kind, loads
from meshloom.operation.fusion.compose import FusedLoop
from meshloom.operation.loop import Loop, Runnable
from meshloom.schedule.choice.cost import Cost
from meshloom.schedule.choice.counts import flops_per_element
from meshloom.target import Rates


def seconds(step: FusedLoop | Runnable, rates: Rates) -> float:
    """Estimated seconds of a loop: to weigh programs against each other, not to predict."""
    return Cost(float(step.compulsory), _flops(step)).seconds(rates)


#: Of one loop that computes what another could store: a share of the cost model's operations, because points of a line
#: go in vectors (fitted to stencils of 5 to 40 operations on 2048 x 2048 points), and what kinds take, in additions.
IN_VECTORS = 0.65
WEIGHTS = {"div": 4.0, "sqrt": 6.0, "special": 40.0, "sign": 0.0}


def at_points(step: FusedLoop | Runnable, rates: Rates) -> float:
    """The same for loops of which one computes what another would store: operations are weighed, half as much in single
    precision, loads are operations, and points ask caches for them. On a CPU a place is read before it is written."""
    if not isinstance(step, FusedLoop | Loop) or step.spec.racy_maps:
        return seconds(step, rates)
    roots, params = [o.value for o in step.spec.outputs], step.spec.params
    loaded = loads(roots)
    asked = sum(params[param].dtype.itemsize for param, _, _ in loaded if not params[param].is_global)
    weighed = sum(count * WEIGHTS.get(kind, 1.0) for kind, count in flops_by_kind(roots).items()) + len(loaded)
    width = max((o.value.dtype.itemsize for o in step.spec.outputs), default=8) / 8
    loops = [o for o in (step.parts if isinstance(step, FusedLoop) else (step,)) if isinstance(o, Loop)]
    fresh = [o.param for o in step.spec.other_outputs if (o.param, 0, o.comp) not in loaded]
    stored = sum(params[param].dtype.itemsize for param in fresh if not params[param].is_global)
    stored = 0 if any(loop.backend.target.together for loop in loops) else stored
    bytes_moved, operations = step.compulsory + step.elements * stored, step.elements * weighed * width * IN_VECTORS
    return Cost(float(bytes_moved), operations, requests=float(step.elements * asked)).seconds(rates)


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
