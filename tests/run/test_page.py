"""The page of a run: everything in it, nothing from elsewhere, whatever people call things; and never at the cost of
the run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import build, parse_set
from meshloom.errors import RunError, UserError, one_line
from meshloom.launch import make_page
from meshloom.run.facts import Monitors, RunFacts, RunPart, command, read_facts
from meshloom.run.folder import claim
from meshloom.run.page import render
from meshloom.run.page.curves import WIDTH, curves_of, data, thinned, ticks
from meshloom.run.page.numbers import number, tick_labels
from meshloom.run.page.render import MOST_BYTES, FoundFile, page
from meshloom.run.report import RunReport
from meshloom.run.runner import Runner
from meshloom.run.task import SettingRow
from meshloom.solvers.airfoil import Airfoil, AirfoilConfig
from tests.run.scripted import Hot

VOID = {"meta", "link", "img", "input", "br", "wbr"}
EVIL = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


pytestmark = pytest.mark.usefixtures("on_numpy")


class Read(HTMLParser):
    """What a page holds. Every element is closed where it must be; nothing is loaded but data in the page itself."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "data", "poster", "srcset") or (tag == "link" and name == "href"):
                self.loaded.append(value or "")
            if tag == "a" and name == "href":
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Read:
    assert path.stat().st_size < MOST_BYTES
    text = path.read_text(encoding="utf-8")
    found = Read(text)
    assert all(one.startswith("data:") for one in found.loaded), found.loaded
    assert found.tags.count("script") == 2 and "iframe" not in found.tags
    assert "url(" not in text.split("</style>")[0] and "@import" not in text
    return found


def airfoil(folder: Path, *changes: str, **more: Any) -> Runner:
    settings = ("mesh.i=6", "mesh.j=4", "output.plot=false", "run.iterations=12", "run.backend=numpy", *changes)
    place = claim("airfoil", folder)
    place.release()  # nobody else is here
    place = replace(place, lock=None)
    return Runner(Airfoil(build(AirfoilConfig, map(parse_set, settings))), place, RunReport(), **more)


def test_a_run_leaves_a_page(tmp_path: Path):
    airfoil(tmp_path / "a", "output.plot=true", "flow.mach=0.3").run()
    found = read(tmp_path / "a" / "report.html")
    for part in ("airfoil", "finished", "after 12 iterations", "flow.mach (changed) 0.3 0.4", "res_calc", "Summary",
                 "Monitors", "Pictures", "Time by loop", "Schedules", "Settings", "Files", "How to go on", "Machine",
                 f"meshloom run --restart {tmp_path / 'a' / 'checkpoint.h5'} --iterations 24", "paraview",
                 f"meshloom {ml.__version__}"):  # fmt: skip
        assert part in found.text, part
    assert "flow.incidence (changed)" not in found.text, "a default is not marked"
    names = {"run.toml", "monitors.csv", "checkpoint.h5", "fields.pvd", "picture.png", "fields_0000012.vtu",
             "integrals.csv", "chart_cp.csv", "chart_cp.png"}  # fmt: skip
    assert set(found.links) == {*names, "report.json"} and "img" in found.tags
    assert found.tags.count("path") > 5, "the curve is drawn without JavaScript"


def test_the_page_of_a_script(tmp_path: Path):
    one = Hot()
    ml.march(one.step, steps=7, show={EVIL: one.heat}, out=tmp_path / "a", fields=(one.u,))
    found = read(tmp_path / "a" / "report.html")
    assert "step" in found.text and 'alert("x")' in found.text and "steps (changed) 7" in found.text
    assert "restart=True" in found.text and "in ml.march" in found.text and "settings as they are" in found.text
    facts = read_facts(tmp_path / "a" / "report.json")
    assert facts is not None and facts.state == "finished" and facts.iteration == 7
    assert facts.times is not None and {row.name for row in facts.times.rows} > {"warm"}


