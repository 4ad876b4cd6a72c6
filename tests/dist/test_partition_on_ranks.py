"""Who owns which cell is a person's choice, by name or by an array, and changes no bit; cases make what they show of
their fields on each rank's own rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshloom as ml
from meshloom.config import build, parse_set
from meshloom.errors import ConfigError
from meshloom.solvers import find_case
from tests.dist import on_ranks_partition
from tests.dist.launch import over_ranks
from tests.dist.on_ranks import digest
from tests.dist.test_ranks import ran

MODULE, GATHERS = "tests.dist.on_ranks_partition", "tests.dist.on_ranks_gathers"
QUICK = ("by_array", "refused")


def test_cells_go_where_a_person_says() -> None:
    """In every run: on two ranks."""
    with ml.using("numpy", reproducible=True):
        expected = {name: digest(on_ranks_partition.RUNS[name]()) for name in QUICK}
    assert ran("numpy", 2, MODULE, *QUICK) == expected


@over_ranks(["numpy", "cpu"], [3, 2, 4])
def test_any_partition_gives_the_same_bits(backend: str, ranks: int) -> None:
    assert ran(backend, ranks, MODULE) == ran(backend, None, MODULE)


def test_a_case_names_a_partitioner_or_a_file(tmp_path: Path) -> None:
    """Whatever is there: without ranks it does nothing."""
    kind = find_case("airfoil")

    def said(value: str) -> str:
        return str(build(kind.Config, [parse_set(f"run.partition={value}")]).run.partition)

    assert [said(one) for one in ml.partitioners()] == list(ml.partitioners())
    assert said("mine.npy") == str(Path("mine.npy").absolute())
    with pytest.raises(ConfigError) as refused:
        said("hilbrt")
    assert str(refused.value) == ("--set run.partition=hilbrt: run.partition must be one of rcb, hilbert, kaminpar,"
                                  " metis, or a .npy file, got \"hilbrt\"; did you mean 'hilbert'?")  # fmt: skip


@over_ranks(["numpy"], [2, 3])
def test_no_case_gathers_a_field(backend: str, ranks: int) -> None:
    """To write, measure or draw what it makes of its fields: of all cases that run on ranks, and whatever comes."""
    found = ran(backend, ranks, GATHERS)
    assert "q" in found.pop("planted"), "one that does is found"
    assert [f"{name} gathers {what}" for name, what in found.items() if what] == []
