"""A result names its code, is written in one place, and stays when a newer one comes."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bench import counters, record, stamp
from bench.measure import surroundings
from bench.record import Record, RecordError

ROOT = Path(__file__).parents[2]


def result(**more: object) -> dict[str, object]:
    return surroundings() | {"benchmark": "test"} | more


def copy_of_the_code(folder: Path) -> Path:
    """The sources in a folder of their own, without git."""
    for name, content in stamp.sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small project under git."""
    folder = tmp_path / "project"
    for name in ("meshloom/a.py", "bench/b.py", "bench/results/old.json", "docs/page.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    git(folder, "init", "--quiet")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


# --- the stamp ----------------------------------------------------------------------------------------------------


def test_the_hash_needs_no_git_and_sees_every_change(tmp_path: Path) -> None:
    folder = copy_of_the_code(tmp_path)
    assert stamp.digest(stamp.sources(folder)) == stamp.digest(stamp.sources())
    assert len(stamp.sources()) > 200
    (folder / "bench" / "results").mkdir()
    (folder / "bench" / "results" / "new.json").write_text("{}")
    (folder / "meshloom" / "note.md").write_text("not code")
    assert stamp.digest(stamp.sources(folder)) == stamp.digest(stamp.sources())
    with (folder / "meshloom" / "loop.py").open("a") as file:
        file.write("#")
    assert stamp.digest(stamp.sources(folder)) != stamp.digest(stamp.sources())


def test_names_count_as_contents_do() -> None:
    assert stamp.digest({"a": b"b", "c": b""}) != stamp.digest({"a": b"", "c": b"b"})
    assert stamp.digest({"a": b"1", "b": b"2"}) == stamp.digest({"b": b"2", "a": b"1"})


def test_a_commit_has_the_hash_of_its_files(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD").strip()
    found = stamp.stamp(repository)
    assert (found["commit"], found["dirty"], found["commit_from"], found["files"]) == (commit, False, "git", 2)
    assert stamp.digest(stamp.sources_of_commit(commit, repository)) == found["sha256"]
    (repository / "docs" / "page.md").write_text("other")
    (repository / "bench" / "results" / "new.json").write_text("{}")
    assert stamp.stamp(repository)["dirty"] is False
    (repository / "bench" / "b.py").write_text("other")
    assert stamp.stamp(repository)["dirty"] is True
    (repository / "bench" / "b.py").write_text("bench/b.py")
    (repository / "meshloom" / "new.py").write_text("")
    assert stamp.stamp(repository)["dirty"] is True


def test_a_copy_with_another_git_goes_by_its_note(repository: Path) -> None:
    """As a machine that got the files, and has a repository of its own that knows nothing of them."""
    commit = git(repository, "rev-parse", "HEAD").strip()
    stamp.note(repository)
    git(repository, "checkout", "--quiet", "--orphan", "other")
    git(repository, "rm", "--quiet", "--cached", "meshloom/a.py")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "something else")
    found = stamp.stamp(repository)
    assert (found["commit"], found["dirty"], found["commit_from"]) == (commit, False, "bench/.commit")
    (repository / "meshloom" / "a.py").write_text("changed since")
    assert stamp.stamp(repository)["commit_from"] == "git" and stamp.stamp(repository)["dirty"] is True


def test_a_result_that_names_no_clean_commit_gets_the_one_with_its_hash(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    code = stamp.stamp(repository)
    assert stamp.with_commit({"code": code}, repository) == {"code": code}
    changed = stamp.with_commit({"code": code | {"commit": "0" * 40, "dirty": True}}, repository)["code"]
    assert changed["commit"] == "0" * 40 and stamp.commit_of(changed) == (first, False)
    other = code | {"dirty": True, "sha256": "1" * 64}
    assert stamp.commit_of(stamp.with_commit({"code": other}, repository)["code"]) == (first, True)


def test_without_git_the_commit_is_noted_or_given(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stamp.VARIABLE, raising=False)
    commit = git(repository, "rev-parse", "HEAD").strip()
    stamp.note(repository)
    shutil.rmtree(repository / ".git")
    found = stamp.stamp(repository)
    assert (found["commit"], found["dirty"], found["commit_from"]) == (commit, False, "bench/.commit")
    (repository / "meshloom" / "a.py").write_text("changed since")
    assert stamp.stamp(repository)["dirty"] is True
    (repository / "bench" / ".commit").unlink()
    assert (stamp.stamp(repository)["commit"], stamp.stamp(repository)["dirty"]) == ("unknown", None)
    monkeypatch.setenv(stamp.VARIABLE, "0123456789abcdef0123456789abcdef01234567")
    assert stamp.stamp(repository)["commit"].startswith("0123456789")
    monkeypatch.setenv(stamp.VARIABLE, "no commit")
    assert stamp.stamp(repository)["commit"] == "unknown"


def test_a_result_is_traced_to_its_commit(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    made = {"code": stamp.stamp(repository) | {"commit": "unknown"}}
    (repository / "meshloom" / "a.py").write_text("newer")
    git(repository, "commit", "--quiet", "-am", "second")
    commits = git(repository, "rev-list", "HEAD").split()
    assert stamp.verified(made, commits, repository) == f"made from commit {first}, it says unknown"
    assert stamp.verified({"code": made["code"] | {"commit": first}}, commits, repository).endswith("as it says")
    assert stamp.verified(made, commits[:1], repository).startswith("made from none of the 1 commits tried")
    assert stamp.verified({}, commits, repository) == "says nothing about its code"


# --- the file -----------------------------------------------------------------------------------------------------


def test_a_result_says_what_it_was_made_from(tmp_path: Path) -> None:
    found = record.load(Record(result(), tmp_path / "x.json").save())
    assert set(record.REQUIRED) <= set(found) and found["schema"] == record.SCHEMA
    assert re.fullmatch(r"[0-9a-f]{64}", found["code"]["sha256"]) and found["code"]["version"]
    assert found["seconds_in_all"] >= 0


def test_a_result_that_does_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="without code is not saved"):
        Record({k: v for k, v in result().items() if k != "code"}, tmp_path / "x.json")


def test_a_newer_result_leaves_the_older_one(tmp_path: Path) -> None:
    first, second = (Record(result(), tmp_path / "2026-11-15_race_h200.json") for _ in range(2))
    first.result["value"], second.result["value"] = 1, 2
    assert first.save().name == "2026-11-15_race_h200.json"
    assert second.save().name == "2026-11-15_race_h200-2.json"
    first.result["value"] = 3  # a run goes on writing its own file
    assert record.load(first.save())["value"] == 3 and record.load(second.file)["value"] == 2
    assert Record(result(), tmp_path / "2026-11-15_race_h200.json").save().name == "2026-11-15_race_h200-3.json"
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json"] * 3, "nothing temporary is left"


def test_only_the_same_code_goes_on_with_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    file = Record(result(), tmp_path / "x.json").save()
    again = Record.resumed(file)
    again.result["more"] = 1
    assert again.save() == file and record.load(file)["more"] == 1
    other = record.load(file)
    other["code"]["sha256"] = "0" * 64
    file.write_text(json.dumps(other))
    with pytest.raises(RecordError, match="made by other code"):
        Record.resumed(file)
    monkeypatch.setattr(counters, "required_ncu", lambda: "ncu")
    assert counters.main([str(file)]) == 2 and "made by other code" in capsys.readouterr().err


def test_names_say_where_it_was_measured() -> None:
    machine = {"gpu": "NVIDIA GeForce RTX 4090", "architecture": "x86_64"}
    assert record.place(machine, "cuda") == "rtx-4090" and record.place({"gpu": "NVIDIA H200"}, "cuda") == "h200"
    assert record.place(machine, "cpu") == "x86_64" and record.place(machine, "emulated") == "emulated"


def test_the_command_is_kept_without_places() -> None:
    words = ["/somewhere/bench/race.py", "--i", "8", "--json", "/elsewhere/x.json", "/a/b.json"]
    assert record.command(words) == "race --i 8 b.json"


def test_results_are_written_by_one_helper() -> None:
    """Who writes files in bench/, and what: results go through record.py alone."""
    writers = {
        "record.py": "results",
        "stamp.py": "bench/.commit",
        "report.py": "pages",
        "everything.py": "a summary inside its archive",
        "counters.py": "a job for bench.counted",
        "counted.py": "the answer",
    }
    found = set()
    files = sorted((ROOT / "bench").glob("*.py"))
    assert len(files) > 30
    for file in files:
        tree = ast.parse(file.read_text())
        calls = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call)
                 and isinstance(node.func, ast.Attribute)}  # fmt: skip
        if {"dump", "write_text", "write_bytes"} & calls:
            found.add(file.name)
    assert found == set(writers)


