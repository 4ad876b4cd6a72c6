"""Random programs on random meshes, cut at random, on several ranks: the same bits as without a launcher."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from tests.dist import on_ranks_meshes
from tests.dist.launch import over_ranks
from tests.dist.on_ranks import digest
from tests.dist.test_ranks import alone, ran

MODULE = "tests.dist.on_ranks_meshes"
#: Seeds by which each kind of mesh comes a few times.
SEEDS = {"numpy": range(42), "cpu": range(21), "emulated": range(7)}


@over_ranks(SEEDS, [4, 3, 2])
def test_random_meshes_give_the_same_bits(backend: str, ranks: int) -> None:
    of = MODULE, *map(str, SEEDS[backend])
    assert ran(backend, ranks, *of) == alone(backend, *of)


#: In one launch, which takes a second, and seconds for each program where there is something to compile.
UNSEEN = {"numpy": 12, "cpu": 3, "emulated": 2}


@pytest.mark.slow
@pytest.mark.parametrize("backend", UNSEEN)
@settings(max_examples=3)
@given(st.sampled_from(["tests.dist.on_ranks_programs", MODULE, "tests.dist.on_ranks_grids"]), st.integers(2, 4),
       st.lists(st.integers(100, 10**6), min_size=12, max_size=12, unique=True))  # fmt: skip
def test_programs_that_nobody_has_seen_give_the_same_bits(
    backend: str, module: str, ranks: int, seeds: list[int]
) -> None:
    """Where one of them differs, it is found by itself."""
    of = module, *map(str, seeds[: UNSEEN[backend]])
    assert ran(backend, ranks, *of) == ran(backend, None, *of)


def test_partitions_at_random_have_empty_ranks_and_ranks_of_one_cell() -> None:
    mesh = ml.generate.box((4, 3))
    task = on_ranks_meshes.PartitionTask(mesh.cell_centroids, mesh.cell_volumes, mesh.face_cells.indices)
    counts = [sorted(on_ranks_meshes.at_random(task, ranks).tolist().count(rank) for rank in range(ranks))
              for ranks in range(2, 12)]  # fmt: skip
    assert any(0 in one for one in counts) and any(one.count(1) > 1 for one in counts)
    assert all(sum(one) == 12 for one in counts)


def test_digests_tell_seeds_apart() -> None:
    with ml.using("numpy", reproducible=True):
        assert len({digest(on_ranks_meshes.left_by(seed)) for seed in (5, 6, 13)}) == 3