@pytest.mark.parametrize("name", ["plate", "<b>&{{js}}", "new\nline", "café \u2028"])
def test_the_page_of_a_script_is_called_as_its_folder(tmp_path: Path, name: str) -> None:
    """Which is the name that a person gave to the run; that of the program stands below."""
    one = Hot()
    ml.march(one.step, steps=3, show=one.heat, out=tmp_path / name)
    told = read_facts(tmp_path / name / "report.json")
    assert told is not None and told.name == one_line(name) and told.title == "program step"
    text = (tmp_path / name / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in text.split("<h1>")[1].split("</h1>")[0] and read(tmp_path / name / "report.html")
    if name == "plate":
        assert "<title>plate: finished</title>" in text and "<h1>plate</h1>" in text and "program step" in text
    (tmp_path / name).rename(tmp_path / "moved")
    ml.march(one.step, steps=5, show=one.heat, out=tmp_path / "moved", restart=True)
    told = read_facts(tmp_path / "moved" / "report.json")
    assert told is not None and told.name == "moved" and [part.last for part in told.parts] == [3, 5]


def test_ctrl_c_and_going_on(tmp_path: Path):
    one, asked = Hot(), iter(range(10**6))

    def press() -> bool:
        if next(asked) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        ml.march(one.step, steps=10**6, stop=press, show=one.heat, out=tmp_path / "a", watch=False)
    stopped = read_facts(tmp_path / "a" / "report.json")
    assert stopped is not None and stopped.state == "stopped" and stopped.iteration > 0
    assert "stopped; it can go on" in read(tmp_path / "a" / "report.html").text
    end = stopped.iteration + 2
    ml.march(one.step, steps=end, show=one.heat, out=tmp_path / "a", restart=True, watch=False)
    facts = read_facts(tmp_path / "a" / "report.json")
    assert facts is not None and [(p.first, p.last, p.how) for p in facts.parts] == [
        (0, stopped.iteration, "stopped"), (stopped.iteration, end, "finished")]  # fmt: skip


def test_a_breakdown_is_on_top(tmp_path: Path):
    one = Hot()
    with pytest.raises(RunError) as error:
        ml.march(one.step, steps=20, show=one.heat, out=tmp_path / "a", stop=one.breaks(5), checkpoint_every=2)
    found = read(tmp_path / "a" / "report.html")
    assert "failed after 4 iterations" in found.text and f"Why it ended: {error.value}" in found.text
    assert "checkpoint.h5" in str(error.value)


def test_a_run_that_fails_before_its_first_checkpoint_leaves_the_page_of_before(tmp_path: Path):
    one = Hot()
    ml.march(one.step, steps=3, show=one.heat, out=tmp_path / "a")
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    with pytest.raises(RunError):
        ml.march(one.step, steps=20, show=one.heat, out=tmp_path / "a", overwrite=True, stop=one.breaks(2))
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    ml.march(Hot().step, steps=3, out=tmp_path / "a", overwrite=True)
    assert (tmp_path / "a" / "report.html").read_bytes() != before["report.html"]


@pytest.mark.parametrize("where", ["meshloom.run.page.render.page", "meshloom.run.runner.gathered"])
def test_a_page_that_fails_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str):
    said: list[str] = []

    class Listener(RunReport):
        def message(self, text: str) -> None:
            said.append(text)

    def broken(*arguments: Any, **more: Any) -> Any:
        raise ZeroDivisionError("of a\ntest")

    monkeypatch.setattr(where, broken)
    runner = airfoil(tmp_path / "a")
    runner.report = Listener()
    outcome = runner.run()
    assert outcome.finished and outcome.failures == () and (tmp_path / "a" / "checkpoint.h5").exists()
    assert said == [r"no report.html: ZeroDivisionError: of a\ntest"] and not (tmp_path / "a" / "report.html").exists()


def test_made_again_from_the_folder(tmp_path: Path):
    folder = tmp_path / "a"
    airfoil(folder).run()
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert make_page(folder) == folder / "report.html"
    assert (folder / "report.html").read_bytes() == before
    (folder / "report.json").unlink()
    make_page(folder)
    found = read(folder / "report.html")
    assert (
        "mesh.i (changed) 6" in found.text and "not at its end" in found.text and "meshloom run --restart" in found.text
    )


