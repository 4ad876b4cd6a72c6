"""NVRTC by ctypes: CUDA C++ to machine code, also where there is no GPU and no driver.

The library comes with CuPy's or PyTorch's CUDA packages, with the wheel nvidia-cuda-nvrtc, or with a CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from meshloom.errors import CompilerError, install
from meshloom.native import cache as kept
from meshloom.native.names import safe_name

_FORM = "checksum of key, length, code and log"  # of cached files; part of their key


@cache
def library() -> ctypes.CDLL:
    """The NVRTC library; CompilerError with a clear sentence when there is none."""
    for candidate in _candidates():
        with suppress(OSError):
            return ctypes.CDLL(candidate)
    raise CompilerError(f"no NVRTC library was found, so CUDA code cannot be compiled: {install('cuda')}")


def _candidates() -> Iterator[str]:
    for folder in map(Path, sys.path):
        for pattern in ("nvidia/*/lib/libnvrtc.so.*", "nvidia/*/bin/**/nvrtc64_*.dll"):
            with suppress(OSError):
                yield from (str(p) for p in sorted(folder.glob(pattern), reverse=True) if "builtins" not in p.name)
    for root in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")):
        for place in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            yield from (str(p) for p in sorted(Path(root, place).glob("libnvrtc.so*"), reverse=True))
    yield from filter(None, (ctypes.util.find_library("nvrtc"), "libnvrtc.so"))


def version() -> str:
    """Version of the library, such as 13.0."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def build(source: str, name: str, architecture: str, *, flags: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """(cubin, log) for an architecture such as "sm_90", cached by content. The log tells registers and spills."""
    options = (f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", "--ptxas-options=-v", *flags)
    key = hashlib.sha256("\0".join([_FORM, source, *options, version()]).encode()).hexdigest()
    file = kept.cache_dir("cuda") / f"{safe_name(name)}-{key[:32]}.cubin"
    stored = kept.content(file) or b""
    checksum, length, rest = stored[:32], int.from_bytes(stored[32:40], "little"), stored[40:]
    if checksum == _checksum(key, stored[32:]):
        return rest[:length], rest[length:].decode(errors="replace")
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
    nvrtc, program = library(), ctypes.c_void_p()
    table = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), f"{safe_name(name)}.cu".encode(), 0, None, None)
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), table)
        log = (
            _fetch(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            .rstrip(b"\0")
            .decode(errors="replace")
        )
        if status != 0:
            number = hashlib.sha256(source.encode()).hexdigest()[:32]
            file = kept.cache_dir("cuda") / f"{safe_name(name)}-{number}.log"
            with kept.kept_if_possible(file) as temporary:
                temporary.write_text(f"{log}\n\n{source}", encoding="utf-8", errors="replace")
            first = next(
                (line for line in log.splitlines() if "error" in line), log.strip() or f"NVRTC status {status}"
            )
            where = f" (log: {file})" if file.is_file() else ""
            raise CompilerError(f"{name}: the CUDA code did not compile: {first}{where}")
        cubin = _fetch(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return cubin, _fetch(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _fetch(size_of: ctypes._CFuncPtr, get: ctypes._CFuncPtr, program: ctypes.c_void_p) -> bytes:  # type: ignore[name-defined]
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw


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
