"""What was due with a checkpoint is there before it: whoever goes on from it repeats nothing of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.io import checkpoint as checkpoints

STEPS = 7
PAGES = ("report.html", "report.json")  # which tell when a run was


class Killed(BaseException):
    """The process is gone."""


@ml.kernel
def halve(u: ml.ReadWrite, shown: ml.Write):
    u *= 0.5
    shown[...] = 3.0 * u


class Fading:
    """``shown`` follows from ``u``; where a script keeps ``u`` alone, a checkpoint does not hold what is shown."""

    def __init__(self) -> None:
        mesh = ml.generate.box((3, 2))
        u, self.shown = mesh.cells.field("u", data=np.arange(6.0)), mesh.cells.field("shown")
        self.u = u

        @ml.program
        def step() -> None:
            halve(mesh.cells, u, self.shown)

        self.step = step

    def march(self, out: Path, *, all_kept: bool, steps: int = STEPS, **more: Any) -> dict[str, bytes]:
        """What there is in the folder at the end, pages apart."""
        kept = {} if all_kept else {"checkpoint": self.u}
        ml.march(self.step, steps=steps, out=out, fields={"shown": self.shown}, every=3, probe_every=2,
                 probes={"p": (0.3, 0.6)}, integrals={"all": "shown"}, surface=["xmin"], restart=True,
                 lines={"up": {"from": (0.5, 0.1), "to": (0.5, 0.9), "points": 3}}, **kept, **more)  # fmt: skip
        return {path.name: path.read_bytes() for path in out.iterdir() if path.name not in PAGES}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn."""
    from meshloom.run import files

    monkeypatch.setattr(files, "draw", lambda *_: None)
    ml.use("numpy")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("all_kept", [True, False])
def test_a_kill_behind_every_checkpoint(all_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed behind each of its checkpoints leaves what one in one go does."""
    wanted, save = Fading().march(tmp_path / "whole", all_kept=all_kept), checkpoints.save

    def killed(*given: Any) -> None:
        save(*given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", killed)
        for _ in range(STEPS):
            with pytest.raises(Killed):
                Fading().march(tmp_path / "killed", all_kept=all_kept, checkpoint_every=1)
    found = Fading().march(tmp_path / "killed", all_kept=all_kept, checkpoint_every=1)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("all_kept", [True, False])
def test_the_row_of_an_end_that_is_none_any_more_goes(all_kept: bool, tmp_path: Path) -> None:
    whole = Fading().march(tmp_path / "whole", all_kept=all_kept)
    Fading().march(tmp_path / "longer", all_kept=all_kept, steps=5)
    again = Fading().march(tmp_path / "longer", all_kept=all_kept, steps=5)
    assert [row.split(b",")[0] for row in again["probes.csv"].split()] == [b"iteration", b"2", b"4", b"5"]
    longer = Fading().march(tmp_path / "longer", all_kept=all_kept)
    assert [longer[name] for name in ("probes.csv", "integrals.csv")] == [
        whole[name] for name in ("probes.csv", "integrals.csv")
    ]


@pytest.mark.usefixtures("quick")
def test_rows_that_somebody_removed_with_a_checkpoint_come_again(tmp_path: Path) -> None:
    """Earlier versions wrote them after it, and a kill between the two left this."""
    whole = Fading().march(tmp_path / "whole", all_kept=True)
    Fading().march(tmp_path / "cut", all_kept=True, steps=4)
    for name in ("probes.csv", "integrals.csv"):
        rows = (tmp_path / "cut" / name).read_bytes().splitlines(keepends=True)
        (tmp_path / "cut" / name).write_bytes(b"".join(rows[:-1]))
    found = Fading().march(tmp_path / "cut", all_kept=True)
    assert found["probes.csv"] == whole["probes.csv"] and found["integrals.csv"] == whole["integrals.csv"]
