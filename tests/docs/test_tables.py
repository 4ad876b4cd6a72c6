"""Every measured figure of README and docs: from which file, of which code, and nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench import record, report, stamp, tables
from tests.findings import none_fails

ROOT = Path(__file__).parents[2]
#: Files from before results named their code; a new one cannot join them.
OLD = frozenset(
    f"2026-11-15_{name}.json" for name in (
        "airfoil-fused_h200", "airfoil-reference-fused_h200", "airfoil-reference_h200", "airfoil-reference_x86_64",
        "airfoil_h200", "bookleaf_x86_64", "branches_h200", "compact-closed_h200", "compact-solvers_h200",
        "compact_h200", "cpu_airfoil-step-repeat1_x86_64", "cpu_airfoil-step-repeat2_x86_64",
        "cpu_airfoil-step-repeat3_x86_64", "cpu_airfoil_x86_64", "direct_h200", "flow-truth_h200", "flow_truth_cpu",
        "grid_h200", "line-forms_h200", "locality_h200", "owner-batches_h200", "owner-counters_h200",
        "race-more-orders_h200", "race-orders_h200", "race-rings_h200", "race_h200", "tridiagonal-forms_h200",
        "truth_cpu", "truth_h200", "volna-exact-2_x86_64", "volna-exact_x86_64", "vortex_h200"))  # fmt: skip
#: Numbers that are no measurements.
PLAIN_DECIMALS = {"README.md": {"3.11"}, "benchmarks.md": set()}
MEASURED = re.compile(
    r"\d[\d.,]*\s*(ms|µs|us|microseconds?|milliseconds?|nanoseconds?|GB/s|times (as|faster|slower|longer|more)|of copy"
    r"|of the (copy|limit)|zones per second|% (faster|slower))\b"
)


def results() -> dict[str, dict[str, Any]]:
    return {path.name: record.load(path) for path in sorted(record.RESULTS.glob("*.json"))}


def all_marks() -> list[tuple[str, str, list[str], str]]:
    return [(page.name, *mark) for page in tables.pages() for mark in tables.marks(page.read_text(encoding="utf-8"))]


# --- files --------------------------------------------------------------------------------------------------------


def test_every_result_names_its_code() -> None:
    found = results()
    assert set(found) >= OLD, "results are kept"
    for name, result in found.items():
        if name not in OLD:
            assert set(record.REQUIRED) <= set(result) and result["schema"] >= record.SCHEMA, name
            code = result["code"]
            assert re.fullmatch(r"[0-9a-f]{64}", code["sha256"]) and code["version"] and code["files"] > 100, name
            assert code["commit"] == stamp.UNKNOWN or re.fullmatch(r"[0-9a-f]{7,40}", code["commit"]), name


def test_results_shown_are_of_a_commit_as_it_stands() -> None:
    """Where git knows the commit that a file names, the hash is that of the commit's files."""
    found = results()
    shown = {name for _, _, names, _ in all_marks() for name in names if name != tables.NONE}
    assert len(shown) > 15 and shown <= set(found)
    digest_of = cache(lambda commit: stamp.digest(stamp.sources_of_commit(commit)))  # many files are of one commit
    for name in shown - OLD:
        code = found[name]["code"]
        commit, changed = stamp.commit_of(code)
        assert commit != stamp.UNKNOWN and not changed, f"{name}: made from code of no commit"
        known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True)
        if known.returncode == 0:
            assert digest_of(commit) == code["sha256"], name


# --- tables -------------------------------------------------------------------------------------------------------


def test_every_table_is_what_its_file_says() -> None:
    none_fails(tables.pages(), is_what_its_files_say, shown=lambda page: page.name)


def is_what_its_files_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.made_again(text) == text, "python -m bench.report"
    assert text.count("<!-- table:") == len(list(tables.marks(text))) == text.count("<!-- /table -->")


