"""The README's picture of speed says what the result files say that the README names."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from bench import record, speed, stamp


def words(picture: Path) -> list[str]:
    """All texts of a picture."""
    found = ["".join(one.itertext()).strip() for one in xml.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    return [text for text in found if text]


def test_the_committed_picture_is_drawn_from_the_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    speed.draw(tmp_path / "speed.svg")
    assert words(tmp_path / "speed.svg") == words(speed.PICTURE), "python -m bench.speed"
    said = " ".join(words(speed.PICTURE))
    for name in speed.shown().values():
        result = record.load(record.RESULTS / name)
        assert name.removesuffix(".json") in said and result["machine"]["gpu"] in said
        assert stamp.commit_of(result["code"])[0][:10] in said


def test_panels_hold_us_and_peers_of_the_same_run() -> None:
    assert set(speed.shown()) == set(speed.PANELS)
    for kind, name in speed.shown().items():
        panel = speed.PANELS[kind](record.load(record.RESULTS / name))
        own, *peers = panel.shares.items()
        assert own[0] == "Meshloom" and peers and [s for _, s in peers] == sorted((s for _, s in peers), reverse=True)
        assert all(0.0 < share < 1.1 for share in panel.shares.values())


def test_a_share_of_a_peer_is_that_of_its_bytes() -> None:
    """Of tridiagonal systems results hold times alone: 16 bytes a point over the time, by the copy."""
    rows = [{"part": "methods", "shape": [10, 10], "axis": 0, "method": speed.OWN, "ms": 1e-3, "share_of_limit": 0.8}]
    peers = [{"peer": f"cuSPARSE {k}", "shape": [10, 10], "axis": 0, "ms": ms} for k, ms in enumerate((4e-3, 2e-3))]
    panel = speed.tridiagonal({"rows": rows, "peers": peers, "copy_GBps": 2.0})
    assert panel.shares == pytest.approx({"Meshloom": 0.8, "cuSPARSE": 1600 / 2e-6 / 2e9})
    assert panel.text_lines() == ["Tridiagonal systems, 10 x 10 points: Meshloom 0.80, cuSPARSE 0.40."]
    assert speed.figure(0.001) == "below 0.01"
