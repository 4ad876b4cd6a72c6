"""The page of a run in a real browser: it draws, answers, and asks nobody for anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import meshloom as ml
from tests.run import browser
from tests.run.scripted import Hot

pytestmark = pytest.mark.skipif(browser.found() is None, reason="no Chromium or Chrome on this machine")

VALUES = "[...document.querySelectorAll('figure.chart .value')].map((one) => one.textContent)"
CURVE = "document.querySelector('svg.curve .line').getAttribute('d')"
BOX = "(() => { const r = document.querySelector('svg.curve').getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()"  # noqa: E501

LIGHT = "['color', 'backgroundColor'].map((name) => getComputedStyle(document.body)[name].match(/\\d+/g).map(Number).reduce((a, b) => a + b))"  # noqa: E501


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "a"
    with ml.using("numpy"):
        one = Hot()
        ml.march(one.step, steps=300, show={"heat": one.heat, "</script><b>": one.heat}, out=folder, fields=(one.u,))
    return folder / "report.html"


@pytest.fixture(scope="module")
def opened() -> Iterator[browser.Browser]:
    with browser.browser() as one:
        yield one


def quiet(one: browser.Browser, page: Path) -> None:
    """Nothing went wrong, and nothing was asked for but the page."""
    assert one.problems == []
    assert [url for url in one.requests if not url.startswith("data:")] == [page.as_uri()]


def test_curves_answer(opened: browser.Browser, made: Path):
    opened.open(made.as_uri())
    assert opened.value("document.querySelectorAll('figure.chart').length") == 2
    first, curve = opened.value(VALUES), opened.value(CURVE)
    assert len(curve) > 1000 and all(text.endswith("after iteration 300") for text in first)
    left, top, width, height = opened.value(BOX)
    opened.mouse("mouseMoved", left + width / 2, top + height / 2)
    hovered = opened.value(VALUES)
    assert all("after iteration 1" in text for text in hovered) and hovered != first
    opened.value("document.querySelector('#log input').click()")
    logarithmic = opened.value(CURVE)
    assert logarithmic != curve
    opened.mouse("mousePressed", left + width * 0.4, top + height / 2, button="left", clickCount=1)
    opened.mouse("mouseMoved", left + width * 0.7, top + height / 2, button="left")
    opened.mouse("mouseReleased", left + width * 0.7, top + height / 2, button="left", clickCount=1)
    zoomed = opened.value(CURVE)
    assert zoomed != logarithmic and len(zoomed) < len(logarithmic)
    opened.value("document.querySelector('#controls button').click()")
    assert opened.value(CURVE) == logarithmic
    opened.value("document.querySelectorAll('#controls input')[2].click()")
    assert opened.value("document.querySelectorAll('figure.chart[hidden]').length") == 1
    quiet(opened, made)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readable_at_800_pixels(opened: browser.Browser, made: Path, scheme: str):
    opened.open(made.as_uri(), width=800)
    opened.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    assert opened.value("document.documentElement.scrollWidth") <= 800, "nothing is wider than the window"
    light = opened.value(LIGHT)
    assert abs(light[0] - light[1]) > 500 and (light[1] > light[0]) == (scheme == "light")
    quiet(opened, made)


def test_without_javascript(opened: browser.Browser, made: Path):
    opened.open(made.as_uri(), scripts=False)
    root = opened.tell("DOM.getDocument")["root"]["nodeId"]
    found = opened.tell("DOM.querySelectorAll", nodeId=root, selector="svg.curve .line")["nodeIds"]
    controls = opened.tell("DOM.querySelectorAll", nodeId=root, selector="#controls[hidden]")["nodeIds"]
    assert len(found) == 2 and len(controls) == 1
    quiet(opened, made)


def test_what_a_name_brings_does_not_run(opened: browser.Browser, made: Path, tmp_path: Path):
    """Even where escaping were forgotten: the page's policy allows its own script alone."""
    page = tmp_path / "evil.html"
    text = made.read_text(encoding="utf-8")
    page.write_text(
        text.replace("<main>", "<main><script>window.evil = 1</script><img src='http://x.invalid/a.png'>", 1)
    )
    opened.open(page.as_uri())
    assert opened.value("typeof window.evil") == "undefined" and len(opened.problems) >= 2
