"""Output folders: nobody's run is ever taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from meshloom.errors import RunError, UserError
from meshloom.run.folder import RunFolder, claim, is_run, recover
from tests.cli.harness import files_below


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
    assert sorted(path.name for path in tmp_path.iterdir()) == [".replaced", "fields_mine.vtu"]
    folder.keep()
    assert [path.name for path in tmp_path.iterdir()] == ["fields_mine.vtu"]


def begun(folder: RunFolder) -> RunFolder:
    """A run that writes files, but no checkpoint, until it is killed."""
    folder.begin()
    for name in ("run.toml", "monitors.csv", "fields_0000001.vtu", f".monitors.csv.1.{'0' * 32}.tmp", ".probe.1"):
        (folder.path / name).write_text("new")
    folder.release()  # as the system does
    return folder


def test_a_run_killed_before_its_first_checkpoint_is_none(tmp_path: Path):
    """The same command works again, and takes nothing but what that run left."""
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".heat.vtu.1.tmp").write_text("somebody else's")
    begun(claim("airfoil", tmp_path))
    again = claim("airfoil", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".replaced", "notes.txt", ".heat.vtu.1.tmp"}
    again.release()
    claim("airfoil", tmp_path).abandon()
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", ".heat.vtu.1.tmp"}


def test_the_marker_of_earlier_versions_is_no_run(tmp_path: Path):
    (tmp_path / "run.toml").touch()
    claim("airfoil", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".replaced"]


@pytest.mark.parametrize("wish", [{}, {"overwrite": True}, {"goes_on": True}])
def test_what_a_killed_run_was_to_replace_is_put_back(tmp_path: Path, wish: dict[str, bool]):
    old = dict.fromkeys(("run.toml", "monitors.csv", "checkpoint.h5", "fields_0000003.vtu"), b"old")
    for name, data in old.items():
        (tmp_path / name).write_bytes(data)
    begun(claim("airfoil", tmp_path, overwrite=True))
    if wish:
        claim("airfoil", tmp_path, **wish)
    else:
        with pytest.raises(UserError, match=r"already holds a run; .*--restart .*checkpoint\.h5"):
            claim("airfoil", tmp_path)
    assert files_below(tmp_path) == old


def test_reading_a_run_that_was_cut_off_removes_nothing(tmp_path: Path):
    begun(claim("airfoil", tmp_path))
    left = files_below(tmp_path)
    assert left
    with pytest.raises(UserError, match="cut off before its first checkpoint; start it again"):
        recover(tmp_path)
    assert files_below(tmp_path) == left


def test_reading_a_run_that_is_back_says_so(tmp_path: Path):
    for name in ("run.toml", "checkpoint.h5"):
        (tmp_path / name).write_text("old")
    begun(claim("airfoil", tmp_path, overwrite=True))
    with pytest.warns(UserWarning, match="this is the one of before"):
        recover(tmp_path)
    assert {*files_below(tmp_path).values()} == {b"old"}


@pytest.mark.parametrize("hidden", [".replaced", ".replacing"])
def test_links_are_not_followed(tmp_path: Path, hidden: str):
    run, mine = tmp_path / "run", tmp_path / "mine"
    for folder, name in ((run, "run.toml"), (run, "checkpoint.h5"), (mine, "thesis.tex"), (mine, "picture.png")):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    (run / hidden).symlink_to(mine)
    recover(run)
    with suppress(UserError):
        claim("airfoil", run, goes_on=True).release()
    with suppress(UserError, RunError):
        begun(claim("airfoil", run, overwrite=True))
    assert {path.name: path.read_text() for path in mine.iterdir()} == {n: n for n in ("thesis.tex", "picture.png")}


def test_folders_that_are_called_like_files_are_left_alone(tmp_path: Path):
    (tmp_path / "chart_x.png").mkdir()
    (tmp_path / "run.toml").write_text("old")
    begun(claim("airfoil", tmp_path, overwrite=True))
    (tmp_path / "checkpoint.h5").write_text("new")
    recover(tmp_path)
    assert (tmp_path / "chart_x.png").is_dir() and not (tmp_path / ".replaced").exists()


def test_a_folder_that_was_moved_is_noticed(tmp_path: Path):
    folder = claim("airfoil", tmp_path / "run")
    folder.check_place()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="No such file"):
        folder.check_place()
    other = claim("airfoil", tmp_path / "run")
    with pytest.raises(RunError, match="is another folder now"):
        folder.check_place()
    for one in (folder, other):
        one.release()


def test_a_run_with_a_checkpoint_has_taken_the_place(tmp_path: Path):
    for name in ("run.toml", "monitors.csv", "checkpoint.h5", "picture.png"):
        (tmp_path / name).write_text("old")
    begun(claim("airfoil", tmp_path, overwrite=True))
    (tmp_path / "checkpoint.h5").write_text("new")
    recover(tmp_path)
    assert {*files_below(tmp_path).values()} == {b"new"} and not (tmp_path / ".replaced").exists()


def test_what_a_network_file_system_keeps_open_stops_no_run(tmp_path: Path):
    (tmp_path / "checkpoint.h5").write_text("old")
    folder = claim("airfoil", tmp_path, overwrite=True)
    folder.begin()
    kept = tmp_path / ".replaced" / ".nfs0001"
    kept.write_text("a file of before, removed while somebody reads it")
    (tmp_path / "checkpoint.h5").write_text("new")
    folder.keep()
    assert not (tmp_path / ".replaced").exists() and len(files_below(tmp_path)) == 2
    folder.release()
    folder = claim("airfoil", tmp_path, overwrite=True)
    folder.begin()
    (tmp_path / "checkpoint.h5").write_text("newer")
    folder.keep()
    folder.release()
    (path,) = tmp_path.rglob(".nfs*")
    path.unlink()
    claim("airfoil", tmp_path, goes_on=True).release()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.h5"]


def test_a_living_run_without_a_checkpoint_is_not_undone(tmp_path: Path):
    folder = claim("airfoil", tmp_path)
    (tmp_path / "monitors.csv").write_text("new")
    for attempt in (lambda: recover(tmp_path), lambda: claim("airfoil", tmp_path, overwrite=True)):
        with pytest.raises(UserError, match="is being written by another run"):
            attempt()
    assert (tmp_path / "monitors.csv").exists()
    folder.release()


def test_without_locks_nobody_undoes_what_may_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("meshloom.run.folder.fcntl", None)
    claim("airfoil", tmp_path)
    (tmp_path / "monitors.csv").write_text("new")
    for attempt in (lambda: recover(tmp_path), lambda: claim("airfoil", tmp_path, overwrite=True)):
        with pytest.raises(UserError, match="may still go on"):
            attempt()
    assert (tmp_path / "monitors.csv").exists()


def test_a_refusal_names_a_checkpoint_only_if_there_is_one(tmp_path: Path):
    (tmp_path / "picture.png").write_text("all that was kept")
    with pytest.raises(UserError, match=r"already holds a run; give --overwrite or another --out$"):
        claim("airfoil", tmp_path)


@pytest.mark.parametrize(
    "name", ["run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd", "picture.png", "report.html"]
)
def test_any_file_of_a_run_marks_a_folder(tmp_path: Path, name: str):
    (tmp_path / name).write_text("someone's")
    with pytest.raises(UserError, match="already holds a run"):
        claim("airfoil", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
