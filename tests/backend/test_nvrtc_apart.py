"""CUDA kernels of a program are compiled at the same time, by processes of their own; without these, by ours."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cuda import nvrtc, nvrtc_child
from meshloom.backend.cuda.backend import CudaBackend
from meshloom.backend.cuda.engine import Device, LaunchFunction
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.errors import CompilerError
from meshloom.native import compiler, eviction, together
from meshloom.operation.operation import Operation
from meshloom.operation.replay import prepared
from meshloom.process.children import _stop_of_thread
from meshloom.target import H200, Target
from tests.backend.test_cuda import has_nvrtc, needs_nvrtc
from tests.process.test_activity import Terminal, terminal

__all__ = ["terminal"]  # a fixture

SOURCE = 'extern "C" __global__ void k(double* p) { p[threadIdx.x] *= 3.0; }  // é'
VERSION = nvrtc.version() if has_nvrtc() else ""
BROKEN = "__global__ void k() { return 1 }"


class NoDevice(Device):
    """Compiles for an architecture as a device does, and loads nothing."""

    @property
    def target(self) -> Target:  # type: ignore[override]
        return H200

    @property
    def architecture(self) -> str:  # type: ignore[override]
        return "sm_90"

    def upload(self, array: np.ndarray) -> Any:
        return array

    zeros = upload

    def events(self) -> Any:
        return None

    def usage(self, launch: LaunchFunction, threads: int, shared: int) -> dict[str, Any]:
        return {}

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> dict[str, LaunchFunction]:
        return {one.name: lambda *_: None for one in made}


class CudaWithoutDevice(CudaBackend):
    name = "cuda without a device"

    def __init__(self) -> None:
        super().__init__()
        self.engine = NoDevice()

    def place(self, storage: Any) -> Any:
        return storage


@ml.kernel
def double(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u


@ml.kernel
def root(u: ml.Read, v: ml.Write):
    v[...] = np.sqrt(u) + 1.0


@ml.kernel
def spread(u: ml.Read, v: ml.Inc):
    v[0] += u[1] - u[0]
    v[1] += u[0] - u[1]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(together, "cpu_count", lambda: 2)
    return tmp_path / "cache"


def on_cuda(*loops: Operation) -> list[Operation]:
    """The same loops for one back end."""
    backend = CudaWithoutDevice()
    return [one.on(backend) for one in loops]


def two_loops() -> list[Operation]:
    cells = ml.Set(1000, "cells")
    u, v = cells.field("u"), cells.field("v")
    return on_cuda(double.loop(cells, u, v), root.loop(cells, u, v))


def refuse(*_: object, **__: object) -> Any:
    raise AssertionError("nothing should be compiled so")


def children(monkeypatch: pytest.MonkeyPatch, first: Callable[[], object] = lambda: None) -> list[str]:
    """The sources that children were asked for; each does something ``first``."""
    asked: list[str] = []
    by_a_child = nvrtc._by_a_child

    def noted(source: str, file: str, options: tuple[str, ...]) -> Any:
        asked.append(source)
        first()
        return by_a_child(source, file, options)

    monkeypatch.setattr(nvrtc, "_by_a_child", noted)
    return asked


def until(holds: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    deadline = time.monotonic() + 60.0
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)


# --- a child


def in_process_and_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> list[Any]:
    """What both give, or the words of the errors that they raise, each with a cache of its own at the same place."""
    found: list[Any] = []
    place = tmp_path / "cache"
    monkeypatch.setenv("MESHLOOM_CACHE", str(place))
    for apart in (False, True):
        try:
            found.append(nvrtc.build(source, "k", "sm_90", flags=("--fmad=false",), apart=apart))
        except CompilerError as error:
            found.append((str(error), next((place / "cuda").glob("*.log")).read_bytes()))
        place.rename(tmp_path / f"cache{apart}")
    return found


def without_times(log: str) -> list[str]:
    return [line for line in log.splitlines() if "Compile time" not in line]


@needs_nvrtc
@pytest.mark.parametrize("knows", [True, False])
def test_nvrtc_is_told_to_leave_the_drivers_cache_alone(
    knows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes from there has no log, so that no register would be known; a library without the option is not asked
    for it."""
    here, given = nvrtc_child.compilation, []

    def compilation(library: Any, source: str, file: str, options: tuple[str, ...]) -> nvrtc_child.Compilation:
        if "--no-cache" in options and not knows:
            return nvrtc_child.Compilation(5, "nvrtc: error: unrecognized option --no-cache found")
        given.append(options)
        return here(library, source, file, options)

    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(nvrtc_child, "compilation", compilation)
    monkeypatch.setattr(nvrtc, "_no_cache", nvrtc._no_cache.__wrapped__)
    assert nvrtc.resources(nvrtc.build(SOURCE, "k", "sm_90").log)["k"]["registers"] > 0
    assert ("--no-cache" in given[-1]) == knows


