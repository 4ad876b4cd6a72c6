"""The driver of all benchmarks: what it runs, in which slices, and what it brings home."""

from __future__ import annotations

import json
import sys
import tarfile
import time
from itertools import pairwise
from pathlib import Path

import pytest

from bench import everything, record, tables
from bench.everything import JOBS, Job, Outcome

#: Of tests.attacks.run, of tubes and vortices that nobody times, of bench.compare, which wants another tree, of
#: bench.zoo, which takes an hour in parts, and of its peers, which want a quiet machine.
ELSEWHERE = ("attacks", "shock_tubes", "energy", "compare_gpu", "compare_some", "compare_cpu", "starts_cores", "ranks",
             "ranks_gpu", "ranks_of_two", "ranks_matrix", "zoo", "zoo_chosen", "zoo_peers")  # fmt: skip


def test_every_table_has_a_job() -> None:
    fed = {word.strip() for job in JOBS for word in job.tables.split(",")}
    shown = set(tables.TABLES) - {"locality_orders", "locality_counters"}  # of the file of locality
    shown -= set(ELSEWHERE)
    assert {name for name in shown if not name.startswith("readme_")} == fed - {"README"}
    named = {table.benchmark for name, table in tables.TABLES.items() if name not in ELSEWHERE}
    assert {job.module for job in JOBS} == named
    assert len({job.name for job in JOBS}) == len(JOBS)


def test_slices_keep_the_order_and_the_limit() -> None:
    gpu = [job for job in JOBS if job.group == "gpu"]
    parts = everything.slices(gpu, 570.0)
    assert [job for part in parts for job in part] == gpu
    assert all(everything.longest(part) <= 570.0 for part in parts) and len(parts) <= 7
    for label in {job.together for job in gpu} - {""}:
        members = [job for job in gpu if job.together == label]
        assert any(all(job in part for job in members) for part in parts), "those that run together are not cut apart"
        assert everything.longest(members) == max(job.limit for job in members)
    assert parts[0][0].name == "compact"
    assert [len(part) for part in everything.slices(gpu[:2], 1.0)] == [1, 1]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_commands_are_understood(job: Job, tmp_path: Path) -> None:
    """Every job's options are options of its benchmark: asking for help after them parses all of them."""
    import importlib

    module = importlib.import_module(f"bench.{job.module}")
    for tiny in (False, True) if job.tiny is not None else (False,):
        words = job.command(tmp_path / "x.json", tiny=tiny, counters=True)
        assert words[:3] == [sys.executable, "-m", f"bench.{job.module}"]
        with pytest.raises(SystemExit) as ended:
            module.main([*words[3:], "--help"])
        assert ended.value.code == 0, words


@pytest.mark.slow
def test_a_tiny_run_comes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    broken = Job("broken", "no_such_benchmark", (), 60, "grid", tiny=())
    monkeypatch.setattr(everything, "JOBS", (broken, *JOBS))
    arguments = ["--tiny", "--only", "broken", "direct", "--out", str(out), "--minutes", "5"]
    assert everything.main(arguments) == 1, "one of them failed"
    shown = capsys.readouterr().out
    assert "ended with 1, no file" in shown and "No module named" in shown and "direct: done" in shown
    monkeypatch.setattr(record, "RESULTS", results)
    (archive,) = out.iterdir()
    for suffix in ("", "-2"):
        assert everything.main(["--unpack", str(archive)]) == 0
        (name,) = capsys.readouterr().out.split()
        assert name.split("_", 1)[1].startswith("direct_") and Path(name).stem.endswith("-2") == bool(suffix)
        result = record.load(results / name)
        assert result["benchmark"] == "direct" and result["rows"] and result["code"]["sha256"]
    assert len(list(results.iterdir())) == 2


def test_a_job_that_takes_too_long_is_ended_and_keeps_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "slow.py"
    lines = ("import sys, time", "open(sys.argv[1], 'w').write('{}')", "print('saved', flush=True)", "time.sleep(60)")
    script.write_text("\n".join(lines))
    monkeypatch.setattr(Job, "command", lambda job, file, **_: [sys.executable, str(script), str(file)])
    begin = time.monotonic()
    found = everything.run_job(Job("slow", "direct", (), 1.5, ""), tmp_path, tiny=False, counters=False, left=99.0)
    assert time.monotonic() - begin < 15.0
    assert (found.code, found.file, found.last) == (None, "slow.json", "saved")
    assert found.word() == "ran past its limit, file kept"


def test_jobs_that_run_together_measure_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "turns.py"
    script.write_text(
        "import sys, time\nfrom bench.exclusive import alone\nbegun = time.monotonic()\n"
        "with alone():\n    inside = time.monotonic()\n    time.sleep(0.3)\n    outside = time.monotonic()\n"
        "open(sys.argv[1], 'w').write(f'[{begun}, {inside}, {outside}]')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(everything.__file__).parents[1]))
    monkeypatch.setattr(Job, "command", lambda job, file, **_: [sys.executable, str(script), str(file)])
    jobs = [Job(name, "direct", (), 30.0, "", together="all") for name in ("a", "b", "c")]
    found = everything.run_batch(jobs, tmp_path, tiny=False, counters=False, left=99.0)
    assert [one.code for one in found] == [0, 0, 0]
    times = sorted((json.loads((tmp_path / f"{job.name}.json").read_text()) for job in jobs), key=lambda one: one[1])
    assert max(one[0] for one in times) < times[-1][1], "they began side by side"
    assert all(earlier[2] <= later[1] for earlier, later in pairwise(times)), "and measured one after the other"


def test_only_results_that_name_their_code_are_taken(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    old = {"benchmark": "race", "date": "2026-01-01T00:00:00+00:00", "machine": {"gpu": "NVIDIA H200"}}
    (folder / "race.json").write_text(json.dumps(old))
    archive = everything.pack(folder, [Outcome("race", "race", 0, 1.0, 2.0, "race.json", "")], tmp_path / "a.tar.gz")
    with tarfile.open(archive) as packed:
        assert sorted(packed.getnames()) == ["race.json", "summary.txt"]
    with pytest.raises(record.RecordError, match=r"2026-01-01_race_h200.json: a result without schema"):
        everything.unpack(archive, tmp_path / "results")


def test_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert everything.main(["--plan", "--minutes", "9"]) == 0
    assert capsys.readouterr().out.startswith("slice 1, at most")
    assert everything.main(["--slice", "99"]) == 2
