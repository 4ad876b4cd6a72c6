"""The public surface as programs, as they are written (``tests/surface``), on any number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dist.launch import ROOT, launched

SURFACE = ROOT / "tests" / "surface"
BACKENDS = ("numpy", "cpu", "emulated")
#: What parts 7 and 8 of the third print on any number of ranks.
DIGESTS = 2


def surface(ranks: int | None, folder: Path, name: str, *words: str) -> list[str]:
    """The lines that one of them prints, sorted: those of several ranks come in any order."""
    script = str(SURFACE / f"{name}.py")
    done = launched(ranks, ["-m", "tests.dist.shared_folder", str(folder), script, *words], MESHLOOM_CHECK_RANKS="0")
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["surface", "surface2"])
def test_they_run_on_three_ranks(tmp_path: Path, name: str, backend: str) -> None:
    """To the last line, on every one of them."""
    said = "".join(surface(3, tmp_path, name, backend))  # a launcher may put the ends of two ranks' lines together
    assert said.count("OK") == 3 * OKS[name]


#: How often each says "OK" to its end.
OKS = {"surface": 1, "surface2": 11, "surface3": 6}
#: Programs with the parts of them that there are, where not all are.
PARTS = {"surface": (), "surface2": (), "surface3": ("1", "2", "3", "4", "7", "8")}


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PARTS)
def test_they_run_by_themselves(tmp_path: Path, name: str, backend: str) -> None:
    lines = surface(None, tmp_path, name, backend, *PARTS[name])
    assert "".join(lines).count("OK") == OKS[name] and (lines.count("OK") == 1) is (not PARTS[name])
    assert {f"part {number} OK" for number in PARTS[name]} <= {*lines}


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_digests_are_the_same_on_any_number_of_ranks(tmp_path: Path, backend: str) -> None:
    found = {ranks: [line for line in surface(ranks, tmp_path, "surface3", backend, "7", "8") if "digest" in line]
             for ranks in (None, 1, 2, 3, 4)}  # fmt: skip
    assert len(found[None]) == DIGESTS and all(one == found[None] for one in found.values()), found


def test_those_of_two_ranks_are_those_of_one(tmp_path: Path) -> None:
    """In every run; and they are digests of what has been computed."""
    alone, together = (surface(ranks, tmp_path, "surface3", "numpy", "7", "8") for ranks in (None, 2))
    assert together == alone and len([line for line in alone if "digest" in line]) == DIGESTS
