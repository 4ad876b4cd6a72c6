"""Loops of the zoo on the CPU: Meshloom next to hand-written C++ and numba, in one run on one machine.

    python -m bench.zoo.peers                        six loops on one mesh each, written to bench/results/
    python -m bench.zoo.peers --threads 1            on one core
    python -m bench.zoo.peers --order shuffled       numbered anyhow
    python -m bench.zoo.peers --strategies           with every strategy by its own block, to see what is chosen
    python -m bench.zoo.peers --quick                tiny meshes, to see that everything works

All take the same mesh in the same order and the same data, AoS in double; each is held against NumPy, then all are
timed in turns, and the fastest round of each counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.measure import fastest, surroundings
from bench.peers import zoo
from bench.record import Record
from bench.report import Goal, goal_table, rows_table
from bench.zoo.loops import LOOPS
from bench.zoo.scene import ORDERS, Scene, graph, mesh_of
from meshloom.errors import MeshloomError

FAMILY = {"elastic_hexahedron": "box", "exchanged_over_links": "random"}  # others: Delaunay
SIZE = 600_000  # cells or links
BY_CPP, BY_NUMBA = 1.10, 1.5
TOLERANCE = 1e-11  # largest difference from NumPy, as a share of the largest value
OWN = "Meshloom"


@lru_cache(maxsize=1)
def _ground(family: str, kind: str, size: int, order: str) -> Any:
    """The last mesh, which the next loop may have, too."""
    return graph(family, size, order) if kind == "graph" else mesh_of(family, kind, size, order)


def scene(name: str, size: int, order: str) -> Scene:
    return Scene(_ground(FAMILY.get(name, "delaunay"), LOOPS[name].kind, size, order), LOOPS[name].kind)


class Meshloom:
    """The subject: the loop as a user has it, by one schedule, on fields of its own."""

    def __init__(self, case: zoo.Case, at: Scene, schedule: str = "auto"):
        self.name = OWN if schedule == "auto" else schedule
        self.case = case
        kernel, visited, arguments = LOOPS[case.loop].make(at)
        self.loop = kernel.loop(visited, *arguments, schedule=schedule)

    def run(self, times: int) -> None:
        for _ in range(times):
            self.loop()

    def error(self) -> float:
        """Of the one run that it has had."""
        return zoo.error(tuple(one.numpy() for one in self.loop.writes), self.case.expected)


def case_of(name: str, at: Scene) -> zoo.Case:
    """The arrays of a loop, and what NumPy makes of them."""
    before = ml.backend()
    ml.use("numpy")
    kernel, visited, arguments = LOOPS[name].make(at)
    reference = kernel.loop(visited, *arguments)
    reference()
    ml.use(before)
    return zoo.Case.of(name, reference, arguments[-1].map)


def check_agreement(case: zoo.Case, own: Sequence[Meshloom], peers: Sequence[zoo.Peer]) -> float:
    """The largest error of all after one run each. AssertionError where one is too large: times of different answers
    are not compared."""
    found = {}
    for one in own:
        one.run(1)
        found[one.name] = one.error()
    for peer in peers:
        case.reset()
        peer.run(1)
        found[peer.name] = case.error()
    wrong = {name: error for name, error in found.items() if not error <= TOLERANCE}
    if wrong:
        raise AssertionError(f"{case.loop}: {', '.join(f'{n} is off by {e:.1e}' for n, e in wrong.items())}")
    return max(found.values())


def runs(case: zoo.Case, at: Scene) -> Callable[[str], Meshloom | None]:
    """A strategy by its name, or None where it declines."""

    def one(strategy: str) -> Meshloom | None:
        try:
            return Meshloom(case, at, strategy)
        except MeshloomError:
            return None

    return one


def measure_loop(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One loop by all variants: seconds of each, and the best of each kind."""
    at = scene(name, options.size, options.order)
    case, threads = case_of(name, at), ml.threads()
    named = ml.strategies() if options.strategies else ()
    own = [Meshloom(case, at), *filter(None, map(runs(case, at), named))]
    kinds = {"C++": zoo.cpp_peers(case, threads), "numba": [] if options.no_numba else zoo.numba_peers(case, threads)}
    peers = [peer for some in kinds.values() for peer in some]
    error = check_agreement(case, own, peers)
    target = 0.01 if options.quick else 0.15
    times = fastest({one.name: one.run for one in (*own, *peers)}, rounds=options.rounds, target=target)
    best = {kind: min((p.name for p in some), key=times.__getitem__) for kind, some in kinds.items() if some}
    return {"loop": name, "family": FAMILY.get(name, "delaunay"), "elements": len(case.map), "targets": case.targets,
            "schedule": str(own[0].loop.schedule), "schedules": {one.name: str(one.loop.schedule) for one in own[1:]},
            "error": error, "seconds": times, "best": best}  # fmt: skip


