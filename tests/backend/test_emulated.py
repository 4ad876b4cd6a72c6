"""``emulated`` is a back end like the others, for whoever asks for it by name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import automatic_backend
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.errors import CompilerError, ScheduleError

ALONE = """
import numpy as np
import meshloom as ml
assert ml.backends()["emulated"] is None
ml.use("emulated")
points = ml.Set(5, "points")
u, v = points.field("u", data=np.arange(5.0)), points.field("v")

@ml.kernel
def double(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u

double(points, u, v)
assert ml.backend() == "emulated" and v.numpy().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
"""


def test_a_program_can_choose_it_without_registering_anything(tmp_path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    done = subprocess.run([sys.executable, str(script)], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("missing", "chosen"), [((), "cuda"), (("cuda",), "cpu"), (("cuda", "cpu"), "numpy")])
def test_it_is_never_chosen_automatically(missing: tuple[str, ...], chosen: str) -> None:
    found = {name: "not here" if name in missing else None for name in ml.backends()}
    assert "emulated" in found and automatic_backend(found) == chosen


def test_without_a_compiler_it_says_why_it_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise CompilerError("no C++ compiler was found: install g++")

    monkeypatch.setattr(sys.modules["meshloom.backend.cpu"], "host_compiler", none)
    assert "no C++ compiler" in (ml.backends()["emulated"] or "")
    with pytest.raises(ScheduleError, match="back end 'emulated' cannot be used here: no C\\+\\+ compiler"):
        ml.use("emulated")


def test_values_come_back_from_a_device_to_be_emulated() -> None:
    class OnDevice:
        def get(self) -> np.ndarray:
            return np.arange(3.0)

    assert isinstance(EmulatedCuda().place(OnDevice()), np.ndarray)
