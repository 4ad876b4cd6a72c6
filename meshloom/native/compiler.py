"""The host's C++ compiler: found once, its flags probed, its products cached by content.

A shared library lives in the cache as ``<name>-<key>.so`` next to its source ``<name>-<key>.cpp``; the key is the
SHA-256 of source, flags, compiler version and processor. Loading a truncated library can kill the process before
``dlopen`` reports anything, so every library ends in a checksum, the SHA-256 of its name and of what precedes it (the
loader ignores trailing bytes), and one whose checksum is wrong is built again. Where the cache cannot be written, is
full or forbids to run code, a folder of this process alone takes its place, with a word about why.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache as remembered
from pathlib import Path
from typing import TypeVar

from meshloom.errors import CompilerError, shown
from meshloom.native import cache, dlclose, threads
from meshloom.native.elf import is_whole
from meshloom.native.names import safe_name
from meshloom.process.activity import compiling
from meshloom.process.children import run_apart
from meshloom.process.signals import undone_if_stopped
from meshloom.records import dataclass

T = TypeVar("T")

#: Of loops, and of what measures how fast they could be. Neither changes a value: no errno from sqrt, no care for
#: floating-point traps. Both let loops be vectorised.
LOOP_FLAGS = ("-fno-math-errno", "-fno-trapping-math")
BASE_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
CANDIDATES = ("c++", "g++", "clang++")
_OPENMP, _NO_OPENMP = "-fopenmp", "-Wno-unknown-pragmas"
_TAG = b"meshloom-seal-2:"  # part of the key: what another version has written is another library
_CHECKSUM_BYTES = len(_TAG) + hashlib.sha256().digest_size
SECONDS = 600.0  # that a compiler may take, unless MESHLOOM_COMPILER_SECONDS says otherwise
_NO_ROOM = ("No space left on device", "Disk quota exceeded")

_PLAIN_PROBE = """
#include <algorithm>
#include <cstdint>
#include <vector>
extern "C" int64_t probe(int64_t n) {
  std::vector<int64_t> v(n, 1);
  if constexpr (sizeof(int64_t) == 8) return *std::max_element(v.begin(), v.end());
  return v[0];
}
"""
_OPENMP_PROBE = """
#include <omp.h>
extern "C" int threads(int n) {
  int sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < n; ++i) sum += omp_get_max_threads();
  return sum;
}
"""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that works: ``[path, *flags, source, "-o", library, *own]`` makes a shared library."""

    path: str
    version: str  # first line of --version
    flags: tuple[str, ...]
    own: tuple[str, ...] = ()  # the user's

    @property
    def openmp(self) -> bool:
        return "-fopenmp" in self.flags

    @property
    def is_gnu(self) -> bool:
        """GCC, by the first line that it prints: its name, what it was packed as, its number. Others say theirs."""
        return re.match(r"\S+ \(.*\) \d+\.\d+", self.version) is not None


def host_compiler() -> Compiler:
    """The compiler named by ``CXX``, else the first of c++, g++, clang++ that works; found once per process.

    ``MESHLOOM_CXXFLAGS`` comes behind its flags. A ``CXX`` that does not work is an error, not a reason to
    take another compiler silently.
    """
    with _finding:
        found = _find(tuple(_words("CXX")), os.environ.get("PATH", os.defpath))
    own = tuple(_words("MESHLOOM_CXXFLAGS"))
    return replace(found, own=own) if own else found


