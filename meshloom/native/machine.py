"""What the machine has."""

from __future__ import annotations

import os


def memory() -> int:
    """Bytes of memory; where the system does not tell, more than any machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**60
