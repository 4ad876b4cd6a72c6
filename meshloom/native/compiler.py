"""The host's C++ compiler: found once, its flags probed, its products cached by content.

A shared library lives in the cache as ``<name>-<key>.so`` beside its source ``<name>-<key>.cpp``; the key is the
SHA-256 of source, flags, compiler version and processor. Loading a truncated library can kill the process before
``dlopen`` reports anything, so every library ends in a seal, the SHA-256 of what precedes it (the loader ignores
trailing bytes), and one whose seal is broken is built again.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from meshloom.errors import CompilerError
from meshloom.native import closing
from meshloom.native.cache import cache_dir, replacing
from meshloom.native.names import safe_name

BASE_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
CANDIDATES = ("c++", "g++", "clang++")
_SEAL = b"meshloom-seal:"
_SEAL_BYTES = len(_SEAL) + hashlib.sha256().digest_size
_LOCK_SECONDS = 300.0  # a builder that takes longer is taken for dead; waiting is an economy, not a need

_PLAIN_PROBE = """
#include <algorithm>
#include <cstdint>
#include <vector>
extern "C" int64_t probe(int64_t n) {
  std::vector<int64_t> v(n, 1);
  if constexpr (sizeof(int64_t) == 8) std::sort(v.begin(), v.end());
  return v[0];
}
"""
_OPENMP_PROBE = """
#include <omp.h>
extern "C" int probe(int n) {
  int sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < n; ++i) sum += omp_get_max_threads();
  return sum;
}
"""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that works: ``[path, *flags, source, "-o", library]`` makes a shared library."""

    path: str
    version: str  # first line of --version
    flags: tuple[str, ...]

    @property
    def openmp(self) -> bool:
        return "-fopenmp" in self.flags


def host_compiler() -> Compiler:
    """The compiler named by ``CXX``, else the first of c++, g++, clang++ that works; found once per process.

    ``MESHLOOM_CXXFLAGS`` is appended to its flags. A ``CXX`` that does not work is an error, not a reason to
    take another compiler silently.
    """
    found = _find(tuple(_words("CXX")), os.environ.get("PATH", os.defpath))
    own = tuple(_words("MESHLOOM_CXXFLAGS"))
    return Compiler(found.path, found.version, found.flags + own) if own else found


