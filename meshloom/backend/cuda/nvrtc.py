"""NVRTC, by NVIDIA's ``cuda.bindings``: CUDA C++ to machine code, also where there is no GPU and no driver.

The library itself comes with CuPy's or PyTorch's CUDA packages, with the wheel nvidia-cuda-nvrtc, or with a CUDA
toolkit; the bindings know where to look.
"""

from __future__ import annotations

import hashlib
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from meshloom.backend.cuda import nvrtc_child
from meshloom.backend.cuda.nvrtc_child import Compilation, NvrtcRefusal
from meshloom.errors import CompilerError, install
from meshloom.native import cache as kept
from meshloom.native.names import safe_name
from meshloom.process.activity import compiling
from meshloom.process.children import run_apart, still_wanted

_FORM = "checksum of key, length, code and log"  # of cached files; part of their key


@cache
def library() -> Any:
    """NVRTC's functions by their names, the library loaded; CompilerError with a clear sentence when there is none."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # loads the library
    except ImportError as error:
        raise _missing("NVIDIA's cuda.bindings are not installed") from error
    except (RuntimeError, OSError) as error:
        raise _missing("no NVRTC library was found") from error
    return nvrtc


def _missing(what: str) -> CompilerError:
    return CompilerError(f"{what}, so CUDA code cannot be compiled: {install('cuda')}")


def version() -> str:
    """Version of the library, such as 13.0."""
    try:
        return nvrtc_child.version(library())
    except NvrtcRefusal as error:
        raise _does_not_work(error) from None


@cache
def _no_cache() -> tuple[str, ...]:
    """The option by which NVRTC compiles what the driver's cache has, too, where it knows that option. What comes from
    there comes without the log, and nobody knows then how many registers a kernel takes."""
    option = "--no-cache"
    try:
        return (option,) if nvrtc_child.compilation(library(), "", "nothing.cu", (option,)).status == 0 else ()
    except NvrtcRefusal as error:
        raise _does_not_work(error) from None


class MachineCode(NamedTuple):
    """A cubin, and the log, which tells registers and spills."""

    cubin: bytes
    log: str


def build(source: str, name: str, architecture: str, *, flags: tuple[str, ...] = (),
          apart: bool = False) -> MachineCode:  # fmt: skip
    """For an architecture such as "sm_90", cached by content.

    ``apart``: by a process of its own, so that several threads may build at the same time; in ours where none can be
    had.
    """
    entry = _CacheEntry.of(source, name, architecture, flags)
    found = entry.stored()
    if found is not None:
        return found
    with compiling(name), kept.building(entry.file):
        found = entry.stored()  # if somebody else made it while we waited
        if found is None:
            made = _compiled(source, name, entry.options, apart=apart)
            found = MachineCode(made.cubin, made.log)
            entry.store(found)
    return found


def known(source: str, name: str, architecture: str, *, flags: tuple[str, ...] = ()) -> MachineCode | None:
    """What ``build`` gives, where the cache has it."""
    return _CacheEntry.of(source, name, architecture, flags).stored()


class _CacheEntry(NamedTuple):
    """A place in the cache: what it is found by, where it is, and how what is there is compiled."""

    key: str
    file: Path
    options: tuple[str, ...]

    @classmethod
    def of(cls, source: str, name: str, architecture: str, flags: tuple[str, ...]) -> _CacheEntry:
        options = (f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", "--ptxas-options=-v",
                   *_no_cache(), *flags)  # fmt: skip
        key = hashlib.sha256("\0".join([_FORM, source, *options, version()]).encode()).hexdigest()
        return cls(key, kept.cache_dir("cuda") / f"{safe_name(name)}-{key[:32]}.cubin", options)

    def stored(self) -> MachineCode | None:
        """What is there, intact."""
        stored = kept.content(self.file) or b""
        checksum, length, rest = stored[:32], int.from_bytes(stored[32:40], "little"), stored[40:]
        if checksum != self._checksum(stored[32:]):
            return None
        return MachineCode(rest[:length], rest[length:].decode(errors="replace"))

    def store(self, made: MachineCode) -> None:
        content = len(made.cubin).to_bytes(8, "little") + made.cubin + made.log.encode()
        with kept.kept_if_possible(self.file) as temporary:
            temporary.write_bytes(self._checksum(content) + content)

    def _checksum(self, content: bytes) -> bytes:
        """Of what is kept and of what it was made from: what lies under another's name is not taken for it."""
        return hashlib.sha256(self.key.encode() + content).digest()


