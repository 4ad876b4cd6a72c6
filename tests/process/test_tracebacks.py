"""Errors that nobody catches: the user's frames and one line."""

import os
import subprocess
import sys
import traceback
from types import SimpleNamespace

import pytest

import meshloom as ml
from meshloom.errors import MeshloomError, interrupted
from meshloom.process import tracebacks

SCRIPT = """
import sys
sys.excepthook = lambda kind, error, tb, before=sys.excepthook: (print("mine"), before(kind, error, tb))
import meshloom as ml
ml.use("numpy")

@ml.kernel
def look(x: ml.Read, out: ml.Write):
    out[...] = x[{index}]

def work():
    s = ml.Set(3, "s")
    look(s, s.field("x", 2), s.field("out"))

work()
"""


@pytest.mark.parametrize("full", [False, True])
def test_frames_of_the_package_are_cut_unless_they_are_asked_for(full, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SCRIPT.format(index="7"))
    environment = {**os.environ, tracebacks.VARIABLE: "full" if full else ""}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == "mine\n", "hooks of others stay"
    folder = os.path.dirname(ml.__file__)
    assert (folder in done.stderr) == full and f'{file}", line 15' in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"meshloom.errors.KernelError: {file}:9: kernel look: ")


@pytest.mark.parametrize("words", ["stopped after 3 of 10 replays", ""])
def test_ctrl_c_that_says_where_has_the_frames_of_the_user_alone(words, monkeypatch):
    """Python's own, which says nothing, keeps all."""
    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(traceback.extract_tb(trace)))
    tracebacks.shorten(MeshloomError)

    def stop():
        raise interrupted(words) if words else KeyboardInterrupt

    cells = ml.generate.box((2, 2)).cells
    try:
        cells.field("u", data=lambda _: stop())
    except KeyboardInterrupt as error:
        sys.excepthook(type(error), error, error.__traceback__)
    package = [one for one in shown[0] if one.filename.startswith(os.path.dirname(ml.__file__))]
    assert bool(package) == (not words) and any(one.filename == __file__ for one in shown[0])


def _raised():
    try:
        ml.Set(-1, "s")
    except MeshloomError as error:
        return error


def test_an_error_that_is_caught_keeps_its_frames():
    assert len(traceback.extract_tb(_raised().__traceback__)) > 1


def test_ipython_is_told_unless_somebody_else_has_told_it(monkeypatch):
    told = []
    shell = SimpleNamespace(custom_exceptions=(), set_custom_exc=lambda kinds, show: told.append((kinds, show)))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    tracebacks.shorten(MeshloomError)
    ((kinds, show),) = told
    shown, error = [], _raised()
    show(SimpleNamespace(showtraceback=lambda what, tb_offset: shown.append(what)), type(error), error, None)
    assert kinds == (MeshloomError,) and len(traceback.extract_tb(shown[0][2])) == 1
    shell.custom_exceptions = (ValueError,)
    tracebacks.shorten(MeshloomError)
    assert len(told) == 1