def build(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> Path:
    """The shared library made from C++ ``source``; compiled only if it is not in the cache, intact."""
    found = known(source, name, extra_flags=extra_flags)
    if found is not None:
        return found
    compiler = host_compiler()
    stem = _stem(source, name, compiler, extra_flags)

    def made(folder: Path) -> Path:
        library = folder / f"{stem}.so"
        with cache.building(library):
            if not _intact(library):  # nobody else made it while we waited
                _compile(compiler, source, name, library, extra_flags)
        return library

    with compiling(name):
        return _somewhere(made)


def known(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> Path | None:
    """The library made from ``source``, where the cache has it, intact."""
    library = cache.cache_dir("code") / f"{_stem(source, name, host_compiler(), extra_flags)}.so"
    return library if cache.runs_code(library.parent) and _intact(library) else None


def load(source: str, name: str, *, extra_flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """``build`` and open; a library that does not open is built once more. One CDLL per library and process, which is
    closed when nobody holds it: ``dlclose.function_of`` gives functions that hold it, and nothing else.
    """
    library = build(source, name, extra_flags=extra_flags)
    try:
        return _open(library)
    except OSError:
        cache.remove(library)
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
    threads.threads_begin()
    found = _opened[library] = _loaded(library)
    if dlclose.may_close(found):
        weakref.finalize(found, dlclose.close, found._handle).atexit = False  # at exit all go anyway
    return found


def _loaded(library: Path) -> ctypes.CDLL:
    # Threads that wait for work should spin for microseconds, not milliseconds: on a busy machine the spinning ones
    # take the time of those that work. GNU's OpenMP reads this when it is first loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    return ctypes.CDLL(str(library))


# ---- finding ----------------------------------------------------------------------------------------------------


_finding = threading.Lock()  # libraries are begun at the same time: one of them looks for the compiler of all
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_finding._at_fork_reinit)  # type: ignore[attr-defined]


@remembered
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
        return shlex.split(text) if text else []  # which takes its time
    except ValueError as error:
        raise CompilerError(f"{variable} is {text!r}, which is not a command line ({error}); correct it") from None


def _resolve(words: tuple[str, ...], search: str) -> tuple[str, ...] | None:
    """The command with its program as a full path."""
    program = shutil.which(words[0], path=search)
    return (os.path.abspath(program), *words[1:]) if program else None


def _probe_remembered(command: tuple[str, ...]) -> Compiler | None:
    """``_probe``, its answer kept on disk until the compiler's file or the processor changes."""
    memo = cache.cache_dir("compiler") / f"{_probe_key(command)}.json"
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        known = json.loads(cache.content(memo) or b"")
        compiler = Compiler(command[0], known["version"], tuple(known["flags"]))
        if isinstance(compiler.version, str) and compiler.flags in _possible_flags(command):
            return compiler
    found = _probe(command)
    if found is not None:
        with cache.kept_if_possible(memo) as temporary:
            temporary.write_text(json.dumps({"version": found.version, "flags": found.flags}))
    return found


def _probe_key(command: tuple[str, ...]) -> str:
    facts: list[object] = [command, _processor(), BASE_FLAGS]
    for word in command:  # a launcher's compiler counts as well
        if program := shutil.which(word):
            status = os.stat(program)
            facts.append((program, status.st_mtime_ns, status.st_size))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _probe(command: tuple[str, ...]) -> Compiler | None:
    """Which flags this compiler takes; None when it cannot even make a plain C++17 library.

    Most take all of them: that is one try. Otherwise they are tried one by one."""
    path, flags = command[0], (*command[1:], *BASE_FLAGS)
    usual = (*flags, _tuning()[0], _OPENMP)
    if _works(path, usual, _PLAIN_PROBE + _OPENMP_PROBE):
        return Compiler(path, _version(command), usual)
    if not _works(path, flags, _PLAIN_PROBE):
        return None
    tuned = next((flag for flag in _tuning() if _works(path, (*flags, flag), _PLAIN_PROBE)), None)
    flags += (tuned,) if tuned else ()
    flags += (_OPENMP,) if _works(path, (*flags, _OPENMP), _OPENMP_PROBE) else (_NO_OPENMP,)
    return Compiler(path, _version(command), flags)


def _tuning() -> tuple[str, ...]:
    """Flags that make code for this processor, in the order in which they are tried."""
    return ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ("-mcpu=native", "-march=native")


def _possible_flags(command: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All that a probe can find: others in the cache are not ours."""
    given = (*command[1:], *BASE_FLAGS)
    return [(*given, *tuned, last) for tuned in ((), *((t,) for t in _tuning())) for last in (_OPENMP, _NO_OPENMP)]


def _works(path: str, flags: tuple[str, ...], source: str) -> bool:
    """Whether the compiler makes a library that loads, tried where libraries will be (/tmp may forbid loading)."""

    def tried(code: Path) -> bool:
        place = tempfile.TemporaryDirectory(prefix="probe-", dir=code)
        with place as folder, undone_if_stopped(place.cleanup):
            text, library = Path(folder, "probe.cpp"), Path(folder, "probe.so")
            text.write_text(source)
            result = _run([path, *flags, str(text), "-o", str(library)])
            _check_room(result, code)
            if result.returncode or not library.is_file() or not is_whole(library.read_bytes()):
                return False
            try:
                _loaded(library)
            except OSError:
                return False
            return True

    return _somewhere(tried)


def _version(command: tuple[str, ...]) -> str:
    text_lines = _run([*command, "--version"]).stdout.splitlines()
    return text_lines[0].strip() if text_lines else "unknown version"


@remembered
def _processor() -> str:
    """What native code depends on: architecture and the first processor's model and features.

    Part of every key, since a cache in a home directory may be shared by machines of several kinds.
    """
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part", "CPU variant")
    text_lines = []
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
        for line in cpuinfo:
            if not line.strip():
                break
            if line.partition(":")[0].strip() in wanted:
                text_lines.append(line.strip())
    return "\n".join([platform.system(), platform.machine(), *(text_lines or [platform.processor()])])


# ---- building ---------------------------------------------------------------------------------------------------


def _key(source: str, compiler: Compiler, extra_flags: tuple[str, ...]) -> str:
    facts = (_TAG, compiler.path, compiler.version, compiler.flags, extra_flags, compiler.own, _processor(), source)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _stem(source: str, name: str, compiler: Compiler, extra_flags: tuple[str, ...]) -> str:
    """What a library is called, without its ending."""
    return f"{safe_name(name)}-{_key(source, compiler, extra_flags)[:32]}"


def _compile(compiler: Compiler, source: str, name: str, library: Path, extra_flags: tuple[str, ...]) -> None:
    """OSError where the folder is to blame."""
    text = library.with_suffix(".cpp")
    with cache.storing(text) as temporary:
        temporary.write_text(source, encoding="utf-8")
    with cache.storing(library) as temporary:
        command = [compiler.path, *compiler.flags, str(text), "-o", str(temporary), *_in_order(extra_flags, compiler)]
        result = _run(command)
        _check_room(result, library.parent)
        if result.returncode:
            _look_again(text)
            raise CompilerError(_failure(name, command, result, library.with_suffix(".log")))
        body = temporary.read_bytes() if temporary.is_file() else b""
        if not is_whole(body):
            _look_again(library.parent)
            left = f"{len(body):,} bytes that are no whole library" if body else "no library"
            raise CompilerError(f"{name}: {compiler.path} reported success, but left {left}")
        with open(temporary, "ab") as end:
            end.write(_checksum(body, library.stem))


def _in_order(extra_flags: tuple[str, ...], compiler: Compiler) -> tuple[str, ...]:
    """How much to optimise is the user's choice; what the meaning of a text depends on is not, and comes last."""
    levels = tuple(flag for flag in extra_flags if flag.startswith("-O"))
    return *levels, *compiler.own, *(flag for flag in extra_flags if flag not in levels)


def _check_room(result: subprocess.CompletedProcess[str], folder: Path) -> None:
    """OSError where the compiler failed for want of room, or of its folder, which is not its fault."""
    if result.returncode:
        if any(words in result.stderr + result.stdout for words in _NO_ROOM):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        _look_again(folder)


def _look_again(place: Path) -> None:
    """OSError where a folder, or a file of the cache, has gone meanwhile."""
    os.stat(place)


def _failure(name: str, command: list[str], result: subprocess.CompletedProcess[str], log: Path) -> str:
    """One line with the compiler's first error and the place of the whole log."""
    output = (result.stderr + result.stdout).strip()
    text_lines = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines()[-1:]
    first = _one_line(text_lines[0]) if text_lines else f"exit status {result.returncode}"
    try:
        with cache.storing(log) as temporary:
            temporary.write_text(f"{shlex.join(command)}\nexit status {result.returncode}\n\n{output}\n", "utf-8")
    except OSError:
        return f"{name}: the C++ code did not compile: {first} (and no log could be written to {log.parent})"
    return f"{name}: the C++ code did not compile: {first} (log: {log})"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler, for as long as one may take."""
    limit = _seconds()
    try:
        return run_apart(command, limit)
    except subprocess.TimeoutExpired:
        raise CompilerError(
            f"the compiler {command[0]} did not end within {limit:g} seconds and was stopped;"
            " set MESHLOOM_COMPILER_SECONDS to allow more"
        ) from None
    except OSError as error:
        return subprocess.CompletedProcess(command, 126, "", f"error: {error.strerror or error}")


def _seconds() -> float:
    """How long a compiler may take."""
    wanted = os.environ.get("MESHLOOM_COMPILER_SECONDS", "").strip()
    if not wanted:
        return SECONDS
    with suppress(ValueError):
        if 0 < float(wanted) <= 1e6:
            return float(wanted)
    raise CompilerError(f"MESHLOOM_COMPILER_SECONDS is {shown(wanted)}, not a number of seconds; correct or unset it")


def _checksum(body: bytes, stem: str) -> bytes:
    return _TAG + hashlib.sha256(stem.encode() + b"\0" + body).digest()


def _intact(library: Path) -> bool:
    """Whether the library is there, whole, and the one that its name says."""
    content = cache.content(library)
    if content is None:
        return False
    body = content[:-_CHECKSUM_BYTES]
    return content[-_CHECKSUM_BYTES:] == _checksum(body, library.stem) and is_whole(body)


def _somewhere(job: Callable[[Path], T]) -> T:
    """What a job gives that writes libraries to a folder: the cache's, or where that fails a private one."""
    folder = cache.cache_dir("code")
    reason = cache.unusable(folder)
    if reason is None:
        try:
            return job(folder)
        except OSError as error:
            reason = _one_line(error.strerror or str(error))
    private = cache.private_root() / "code"
    if private != folder:
        cache.tell(f"the cache {folder} takes no compiled code: {reason}; this process compiles in {private.parent}")
        again = cache.unusable(private)
        try:
            if again is None:
                return job(private)
        except OSError as error:
            again = _one_line(error.strerror or str(error))
        reason = f"{reason}; neither does {private.parent}: {again}"
    raise CompilerError(f"compiled code has no place to go: {folder}: {reason}; set MESHLOOM_CACHE to a folder for it")


def _one_line(text: str) -> str:
    return " ".join(text.split())
