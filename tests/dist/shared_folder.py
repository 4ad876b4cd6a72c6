"""``python -m tests.dist.shared_folder FOLDER SCRIPT ...``: a script whose temporary folder is that of all ranks."""

from __future__ import annotations

import runpy
import sys
import tempfile


def main(folder: str, script: str, *rest: str) -> None:
    sys.argv = [script, *rest]
    tempfile.mkdtemp = lambda *how, **more: folder  # type: ignore[assignment]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
