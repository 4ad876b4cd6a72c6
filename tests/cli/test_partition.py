"""meshloom partition: how the sets of a case would be cut, and what is refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from meshloom.errors import CompilerError
from tests.cli.harness import Command, files_below

SMALL = ("airfoil", "--set", "mesh.i=8", "--set", "mesh.j=12")  # 288 cells


def test_the_table_of_a_mesh(meshloom: Command, tmp_path: Path) -> None:
    result = meshloom("partition", *SMALL, "-n", "6")
    assert result.code == 0, result.err
    first, heads, *rows = result.out.splitlines()
    assert first == "airfoil: 288 cells, 548 faces, cut over 6 ranks"
    assert heads.split() == ["by", "set", "elements", "balance", "rim", "halo", "neighbours", "exchange"]
    begins = {name: next(k for k, row in enumerate(rows) if row.split()[:1] == [name]) for name in ("rcb", "hilbert")}
    of_rcb = [row.removeprefix("rcb").split() for row in rows[begins["rcb"] : begins["hilbert"]]]
    assert {row[0] for row in of_rcb} == {"cells", "faces", "nodes", "boundary_faces"}
    assert [row[1:3] for row in of_rcb if row[0] == "cells"] == [["288", "1.000"]]
    assert "balance: " in result.out and "\x1b" not in result.out
    assert files_below(tmp_path) == {}


def test_the_same_as_json(meshloom: Command) -> None:
    found = meshloom("partition", *SMALL, "--ranks", "6", "--json").json
    assert (found["case"], found["ranks"], found["not_counted"]) == ("airfoil", 6, [])
    by = {one["by"]: {each["name"]: each for each in one["sets"]} for one in found["partitions"]}
    assert {"rcb", "hilbert"} <= set(by) and set(by) | set(found["missing"]) == {"rcb", "hilbert", "kaminpar", "metis"}
    cells = by["rcb"]["cells"]
    assert cells["elements"] == 288 and 1.0 <= cells["balance"] < 1.02
    assert 0.0 < cells["halo"] < 1.0 and 0.0 < cells["mean_neighbours"] <= cells["most_neighbours"] <= 5
    assert cells["bytes"] % 40 == 0 < cells["bytes"]  # q has 4 components, adt 1


def test_one_rank_has_no_halo(meshloom: Command) -> None:
    found = meshloom("partition", *SMALL, "-n", "1", "--json").json
    for one in found["partitions"]:
        for each in one["sets"]:
            assert each["balance"] == 1.0
            assert not any(each[name] for name in ("rim", "halo", "most_neighbours", "mean_neighbours", "bytes"))
    assert "cut over 1 rank\n" in meshloom("partition", *SMALL, "-n", "1").out


def test_a_partition_of_ones_own(meshloom: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.arange(288) % 3)
    found = meshloom("partition", *SMALL, "-n", "4", "--array", "mine.npy", "--json").json
    (mine,) = (one["sets"] for one in found["partitions"] if one["by"] == "given")
    cells = next(one for one in mine if one["name"] == "cells")
    assert cells["balance"] == pytest.approx(4 / 3, rel=0.02) and cells["halo"] > 0.5


def test_what_cannot_be_had_is_told(meshloom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: object) -> np.ndarray:
        raise CompilerError("no compiler here")

    for module in ("kaminpar", "pymetis"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("meshloom.dist.partition.hilbert_order", no_compiler)
    result = meshloom("partition", *SMALL, "-n", "2")
    assert result.code == 0 and "hilbert: no compiler here" in result.out
    assert "metis: partitioner 'metis' needs the package pymetis: pip install '.[metis]'" in result.out
    found = meshloom("partition", *SMALL, "-n", "2", "--json").json
    assert [one["by"] for one in found["partitions"]] == ["rcb"] and "'.[partition]'" in found["missing"]["kaminpar"]


def test_a_grid_is_cut_into_slabs(meshloom: Command) -> None:
    found = meshloom("partition", "advection1d", "-n", "2", "--json").json
    assert [one["by"] for one in found["partitions"]] == ["slabs"]
    assert [one["name"] for one in found["partitions"][0]["sets"]] == ["grid"]


def test_a_file_is_taken_as_by_run(meshloom: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('case = "airfoil"\n[mesh]\ni = 8\nj = 12\n')
    assert meshloom("partition", "mine.toml", "-n", "2").out.startswith("airfoil: 288 cells")


@pytest.mark.parametrize(("arguments", "parts"), [
    ([*SMALL, "-n", "0"], ["-n must be a whole number from 1 to 65536, got '0'"]),
    ([*SMALL, "-n", "-3"], ["-n must be a whole number from 1 to 65536, got '-3'"]),
    ([*SMALL, "-n", "four"], ["-n must be a whole number from 1 to 65536, got 'four'"]),
    ([*SMALL, "-n", "65537"], ["-n must be a whole number from 1 to 65536"]),
    ([*SMALL, "-n", "9" * 400], ["-n must be a whole number from 1 to 65536"]),
    ([*SMALL], ["Missing option", "-n", "see meshloom partition --help"]),
    (["airfoyl", "-n", "2"], ["unknown case 'airfoyl'; did you mean 'airfoil'?"]),
    (["airfoil", "-n", "2", "--set", "mesh.ii=3"], ["unknown key 'mesh.ii'"]),
    (["airfoil", "-n", "2", "--set", "schedule.res_clac=owner"], ["is no loop of this case; did you mean 'res_calc'?"]),
    ([*SMALL, "-n", "2", "--array", "none.npy"], ["--array none.npy: cannot be read: No such file"]),
    ([*SMALL, "-n", "2", "--array", "text.npy"], ["--array text.npy: cannot be read: it is no NumPy file of an array"]),
    ([*SMALL, "-n", "2", "--array", "two.npz"], ["--array two.npz: holds several arrays"]),
    ([*SMALL, "-n", "2", "--array", "short.npy"], ["--array short.npy: a partition of 288 cells is 288 whole numbers"]),
    ([*SMALL, "-n", "2", "--array", "third.npy"], ["--array third.npy: ", "numbers from 0 to 1, got 2 for cell 7"]),
    ([*SMALL, "-n", "2", "--array", ""], ["--array '' names nothing"]),
    (["advection1d", "-n", "2", "--array", "short.npy"], ["case 'advection1d' has no mesh whose cells"]),
    (["advection1d", "-n", "60000"], ["60000 ranks are too many for grid", "at most"]),
], ids=lambda one: " ".join(one)[:60])  # fmt: skip
def test_what_is_wrong_is_one_line(meshloom: Command, tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    (tmp_path / "text.npy").write_text("no array")
    np.savez(tmp_path / "two.npz", a=np.zeros(288, int))
    np.save(tmp_path / "short.npy", np.zeros(287, int))
    np.save(tmp_path / "third.npy", np.where(np.arange(288) == 7, 2, 0))
    before = files_below(tmp_path)
    meshloom("partition", *arguments).refused(2, *parts)
    assert files_below(tmp_path) == before


@pytest.mark.slow
def test_every_case_can_be_asked(meshloom: Command) -> None:
    for name in meshloom("cases").out.split("\n"):
        if name:
            result = meshloom("partition", name.split()[0], "-n", "2")
            assert result.code == 0 or (result.code == 2 and "ranks are too many" in result.err), (name, result.err)
