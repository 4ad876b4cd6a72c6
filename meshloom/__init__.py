"""Meshloom: parallel loops over meshes, written in Python, scheduled and explained.

import meshloom as ml
"""

from meshloom.process import start as _start  # noqa: F401  first: a signal may come while the rest is imported

# isort: split
from collections.abc import Callable as _Callable
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:  # imported when it is first asked for: many scripts do without, and start sooner
    from meshloom import compact, linalg
    from meshloom.io.draw.plot import plot
    from meshloom.io.meshes import read, write
    from meshloom.io.state import load, save
    from meshloom.kernel.derivative import jacobian
    from meshloom.library.control import locate
    from meshloom.library.ghosts import fill_ghosts
    from meshloom.linalg.matrix import Matrix
    from meshloom.mesh import generate
    from meshloom.mesh.random import Random
    from meshloom.operation.debugging import debug
    from meshloom.run.march import Done, march

from meshloom import errors
from meshloom.backend import backend, backends, threads, use, using
from meshloom.dist.world import World as _World
from meshloom.dist.world import join as _join
from meshloom.dist.world import world as _world
from meshloom.kernel.access import Inc, Max, Min, Read, ReadWrite, Sum, Write
from meshloom.library import reductions as _reductions  # noqa: F401  what fields' sum() and its like run
from meshloom.mesh.core import Arg, Field, Global, Map, Set, Subset
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh
from meshloom.operation.call import call
from meshloom.operation.loop import Kernel, kernel
from meshloom.operation.operation import Operation
from meshloom.operation.program import Program, program
from meshloom.order import names as orderings
from meshloom.order.partition import partitioners
from meshloom.process.tracebacks import shorten as _shorten
from meshloom.process.version import VERSION as _VERSION
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.strategies import names as strategies
from meshloom.schedule.strategies import variants

Loop = Operation  # what a kernel over a set is called in programs

_shorten(errors.MeshloomError)

__version__ = _VERSION
__all__ = [
    "Arg", "Done", "Field", "Global", "Grid", "Inc", "Kernel", "Loop", "Map", "Matrix", "Max", "Mesh", "Min",
    "Operation", "Program", "Random", "Read", "ReadWrite", "Schedule", "Set", "Subset", "Sum", "Write",
    "backend", "backends", "call", "compact", "debug", "errors", "fill_ghosts", "generate", "jacobian", "kernel",
    "linalg", "load", "locate", "march", "orderings", "partitioners", "plot", "program", "read", "run_case", "save",
    "strategies", "study", "threads", "use", "using", "variants", "world", "write",
]  # fmt: skip

_join()

world: _World
run_case: _Callable[..., _Any]
study: _Callable[..., _Any]

if not _TYPE_CHECKING:  # where it would make a name of every misspelt one
    _WHERE = {
        "compact": "meshloom", "linalg": "meshloom", "generate": "meshloom.mesh",
        "Done": "meshloom.run.march", "march": "meshloom.run.march",
        "Matrix": "meshloom.linalg.matrix", "Random": "meshloom.mesh.random",
        "debug": "meshloom.operation.debugging", "jacobian": "meshloom.kernel.derivative",
        "fill_ghosts": "meshloom.library.ghosts", "locate": "meshloom.library.control",
        "load": "meshloom.io.state", "save": "meshloom.io.state", "plot": "meshloom.io.draw.plot",
        "read": "meshloom.io.meshes", "write": "meshloom.io.meshes",
        "run_case": "meshloom.studies", "study": "meshloom.studies",  # which stand on this surface
    }  # fmt: skip
    _MODULES = ("compact", "generate", "linalg")

    def __getattr__(name: str) -> object:
        if name == "world":
            return _world()
        if name == "Sequence":
            raise AttributeError("ml.Sequence is gone: call programs, solvers and ml.call(function) inside @ml.program")
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _MODULES:
            found: object = _import_module(f"{_WHERE[name]}.{name}")
        else:
            found = getattr(_import_module(_WHERE[name]), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
