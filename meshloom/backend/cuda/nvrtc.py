"""NVRTC, by NVIDIA's ``cuda.bindings``: CUDA C++ to machine code, also where there is no GPU and no driver.

The library itself comes with CuPy's or PyTorch's CUDA packages, with the wheel nvidia-cuda-nvrtc, or with a CUDA
toolkit; the bindings know where to look.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from meshloom.errors import CompilerError, install
from meshloom.native import cache as kept
from meshloom.native.names import safe_name
from meshloom.process.activity import compiling

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
    major, minor = _answer(library().nvrtcVersion())
    return f"{major}.{minor}"


def build(source: str, name: str, architecture: str, *, flags: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """(cubin, log) for an architecture such as "sm_90", cached by content. The log tells registers and spills."""
    options = (f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", "--ptxas-options=-v", *flags)
    key = hashlib.sha256("\0".join([_FORM, source, *options, version()]).encode()).hexdigest()
    file = kept.cache_dir("cuda") / f"{safe_name(name)}-{key[:32]}.cubin"
    stored = kept.content(file) or b""
    checksum, length, rest = stored[:32], int.from_bytes(stored[32:40], "little"), stored[40:]
    if checksum == _checksum(key, stored[32:]):
        return rest[:length], rest[length:].decode(errors="replace")
    with compiling(name):
        cubin, _, log = _compile(source, name, options)
    content = len(cubin).to_bytes(8, "little") + cubin + log.encode()
    with kept.kept_if_possible(file) as temporary:
        temporary.write_bytes(_checksum(key, content) + content)
    return cubin, log


def _checksum(key: str, content: bytes) -> bytes:
    """Of what is kept and of what it was made from: what lies under another's name is not taken for it."""
    return hashlib.sha256(key.encode() + content).digest()


def assembly(source: str, name: str, architecture: str) -> str:
    """The PTX of a source, to see which instructions the compiler has chosen."""
    _, text, _ = _compile(source, name, (f"--gpu-architecture={architecture}", "--std=c++17", "-default-device"))
    return text.rstrip(b"\0").decode()


def _compile(source: str, name: str, options: tuple[str, ...]) -> tuple[bytes, bytes, str]:
    """Machine code, PTX and log."""
    nvrtc = library()
    (program,) = _answer(nvrtc.nvrtcCreateProgram(source.encode(), f"{safe_name(name)}.cu".encode(), 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [one.encode() for one in options])
        log = _fetch(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        said = log.rstrip(b"\0").decode(errors="replace")
        if int(status):
            number = hashlib.sha256(source.encode()).hexdigest()[:32]
            file = kept.cache_dir("cuda") / f"{safe_name(name)}-{number}.log"
            with kept.kept_if_possible(file) as temporary:
                temporary.write_text(f"{said}\n\n{source}", encoding="utf-8", errors="replace")
            first = next(
                (line for line in said.splitlines() if "error" in line), said.strip() or f"NVRTC status {int(status)}"
            )
            where = f" (log: {file})" if file.is_file() else ""
            raise CompilerError(f"{name}: the CUDA code did not compile: {first}{where}")
        cubin = _fetch(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return cubin, _fetch(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program), said
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _answer(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a function of the bindings gives beside its status, which must be 0."""
    status, *rest = result
    if int(status):
        raise CompilerError(f"NVRTC does not work here: {status!r}")
    return tuple(rest)


def _fetch(size_of: Callable[[Any], Any], get: Callable[[Any, bytearray], Any], program: Any) -> bytes:
    (size,) = _answer(size_of(program))
    buffer = bytearray(size)  # written by the library: no object of bytes, which Python may share, must be
    _answer(get(program, buffer))
    return bytes(buffer)


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
