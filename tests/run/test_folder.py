"""Output folders: nobody's run is ever taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from meshloom.errors import UserError
from meshloom.run.folder import claim, is_run


def test_many_at_once_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: claim("airfoil", None).path, range(24)))
    assert sorted(map(str, folders)) == [f"runs/airfoil-{n:03d}" for n in range(1, 25)]


def test_of_many_who_want_the_same_folder_one_gets_it(tmp_path: Path):
    def attempt(_: int) -> bool:
        try:
            claim("airfoil", tmp_path / "mine")
        except UserError as refusal:
            assert "mine" in str(refusal)
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1
    with pytest.raises(UserError, match="mine"):
        claim("airfoil", tmp_path / "mine")


def test_a_folder_in_use_is_not_entered(tmp_path: Path):
    """Not to go on with a run that still goes on, nor to overwrite it."""
    running = claim("airfoil", tmp_path / "a")
    for wish in ({"goes_on": True}, {"overwrite": True}):
        with pytest.raises(UserError, match="is being written by another run"):
            claim("airfoil", tmp_path / "a", **wish)
    running.release()
    claim("airfoil", tmp_path / "a", goes_on=True).release()


def test_a_claim_can_be_given_back(tmp_path: Path):
    folder = claim("airfoil", tmp_path / "new")
    assert is_run(folder.path)
    folder.abandon()
    assert not folder.path.exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "notes.txt").write_text("mine")
    folder = claim("airfoil", tmp_path / "old")
    folder.abandon()
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_overwriting_removes_nothing_before_the_run_begins(tmp_path: Path):
    for name in ("run.toml", "monitors.csv", "fields_0000003.vtu", "fields_mine.vtu"):
        (tmp_path / name).write_text("old")
    folder = claim("airfoil", tmp_path, overwrite=True)
    assert len(list(tmp_path.iterdir())) == 4
    folder.abandon()
    assert len(list(tmp_path.iterdir())) == 4
    folder.begin()
    assert [path.name for path in tmp_path.iterdir()] == ["fields_mine.vtu"]


@pytest.mark.parametrize("name", ["run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd", "picture.png"])
def test_any_file_of_a_run_marks_a_folder(tmp_path: Path, name: str):
    (tmp_path / name).write_text("someone's")
    with pytest.raises(UserError, match="already holds a run"):
        claim("airfoil", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
