"""What ``test_cut.py`` runs on any number of ranks, as ``on_ranks.py`` does, and how often sets are cut for it; whole
arrays go into files of the node, however small they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.config import build, parse_set
from meshloom.dist import shared
from meshloom.dist.local import Distribution
from meshloom.solvers import find_case
from tests.dist import on_ranks, on_ranks_linalg

#: What was made for this rank: of each set and map, and how sets are cut. By address, and held, so that none comes
#: again.
MADE: dict[Any, dict[int, Any]] = {}


def recorded(name: str) -> None:
    """From now on remember what a method of ``Distribution`` gives."""
    make = getattr(Distribution, name)

    def making(cut: Distribution, one: Any) -> Any:
        found = make(cut, one)
        for thing, made in ((one, found), (Distribution, cut)):
            MADE.setdefault(thing, {})[id(made)] = made
        return found

    setattr(Distribution, name, making)


def once(run: Callable[[], list[np.ndarray]], reaching: Collection[str] = ()) -> list[np.ndarray]:
    """What it gives. Its sets are cut once, and what is here of each and of each map is made once; again for sets that
    later loops reach further into, whose names are ``reaching``, and maps from and to them."""
    MADE.clear()
    found = run()
    for one, made in MADE.items():
        ends = [one.source, one.target] if isinstance(one, ml.Map) else [one]
        most = 2 if any(getattr(end, "name", "") in reaching for end in ends) else 1
        assert len(made) <= most, f"{one} was made {len(made)} times"
    assert ml.world.size == 1 or len(MADE) > 5, "something was cut"
    return found


def airfoil() -> list[np.ndarray]:
    """A case, its monitors, and fields of which one is looked at in between."""
    kind = find_case("airfoil")
    case = kind(build(kind.Config, [parse_set(one) for one in ("mesh.i=8", "mesh.j=9")]))
    case.program.run(2)
    case.q.numpy()
    case.program.run(3)
    mesh = case.mesh
    whole = [mesh.face_cells.indices, mesh.cell_nodes.indices, mesh.cells.points, mesh.nodes.points, mesh.cell_volumes]
    return [case.q.numpy(), np.array([float(case.rms)]), *map(np.asarray, whole)]


RUNS: dict[str, Callable[[], list[np.ndarray]]] = {
    "airfoil": partial(once, airfoil),
    "assembled": partial(once, on_ranks_linalg.assembled, ["cells"]),
    "implicit flow": partial(once, on_ranks_linalg.implicit_flow, ["cells"]),
    "lu_sgs": partial(once, partial(on_ranks_linalg.solved, "bicgstab", "lu_sgs", [2]), ["rows of matrix"]),
}


if __name__ == "__main__":
    shared.LEAST = 0
    recorded("local")
    recorded("local_map")
    on_ranks.RUNS = RUNS
    on_ranks.main(*sys.argv[1:])
