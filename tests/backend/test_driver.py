"""CUDA's driver by NVIDIA's bindings: the real ones, on a driver that a host's compiler makes; and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from meshloom.backend.cuda.driver import Driver, packed
from meshloom.errors import RunError
from meshloom.native.compiler import host_compiler
from tests.one_line import one_line_from

HERE = Path(__file__).parent


@pytest.mark.slow
def test_loops_records_and_repetition_through_nvidias_bindings(tmp_path: Path) -> None:
    """The calls as they are on a device: argument by argument, and freed with whoever held them."""
    pytest.importorskip("cuda.bindings")
    pytest.importorskip("cuda.bindings.nvrtc")
    source, library = HERE / "fake_driver.cpp", tmp_path / "libcuda.so.1"
    options = ("-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl")
    subprocess.run([host_compiler().path, *options], check=True)
    places = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("LD_LIBRARY_PATH"))))
    environment = os.environ | {"LD_LIBRARY_PATH": places, "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.backend.on_fake_driver"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "everything is right\n", done.stdout + done.stderr


def test_what_the_bindings_do_not_have_is_one_line() -> None:
    with one_line_from(RunError, "^the bindings of CUDA's driver have no cuNothing$"):
        Driver(SimpleNamespace()).call("cuNothing")


def test_what_the_driver_refuses_is_one_line() -> None:
    with one_line_from(RunError, "^cuNothing of CUDA's driver fails: 801$"):
        Driver(SimpleNamespace(cuNothing=lambda *given: (801, None))).call("cuNothing", 1)


def test_arguments_lie_in_slots_of_eight_bytes() -> None:
    array = SimpleNamespace(data=SimpleNamespace(ptr=0xFFFF_8000_0000_0010))
    values = packed([array, 3, -1, np.int32(-2), True, 2**64 - 1])
    assert values.dtype == np.uint64 and values[0] == 0xFFFF_8000_0000_0010
    assert values.view(np.int64).tolist()[1:] == [3, -1, -2, 1, -1]
    assert values.view(np.int32)[::2].tolist()[1:] == [3, -1, -2, 1, -1], "as a narrower parameter takes them"
    assert packed([]).size == 0
