"""Loops of the zoo by hand give what NumPy gives, and what a run says is computed from it; on tiny meshes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench import record, tables
from bench.peers import zoo
from bench.zoo import peers
from bench.zoo.loops import LOOPS


def case(name: str, order: str = "shuffled") -> zoo.Case:
    return peers.case_of(name, peers.scene(name, 300, order))


@pytest.mark.parametrize("name", zoo.LOOPS)
def test_every_form_in_cpp_gives_what_numpy_gives(name: str) -> None:
    """Also in blocks so small that there are many, of few elements each, on one thread and on several."""
    one = case(name)
    found = [*zoo.cpp_peers(one, 1), *zoo.cpp_peers(one, 2)]
    found += [zoo.Cpp(one, form, 2, block) for form in ("blocks", "vectors") for block in (1, 7, 33)]
    assert peers.check_agreement(one, [], found) < 1e-12
    assert {peer.name.split(",")[0] for peer in found} >= {"C++ blocks", "C++ vectors"}


def test_each_loop_has_the_forms_known_for_it() -> None:
    forms = {name: {p.name.split(",")[0][4:] for p in zoo.cpp_peers(case(name), 2)} for name in zoo.LOOPS}
    assert all(len(found) >= 3 for found in forms.values())
    assert {name for name, found in forms.items() if "owner" in found} == set(zoo.OWNED)
    assert [p.name for p in zoo.cpp_peers(case("edge_flux"), 1)] == ["C++ blocks", "C++ vectors", "C++ gather"]


def test_a_run_adds_to_what_is_there() -> None:
    one = case("green_gauss")
    for peer in zoo.cpp_peers(one, 2):
        one.reset()
        peer.run(3)
        np.testing.assert_allclose(one.outputs[0], 3 * one.expected[0], rtol=1e-10, atol=1e-12)


@pytest.mark.slow  # numba compiles for half a minute
def test_every_form_with_numba_gives_what_numpy_gives() -> None:
    pytest.importorskip("numba")
    for name in zoo.LOOPS:
        one = case(name)
        found = [*zoo.numba_peers(one, 1), *zoo.numba_peers(one, 2)]
        assert len(found) >= 4 and peers.check_agreement(one, [], found) < 1e-12


def test_what_differs_is_not_timed() -> None:
    one = case("exchanged_over_links")

    class Wrong(zoo.Cpp):
        def run(self, times: int) -> None:
            super().run(times)
            one.outputs[0][3] += 1e-3

    wrong = Wrong(one, "owner", 1)
    wrong.name = "wrong"
    with pytest.raises(AssertionError, match=r"exchanged_over_links: wrong is off by \d\.\de-0"):
        peers.check_agreement(one, [], [wrong])


def test_a_quick_run_and_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "peers.json"
    asked = ["--quick", "--size", "300", "--no-numba", "--strategies", "--threads", "1", "--json", str(file)]
    assert peers.main([*asked, "--only", "green_gauss", "exchanged_over_links"]) == 0
    result = record.load(file)
    for row in result["rows"]:
        assert row["error"] < 1e-12 and all(taken > 0 for taken in row["seconds"].values())
        assert row["best"] == {"C++": row["best"]["C++"]} and row["seconds"].keys() > set(row["schedules"])
        assert {"owner", "block_color"} <= set(row["schedules"]) <= set(ml.strategies())
        assert row["family"] in LOOPS[row["loop"]].families
    shown = capsys.readouterr().out
    assert "| `green_gauss` | delaunay |" in shown and "exchanged_over_links (" in shown
    assert not tables.TABLES["zoo_peers"].fits(result)


def test_goals_are_computed_from_the_run() -> None:
    times = {"Meshloom": 0.0011, "C++ blocks, 512": 0.00101, "C++ owner": 0.003, "numba gather": 0.0016}
    row = {"loop": "edge_flux", "family": "delaunay", "elements": 2000, "schedule": "staged block=512",
           "seconds": times, "best": {"C++": "C++ blocks, 512", "numba": "numba gather"}}  # fmt: skip
    result = {"rows": [row], "order": "good", "threads": 2, "versions": {"compiler": "c++ 12"}}
    assert [(goal.met, round(goal.value, 3)) for goal in peers.goals(result)] == [(True, 1.089), (False, 1.455)]
    text = "\n".join(peers.text_lines(result))
    own = "| `edge_flux` | delaunay | 2,000 | 1.10 | `staged block=512` |"
    assert f"{own} C++ blocks, 512 | 0.92 | numba gather | 1.45 |" in text
    assert "| `edge_flux`: best numba / Meshloom | at least 1.5 | 1.45 | **missed** |" in text
    times["Meshloom"], row["best"] = 0.0012, {"C++": "C++ blocks, 512"}
    (goal,) = peers.goals(result)
    assert not goal.met and "| - | - |" in "\n".join(peers.text_lines(result))
