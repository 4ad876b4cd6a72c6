"""Pages of cases open with a picture and their equations, which are set without a script or a network."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as xml
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.test_docs import PAGES, ROOT, blocks

CASE_PAGES = [
    "cases_advection", "cases_bookleaf", "cases_flow", "cases_lulesh", "cases_miniaero", "finite_volume",
    "incompressible", "volna",
]  # fmt: skip
OPENING = re.compile(r"!\[[^\]]+\]\(img/[\w/]+\.png\)\n\n(?:(?!```|#|\|)[^\n]+\n)*\n?```math\n")


def hook() -> ModuleType:
    pytest.importorskip("latex2mathml")
    spec = importlib.util.spec_from_file_location("formulas", ROOT / "docs" / "formulas.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CASE_PAGES)
def test_a_page_of_cases_opens_with_picture_and_equations(name: str) -> None:
    title, rest = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split("\n\n", 1)
    assert title.startswith("# ") and OPENING.match(rest), f"{name}.md begins otherwise: {rest[:200]}"


def test_the_airfoil_opens_with_picture_and_equations() -> None:
    page = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
    assert OPENING.match(page.split("## The airfoil\n\n")[1])


def test_the_pages_of_all_cases_are_among_them() -> None:
    """The pages that the table of the README leads to."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| cases | what they solve |")[1].split("\n\n")[0]
    first = {re.search(r"\]\(docs/(\w+)\.md", row)[1] for row in table.splitlines()[2:]}  # type: ignore[index]
    assert first == {*CASE_PAGES, "cases"}


@pytest.mark.parametrize("page", [p for p in PAGES if "```math" in p.read_text(encoding="utf-8")], ids=lambda p: p.stem)
def test_every_formula_is_set(page: Path) -> None:
    """Each becomes well-formed MathML without a rest of LaTeX, and nothing else on the page changes."""
    formulas = hook()
    text = page.read_text(encoding="utf-8")
    made = formulas.set_formulas(text)
    found = re.findall(r'<div class="formula">(.*)</div>\n', made)
    assert len(found) == text.count("```math\n") > 0 and "```math" not in made
    for one in found:
        element = xml.fromstring(one)
        assert element.get("display") == "block" and not re.search(r"\\|\$", "".join(element.itertext()))
    for kind in ("python", "console", "toml"):
        assert [b.text for b in blocks(page, kind)] == re.findall(rf"^```{kind}\n(.*?)^```$", made, re.M | re.S)


def test_a_formula_in_a_line_and_code_beside_it() -> None:
    formulas = hook()
    made = formulas.set_formulas("speed $`\\sqrt{g h}`$\n\n```text\n$`\\sqrt{g h}`$\n```\n")
    assert made.startswith('speed <math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">')
    assert "<msqrt>" in made and made.endswith("```text\n$`\\sqrt{g h}`$\n```\n")


@pytest.mark.parametrize(
    "latex, named", [("\\fraction{a}{b}", "fraction is not known"), ("\\frac{a", "braces"), ("a &= b", "columns")]
)
def test_what_cannot_be_set_is_refused(latex: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        hook().set_formulas(f"```math\n{latex}\n```\n")
