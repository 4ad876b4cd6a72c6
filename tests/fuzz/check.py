"""One case against all back ends: what is drawn, what is compared, and what a difference looks like."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

import meshloom as ml
from meshloom.errors import UserError
from tests.fuzz.build import HAS_STRICT, Way, run, script
from tests.fuzz.cases import draw
from tests.fuzz.judge import Difference, Tally, bounds_of, compare
from tests.fuzz.model import Case
from tests.fuzz.shrink import shrink

#: Parts of the language that are known to differ and are left out until they are mended: names that ``cases`` asks for.
KNOWN: frozenset[str] = frozenset()

#: Refusals that are right: what the message says.
REFUSED = (re.compile("no refusal is expected"),)

FORMS = [ml.Schedule(name, variant=variant) for name in ml.strategies() for variant in ml.variants(name)]
ORDERS = ("given", "given", "random", "rcm", "greedy")


class Found(AssertionError):
    """A difference with a program that shows it."""

    def __init__(self, case: Case, way: Way, message: str):
        self.case, self.way, self.message = case, way, message
        super().__init__(f"seed {case.seed}: {message}\n\n{script(case, way)}\n")


def ways_of(case: Case, random: Random, backends: Sequence[str], *, few: bool = False) -> list[Way]:
    """How a case runs on each back end: automatically, in a strategy of its own, and as a program; or ``few`` of these,
    since every way is compiled."""
    ways = []
    times = random.choice((1, 1, 2)) if len(case.loops) > 1 else 1
    for backend in backends:
        ways.append(Way(backend))
        if backend == "numpy":
            continue
        form = random.choice(FORMS)
        block = random.choice((None, 1, 2, 7, 16, 32, 33, 64, 100))
        order = random.choice(ORDERS)
        ways.append(Way(backend, strategy=form.strategy, variant=form.variant, block=block, order=order))
        if len(case.loops) > 1:
            ways.append(Way(backend, program=True, times=times))
            ways.append(Way(backend, program=True, times=times, fuse=False))
        if few:
            others, own = ([w for w in ways if (w.backend == backend) is mine] for mine in (False, True))
            ways = [*others, random.choice(own)]
    if HAS_STRICT and not (few and random.random() < 0.5):
        strict = [replace(w, strict=True) for w in ways if not w.program]
        ways = strict or ways if few else ways + strict
    return ways


def examine(case: Case, way: Way) -> Tally:
    """Compare one way with plain Python; raises Difference, or what went wrong."""
    right = run(case, Way(plain=True, times=way.times))
    errors, used = bounds_of(case, times=way.times, strict=way.strict)
    found = run(case, way)
    tally = compare(case, found, right, errors, str(way), strict=way.strict)
    tally.used = used
    return tally


def check(seed: int, backends: Sequence[str], *, known: frozenset[str] = KNOWN, minimise: int = 600,
          few: bool = False) -> Tally:  # fmt: skip
    """Draw the case of a number and run it every way; the first difference is made small and raised as ``Found``."""
    case, tally = draw(seed, known), Tally()
    judged: dict[tuple[int, bool], tuple[list[np.ndarray], list[np.ndarray]]] = {}
    for way in ways_of(case, Random(seed), backends, few=few):
        key = (way.times, way.strict)
        try:
            if key not in judged:
                right = run(case, Way(plain=True, times=way.times))
                errors, used = bounds_of(case, times=way.times, strict=way.strict)
                judged[key] = right, errors
                tally.add(Tally(used=used))
            right, errors = judged[key]
            tally.add(compare(case, run(case, way), right, errors, str(way), strict=way.strict))
        except UserError as error:
            if any(p.search(str(error)) for p in REFUSED):
                continue
            raise found(case, way, error, minimise) from error
        except Exception as error:
            raise found(case, way, error, minimise) from error
    return tally


def found(case: Case, way: Way, error: Exception, attempts: int) -> Found:
    """The smallest case that fails in the same manner."""
    manner, start = type(error), str(error)[:25] if not isinstance(error, Difference) else ""

    def fails(smaller: Case) -> bool:
        try:
            examine(smaller, way)
        except Exception as again:
            return type(again) is manner and str(again).startswith(start)
        return False

    small = shrink(case, fails, attempts) if attempts else case
    try:
        examine(small, way)
    except Exception as last:
        error = last
    frame = "" if isinstance(error, Difference) else "".join(traceback.format_tb(error.__traceback__)[-1:])
    return Found(small, way, f"{type(error).__name__}: {error}\n{frame}")
