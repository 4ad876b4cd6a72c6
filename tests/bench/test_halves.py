"""Meshes in two halves on a few cells: every order is the same mesh, every strategy is right, ratios fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench import halves, record
from tests.bench.devices import Emulated


@pytest.mark.parametrize("order", halves.ORDERS)
def test_spoilt_meshes_are_the_same_mesh(order: str) -> None:
    mesh = ml.generate.naca0012(6, 5)
    changed = halves.ORDERS[order](mesh.cells.total, mesh.faces.total)
    assert all((np.sort(one) == np.arange(len(one))).all() for one in changed.values())
    spoilt = halves.renumbered(mesh, **changed)
    old = changed.get("cells", np.arange(mesh.cells.total))
    np.testing.assert_array_equal(spoilt.cell_centroids, mesh.cell_centroids[old])
    pairs = np.sort(np.sort(old[spoilt.face_cells.indices], axis=1), axis=0)
    np.testing.assert_array_equal(pairs, np.sort(np.sort(mesh.face_cells.indices, axis=1), axis=0))


def test_cards_and_hands() -> None:
    assert halves.cards(6).tolist() == [0, 3, 1, 4, 2, 5] and halves.cards(5).tolist() == [0, 3, 1, 4, 2]
    assert halves.hands(10).tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]


class Reference(Emulated):
    backend = "numpy"  # which is right whatever the strategy, and needs no compiler


@pytest.mark.parametrize(
    "device", [pytest.param(Emulated(), marks=pytest.mark.slow), Reference()], ids=lambda d: d.backend
)
def test_a_whole_run(
    device: Emulated, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.backend == "emulated":  # a strategy or two: compiling all takes a minute
        monkeypatch.setattr(halves, "LOOPS", {"res_calc": halves.LOOPS["res_calc"]})
        monkeypatch.setattr(halves, "wishes", lambda: ("auto", "fastest", "staged", "owner", "block_color"))
    file = tmp_path / "halves.json"
    assert halves.main(["--quick", "--orders", "cells", "hands", "--json", str(file)], device) == 0
    rows = record.load(file)["rows"]
    expected = [(o, name, w) for o in ("cells", "hands") for name in halves.LOOPS for w in halves.wishes()]
    assert [(r["order"], r["loop"], r["strategy"]) for r in rows] == expected
    for order, name in dict.fromkeys((o, name) for o, name, _ in expected):
        mine = {r["strategy"]: r for r in rows if (r["order"], r["loop"]) == (order, name)}
        assert min(r["ratio"] for w, r in mine.items() if w in ml.strategies()) == 1.0
        assert mine["auto"]["schedule"].split()[0] in ml.strategies() and mine["auto"]["ratio"] > 0.0
    out = capsys.readouterr().out
    assert "times the best" in out and "WRONG" not in out


def test_the_check_finds_a_wrong_result() -> None:
    ml.use("numpy")
    mesh = ml.generate.naca0012(6, 5)
    values = halves.Values(mesh)
    changed = halves.ORDERS["cells"](mesh.cells.total, mesh.faces.total)
    arguments = halves.Arguments(values, halves.renumbered(mesh, **changed), changed["cells"])
    for name, (kernel, _) in halves.LOOPS.items():
        arguments.res.fill(0.0)
        kernel(arguments.mesh.faces, *arguments.of(name))
        expected = values.expected[name]
        np.testing.assert_allclose(arguments.res.numpy(), expected[changed["cells"]], rtol=1e-10, atol=1e-12)
        assert np.abs(arguments.res.numpy() - expected).max() > 1e-3
