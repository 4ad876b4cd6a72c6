"""A child of the nursery is what a fresh process would be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import meshloom
from tests import nursery

SURROUNDINGS = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['MARK'], __name__, sys.stdin.read())"
LOOP = """
import sys, warnings
warnings.simplefilter("error")  # such as that threads were left behind
import numpy as np, meshloom as ml

@ml.kernel
def double(v: ml.ReadWrite):
    v *= 2.0

ml.use("cpu", threads=2)
cells = ml.Set(1000)
v = cells.field("v", data=np.ones(1000))
double(cells, v)
print(ml.__file__, ml.threads(), v.numpy().sum())
"""


def both(words: list[str], folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Of the nursery, and from scratch."""
    surroundings = os.environ | {"MARK": "here", "PYTHONPATH": str(nursery.ROOT)}
    return [nursery.run(words, folder, environment=surroundings),
            subprocess.run([sys.executable, *words], cwd=folder, env=surroundings, capture_output=True, text=True,
                           stdin=subprocess.DEVNULL, timeout=120, check=False)]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [["-c", SURROUNDINGS, "a", "b c"], ["script.py", "a"], ["-c", "import sys; sys.exit(3)"],
     ["-c", "import sys; sys.exit('no such thing')"], ["-m", "meshloom", "run", "nowhere"],
     ["-c", "import atexit; atexit.register(print, 'at the end'); print('before')"]],
    ids=["code", "script", "status", "message", "command", "end"],
)  # fmt: skip
def test_as_from_scratch(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SURROUNDINGS)
    found, expected = both(words, tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (expected.returncode, expected.stdout, expected.stderr)


def test_errors_and_loops(tmp_path: Path) -> None:
    wrong = nursery.run(["-c", "raise ValueError('odd')"], tmp_path)
    assert wrong.returncode == 1 and wrong.stderr.endswith("ValueError: odd\n")
    done = nursery.run(["-c", LOOP], tmp_path)
    assert done.stdout.split() == [meshloom.__file__, "2", "2000.0"], done.stderr


def test_one_that_takes_too_long_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        nursery.run(["-c", "import time; time.sleep(60)"], tmp_path, seconds=0.3)
    assert nursery.run(["-c", "print(1)"], tmp_path).stdout == "1\n"