def build(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> Path:
    """The shared library made from C++ ``source``; compiled only if it is not in the cache, intact."""
    compiler = host_compiler()
    stem = f"{safe_name(name)}-{_key(source, compiler, extra_flags)[:32]}"
    library = cache_dir("code") / f"{stem}.so"
    if _sealed(library):
        return library
    library = _writable_code_dir() / f"{stem}.so"
    with _building(library):
        if not _sealed(library):  # nobody else made it while we waited
            _compile(compiler, source, name, library, extra_flags)
    return library


def load(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """``build`` and open; a library that does not open is built once more. One CDLL per library and process, which is
    closed when nobody holds it: ``closing.function_of`` gives functions that hold it, and nothing else.
    """
    library = build(source, name, extra_flags=extra_flags)
    try:
        return _open(library)
    except OSError:
        library.unlink(missing_ok=True)
    library = build(source, name, extra_flags=extra_flags)
    try:
        return _open(library)
    except OSError as error:
        raise CompilerError(f"{name}: the compiled library does not load: {_one_line(str(error))}") from None


#: Libraries in use. A function holds its library, and whatever may call it holds the function.
_opened: weakref.WeakValueDictionary[Path, ctypes.CDLL] = weakref.WeakValueDictionary()


def _open(library: Path) -> ctypes.CDLL:
    found = _opened.get(library)
    if found is not None:
        return found
    # Threads that wait for work should spin for microseconds, not milliseconds: on a busy machine the spinning ones
    # take the time of those that work. GNU's OpenMP reads this when it is first loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    found = _opened[library] = ctypes.CDLL(str(library))
    if closing.may_close(found):
        weakref.finalize(found, closing.close, found._handle).atexit = False  # at exit all go anyway
    return found


# ---- finding ----------------------------------------------------------------------------------------------------


@cache
def _find(cxx: tuple[str, ...], search: str) -> Compiler:
    if cxx:
        command = _resolve(cxx, search)
        compiler = _probe_remembered(command) if command else None
        if compiler is None:
            reason = "did not compile a C++17 test" if command else "was not found"
            raise CompilerError(f"no C++ compiler: CXX is {shlex.join(cxx)!r}, which {reason}; correct or unset it")
        return compiler
    for candidate in CANDIDATES:
        command = _resolve((candidate,), search)
        compiler = _probe_remembered(command) if command else None
        if compiler is not None:
            return compiler
    raise CompilerError(
        f"no C++ compiler: none of {', '.join(CANDIDATES)} works on PATH;"
        " install one (for example g++) or set CXX to its path"
    )


def _words(variable: str) -> list[str]:
    """An environment variable as the words of a command line; CXX may carry arguments or a launcher such as ccache."""
    text = os.environ.get(variable, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CompilerError(f"{variable} is {text!r}, which is not a command line ({error}); correct it") from None


def _resolve(words: tuple[str, ...], search: str) -> tuple[str, ...] | None:
    """The command with its program as a full path."""
    program = shutil.which(words[0], path=search)
    return (os.path.abspath(program), *words[1:]) if program else None


def _probe_remembered(command: tuple[str, ...]) -> Compiler | None:
    """``_probe``, its answer kept on disk until the compiler's file or the processor changes."""
    memo = cache_dir("compiler") / f"{_probe_key(command)}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(memo.read_text())
        return Compiler(command[0], str(known["version"]), tuple(str(flag) for flag in known["flags"]))
    compiler = _probe(command)
    if compiler is not None:
        with suppress(OSError), replacing(memo) as temporary:
            temporary.write_text(json.dumps({"version": compiler.version, "flags": compiler.flags}))
    return compiler


def _probe_key(command: tuple[str, ...]) -> str:
    facts: list[object] = [command, _processor(), BASE_FLAGS]
    for word in command:  # a launcher's compiler counts as well
        if program := shutil.which(word):
            status = os.stat(program)
            facts.append((program, status.st_mtime_ns, status.st_size))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _probe(command: tuple[str, ...]) -> Compiler | None:
    """Which flags this compiler takes; None when it cannot even make a plain C++17 library."""
    path, flags = command[0], (*command[1:], *BASE_FLAGS)
    if not _works(path, flags, _PLAIN_PROBE):
        return None
    native = ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ("-mcpu=native", "-march=native")
    tuned = next((flag for flag in native if _works(path, (*flags, flag), _PLAIN_PROBE)), None)
    flags += (tuned,) if tuned else ()
    flags += ("-fopenmp",) if _works(path, (*flags, "-fopenmp"), _OPENMP_PROBE) else ("-Wno-unknown-pragmas",)
    return Compiler(path, _version(command), flags)


def _works(path: str, flags: tuple[str, ...], source: str) -> bool:
    """Whether the compiler makes a library that loads, tried where libraries will be (/tmp may forbid loading)."""
    try:
        with tempfile.TemporaryDirectory(prefix="probe-", dir=_writable_code_dir()) as folder:
            text, library = Path(folder, "probe.cpp"), Path(folder, "probe.so")
            text.write_text(source)
            if _run([path, *flags, str(text), "-o", str(library)]).returncode:
                return False
            ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


def _version(command: tuple[str, ...]) -> str:
    lines = _run([*command, "--version"]).stdout.splitlines()
    return lines[0].strip() if lines else "unknown version"


@cache
def _processor() -> str:
    """What native code depends on: architecture and the first processor's model and features.

    Part of every key, since a cache in a home directory may be shared by machines of several kinds.
    """
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part", "CPU variant")
    lines = []
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
        for line in cpuinfo:
            if not line.strip():
                break
            if line.partition(":")[0].strip() in wanted:
                lines.append(line.strip())
    return "\n".join([platform.system(), platform.machine(), *(lines or [platform.processor()])])


# ---- building ---------------------------------------------------------------------------------------------------


def _key(source: str, compiler: Compiler, extra_flags: tuple[str, ...]) -> str:
    facts = (compiler.path, compiler.version, compiler.flags, extra_flags, _processor(), source)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _compile(compiler: Compiler, source: str, name: str, library: Path, extra_flags: tuple[str, ...]) -> None:
    text = library.with_suffix(".cpp")
    try:
        with replacing(text) as temporary:
            temporary.write_text(source, encoding="utf-8")
        with replacing(library) as temporary:
            command = [compiler.path, *compiler.flags, str(text), "-o", str(temporary), *extra_flags]
            result = _run(command)
            if result.returncode:
                raise CompilerError(_failure(name, command, result, library.with_suffix(".log")))
            body = temporary.read_bytes()
            with open(temporary, "ab") as end:
                end.write(_seal(body))
    except OSError as error:
        raise CompilerError(f"{name}: could not be compiled in {library.parent}: {error.strerror or error}") from None


def _failure(name: str, command: list[str], result: subprocess.CompletedProcess[str], log: Path) -> str:
    """One line with the compiler's first error and the place of the whole log."""
    output = (result.stderr + result.stdout).strip()
    lines = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines()[-1:]
    first = _one_line(lines[0]) if lines else f"exit status {result.returncode}"
    try:
        with replacing(log) as temporary:
            temporary.write_text(f"{shlex.join(command)}\nexit status {result.returncode}\n\n{output}\n", "utf-8")
    except OSError:
        return f"{name}: the C++ code did not compile: {first} (and no log could be written to {log.parent})"
    return f"{name}: the C++ code did not compile: {first} (log: {log})"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )


def _seal(body: bytes) -> bytes:
    return _SEAL + hashlib.sha256(body).digest()


def _sealed(library: Path) -> bool:
    """Whether the library is there and whole."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    return content[-_SEAL_BYTES:] == _seal(content[:-_SEAL_BYTES])


@contextmanager
def _building(library: Path) -> Iterator[None]:
    """Waits while another process builds the same library, so that the ranks of a run compile it once.

    Only an economy: without locks (some network file systems) everybody compiles and the last rename wins.
    """
    try:
        import fcntl

        lock = open(library.with_suffix(".lock"), "ab")  # noqa: SIM115 - held over the yield
    except (ImportError, OSError):
        yield
        return
    with lock:
        give_up = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < give_up:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        yield


def _writable_code_dir() -> Path:
    """The cache directory for code, or one of this process alone where that one cannot be written."""
    folder = cache_dir("code")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return _private_dir()


@cache
def _private_dir() -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix="meshloom-code-"))
    except OSError as error:
        raise CompilerError(f"compiled code has no place to go: {_one_line(str(error))}; set MESHLOOM_CACHE") from None
    atexit.register(_clear, folder, os.getpid())
    return folder


def _clear(folder: Path, owner: int) -> None:
    """At exit of the process that made it (not of its forks), unless a log was left for the user to read."""
    if os.getpid() == owner and not any(folder.glob("*.log")):
        shutil.rmtree(folder, ignore_errors=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())