def goals(result: dict[str, Any]) -> list[Goal]:
    """Two for each loop; of numba where it was there."""
    found = []
    for row in result["rows"]:
        times, best = row["seconds"], row["best"]
        by_cpp = times[OWN] / times[best["C++"]]
        found.append(Goal(f"`{row['loop']}`: Meshloom / best hand-written C++", by_cpp, "at most", BY_CPP))
        if "numba" in best:
            by_numba = times[best["numba"]] / times[OWN]
            found.append(Goal(f"`{row['loop']}`: best numba / Meshloom", by_numba, "at least", BY_NUMBA))
    return found


def text_lines(result: dict[str, Any]) -> list[str]:
    """Each loop with the best of its peers, and what is met, as Markdown."""
    rows = []
    for row in result["rows"]:
        times, best = row["seconds"], row["best"]
        numba = [best["numba"], f"{times[best['numba']] / times[OWN]:.2f}"] if "numba" in best else ["-", "-"]
        own = [f"{1e3 * times[OWN]:.2f}", f"`{row['schedule']}`"]
        cpp = [best["C++"], f"{times[best['C++']] / times[OWN]:.2f}"]
        rows.append([f"`{row['loop']}`", row["family"], f"{row['elements']:,}", *own, *cpp, *numba])
    head = ("loop", "mesh", "elements", "Meshloom, ms", "`auto`", "best C++", "its time, Meshloom = 1", "best numba",
            "its time, Meshloom = 1")  # fmt: skip
    about = f"Order: {result['order']}; double, {result['threads']} threads, {result['versions']['compiler']}."
    return [about, "", *rows_table(head, rows), "", *goal_table(goals(result))]


def strategy_lines(result: dict[str, Any]) -> list[str]:
    """Every variant of each loop, the fastest first; Meshloom's own choice is 1."""
    found = []
    for row in result["rows"]:
        times = sorted(row["seconds"].items(), key=lambda one: one[1])
        named = (f"{row['schedules'].get(name, name)} {taken / row['seconds'][OWN]:.2f}" for name, taken in times)
        found += ["", f"{row['loop']} ({row['schedule']}): {', '.join(named)}"]
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.zoo.peers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=zoo.LOOPS, default=zoo.LOOPS, metavar="LOOP",
                        help=f"some of {', '.join(zoo.LOOPS)}")  # fmt: skip
    parser.add_argument("--size", type=int, default=SIZE, help="cells, or links of a graph (default %(default)s)")
    parser.add_argument("--order", choices=tuple(ORDERS), default="good", help="of the mesh (default %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="threads of all variants (default: all cores)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of timing (default %(default)s)")
    parser.add_argument("--strategies", action="store_true", help="also every strategy of Meshloom by its own block")
    parser.add_argument("--no-numba", action="store_true", help="without numba, which compiles for a minute")
    parser.add_argument("--quick", action="store_true", help="tiny meshes and few rounds: a check, not a measurement")
    parser.add_argument("--json", type=Path, default=None, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.size, options.rounds = min(options.size, 3000), 2
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    ml.use("cpu", threads=options.threads)
    result = surroundings() | {"benchmark": "zoo_peers", "backend": "cpu", "order": options.order,
                               "threads": ml.threads(), "size": options.size, "quick": options.quick}  # fmt: skip
    result["rows"] = [measure_loop(name, options) for name in options.only]
    print("\n".join([*text_lines(result), *strategy_lines(result)]))
    if options.json or not options.quick:
        print(f"written to {Record(result, options.json).save()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