def test_every_kind_of_table_is_shown_and_names_its_files() -> None:
    marks = all_marks()
    assert {kind for _, kind, _, _ in marks} == set(tables.TABLES)
    for page, kind, names, text in marks:
        assert names == [tables.NONE] or all(f"`bench/results/{name}`" in text for name in names), (page, kind)
        assert len(names) == 1 or tables.TABLES[kind].several, f"{page}, {kind}: a table is one run"


def test_a_figure_that_is_not_in_the_file_is_seen() -> None:
    pages = ("README.md", "docs/volna.md", "docs/cases_flow.md")
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    figures = [(found.start("text") + one.start(), one[0]) for found in tables.MARKS.finditer(text)
               for one in re.finditer(r"(?<=\d\.)\d| met \|", found["text"])]  # fmt: skip
    assert len(figures) > 40
    for at, figure in figures[::7]:
        wrong = " **missed** |" if "met" in figure else str((int(figure) + 1) % 10)
        changed = text[:at] + wrong + text[at + len(figure) :]
        assert tables.made_again(changed) == text != changed, text[at - 40 : at + 5]


def test_two_runs_are_not_one_table() -> None:
    with pytest.raises(record.RecordError, match="is one run, not 2"):
        tables.TABLES["race"].text(["2026-11-15_race-rings_h200.json", "2026-11-15_race-orders_h200.json"])
    with pytest.raises(record.RecordError, match="a result of race, not of compact"):
        tables.TABLES["compact"].text(["2026-11-15_race-rings_h200.json"])


def test_newest_results_take_the_place_of_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    old = record.load(record.RESULTS / "2026-11-15_direct_h200.json")
    code = {"commit": "0" * 40, "dirty": False, "sha256": "1" * 64, "version": "1", "files": 200}
    for name, date, more in (("old.json", "2026-01-01", {}), ("a.json", "2026-01-02", {"code": code}),
                             ("b.json", "2026-01-03", {"code": code}),
                             ("c.json", "2026-01-04", {"code": code, "backend": "cpu"}),
                             ("d.json", "2026-01-05", {"code": code, "resumed": ["2026-01-06"]})):  # fmt: skip
        (tmp_path / name).write_text(json.dumps(old | {"date": date} | more))
    page = tables.made_again("a\n<!-- table: direct old.json -->\n<!-- /table -->\nb", tables.stamped())
    assert page.startswith("a\n<!-- table: direct b.json -->\nFrom `bench/results/b.json`: NVIDIA H200")
    assert "commit `0000000000`" in page and page.endswith("<!-- /table -->\nb")
    assert "| copy, 1 component |" in page


def test_every_table_finds_results_that_fit() -> None:
    """The files of today, as if they named their code: each kind of table takes one, and shows it."""
    code = {"commit": "0" * 40, "dirty": False, "sha256": "1" * 64, "version": "1", "files": 200}
    known = [(name, one | {"code": code, "quick": False, "resumed": None}) for name, one in results().items()
             if name in OLD]  # fmt: skip
    known.sort(key=lambda one: one[1]["date"])
    for kind, table in tables.TABLES.items():
        names = table.newest(known)
        new = ("strict", "halves", "attacks", "krylov", "poisson", "incompressible", "compressible", "m6_sizes",
               "mesh_quality", "shock_tubes", "energy")  # fmt: skip
        later = ("coloring", "compare", "layout", "readme_krylov", "ranks", "starts", "zoo")
        if kind in new or kind.startswith(later):  # none was kept
            assert names == []
        else:
            assert names and table.text(names).count("\n") >= 3, kind
    assert tables.TABLES["reference"].newest(known) == ["2026-11-15_airfoil-reference_x86_64.json",
                                                        "2026-11-15_airfoil-reference-fused_h200.json"]  # fmt: skip
    assert len(tables.TABLES["cpu_steps"].newest(known)) == 4


def test_met_is_computed_from_the_run() -> None:
    result = record.load(record.RESULTS / "2026-11-15_airfoil-fused_h200.json")
    table = "\n".join(tables.TABLES["iteration"].text_lines(result))
    assert "| 7,200 cells, fused, per iteration | at most 20 µs | 13.6 µs | met |" in table
    result["small"][1]["ms"] = 0.0204
    table = "\n".join(tables.TABLES["iteration"].text_lines(result))
    assert "| 7,200 cells, fused, per iteration | at most 20 µs | 20.4 µs | **missed** |" in table


