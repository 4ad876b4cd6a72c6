"""Who turns plans into passes, by the name that stands in a plan: back ends ask here, and know neither strategies nor
methods along lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from meshloom.errors import ScheduleError, shown
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.nest.nodes import Expr
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec
from meshloom.target import CPU, Target

#: Not strategies, but rules that choose one: the least estimated time of deterministic ones, or of all.
AUTOMATIC = ("auto", "fastest")


Temporary = tuple[str, np.dtype, Expr]  # its name, type and entries, made of the sizes of loop and plan


class Emitter(ABC):
    """What turns a loop and a plan into passes. Subclasses register themselves by ``name`` and hold no state."""

    name: ClassVar[str] = ""
    registry: ClassVar[dict[str, Emitter]] = {}
    #: What a subclass must say beside its functions: each of which kind, in words and as a test
    declared: ClassVar[dict[str, tuple[str, Callable[[Any], bool]]]] = {}

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            return  # what others derive from
        if not isinstance(cls.name, str) or not cls.name.isidentifier():
            raise ScheduleError(f"strategy {cls.__name__}: name must be a word such as 'mine', got {shown(cls.name)}")
        if cls.name in (*AUTOMATIC, *Emitter.registry):
            raise ScheduleError(f"strategy '{cls.name}' is there already; {cls.__name__} needs another name")
        asked = sorted({word for kind in cls.__mro__ for word in vars(kind)})
        lacks = [word for word in asked if getattr(getattr(cls, word, None), "__isabstractmethod__", False)]
        lacks += [word for word in cls.declared if not hasattr(cls, word)]
        if lacks:
            raise ScheduleError(f"strategy '{cls.name}' lacks {', '.join(lacks)}; docs/schedules.md has a whole one")
        for word, (kind, fits) in cls.declared.items():
            if not fits(getattr(cls, word)):
                raise ScheduleError(f"strategy '{cls.name}': {word} must be {kind}, got {shown(getattr(cls, word))}")
        Emitter.registry[cls.name] = cls()

    @abstractmethod
    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        """The passes to emit. Only which arrays the plan has, and their types, may be used, not their contents."""

    def temporaries(self, spec: LoopSpec, plan: Plan) -> list[Temporary]:
        """Arrays that live between the passes: (name, type, entries)."""
        return []


def passes_of(spec: LoopSpec, plan: Plan, target: Target) -> list[Pass]:
    """The passes of a plan; ScheduleError where its strategy gives none."""
    found = Emitter.registry[plan.strategy].passes(spec, plan, target=target)
    if not isinstance(found, list) or (spec.outputs and not found) or not all(isinstance(one, Pass) for one in found):
        raise ScheduleError(f"strategy '{plan.strategy}': passes must give a list of Passes, got {shown(found)}")
    return found


def temporaries(spec: LoopSpec, plan: Plan) -> list[Temporary]:
    """(name, type, entries) of arrays that live between the passes of a loop."""
    return Emitter.registry[plan.strategy].temporaries(spec, plan)
