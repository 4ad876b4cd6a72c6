"""What ranks are given must be the same on all of them: settings, sets, maps, points, values.

An unseeded random start, or a mesh file that differs between nodes, would otherwise be a result that nobody can
explain. Every rank makes digests of what it was given, and before the first loop that uses it all compare them. The
cost is a hash of the bytes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from weakref import WeakSet

import numpy as np

from meshloom.backend.base import Backend
from meshloom.backend.compiling import CompilingBackend
from meshloom.dist.agreement import OWN_RUNS, SAME_NUMBERS, GivenToRank, NumbersFromPython, back_end, compare, note
from meshloom.dist.array import RANDOM_START, DistributedArray
from meshloom.dist.checks import CALLS, HALOS, digest
from meshloom.dist.local import Distribution
from meshloom.dist.shared import share
from meshloom.dist.usage import meshes_of
from meshloom.dist.world import World
from meshloom.errors import CompilerError, shown
from meshloom.mesh.core import Field, Global, Map, Set, on_host
from meshloom.mesh.number import PlainNumber
from meshloom.native.compiler import host_compiler
from meshloom.process.version import VERSION
from meshloom.target import CPU

VARIABLES = (CALLS, HALOS, "MESHLOOM_CXXFLAGS")  # what they say must be said to all
POINTS = "digest of points"  # where a set keeps it
SAME_MESH = "all ranks must be given the same mesh"
SAME_COMPILER = "name the same by CXX on all nodes"
ASKED_BY_ALL = ("before the first loop mine, local() and data= as a function of points cut sets, so all ranks must ask"
                " for them")  # fmt: skip
SAME_PARTITION = "name the same partitioner, of one version, or give the same array on all ranks"
UNSEEDED = "an unseeded random number?"

_compared: WeakSet[Global] = WeakSet()  # those that were, when they were first used


# ----- settings -----------------------------------------------------------------------------------------------------
def compare_settings(world: World) -> None:
    """RankError where ranks run other versions, on processors whose bits differ, or were told other things by their
    environment."""
    versions = {"Meshloom": VERSION, "Python": platform.python_version(), "NumPy": np.__version__}
    given = [GivenToRank(name, said, "install the same on all nodes") for name, said in versions.items()]
    given.append(GivenToRank("the processor", _processor(), "take nodes of one kind"))
    given += [GivenToRank(name, repr(os.environ.get(name, "")), "set it for all ranks") for name in VARIABLES]
    compare(world, given, "by its environment")


def compare_named(world: World, given: Mapping[str, object]) -> None:
    """RankError where ranks were given other settings by name, as those of a run."""
    hint = f"all ranks must be given the same settings {OWN_RUNS}"
    compare(world, [GivenToRank(name, shown(value), hint, repr(value), "is another one")
                    for name, value in given.items()], "as settings")  # fmt: skip


def _processor() -> str:
    """What results depend on to the last bit, however wide vectors are: can it multiply and add at once?"""
    return f"{platform.machine()} {'with' if CPU.has_fma else 'without'} fma"


# ----- sets, maps and values ----------------------------------------------------------------------------------------
def compare_sets(world: World, cut: Distribution) -> None:
    """RankError where ranks were given other sets or maps; asked once for each of those that are cut together. What is
    the same on all ranks is shared by those of a node from then on."""
    if cut.uncompared:
        compare(world, [*_given(cut.uncompared), *_owned(cut)], "of meshes")
        cut.uncompared = []
        share(world, cut)


def compare_given(
    world: World, cut: Distribution | None, fields: Iterable[DistributedArray], totals: Iterable[Global],
    inside: Backend, numbers: NumbersFromPython | None = None, often: str = "",
) -> None:  # fmt: skip
    """RankError where ranks were given other sets, maps, fields or Globals for a program, or another back end; asked
    whenever one of them was given. ``cut``: its sets, but for grids. ``numbers``: of a program that begins, and how
    ``often`` it is to run, which are noted, as is what else may change often: one rank may have made it ready before,
    and another not."""
    if cut is not None:
        compare_sets(world, cut)
    if numbers is not None:
        numbers.note(often)
    arrays = {one: one.given for one in fields if one.given is not None and not one.local.temporary}
    globals_ = {one: _global(one) for one in totals if one.given and not isinstance(one, PlainNumber)}
    if at_once := [one for one in (*arrays.values(), *globals_.values()) if not one.noted]:
        compare(world, [back_end(inside), *_compilers(inside), *at_once], "as values")
    if numbers is not None:
        note(one for one in (*arrays.values(), *globals_.values()) if one.noted)
    for array, one in arrays.items():
        array.given = one if one.noted and numbers is None else None
    for total, one in globals_.items():
        total.given = one.noted and numbers is None
        _compared.add(total)


def compare_values(world: World, values: Iterable[Field | Global]) -> None:
    """RankError where ranks were given other values for what they are about to write, which no loop has compared."""
    compare(world, [_uncompared(one) for one in values], "to write")


def _uncompared(one: Field | Global) -> GivenToRank:
    if isinstance(one, Global):
        return GivenToRank(f"global {one.name}", "", UNSEEDED, digest(on_host(one.storage)))
    if isinstance(one.storage, DistributedArray):
        given = one.storage.given
        return given or GivenToRank(f"field {one.name}", "", RANDOM_START)
    return GivenToRank(f"field {one.name}", f"of {one.dtype} x {one.dim}", RANDOM_START, digest(on_host(one.storage)))


def _given(some: Sequence[Set | Map]) -> Iterator[GivenToRank]:
    sets = _sets(some)
    for one in sets:
        yield GivenToRank(f"set {one.name}", f"of {one.total} elements", SAME_MESH)
    for one in sets:
        yield GivenToRank(f"set {one.name}", "", SAME_MESH, _places(one), "has its elements at other places")
    for map_ in sorted((one for one in some if isinstance(one, Map)), key=lambda one: one.name):
        ends = f"from {map_.source.name} to {map_.arity} of {map_.target.name}"
        yield GivenToRank(f"map {map_.name}", ends, SAME_MESH, map_.digest, "leads elsewhere")


def _sets(some: Sequence[Set | Map]) -> list[Set]:
    """In an order that does not depend on which of them a rank has cut first: cells, which decide, before others."""
    sets = [one for one in some if isinstance(one, Set)]
    cells: set[Set] = {mesh.cells for mesh in meshes_of(sets)}
    return sorted(sets, key=lambda one: (one not in cells, one.name))


def _owned(cut: Distribution) -> Iterator[GivenToRank]:
    """Who owns what. Of cells a file may be another one elsewhere, a partitioner of another version; other sets follow
    what is cut before them, which a rank that asks alone cuts by itself."""
    sets = _sets(cut.uncompared)
    cells: list[Set] = [mesh.cells for mesh in meshes_of(sets)]
    for one in cells:
        yield GivenToRank(f"the partition of {one.name}", "", SAME_PARTITION, digest(cut.owners[one]),
                          "is another one")  # fmt: skip
    for one in (one for one in sets if one not in cells):
        yield GivenToRank(f"set {one.name}", "", ASKED_BY_ALL, digest(cut.owners[one]), "has other owners")


def _places(of: Set) -> str:
    """Where elements are, in space and in memory."""
    if POINTS not in of.kept:
        of.kept[POINTS] = " ".join(digest(one) for one in (of.points, of.numbering) if one is not None)
    found: str = of.kept[POINTS]
    return found


def _compilers(inside: Backend) -> list[GivenToRank]:
    """By whom loops are compiled; where GPUs run them there may be none."""
    if not isinstance(inside, CompilingBackend):
        return []
    try:
        found = host_compiler()
    except CompilerError:
        return [GivenToRank("the C++ compiler", "missing", SAME_COMPILER)]
    return [GivenToRank("the C++ compiler", found.version, SAME_COMPILER, repr(found.flags), "takes other options")]


def _global(one: Global) -> GivenToRank:
    """Its first value is compared at once, others may be set in every iteration."""
    said, hint = ("", SAME_NUMBERS) if one in _compared else (f"of {one.dtype} x {one.dim}", UNSEEDED)
    return GivenToRank(f"global {one.name}", said, hint, digest(on_host(one.storage)))