def test_a_row_of_attacks_is_of_the_last_usual_run() -> None:
    """A short trial takes nobody's place, and what was never attempted is named."""
    table, shown = tables.TABLES["attacks"], record.load(record.RESULTS / "2026-11-15_attacks_x86_64.json")
    kills, *others = shown["rows"]
    one = shown | {"command": "run", "rows": [kills | {"attempts": 61, "broken": []}]}
    trial = shown | {"command": "run --only kills --attempts 2", "rows": [kills | {"attempts": 2}]}
    known = [("a.json", shown), ("b.json", one), ("c.json", trial)]
    assert table.newest(known) == ["a.json", "b.json"]
    lines = table.text_lines([shown, one])
    assert len([line for line in lines if line.startswith("| `kills`")]) == 1
    assert any(line.startswith("| `kills`") and "| 61 |" in line and line.endswith("| 0 |") for line in lines)
    assert lines[-1].startswith("Not in this table yet: ") and "`forks`" in lines[-1] and "`kills`" not in lines[-1]
    assert all(any(line.startswith(f"| `{row['name']}`") for line in lines) for row in others) and len(others) > 5


def test_orders_that_were_asked_for_and_not_reached_are_named() -> None:
    race = record.load(record.RESULTS / "2026-11-15_race-orders_h200-2.json")
    missing = "Not reached in this run: rcb, rcm, greedy, kaminpar, random."
    assert tables.TABLES["race_orders"].text_lines(race)[-1] == missing
    locality = record.load(record.RESULTS / "2026-11-15_locality_h200-2.json")
    assert "Not reached in time: gps, rcb" in tables.TABLES["locality_orders"].text_lines([locality])[-1]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- table: coloring none -->\nsomething\n<!-- /table -->\n")
    assert report.main([str(page), "--check"]) == 1 and "something" in page.read_text()
    assert report.main([str(page)]) == 0 and "Not measured yet" in page.read_text()
    assert report.main([str(page), "--check"]) == 0
    capsys.readouterr()
    assert report.main([str(page), "--list"]) == 0
    assert capsys.readouterr().out == "page.md: coloring: none\n"


# --- figures outside of tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN_DECIMALS)
def test_pages_about_speed_hold_no_figure_of_their_own(name: str) -> None:
    (page,) = [page for page in tables.pages() if page.name == name]
    found = set(re.findall(r"\d+\.\d+", tables.outside(page.read_text(encoding="utf-8"))))
    assert found == PLAIN_DECIMALS[name]


def test_measurements_in_prose_name_their_file() -> None:
    none_fails(tables.pages(), prose_names_files, shown=lambda page: page.name)


def prose_names_files(page: Path) -> None:
    for paragraph in tables.outside(page.read_text(encoding="utf-8")).split("\n\n"):
        if found := MEASURED.search(paragraph):
            named = re.findall(r"`(?:bench/results/)?(\d{4}-[\w.-]+\.json)`", paragraph)
            assert named and all((record.RESULTS / name).is_file() for name in named), (found[0], paragraph[:200])


def test_the_search_for_measurements_finds_some() -> None:
    seen = ["takes 0.30 ms", "4247 GB/s", "76 times faster", "0.84 of copy", "2.1 times as long", "13.6 microseconds"]
    assert all(MEASURED.search(text) for text in seen)
    assert not any(MEASURED.search(text) for text in ("blocks of 64 bytes", "nine loops", "two nodes"))


def test_files_named_in_pages_exist() -> None:
    for page in (*tables.pages(), ROOT / "CHANGELOG.md", record.RESULTS / "README.md"):
        for name in re.findall(r"`(?:bench/results/)?(\d{4}-[\w.-]+\.json)`", page.read_text(encoding="utf-8")):
            assert (record.RESULTS / name).is_file(), (page.name, name)
