"""What the machine has."""

from __future__ import annotations

import os


def usable_cores() -> set[int]:
    """The cores that this process may use, by number."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {*range(os.cpu_count() or 1)}


def cpu_count() -> int:
    """How many there are."""
    return len(usable_cores())


def memory() -> int:
    """Bytes of memory; where the system does not tell, more than any machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**60
