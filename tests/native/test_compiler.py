"""The compiler is found and probed once, its products survive damage and concurrency, its failures are one line."""

import ctypes
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshloom.errors import CompilerError
from meshloom.native import compiler

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """A cache that holds nothing but the probed host compiler."""
    folder = tmp_path_factory.mktemp("probed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHLOOM_CACHE", str(folder))
        compiler._find.cache_clear()
        compiler.host_compiler()
    return folder


@pytest.fixture(autouse=True)
def own_cache(probed, tmp_path, monkeypatch):
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    shutil.copytree(probed, tmp_path / "cache")
    compiler._find.cache_clear()
    yield tmp_path / "cache"
    compiler._find.cache_clear()


@pytest.fixture
def logged_compiler(tmp_path, monkeypatch):
    """A compiler that notes every call in a file and rejects the flags named in REJECT; returns (path, log)."""
    real = compiler.host_compiler().path
    log, script = tmp_path / "calls", tmp_path / "logged-c++"
    reject = 'case "$*" in *"${REJECT:-nothing}"*) exit 1;; esac'
    script.write_text(f'#!/bin/sh\necho "$*" >> {log}\n{reject}\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    compiler._find.cache_clear()
    return script, log


def calls(log, word=""):
    return [line for line in log.read_text().splitlines() if word in line] if log.exists() else []


def test_a_compiler_that_never_says_its_version_is_stopped(tmp_path, monkeypatch):
    real, script = compiler.host_compiler().path, tmp_path / "slow-c++"
    script.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec sleep 60;; esac\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(compiler, "_works", lambda *_: True)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("MESHLOOM_COMPILER_SECONDS", "0.5")
    compiler._find.cache_clear()
    with pytest.raises(CompilerError, match=r"did not end within 0\.5 seconds"):
        compiler.host_compiler()


def test_flags_are_probed_and_own_flags_appended(monkeypatch):
    plain = compiler.host_compiler()
    assert os.path.isabs(plain.path) and plain.version
    assert {"-std=c++17", "-O3", "-fPIC", "-shared"} <= set(plain.flags)
    monkeypatch.setenv("MESHLOOM_CXXFLAGS", "-ffp-contract=off -DX=1")
    own = compiler.host_compiler()
    assert own.flags == plain.flags and own.own == ("-ffp-contract=off", "-DX=1")
    order = compiler._in_order(("-O1", "-fno-strict-aliasing", "-ffp-contract=off"), own)
    assert order == ("-O1", *own.own, "-fno-strict-aliasing", "-ffp-contract=off")


def test_cxx_may_carry_arguments(monkeypatch):
    real = compiler.host_compiler().path
    monkeypatch.setenv("CXX", f"{real} -DVIA_CXX=7")
    library = compiler.load('extern "C" int via() { return VIA_CXX; }', "via")
    assert library.via() == 7


def test_probe_is_remembered_until_the_compiler_changes(logged_compiler):
    script, log = logged_compiler
    first = compiler.host_compiler()
    after_first = len(calls(log))
    assert after_first == 2  # one try with all flags, which this compiler takes, and its version
    compiler.host_compiler()
    compiler._find.cache_clear()  # as a new process would start
    assert compiler.host_compiler() == first
    assert len(calls(log)) == after_first
    os.utime(script, ns=(1, 1))
    compiler._find.cache_clear()
    assert compiler.host_compiler() == first
    assert len(calls(log)) > after_first


def test_without_openmp_the_build_is_serial_and_quiet(logged_compiler, monkeypatch):
    monkeypatch.setenv("REJECT", "-fopenmp")
    found = compiler.host_compiler()
    assert not found.openmp
    loop = "#pragma omp parallel for reduction(+:s)\nfor (int i = 0; i < n; ++i) s += i;"
    text = f'extern "C" int sum(int n) {{\nint s = 0;\n{loop}\nreturn s; }}'
    assert compiler.load(text, "serial", extra_flags=("-Wall", "-Werror")).sum(10) == 45


def test_native_flags_are_dropped_where_rejected(logged_compiler, monkeypatch):
    monkeypatch.setenv("REJECT", "=native")
    flags = compiler.host_compiler().flags
    assert not [flag for flag in flags if "native" in flag] and "-fopenmp" in flags


def test_library_is_built_once_and_keyed_by_everything(logged_compiler, monkeypatch):
    _, log = logged_compiler
    first = compiler.build(SOURCE, "once")
    assert compiler.build(SOURCE, "once") == first
    assert len(calls(log, "once-")) == 1
    assert ctypes.CDLL(str(first)).answer() == 42
    assert first.with_suffix(".cpp").read_text() == SOURCE
    others = {compiler.build(SOURCE + "//", "once"), compiler.build(SOURCE, "once", extra_flags=("-g",))}
    monkeypatch.setenv("MESHLOOM_CXXFLAGS", "-DOTHER")
    others.add(compiler.build(SOURCE, "once"))
    assert len(others | {first}) == 4


def damage_truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_empty(path):
    path.write_bytes(b"")


def damage_garbage(path):
    path.write_bytes(b"not a library" * 100)


def damage_flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def damage_garbage_with_valid_checksum(path):
    path.write_bytes(b"junk" + compiler._checksum(b"junk", path.stem))


@pytest.mark.parametrize(
    "damage", [damage_truncate, damage_empty, damage_garbage, damage_flip, damage_garbage_with_valid_checksum]
)
def test_damaged_library_is_rebuilt(damage):
    path = compiler.build(SOURCE, "damaged")
    damage(path)
    assert compiler.load(SOURCE, "damaged").answer() == 42
    assert compiler._intact(path)
    assert ctypes.CDLL(str(path)).answer() == 42


def test_failure_is_one_line_that_names_the_log(own_cache):
    with pytest.raises(CompilerError) as caught:
        compiler.build("int broken( {", "broken")
    message = str(caught.value)
    assert "\n" not in message and message.startswith("broken: ") and "error" in message
    log = own_cache / "code" / message.split("(log: ")[1].rstrip(")").rsplit("/", 1)[1]
    assert "-std=c++17" in log.read_text() and "broken" in log.read_text()
    assert not list((own_cache / "code").glob("*.so")) and not list((own_cache / "code").glob("*.tmp"))


def test_unwritable_cache_builds_in_a_private_place(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "file" / "cache"))
    path = compiler.build(SOURCE, "private")
    assert ctypes.CDLL(str(path)).answer() == 42
    assert (path.parent.stat().st_mode & 0o077) == 0