@needs_nvrtc
@pytest.mark.gpu
def test_what_the_driver_has_in_its_cache_tells_its_registers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users of a machine, or one who has cleared Meshloom's own cache, compile the same kernel."""
    found = []
    for place in ("one", "another"):
        monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / place))
        found.append(nvrtc.resources(nvrtc.build(SOURCE, "k", "sm_90", apart=True).log))
    assert found[0] == found[1] and found[0]["k"]["registers"] > 0


@needs_nvrtc
def test_a_child_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._no_cache()  # which asks the library once
    here = nvrtc_child.compilation
    used: list[int] = []
    monkeypatch.setattr(nvrtc_child, "compilation", lambda *given: (used.append(os.getpid()), here(*given))[1])
    in_process, apart = in_process_and_apart(tmp_path, monkeypatch, SOURCE)
    assert apart.cubin == in_process.cubin and len(apart.cubin) > 500
    assert without_times(apart.log) == without_times(in_process.log) and "registers" in apart.log
    assert len(used) == 1, "the other one was compiled elsewhere"
    names = [[one.name for one in (tmp_path / f"cache{a}").rglob("*.cubin")] for a in (False, True)]
    assert names[0] == names[1] and len(names[0]) == 1, "found by the same key"
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cacheTrue"))
    assert nvrtc.known(SOURCE, "k", "sm_90", flags=("--fmad=false",)) == apart, "and under the same checks"


@needs_nvrtc
def test_a_child_tells_errors_in_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process, apart = in_process_and_apart(tmp_path, monkeypatch, BROKEN)
    assert apart == in_process
    assert apart[0].startswith("k: the CUDA code did not compile: k.cu(1): error") and "\n" not in apart[0]


