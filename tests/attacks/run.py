"""The attacks as often as you like: python -m tests.attacks.run --only kills settings --jobs 2

Prints how attempts ended, one campaign after the other, and leaves a result file, from which ``python -m bench.report``
makes the table of docs/reliability.md. ``--only kills --seed 7 --number 123`` repeats one attempt.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.measure import surroundings
from bench.record import Record
from tests.attacks.campaign import Campaign, Score, campaigns, once


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.run", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*campaigns()], help="these campaigns")
    parser.add_argument("--attempts", type=int, help="of each; otherwise as many as the slow tests make")
    parser.add_argument("--seconds", type=float, help="for each, at least; otherwise as in the slow tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, help="this attempt alone, nothing is saved")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="the result; otherwise a new file in bench/results")
    return parser.parse_args(arguments)


def attempt(name: str, seed: int, number: int) -> Score:
    """One attempt in a process of the pool."""
    return once(campaigns()[name], seed, number)


def carried_out(campaign: Campaign, chosen: argparse.Namespace, pool: ProcessPoolExecutor) -> Score:
    """At least so many attempts for at least so long, side by side."""
    least = campaign.many if chosen.attempts is None else chosen.attempts
    seconds = campaign.seconds if chosen.seconds is None else chosen.seconds
    total, numbers, begin = Score(), count(), time.monotonic()
    running: set[Future[Score]] = set()
    while True:
        started = total.attempts + len(running)
        if started < least or time.monotonic() - begin < seconds:
            if len(running) < chosen.jobs:
                running.add(pool.submit(attempt, campaign.name, chosen.seed, next(numbers)))
                continue
        elif not running:
            return total
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for one in done:
            total.add(one.result())


def row(campaign: Campaign, score: Score) -> dict[str, Any]:
    return {"name": campaign.name, "attacks": campaign.attacks, "promise": campaign.promise,
            "attempts": score.attempts, "endings": dict(score.endings.most_common()), "broken": score.broken,
            "seconds": round(score.seconds, 1)}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(arguments)
    wanted = [campaigns()[name] for name in chosen.only or campaigns()]
    if chosen.number is not None:
        scores = [once(one, chosen.seed, chosen.number) for one in wanted]
        print(*(row(one, score) for one, score in zip(wanted, scores, strict=True)), sep="\n")
        return 1 if any(score.broken for score in scores) else 0
    record = Record({**surroundings(), "benchmark": "attacks", "seed": chosen.seed, "rows": []}, chosen.json)
    failed = False
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        for one in wanted:
            score = carried_out(one, chosen, pool)
            record.result["rows"].append(row(one, score))
            endings = ", ".join(f"{number} {ending}" for ending, number in score.endings.most_common())
            print(f"{one.name}: {score.attempts} attempts, {len(score.broken)} broken ({endings})", flush=True)
            for line in score.broken:
                print(f"  {line}", flush=True)
            failed = failed or bool(score.broken)
            record.save()
    print(record.file)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
