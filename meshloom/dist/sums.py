"""Globals that every rank reduces a part of: each rank its own elements, then all ranks the parts, in the order of
ranks. Reproducible sums are put together as whole numbers in bins, and rounded once, so that it does not matter who has
summed up what. What one element sets that one rank owns, the others take in the same messages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from meshloom.backend.numpy_binned import Bins
from meshloom.dist.agreement import with_digest, without_digest
from meshloom.dist.world import world
from meshloom.kernel.access import Mode, OpenSum, Read, identity
from meshloom.kernel.expr import const, load, operate
from meshloom.kernel.model import Output
from meshloom.mesh.buffer import overwrite
from meshloom.mesh.core import Field, Global, on_host
from meshloom.operation.body import GivenBody
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.schedule.nest.binned import WORDS

COMBINED = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}


class OpenSums(Global):
    """The bins of each component of a Global, in memory of its type."""

    __slots__ = ()

    def __init__(self, like: Global):
        super().__init__(np.zeros(like.shape, like.dtype), like.name)
        dtype, count = WORDS
        self._storage = np.zeros(like.dim * count * dtype.itemsize // like.dtype.itemsize, like.dtype)

    @property
    def dim(self) -> int:
        return prod(self.shape)


class RankReduction(NamedTuple):
    """A Global ``total``, ``here``, what stands for it in a loop on this rank, and the ``mode`` of the loop."""

    total: Global
    here: Global
    mode: type[Mode]

    @classmethod
    def of(cls, total: Global, mode: type[Mode]) -> RankReduction:
        if mode.binned:
            return cls(total, OpenSums(total), OpenSum)
        return cls(total, Global(np.zeros(total.shape, total.dtype), total.name), mode)

    @property
    def start(self) -> float | int | None:
        """What stands for it before the loop; None: a loop begins by itself."""
        return None if self.mode.open else identity(self.mode.combine, self.here.dtype)

    def combine(self, parts: np.ndarray) -> None:
        """The total of all, from what each rank has here, (ranks, bytes)."""
        before = on_host(self.total.storage)
        if self.mode.open:
            words = np.stack([Bins(before[c : c + 1]).words() for c in range(len(before))])  # one more summand
            bins = Bins.merged(np.concatenate([words[None], parts.view(WORDS[0]).reshape(len(parts), -1, WORDS[1])]))
            values = np.array([one.rounded(before.dtype) for one in bins], before.dtype)
        else:  # one rank after the other
            each = np.concatenate([before[None], parts.view(self.here.dtype)])
            values = COMBINED[self.mode.combine].accumulate(each, axis=0, dtype=before.dtype)[-1]
            values = values if self.mode.combine == "add" else values + 0  # not -0.0, as ``Reduction.total`` has it
        overwrite(self.total.storage, values)


class SetByOwner(NamedTuple):
    """A Global ``total`` that a loop sets over one element, which one rank has, its ``owner``."""

    total: Global
    owner: int
    start: None = None

    @property
    def here(self) -> Global:
        return self.total

    def combine(self, parts: np.ndarray) -> None:
        """What the owner has, of what each rank has, (ranks, bytes)."""
        overwrite(self.total.storage, parts[self.owner].view(self.total.dtype))


#: What all ranks put together behind a loop
RankTotal = RankReduction | SetByOwner


def reduced_here(one: Operand, totals: list[RankTotal]) -> Operand:
    """An operand that is a Global as a loop on this rank has it; ``totals`` get one that the loop reduces to."""
    if not one.mode.combine:
        return one
    assert isinstance(one.storage, Global)
    totals.append(reduction := RankReduction.of(one.storage, one.mode))
    return one._replace(storage=reduction.here, mode=reduction.mode)


def counting_owned(of: Operation, operands: tuple[Operand, ...], owned: Field) -> tuple[tuple[Operand, ...], GivenBody]:
    """The operands and the body of a loop, of which these are the ``operands`` here, where it visits elements of other
    ranks, too: what those that are not ``owned`` give to Globals is a value that changes nothing, since their owners
    count them."""
    number = len(operands)
    is_owned = operate("ne", (load(number, 0, 0, owned.dtype), const(0, owned.dtype)))

    def counted(one: Output) -> Output:
        to, dtype = of.operands[one.param], one.value.dtype
        if not to.is_global or not to.mode.combine:
            return one
        nothing = const(identity(to.mode.combine, dtype), dtype)
        return replace(one, value=operate("where", (is_owned, one.value, nothing)))

    graph = replace(of.graph, outputs=tuple(map(counted, of.graph.outputs)))
    return (*operands, Operand(owned, Read, name="is_owned")), GivenBody(graph, of.strict)


class Reductions:
    """Those of loops that are due at the same time, which all ranks put together in one message: all must call it."""

    def __init__(self, each: Sequence[RankTotal]):
        self.each = tuple(each)
        self.name = f"{', '.join(dict.fromkeys(one.total.name for one in each))} of all ranks"

    def __call__(self) -> None:
        here = [on_host(one.here.storage).view(np.uint8) for one in self.each]
        sent, before = with_digest(np.concatenate(here)), time.perf_counter()
        parts = without_digest(world(), world().stacked(sent, f"the parts of {self.name}"))
        world().count(self.name, [sent.nbytes], before)
        ends = np.cumsum([0, *(len(one) for one in here)])
        for one, first, last in zip(self.each, ends[:-1], ends[1:], strict=True):
            one.combine(np.ascontiguousarray(parts[:, first:last]))