def test_a_child_needs_the_standard_library_and_the_bindings_alone() -> None:
    tree = ast.parse(Path(nvrtc_child.__file__).read_text(encoding="utf-8"))
    found = {one.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    found |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "json" in found and found - sys.stdlib_module_names == {"cuda"}


def no_such_program(*_: object, **__: object) -> Any:
    raise BlockingIOError("no more processes")


def answering(text: str, status: int = 0) -> Callable[..., Any]:
    return lambda command, **_: subprocess.CompletedProcess(command, status, text, "")


def built_again(cache: Path, build: Callable[[], nvrtc.MachineCode]) -> bool:
    """Does it give the bytes that our process gives, and compile for that?"""
    expected = nvrtc.build(SOURCE, "k", "sm_90").cubin
    (made,) = (cache / "cuda").glob("*.cubin")
    made.unlink()
    return build().cubin == expected and made.is_file()


@needs_nvrtc
@pytest.mark.parametrize("answer", [
    no_such_program, answering(""), answering("rubbish\n"), answering("[]\n"), answering('{"version": "1.0"}\n'),
    answering('{"version": "1.0", "status": 0, "log": "", "cubin": ""}\n'), answering("", -9),
    answering(f'{{"version": "{VERSION}", "status": 1, "log": "no memory", "cubin": ""}}\n'),
    answering(f'{{"version": "{VERSION}", "status": 0, "log": "", "cubin": "?"}}\n'),
])  # fmt: skip
def test_without_an_answer_we_compile_ourselves(
    answer: Callable[..., Any], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "run_apart", answer)
    assert built_again(cache, lambda: nvrtc.build(SOURCE, "k", "sm_90", apart=True))


@needs_nvrtc
@pytest.mark.parametrize("executable", ["", None, "/opt/app/bin/app", "/opt/app/bin/python-solver"])
def test_without_a_python_none_is_started(
    executable: str | None, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", executable == "/opt/app/bin/python-solver", raising=False)
    monkeypatch.setattr(nvrtc, "run_apart", refuse)
    assert built_again(cache, lambda: nvrtc.build(SOURCE, "k", "sm_90", apart=True))


@needs_nvrtc
def test_what_others_print_is_no_answer(cache: Path) -> None:
    made = nvrtc.build(SOURCE, "k", "sm_90", apart=True)
    program = nvrtc._child_command()
    asked = nvrtc_child.request(SOURCE, "k.cu", ("--gpu-architecture=sm_90",))
    said = subprocess.run(program, input=asked, capture_output=True, text=True, check=True).stdout
    assert nvrtc_child.told(f"a word of some module's\n{said}", nvrtc.version()) is not None
    assert nvrtc_child.told(said, "1.0") is None and made.cubin


@needs_nvrtc
def test_a_child_runs_nothing_from_the_folder_in_which_we_are(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONPATH=. meant another folder when Python started, and made it a whole path for us."""
    for name in ("json", "base64", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvrtc_child, "compilation", refuse)
    assert nvrtc.build(SOURCE, "k", "sm_90", apart=True).cubin
    assert not (tmp_path / "ran").exists()


# --- a program


@needs_nvrtc
def test_kernels_are_compiled_at_the_same_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until the other one has begun: one after the other they would wait for ever."""
    both, met = threading.Barrier(2, timeout=60), threading.local()

    def meet() -> None:
        if not getattr(met, "before", False):
            met.before = True
            both.wait()

    asked = children(monkeypatch, meet)
    monkeypatch.setattr(nvrtc_child, "compilation", refuse)
    made = prepared(two_loops())
    assert len(made) == 2 and {"double", "root"} == {one.partition("// loop ")[2].split()[0] for one in asked}
    assert all(one.resources["pass0"]["registers"] > 0 for one in made.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_libraries_are_compiled_at_the_same_time(backend: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use(backend)
    both, build = threading.Barrier(2, timeout=60), compiler.build

    def meeting(source: str, name: str, **more: Any) -> Path:
        if threading.current_thread() is not threading.main_thread() and name != "runtime":
            both.wait()
        return build(source, name, **more)

    monkeypatch.setattr(compiler, "build", meeting)
    cells = ml.Set(10, "cells")
    u, v, w = cells.field("u", data=np.full(10, 4.0)), cells.field("v"), cells.field("w")

    @ml.program(fuse=False)
    def step() -> None:
        double(cells, u, v)
        root(cells, v, w)

    step.run(1)
    np.testing.assert_allclose(w.numpy(), np.sqrt(8.0) + 1.0, rtol=1e-15)


@needs_nvrtc
def test_what_many_loops_share_is_begun_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a set are lowered once. Meshes whose plans have tables share the text alone: that is begun once, too."""
    monkeypatch.setattr(together, "cpu_count", lambda: 3)
    asked, begun = children(monkeypatch), []
    start = together.Batch._done
    monkeypatch.setattr(together.Batch, "_done", lambda batch, job: (begun.append(job), start(batch, job))[1])
    cells = ml.Set(600, "cells")
    u, v = cells.field("u"), cells.field("v")
    parts = [double.loop(cells.subset(np.arange(20 * k, 20 * k + 20)), u, v) for k in range(30)]
    meshes = [ml.generate.box((n, n), cells="triangle") for n in (8, 9, 10)]
    fields = [(one.cells.field("u")[one.face_cells], one.cells.field("v")[one.face_cells]) for one in meshes]
    tiles = on_cuda(*(spread.loop(m.faces, *f, schedule="tile") for m, f in zip(meshes, fields, strict=True)))
    assert all(one.plan for one in tiles)  # by native code, which is compiled by now
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    prepared(on_cuda(*parts))
    assert len(begun) == 1 and asked and len(set(asked)) == len(asked)
    asked.clear()
    prepared(tiles)
    assert len(begun) == 2 and asked and len(set(asked)) == len(asked)


@needs_nvrtc
def test_what_is_in_the_cache_is_not_begun(
    cache: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    """Nor told: the line of the terminal is for those who wait."""
    with monkeypatch.context() as for_now:
        children(for_now, lambda: until(lambda: "compiling" in terminal.getvalue()))
        first = prepared(two_loops())
    assert "compiling 1 of 2: double" in terminal.getvalue() and terminal.shown() == ""
    told = terminal.getvalue()
    monkeypatch.setattr(together, "ThreadPoolExecutor", refuse)
    monkeypatch.setattr(nvrtc, "_compiled", refuse)
    second = prepared(two_loops())
    resources = [[one.resources for one in made.values()] for made in (first, second)]  # type: ignore[attr-defined]
    assert resources[0] == resources[1] and terminal.getvalue() == told


@needs_nvrtc
def test_by_itself_a_loop_is_compiled_in_our_process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "run_apart", refuse)
    apart = {one.name: one.prepare().resources for one in two_loops()}  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert apart == {one.name: made.resources for one, made in prepared(two_loops()).items()}  # type: ignore[attr-defined]


@needs_nvrtc
def test_on_one_core_nothing_is_gained_by_another_process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "run_apart", refuse)
    monkeypatch.setattr(together, "cpu_count", lambda: 1)
    assert len(prepared(two_loops())) == 2


@needs_nvrtc
def test_an_error_of_a_kernel_is_told_where_it_is_waited_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = two_loops()
    build = nvrtc.build
    monkeypatch.setattr(nvrtc, "build", lambda source, name, *rest, **more: build(
        BROKEN if name == "root" else source, name, *rest, **more))  # fmt: skip
    with pytest.raises(CompilerError, match=r"^root: the CUDA code did not compile: root\.cu\(1\): error: .*$"):
        prepared(loops)
    known = {file for entry in eviction.entries(cache) for file in entry.files}
    assert known == {*(cache / "cuda").iterdir()}, "nothing half-made, nothing that the cache would never remove"
    assert {"log", "lock"} <= {file.suffix.removeprefix(".") for file in known}


@needs_nvrtc
def test_ctrl_c_ends_children_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path)!r}, f'child{{os.getpid()}}').touch()\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(nvrtc_child, "__file__", str(slow))
    started: list[Path] = []

    def stop() -> None:
        until(lambda: len([*tmp_path.glob("child*")]) == 2)
        started[:] = tmp_path.glob("child*")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        prepared(two_loops())
    assert time.monotonic() - begin < 50.0 and len(started) == 2, "it did not wait for them to end"
    assert not [one for one in started if Path("/proc", one.name.removeprefix("child")).exists()]
    assert not list(cache.rglob("*.tmp")) and not list(cache.rglob("*.cubin"))


@needs_nvrtc
def test_without_children_programs_are_compiled_and_given_up_between_kernels(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "run_apart", no_such_program)
    monkeypatch.setattr(nvrtc.kept, "building", lambda _: nullcontext())  # which gives up, too, where files are locked
    alone = [one.resources for one in prepared(two_loops()).values()]  # type: ignore[attr-defined]
    assert all(one["pass0"]["registers"] > 0 for one in alone)
    monkeypatch.setenv("MESHLOOM_CACHE", str(cache / "another"))
    compiled = nvrtc_child.compilation
    calls: list[str] = []

    def interrupted(*given: Any) -> Any:
        calls.append(threading.current_thread().name)
        stop = _stop_of_thread()
        assert stop is not None and stop.wait(60), "the block is over"
        return compiled(*given)

    monkeypatch.setattr(nvrtc_child, "compilation", interrupted)
    with pytest.raises(KeyboardInterrupt), together.together():
        (loop, _) = two_loops()
        loop.begin_to_prepare()
        until(lambda: bool(calls))
        raise KeyboardInterrupt
    assert len(calls) == 1, "the search for the best number of registers ends with the one that was under way"
