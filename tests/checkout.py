"""No test leaves a file in the checkout: what git does not know is the same after a run of the tests as before it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def unknown(root: Path = ROOT) -> set[str]:
    """Files that git neither tracks nor ignores; without git, or outside of a repository, none."""
    words = ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(done.stdout.split("\0")) - {""} if done.returncode == 0 else set()


def left(before: set[str], root: Path = ROOT) -> str:
    """One line about files that were not there before, or nothing."""
    new = sorted(unknown(root) - before)
    return f"left in the checkout by a test, or put there during the run: {', '.join(new)}" if new else ""