def build_and_call(source):
    return compiler.load(source, "shared").answer()


@pytest.mark.slow
def test_concurrent_processes_all_succeed_and_compile_once(logged_compiler, own_cache):
    _, log = logged_compiler
    compiler.host_compiler()
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(build_and_call, [SOURCE] * 6, chunksize=1) == [42] * 6
    assert len(calls(log, "shared-")) == 1
    assert not list((own_cache / "code").glob("*.tmp"))


@pytest.mark.slow
def test_without_locks_everybody_compiles_and_all_succeed(logged_compiler, monkeypatch, own_cache):
    _, log = logged_compiler
    compiler.host_compiler()
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on a file system without locks
    gate = threading.Barrier(3)
    monkeypatch.setattr(compiler, "_intact", lambda library, whole=compiler._intact: whole(library) or gate.wait() < 0)
    with ThreadPoolExecutor(3) as pool:
        paths = list(pool.map(lambda _: compiler.build(SOURCE, "unlocked"), range(3)))
    assert len(set(paths)) == 1 and len(calls(log, "unlocked-")) == 3
    assert ctypes.CDLL(str(paths[0])).answer() == 42
    assert not list((own_cache / "code").glob("*.tmp"))


def run_python(code, **environment):
    keep = {key: os.environ[key] for key in ("HOME", "MESHLOOM_CACHE") if key in os.environ}
    return subprocess.run(
        [sys.executable, "-c", code], env=keep | environment, capture_output=True, text=True, check=False
    )


PRINT_ERROR = """
from meshloom.errors import CompilerError
from meshloom.native.compiler import host_compiler
try:
    print("found", host_compiler())
except CompilerError as error:
    print(error)
"""


def test_no_compiler_gives_one_clear_sentence(tmp_path):
    here = os.getcwd()
    named = run_python(PRINT_ERROR, CXX=str(tmp_path / "nothing"), PATH="", PYTHONPATH=here)
    assert named.stdout.count("\n") == 1, named.stderr
    assert "no C++ compiler: CXX is" in named.stdout and "not found" in named.stdout
    none = run_python(PRINT_ERROR, PATH="", PYTHONPATH=here)
    assert none.stdout.count("\n") == 1, none.stderr
    assert none.stdout.startswith("no C++ compiler: none of c++, g++, clang++ works on PATH; install one")


def test_cxx_that_does_not_work_is_named_not_replaced(monkeypatch):
    monkeypatch.setenv("CXX", shutil.which("false") or "/bin/false")
    with pytest.raises(CompilerError, match=r"false'.*did not compile a C\+\+17 test; correct or unset it"):
        compiler.host_compiler()
    monkeypatch.setenv("CXX", 'g++ "')
    with pytest.raises(CompilerError, match="not a command line"):
        compiler.host_compiler()
