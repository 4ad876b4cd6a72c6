"""Python threads that call the same things at the same time, and nodes that move under what was measured of them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

import meshloom as ml
from tests.attacks.campaign import Broken, Campaign
from tests.mesh.test_moved_nodes import quantities
from tests.test_threads import at_once, own_data, own_files, shared_objects


def threads(dice: random.Random, folder: Path) -> str:
    """One operation, by all threads: on data or files of their own, or on one object that they share."""
    used = ml.backend()
    ml.use(dice.choice(("numpy", "numpy", "cpu")))
    try:
        match dice.randrange(3):
            case 0:
                known = own_data()
            case 1:
                known = own_files(folder)
            case _:
                known = {name: work for name, (_, work) in shared_objects().items()}
        name = dice.choice(sorted(known))
        alone = [known[name](k) for k in range(3)]
        for k, found in enumerate(at_once(known[name], dice.randrange(1, 5))):
            if not all(np.array_equal(one, alone[k]) for one in found):
                raise Broken(f"{name}: a thread got something else than alone")
    except ml.errors.MeshloomError as error:
        if "another thread" not in str(error):
            raise
        return "refused"
    finally:
        ml.use(used)
    return "same answer"


def moved_nodes(dice: random.Random, folder: Path) -> str:
    """Nodes that move a few times; in between what is measured is asked for, or not."""
    numbers = np.random.default_rng(dice.randrange(2**32))
    shape = [dice.randrange(2, 5) for _ in range(dice.choice((2, 2, 3)))]
    mesh = ml.generate.box(shape)
    asked = quantities(mesh)
    for _ in range(dice.randrange(1, 4)):
        for name in dice.sample(sorted(asked), 3):
            asked[name]()
        bent = np.eye(len(shape)) + 0.3 * numbers.random((len(shape), len(shape)))
        mesh.coordinates.assign(mesh.coordinates.numpy() @ bent + numbers.random(len(shape)))
    new = ml.generate.box(shape)
    new.coordinates.assign(mesh.coordinates.numpy())
    for name, fresh in quantities(new).items():
        if not np.array_equal(asked[name](), fresh()):
            raise Broken(f"{name} of {shape} is not that of a new mesh with the same nodes")
    return "same answer"


CAMPAIGNS = (
    Campaign("threads", "three Python threads do the same at once, each with data or files of its own, or all with one"
             " object", "each gets what it gets alone, or one line", threads, few=3, many=200),
    Campaign("moved_nodes", "nodes of a mesh move again and again", "all that is measured is that of a new mesh",
             moved_nodes, few=3, many=200),
)  # fmt: skip