def places(found: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Every place in what JSON holds; of lists the first row stands for all."""
    if path:
        yield path
    inner = found.items() if isinstance(found, dict) else enumerate(found[:1]) if isinstance(found, list) else ()
    for key, value in inner:
        yield from places(value, *path, key)


def test_an_account_that_was_spoilt_anywhere_is_a_page_or_a_line(tmp_path: Path):
    ml.march(Hot().step, steps=4, out=tmp_path / "a")
    account = tmp_path / "a" / "report.json"
    right = json.loads(account.read_text())
    for path in places(right):
        for wrong in (None, -np.inf, [], {"a": 1}, "</script><script>alert(1)</script>"):
            found = inner = json.loads(json.dumps(right))
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = wrong
            account.write_text(json.dumps(found))
            try:
                make_page(tmp_path / "a")
            except UserError as refused:
                assert "remove it, and the page is made without it" in str(refused), path
            assert "<script>alert" not in (tmp_path / "a" / "report.html").read_text(), path


def test_made_again_where_nothing_is_shown(tmp_path: Path):
    ml.march(Hot().step, steps=4, out=tmp_path / "a")
    before = (tmp_path / "a" / "report.html").read_bytes()
    make_page(tmp_path / "a")
    assert (tmp_path / "a" / "report.html").read_bytes() == before
    (tmp_path / "a" / "report.json").unlink()
    make_page(tmp_path / "a")
    assert "after 4 iterations" in read(tmp_path / "a" / "report.html").text


@pytest.mark.parametrize(("words", "said"), [
    (["/usr/bin/meshloom", "run", "a b"], "meshloom run 'a b'"),
    (["/x/meshloom/__main__.py", "run"], "meshloom run"),
    (["heat.py", "3"], "python heat.py 3"), (["/x/mine/__main__.py"], "python /x/mine/__main__.py"),
    (["-c"], ""), ([""], ""), ([], ""), (["/x/ipykernel_launcher.py", "-f", "secret"], ""),
])  # fmt: skip
def test_the_command_as_it_was_typed(monkeypatch: pytest.MonkeyPatch, words: list[str], said: str):
    monkeypatch.setattr("sys.argv", words)
    assert command() == said


def test_a_run_that_went_on_and_was_killed_says_so(tmp_path: Path):
    folder = tmp_path / "a"
    airfoil(folder).run()
    with open(folder / "monitors.csv", "a", encoding="ascii") as file:
        file.write("13,0.5\n14,0.")
        file.write("25\n15")
    make_page(folder)
    found = read(folder / "report.html")
    assert "after 14 iterations" in found.text and "did not come to an end" in found.text


# ----- what people call things --------------------------------------------------------------------------------------
def facts(**more: Any) -> RunFacts:
    usual: dict[str, Any] = {
        "name": EVIL, "title": EVIL, "state": "failed", "reason": EVIL, "iteration": 3, "summary": ((EVIL, EVIL),),
        "settings": (SettingRow(EVIL, EVIL, "x", EVIL),), "going_on": EVIL, "machine": ((EVIL, EVIL),),
        "parts": (RunPart(EVIL, EVIL, 0, 3, 1.0, EVIL),), "explained": f"{EVIL}\n\x00\x1b[0m {EVIL}",
    }  # fmt: skip
    return RunFacts(**usual | more)


def test_names_are_text_and_nothing_else(tmp_path: Path):
    name = f"chart_{EVIL.replace('/', '')}.png"
    (tmp_path / name).write_bytes(b"\x89PNG")
    files = [FoundFile(tmp_path / name, 4)]
    text = page(facts(), Monitors((EVIL, "{{js}} \u2028 \ud800"), np.ones((3, 2))), files, tmp_path / EVIL)
    (tmp_path / "x.html").write_bytes(text.encode(errors="replace"))
    found = read(tmp_path / "x.html")
    assert "onerror=alert(1)" in found.text and "{{js}}" in found.text and "\x1b" not in text
    held = re.search(r'id="curves">(.*?)</script>', text, re.DOTALL)
    assert held is not None and json.loads(held[1])[0]["name"] == EVIL


def test_many_and_long_monitors_stay_small(tmp_path: Path):
    n, names = 50_000, tuple(f"monitor {k}" for k in range(40))
    values = np.random.default_rng(0).normal(size=(n, 40))
    values[12_345, 3], values[777, 4] = 99.0, np.nan
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG" * 250_000)
    (tmp_path / "map_x.png").write_bytes(b"\x89PNG" * 250_000)
    files = [FoundFile(path, path.stat().st_size) for path in (picture, tmp_path / "map_x.png")]
    text = page(facts(explained="x" * 300_000), Monitors(names, values), files, tmp_path)
    (tmp_path / "x.html").write_text(text, encoding="utf-8")
    found = read(tmp_path / "x.html")
    assert "Thinned out" in found.text and "first 24 of 40" in found.text and "Too large for this page" in found.text
    curve = curves_of(Monitors(names, values))[3]
    assert len(curve.x) <= 2000 and 12_346 in curve.x and curve.y.max() == 99.0


@pytest.mark.parametrize("n", [0, 1, 2, 5, 9, 2000, 2001, 10_000])
def test_thinning_keeps_ends_and_extremes(n: int):
    values = np.random.default_rng(n).normal(size=n)
    kept = thinned(values, 2000)
    assert len(kept) <= 2000 and (np.diff(kept) > 0).all()
    assert n > 2000 or len(kept) == n
    if n:
        assert kept[0] == 0 and kept[-1] == n - 1
        assert values[kept].max() == values.max() and values[kept].min() == values.min()


def test_what_is_not_finite_is_kept_and_drawn_as_a_gap():
    values = np.ones((9000, 3))
    values[4000:4500, 0], values[:, 1], values[5, 2] = np.nan, np.inf, -np.inf
    text = page(facts(), Monitors(("a", "b", "c"), values), [], Path("x"))
    assert text.count("no finite value<") == 1 and "NaN" not in text and "Infinity" not in text


@pytest.mark.parametrize("span", [(0.0, 1.0), (-3.0, 1e-300), (1e16, 1e16 + 4.0), (1e-12, 2e-12), (-1e300, 1e300)])
def test_ticks_are_few_and_inside(span: tuple[float, float]):
    found = ticks(*span)
    slack = 1e-6 * (span[1] - span[0])
    assert 2 <= len(found) <= 8 and all(span[0] - slack <= one <= span[1] + slack for one in found)


TINY = (3.00558e-6, -1.5e-9, 0.00012, 0.25, 1234.6, 1.2e6, 123456789.0, -0.0, 6.02e23, 1e-300, 99999.96, 999999.96)
AXES = ([1000.0, 1000.5, 1001.0], [0.995, 1.0, 1.005], [1e6, 1e6 + 1, 1e6 + 2], [0.0, 0.2, 0.4], [1e-9, 1.0], [7.0], [])


def test_numbers_are_written_by_one_function_here_and_in_the_browser():
    """Plain ones without many zeros, ticks that can be told apart, and ``page.js`` writes the same."""
    assert number(3.00558e-6) == "3.00558e-06" and number(0.25) == "0.25" and number(-0.0) == "0"
    for values in AXES:
        assert len(set(tick_labels(values))) == len(values)
        assert [float(text) for text in tick_labels(values)] == values
    if (node := shutil.which("node")) is None:
        pytest.skip("no node to run JavaScript")
    text = (Path(ml.__file__).parent / "run" / "page" / "page.js").read_text()
    functions = text[text.index("  function number(") : text.index("  function ticks(")]
    asked = f"[{json.dumps(TINY)}.map((v) => [4, 6, 10].map((d) => number(v, d))), {json.dumps(AXES)}.map(tickLabels)]"
    done = subprocess.run(
        [node, "-e", f"{functions}; console.log(JSON.stringify({asked}))"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [
        [[number(value, digits) for digits in (4, 6, 10)] for value in TINY], [tick_labels(axis) for axis in AXES],
    ]  # fmt: skip


def labels_of(svg: str) -> Iterator[tuple[float, float, str]]:
    """Every label of a drawing: from where to where, across, and its text; letters are 7 pixels wide at most."""
    for found in re.finditer(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)"([^>]*)>([^<]+)<', svg):
        squeezed = re.search(r'textLength="(\d+)"', found[3])
        wide = float(squeezed[1]) if squeezed else 7.0 * len(found[4])
        left = float(found[1]) - wide * {"middle": 0.5, "end": 1.0}[found[2]]
        yield left, left + wide, found[4]


@pytest.mark.parametrize("rows", [100, 1_000, 123_456])
def test_no_label_of_a_tick_is_cut(rows: int):
    values = np.linspace(1.0, 2.0, rows)
    names = ("plain", "far", "small", "falls")
    columns = (values, 1e6 + 1e-5 * values, -3e-13 * values, np.exp(-20.0 * values))
    text = page(facts(), Monitors(names, np.stack(columns, axis=1)), [], Path("x"))
    for name, svg in zip(names, re.findall(r'<svg class="curve".*?</svg>', text, re.DOTALL), strict=True):
        found = list(labels_of(svg))
        assert len(found) > 4 and all(left >= 0.0 and right <= WIDTH for left, right, _ in found), name
        assert len({label for _, _, label in found}) > 3


def test_a_time_is_drawn_linearly_whatever_it_is_called():
    """Also with steps that grow, and a last one that is cut; what grows or falls by decades is not."""
    n = np.arange(1, 400)
    steps = np.minimum(1e-5 * 1.02**n, 1e-3)
    steps[-1] = 1e-9
    columns = {"t": 0.01 * n, "seconds": np.cumsum(steps), "residual": 10.0 ** (-n / 50), "unstable": 1e-9 * 1.05**n}
    curves = curves_of(Monitors(tuple(columns), np.stack([*columns.values()], axis=1)))
    assert [one.logarithmic for one in curves] == [False, False, True, True]
    assert [one["even"] for one in data(curves)] == [True, True, False, False]


def test_without_jinja2_a_run_keeps_its_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    render._template.cache_clear()
    cells = ml.Set(3, "cells")
    u, run = cells.field("u", data=1.0), tmp_path / "run"

    @ml.kernel
    def halve(u: ml.ReadWrite):
        u *= 0.5

    ml.march(ml.program(lambda: halve(cells, u)), steps=2, out=run, progress=False)
    assert (run / "report.json").is_file() and not (run / "report.html").exists()
    with pytest.raises(UserError, match=r"^report.html is written by jinja2, which is not installed") as one:
        make_page(run)
    assert "\n" not in str(one.value)
