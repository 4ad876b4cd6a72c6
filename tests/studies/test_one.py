"""``ml.run_case``: what it gives back, and what it refuses."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case import keeping_registry
from meshloom.errors import ConfigError, RunError, UserError
from tests.catalogue.test_own_file import POT

SMALL = {"mesh.i": 8, "mesh.j": 12, "run.backend": "numpy", "run.iterations": 4, "output.plot": False}


@pytest.fixture(autouse=True)
def in_its_folder(here: Callable[[str], None]) -> None:
    here(POT)


def run_pot(**more: Any) -> Any:
    return ml.run_case("pot.py", {"run.backend": "numpy", "run.iterations": 5, "kettle.loss": 0.5}, **more)


def test_a_ready_case() -> None:
    ml.use("cpu", threads=1)
    done = ml.run_case("airfoil", {**SMALL, "flow.mach": np.float64(0.3)})
    assert (ml.backend(), ml.threads()) == ("cpu", 1)
    assert done.folder == Path("runs/airfoil-001") and (done.folder / "monitors.csv").exists()
    assert "mach = 0.3\n" in (done.folder / "run.toml").read_text()
    assert done.iterations == 4 and done.failures == () and done.name == "airfoil" and done.seconds > 0.0
    assert done.history["rms"].shape == (4,) and done.monitors == {"rms": done.history["rms"][-1]}
    pressure, velocity = done.fields["pressure"], done.fields["velocity"]
    assert pressure.ndim == 1 and velocity.shape == (len(pressure), 2) and (pressure > 0.0).all()
    assert "history" not in repr(done)


def test_on_a_grid() -> None:
    done = ml.run_case(
        "advection1d", {"mesh.points": 16, "run.backend": "numpy", "run.iterations": 2, "output.plot": False}
    )
    assert done.fields["phi"].shape == (16,) and done.iterations == 2


def test_an_own_case_by_file_and_by_class() -> None:
    done = run_pot(out="a")
    assert done.monitors == {"heat": 240.0 / 2**5} and (done.fields["t"] == 20.0 / 2**5).all()
    further = ml.run_case("pot.py:Pot", {"run.iterations": 6}, restart="a")
    assert further.folder == Path("a") and further.history["heat"].tolist() == [240.0 / 2**k for k in range(1, 7)]
    with pytest.raises(UserError, match="has changed since"):
        Path("pot.py").write_text(POT + "#\n")
        ml.run_case("pot.py", {"run.iterations": 8}, restart="a")
    assert ml.run_case("pot.py", {"run.iterations": 8}, restart="a", changed=True).iterations == 8


def test_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("own_names")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    settings = {"run.backend": "numpy", "run.iterations": 5, "kettle.loss": 0.5}
    with keeping_registry():
        exec(POT, module.__dict__)
        assert ml.run_case(module.Pot, settings).monitors == {"heat": 240.0 / 2**5}
        assert ml.run_case("pot", settings).monitors == {"heat": 240.0 / 2**5}  # here it is known by name
        for case in (module.Pot, "pot"):
            with pytest.raises(UserError, match="other processes cannot find the class Pot; give the file"):
                ml.study(case, {"kettle.loss": [0.1]})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ml.run_case("airfol"), "unknown case 'airfol'; did you mean 'airfoil'"),
        (lambda: ml.run_case(3), "expected the name of a case, a file or a class, got 3"),  # type: ignore[arg-type]
        (lambda: ml.run_case(int), "expected a class derived from meshloom.case.Case"),  # type: ignore[arg-type]
        (
            lambda: ml.run_case("airfoil", {"flow.mahc": 1}),
            "run_case: 'flow.mahc': unknown key 'flow.mahc'; did you mean",
        ),
        (lambda: ml.run_case("airfoil", {"flow.mach": "fast"}), "flow.mach must be a number"),
        (lambda: ml.run_case("airfoil", {"flow.mach": float("nan")}), "flow.mach must be a number"),
        (lambda: ml.run_case("airfoil", {"flow mach": 1}), "'flow mach' is no key of a setting"),
        (lambda: ml.run_case("airfoil", {2: 1}), "2 is no key of a setting"),  # type: ignore[dict-item]
        (lambda: ml.run_case("airfoil", "flow.mach"), "settings are a dict"),  # type: ignore[arg-type]
        (lambda: ml.run_case("airfoil", out=3), "out is the path of a folder, got 3"),  # type: ignore[arg-type]
        (lambda: ml.run_case("airfoil", out=""), "out is the path of a folder, got ''"),
        (lambda: ml.run_case("airfoil", profile=1), "profile must be True or False"),  # type: ignore[arg-type]
        (lambda: ml.run_case("airfoil", overwrite=1), "overwrite must be True or False"),  # type: ignore[arg-type]
        (lambda: ml.run_case("airfoil", progress="no"), "progress must be True or False"),  # type: ignore[arg-type]
        (lambda: ml.run_case("airfoil", restart="nowhere.h5"), "nowhere.h5"),
    ],
)
def test_misuse_is_one_line(call: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_is_there_is_kept() -> None:
    run_pot(out="a")
    before = Path("a/monitors.csv").read_bytes()
    with pytest.raises(UserError, match="a already holds a run; give overwrite=True, another out, or restart='a/"):
        run_pot(out="a")
    assert Path("a/monitors.csv").read_bytes() == before
    assert run_pot(out="a", overwrite=True).iterations == 5


def test_a_breakdown_is_an_error() -> None:
    Path("pot.py").write_text(POT.replace("t *= 1.0 - loss", "t *= 1e200"))
    with pytest.raises(RunError, match="cool") as caught:
        run_pot()
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        ml.run_case("pot.py", {"kettle.loss": 2.0})


def test_a_picture_that_fails_later_is_a_warning() -> None:
    text = POT + '\n    def charts(self, history):\n        return () if len(history["heat"]) < 2 else 1 / 0\n'
    Path("pot.py").write_text(text)
    with pytest.warns(UserWarning, match=r"charts\(\) of case 'pot' failed: ZeroDivisionError"):
        done = run_pot()
    assert len(done.failures) == 1 and done.iterations == 5


def test_ctrl_c_leaves_a_checkpoint() -> None:
    text = POT.replace(
        "self.program = step",
        "self.program = ml.program(lambda: (step(), ml.call(lambda: __import__('time').sleep(0.05))))",
    )
    Path("pot.py").write_text(text)
    timer = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match=r"stopped after iteration .*restart='a'") as caught:
        ml.run_case("pot.py", {"run.backend": "numpy", "run.iterations": 500}, out="a")
    timer.join()
    stopped = caught.value.done.iterations  # type: ignore[attr-defined]
    assert 0 < stopped < 500
    assert ml.run_case("pot.py", {"run.iterations": stopped + 2}, restart="a").iterations == stopped + 2
