"""One run of a study, in a process of its own: ``python -m meshloom.studies.worker``.

It reads what to run as one line of JSON from stdin and answers with one on stdout; whatever else is printed goes to
stderr. When stdin ends, whoever asked is gone: it stops with a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

from meshloom.errors import MeshloomError
from meshloom.run.folder import can_go_on
from meshloom.studies.single_run import run_case


def answer(wish: dict[str, Any]) -> dict[str, Any]:
    """What came out of the run that is asked for, or why nothing did. A run that was cut off goes on."""
    out = Path(wish["out"])
    try:
        where = {"restart": out} if can_go_on(out) else {"out": out}
        done = run_case(wish["case"], wish["settings"], **where, progress=False)  # type: ignore[arg-type]
    except MeshloomError as error:
        return {"why": str(error)}
    except MemoryError:
        return {"why": "out of memory"}
    kept = ("monitors", "measured", "iterations", "seconds", "converged")
    return {name: getattr(done, name) for name in kept} | {"why": ""}


def _stop_when_alone() -> None:
    """By the system's own read: Python's would hold a lock that its end waits for."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _first_line() -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            raise SystemExit(1)
        found += more
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    wish = json.loads(_first_line())
    threading.Thread(target=_stop_when_alone, daemon=True).start()
    answers.write(json.dumps(answer(wish)) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
