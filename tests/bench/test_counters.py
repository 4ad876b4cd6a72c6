"""What Nsight Compute prints, read back: a report in its format with figures made up, sums, and its complaints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import counters, record
from bench.measure import surroundings

SAMPLE = Path(__file__).parents[1] / "data" / "ncu_two_launches.csv"


@pytest.fixture
def launches() -> list[dict[str, float]]:
    return counters.parse_csv(SAMPLE.read_text())


def test_a_report_gives_one_dictionary_for_each_launch(launches: list[dict[str, float]]) -> None:
    assert len(launches) == 2
    assert set(launches[0]) == set(counters.METRICS)
    assert launches[0]["dram__sectors_read.sum"] == 4812344
    assert launches[0]["gpu__time_duration.sum"] == pytest.approx(150.016e-6)
    assert "lts__t_sector_hit_rate.pct" not in launches[1], "n/a is no number"


def test_units_are_taken_off() -> None:
    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = '"0","k","gpu__time_duration.sum","usecond","12.5"\n"0","k","dram__sectors_read.sum","Msector","1.5"\n'
    assert counters.parse_csv(head + rows) == [
        {"gpu__time_duration.sum": pytest.approx(12.5e-6), "dram__sectors_read.sum": 1.5e6}
    ]


def test_text_without_a_report_gives_nothing() -> None:
    assert counters.parse_csv("") == [] and counters.parse_csv("==ERROR== no\nwords, words\n") == []


def test_launches_are_added_up(launches: list[dict[str, float]]) -> None:
    found = counters.summarise(launches, useful=100e6)
    assert found["launches"] == 2 and found["kernel_ms"] == pytest.approx(0.225024)
    assert 30.4 / 32 < found["warp_efficiency"] < 31.2 / 32
    assert found["dram_read_sectors"] == 4812344 + 2406172
    assert found["dram_read_bytes"] == 32 * found["dram_read_sectors"]
    assert found["dram_write_bytes"] == 32 * (1440020 + 720010)
    assert found["dram_over_useful"] == pytest.approx((found["dram_read_bytes"] + found["dram_write_bytes"]) / 100e6)
    assert found["achieved_occupancy"] == pytest.approx((2 * 0.4028 + 0.3728) / 3), "weighted by time"
    assert found["l1_hit"] == pytest.approx((2 * 0.4152 + 0.3852) / 3)
    assert "l2_hit" not in found, "not known of every launch"


def test_the_three_longest_waits(launches: list[dict[str, float]]) -> None:
    stalls = counters.summarise(launches)["stalls"]
    assert list(stalls) == ["long_scoreboard", "wait", "lg_throttle"]
    cycles = [{r: one[m] for r, m in counters.STALLS.items()} for one in launches]
    shares = [c["long_scoreboard"] / sum(c.values()) for c in cycles]
    assert stalls["long_scoreboard"] == pytest.approx((2 * shares[0] + shares[1]) / 3)
    assert counters.summarise([]) == {} and counters.summarise([{}])["stalls"] == {}


def test_complaints_are_one_line() -> None:
    text = "==PROF== x\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n==ERROR== See more\n"
    assert counters.complaint(text) == "ERR_NVGPUCTRPERM - The user does not have permission See more"
    assert counters.complaint("==PROF== fine\n") is None
    assert counters.unknown_metrics("==ERROR== Failed to find metric dram__sectors_read.sum\n") == {
        "dram__sectors_read.sum"
    }


def row(strategy: str, ms: float, **more: Any) -> dict[str, Any]:
    return {"order": "given", "precision": "float64", "layout": "aos", "strategy": strategy, "variant": "plain",
            "block": 64, "cap": None, "schedule": f"{strategy} block=64", "ms": ms,
            "useful_GBps": 1000.0} | more  # fmt: skip


def test_the_best_of_each_kind() -> None:
    slow, fast, other = row("color", 2.0), row("color", 1.0, block=128), row("color", 3.0, layout="soa")
    refused = {k: v for k, v in row("tile", 1.0).items() if k != "ms"} | {"declined": "no"}
    assert counters.best_rows([slow, fast, other, refused]) == [fast, other]


@pytest.fixture
def race_file(tmp_path: Path) -> Path:
    rows = [row("color", 1.0), row("color", 2.0, block=128), row("owner", 0.5), row("auto", 0.4)]
    file = tmp_path / "race.json"
    result = surroundings() | {"benchmark": "race", "mesh": {"i": 8, "j": 6}, "variants": rows}
    return record.Record(result, file).save()


def pretend(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Put a program in the place of ncu: Python text that finds the metrics, JOB and DONE in its arguments."""
    file = folder / "ncu"
    text = "import json, sys\nfrom pathlib import Path\nafter = sys.argv.index('--metrics') + 1\n"
    text += "metrics, (job, done) = sys.argv[after].split(','), map(Path, sys.argv[-2:])\n"
    file.write_text(f"#!{sys.executable}\n{text}{program}")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


REPORT = f"""
assert [r["strategy"] for r in json.loads(job.read_text())["rows"]] == ["color", "owner"]
done.write_text("[1, 1]")
print(Path({str(SAMPLE)!r}).read_text())
"""


def test_rows_get_their_counters(race_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, monkeypatch, REPORT)
    assert counters.main([str(race_file), "--raw", str(tmp_path / "raw")]) == 0
    assert counters.parse_csv((tmp_path / "raw_given.csv").read_text()) == counters.parse_csv(SAMPLE.read_text())
    result = record.load(race_file)
    first, second, third, automatic = result["variants"]
    assert (first["counters"]["dram_read_sectors"], third["counters"]["dram_read_sectors"]) == (4812344, 2406172)
    assert "counters" not in second and "counters" not in automatic
    assert "--print-units base" in result["counters"]["command"]


def test_a_metric_that_does_not_exist_is_left_out(race_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    unknown = counters.STALLS["misc"]
    refuse = f"if {unknown!r} in metrics:\n    sys.exit(print('==ERROR== Failed to find metric {unknown}'))\n"
    pretend(tmp_path, monkeypatch, refuse + REPORT)
    assert counters.main([str(race_file)]) == 0
    assert record.load(race_file)["variants"][0]["counters"]["stalls"]


def test_failures_are_one_line(race_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    pretend(tmp_path, monkeypatch, "print('==ERROR== ERR_NVGPUCTRPERM - no permission')")
    assert counters.main([str(race_file)]) == 1
    assert "ERR_NVGPUCTRPERM" in record.load(race_file)["counters"]["incomplete"]
    pretend(tmp_path, monkeypatch, "import time\ntime.sleep(60)")
    assert counters.main([str(race_file), "--seconds", "0.5"]) == 1
    monkeypatch.setattr(counters, "find_ncu", lambda: None)
    assert counters.main([str(race_file)]) == 2
    assert counters.main([str(tmp_path / "none.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_the_job_names_everything_the_counted_process_needs() -> None:
    from bench.race_loop import wish_entries, wished

    entries = {name: row("color", 1.0)[name] for name in counters.ENTRIES}
    assert set(wish_entries(wished(entries))) <= set(entries)
    assert json.loads(json.dumps(entries)) == entries
