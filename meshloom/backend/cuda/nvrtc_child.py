"""One source compiled by NVRTC: what ``nvrtc.py`` does in our process, and as a program of its own in another one.

NVRTC holds a lock while it compiles, so that several threads of a process gain nothing: several processes do. As a
program it reads a request from stdin and answers by the last line of stdout, both JSON of ASCII alone. It starts in a
moment because it imports nothing but the standard library and NVIDIA's bindings; nothing of Meshloom's.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class NvrtcRefusal(RuntimeError):
    """A function of NVRTC's that must work does not: the status that it gave."""


class Compilation(NamedTuple):
    """What NVRTC made of a source: its status, 0 where it compiled, what it said, machine code and PTX."""

    status: int
    log: str
    cubin: bytes = b""
    ptx: bytes = b""


def version(nvrtc: Any) -> str:
    """Version of the library, such as 13.0."""
    major, minor = _answer(nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def compilation(nvrtc: Any, source: str, file: str, options: Sequence[str]) -> Compilation:
    """``file``: what the source is called in messages."""
    (program,) = _answer(nvrtc.nvrtcCreateProgram(source.encode(), file.encode(), 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [one.encode() for one in options])
        log = _fetch(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        said = log.rstrip(b"\0").decode(errors="replace")
        if int(status):
            return Compilation(int(status), said)
        cubin = _fetch(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return Compilation(0, said, cubin, _fetch(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _answer(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a function of the bindings gives next to its status, which must be 0."""
    status, *rest = result
    if int(status):
        raise NvrtcRefusal(repr(status))
    return tuple(rest)


def _fetch(size_of: Callable[[Any], Any], get: Callable[[Any, bytearray], Any], program: Any) -> bytes:
    (size,) = _answer(size_of(program))
    buffer = bytearray(size)  # written by the library: no object of bytes, which Python may share, must be
    _answer(get(program, buffer))
    return bytes(buffer)


# ---- as a program -----------------------------------------------------------------------------------------------


def request(source: str, file: str, options: Sequence[str]) -> str:
    """What the program reads; it imports from where we do."""
    places = [one for one in sys.path if isinstance(one, str)]  # Python overlooks others, too
    return json.dumps({"source": source, "file": file, "options": list(options), "path": places})


def told(output: str, wanted_version: str) -> Compilation | None:
    """What the program has answered, without PTX; None where it has not, or where it has found another NVRTC, or where
    nothing was made: who knows whether for a mistake in the source, or for want of memory."""
    try:
        found = json.loads(output.splitlines()[-1])
        if found["version"] != wanted_version or found["status"] != 0:
            return None
        return Compilation(0, str(found["log"]), base64.b64decode(found["cubin"], validate=True))
    except (LookupError, TypeError, ValueError):
        return None


def main() -> None:
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    from cuda.bindings import nvrtc

    made = compilation(nvrtc, asked["source"], asked["file"], asked["options"])
    answer = {"version": version(nvrtc), "status": made.status, "log": made.log,
              "cubin": base64.b64encode(made.cubin).decode()}  # fmt: skip
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
