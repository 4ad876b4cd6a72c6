"""Every Python block and every cheap command in the README and the docs is run as it is written.

The Python blocks of a page are one program: they run in order, in a folder of their own, once on each back end; those
on ``numpy`` are slow tests, but for the README's. A block after ``<!-- fragment -->`` is not run. In console blocks,
lines that begin with ``$ meshloom`` are run; each line of output shown must be among the real output, up to ``...``.
``<!-- fails with N -->`` names another status than 0. Text after ``<!-- printed on cpu -->`` must be among what the
page's Python blocks print there.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import nursery
from tests.findings import none_fails

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"(?P<mark><!-- [^\n]* -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
START = "import sys, runpy, meshloom as ml; ml.use(sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of the first line of text, from 1
    mark: str


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [
        Block(m["language"], m["text"], text.count("\n", 0, m.start("text")) + 1, (m["mark"] or "").strip("<!-> \n"))
        for m in FENCE.finditer(text)
    ]
    return [block for block in found if block.language == language]


def program(page: Path) -> str:
    """The page's Python blocks at their own line numbers, so that a traceback names lines of the page."""
    lines: list[str] = []
    for block in blocks(page, "python"):
        if block.mark != "fragment":
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    return "\n".join(lines) + "\n" if lines else ""


def environment() -> dict[str, str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in paths if p), "COLUMNS": "200"}


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """``python WORDS``, without the time that its imports take."""
    return nursery.run(words, folder, environment=environment())


WITH_PROGRAMS = [page for page in PAGES if program(page)]
#: Compiled code is what people run; that the reference can do all of it, too, is shown by the README, and by the rest
#: where there is more time.
ON_BACK_ENDS = [
    *((page, "cpu") for page in WITH_PROGRAMS),
    *(pytest.param(page, "numpy", marks=[pytest.mark.slow] if page.stem != "README" else []) for page in WITH_PROGRAMS),
]


@pytest.mark.parametrize(("page", "backend"), ON_BACK_ENDS, ids=lambda one: getattr(one, "stem", one))
def test_python_blocks(page: Path, backend: str, tmp_path: Path) -> None:
    script = tmp_path / f"{page.stem}.py"
    script.write_text(program(page), encoding="utf-8")
    done = run(["-c", START, backend, str(script)], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in re.findall(r'ml\.write\("([^"]+)"', program(page)):
        assert (tmp_path / name).stat().st_size > 0
    for block in blocks(page, "text"):
        if block.mark == f"printed on {backend}":
            check_shown(block.text.splitlines(), done.stdout.splitlines(), f"{page.name}:{block.line}")


def check_shown(expected: list[str], real: list[str], where: str) -> None:
    """Every line that a page shows must be among the real ones, up to ``...``."""
    for line in expected:
        head = line.split("...")[0].rstrip()
        assert any(r.startswith(head) for r in real), f"{where}\nis not printed: {line}\nbut: {real[:20]}"


TRIED_APART = ("ball.py", "heat.py", "poisson.py")  # test_examples.py has these
OTHERS = [one for one in sorted((ROOT / "examples").glob("*.py")) if one.name not in TRIED_APART]


@pytest.mark.parametrize("example", OTHERS, ids=lambda path: path.stem)
def test_examples(example: Path, tmp_path: Path) -> None:
    done = run([str(example)], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("OK")


def shown(block: Block) -> list[tuple[str, list[str]]]:
    """(command, lines of output shown below it) of a console block."""
    pairs: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        elif line.strip():
            pairs[-1][1].append(line)
    return pairs


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console")], ids=lambda page: page.stem)
def test_console_blocks(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "console"):
        expected = int(block.mark.rsplit(" ", 1)[1]) if block.mark.startswith("fails with") else 0
        for command, output in shown(block):
            words = shlex.split(command)
            assert words[0] == "meshloom", f"{page.name}:{block.line}: only meshloom is run here"
            done = run(["-m", *words], tmp_path)
            assert done.returncode == expected, f"{command}\n{done.stderr[-3000:]}"
            check_shown(output, (done.stdout + done.stderr).splitlines(), command)


def test_first_screen_of_the_readme() -> None:
    screen = (ROOT / "README.md").read_text(encoding="utf-8").split("## ")[0]
    wanted = ("pip install", "meshloom run", "make demo", "make test", "@ml.kernel")
    assert not [words for words in wanted if words not in screen]
    assert screen.count("\n") < 45, "the first screen has grown out of the screen"


def test_links_lead_somewhere() -> None:
    none_fails(PAGES, links_exist, shown=lambda page: page.stem)


def links_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def headings(page: Path) -> set[str]:
    """What links to parts of a page are called."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.strip().lower()).replace(" ", "-") for one in found}


def test_links_to_parts_of_pages_lead_there() -> None:
    none_fails([*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], parts_exist, shown=lambda page: page.stem)


def parts_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, part in re.findall(r"\]\(([\w./]*\.md)?#([^)]+)\)", text):
        assert part in headings(page.parent / target if target else page), f"{page.name} links to {target}#{part}"


def test_every_public_name_is_documented() -> None:
    """What a person may write stands on some page as it is written, and every page is reached from the first one."""
    import meshloom as ml

    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for module, prefix in ((ml, "ml"), (ml.linalg, "ml.linalg")):
        names = set(module.__all__) - {"Stencil"}  # an old name
        missing = sorted(name for name in names if not re.search(rf"\b{prefix}\.{name}\b", text))
        assert not missing, f"on no page: {', '.join(f'{prefix}.{name}' for name in missing)}"
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert all(page.name in index for page in PAGES if page.stem not in ("README", "index"))


def test_every_strategy_and_ordering_is_documented() -> None:
    import meshloom as ml
    from meshloom import order

    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    for name in ml.strategies():
        assert f"| `{name}` |" in page
    for name in order.names():
        assert f"`{name}`" in page


def test_every_access_mode_is_documented_with_its_contract() -> None:
    from meshloom.kernel.access import MODES

    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    for name in MODES:
        assert f"`{name}`" in page
    for name in ("Read", "Write", "ReadWrite", "Inc"):
        contract = " ".join((MODES[name].__doc__ or "").split()).replace("``", "`")
        assert contract in page, f"the contract of {name} in kernels.md is not that of the code"