# --- alone on a device --------------------------------------------------------------------------------------------


def of_gpu(**more: object) -> dict[str, object]:
    found = result(**more)
    return found | {"machine": {**found["machine"], "gpu": "NVIDIA H200"}}  # type: ignore[dict-item]


def test_times_of_a_gpu_that_others_use_are_not_kept(tmp_path: Path) -> None:
    """Wherever in a result its copies stand; the fastest is what any run has seen of such a device, this one too."""
    best = record.fastest_copy("NVIDIA H200")
    assert best > 4000.0 and record.fastest_copy("another") == 0.0
    for number, shown in enumerate(({"copy_GBps": 0.95 * best}, {"copy_GBps": [best, 0.91 * best]}, {"rows": []})):
        assert Record(of_gpu(**shown), tmp_path / f"{number}.json", "cuda").save().exists()
    for shown in ({"copy_GBps": 0.89 * best}, {"copy_GBps": [best, 1141.0]}, {"parts": [{"at": {"copy_GBps": 1141.0}}]},
                  {"copy_GBps": [1.2 * best, best]}):  # fmt: skip
        with pytest.raises(RecordError, match=r"copying ran at .* GB/s, and at .* on a NVIDIA H200 that nobody else"):
            Record(of_gpu(**shown), tmp_path / "refused.json", "cuda").save()
        with pytest.raises(RecordError, match="measure again when it is free"):
            record.placed(of_gpu(backend="cuda", **shown), tmp_path / "refused.json")
    assert {path.name for path in tmp_path.iterdir()} == {"0.json", "1.json", "2.json"}
    assert Record(result(copy_GBps=1.0), tmp_path / "cpu.json", "cpu").save().exists(), "CPUs are shared"