def assembly(source: str, name: str, architecture: str, *, flags: tuple[str, ...] = ()) -> str:
    """The PTX of a source, to see which instructions the compiler has chosen."""
    made = _compiled(source, name, (f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", *flags))
    return made.ptx.rstrip(b"\0").decode()


def _compiled(source: str, name: str, options: tuple[str, ...], *, apart: bool = False) -> Compilation:
    """Machine code, PTX (not where it was made ``apart``) and log; CompilerError where there is none."""
    still_wanted()
    file = f"{safe_name(name)}.cu"
    made = _by_a_child(source, file, options) if apart else None
    if made is None:
        try:
            made = nvrtc_child.compilation(library(), source, file, options)
        except NvrtcRefusal as error:
            raise _does_not_work(error) from None
    if made.status:
        raise CompilerError(_failure(source, name, made))
    return made


def _by_a_child(source: str, file: str, options: tuple[str, ...]) -> Compilation | None:
    """The same by a process of its own; None where there is no Python to start, or no code comes back, whatever the
    reason: we can still do it ourselves, and then have the reason."""
    if not _is_python(sys.executable):
        return None
    try:
        done = run_apart(_child_command(), given=nvrtc_child.request(source, file, options))
    except OSError:
        return None
    return nvrtc_child.told(done.stdout, version()) if done.returncode == 0 else None


def _is_python(executable: str | None) -> bool:
    """Not where there is none, nor of a program that Python is embedded in or frozen into, which would start itself."""
    return "python" in Path(executable or "").name.lower() and not getattr(sys, "frozen", False)


def _child_command() -> list[str]:
    """Python with the program. What it imports before it is told from where comes with Python: its folder has modules
    with the names of others (-P), PYTHONPATH may name the folder in which we are now (-E), and who wants none of a
    person's own modules (-s) gets none here."""
    return [sys.executable, "-E", "-P", *(["-s"] if sys.flags.no_user_site else []), nvrtc_child.__file__]


def _does_not_work(error: NvrtcRefusal) -> CompilerError:
    return CompilerError(f"NVRTC does not work here: {error}")


def _failure(source: str, name: str, made: Compilation) -> str:
    """One line with the compiler's first error and the place of the whole log, if it could be written."""
    said = made.log
    number = hashlib.sha256(source.encode()).hexdigest()[:32]
    file = kept.cache_dir("cuda") / f"{safe_name(name)}-{number}.log"
    with kept.kept_if_possible(file) as temporary:
        temporary.write_text(f"{said}\n\n{source}", encoding="utf-8", errors="replace")
    first = next((line for line in said.splitlines() if "error" in line), said.strip() or f"NVRTC status {made.status}")
    where = f" (log: {file})" if file.is_file() else ""
    return f"{name}: the CUDA code did not compile: {first}{where}"


def resources(log: str) -> dict[str, dict[str, int]]:
    """Registers, spill bytes and static shared memory of each kernel, from the log of ``build``."""
    found: dict[str, dict[str, int]] = {}
    name = ""
    for line in log.splitlines():
        if match := re.search(r"entry function '(\w+)'", line):
            name = match[1]
            found[name] = {}
        for label, pattern in (("registers", r"Used (\d+) registers"), ("spills", r"(\d+) bytes spill stores"),
                               ("shared", r"(\d+) bytes smem")):  # fmt: skip
            if name and (match := re.search(pattern, line)):
                found[name][label] = int(match[1])
    return found
