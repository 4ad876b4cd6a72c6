"""A recorded program with its loops fused, where that takes less time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from meshloom.kernel.state import compared_once
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.fused_program import FusedProgram, ranked
from meshloom.operation.fusion.memory import FusionCache
from meshloom.operation.fusion.trials import Trials
from meshloom.operation.passes import CONTRACTION, FUSION_PASSES, WEIGHED_PASSES, passed
from meshloom.schedule.plan.plan_cache import plans_held


def fuse(graph: Dataflow, *, rotates: bool = True) -> FusedProgram:
    """A recorded program with its loops fused where that is possible; what points of a grid look for at others they may
    compute themselves. ``rotates``: may what a replay begins with be done by the one before?"""
    with plans_held(), compared_once():
        trials = Trials(partial(_fused, rotates=rotates, cache=FusionCache()))
        for one in WEIGHED_PASSES:
            graph = one(graph, trials)
        return replace(trials.fused(graph), notes=trials.notes)


def _fused(graph: Dataflow, *, rotates: bool, cache: FusionCache | None = None) -> FusedProgram:
    """The same, every loop as it is: what takes less time by the cost model, and loop by loop is a candidate. On a CPU
    gathers have to be worth it twice, over loop by loop and over what is fused without them."""
    (target,) = {o.backend.target for o in graph.operations if not o.domain.all_memory}
    contracted = partial(CONTRACTION, passed(graph, FUSION_PASSES), rotates=rotates, cache=cache or FusionCache())
    best, found = FusedProgram(graph.operations), contracted(gathers=True)
    if target.is_simt:
        return ranked((found, best), target)[0].what
    gathered = any(step.spec.racy_maps for step in found.operations if step.composed)
    for one in (contracted(gathers=False), found) if gathered else (found,):
        if one.seconds(target.rates) < target.numbers.fusion.worth * best.seconds(target.rates):
            best = one
    return best
