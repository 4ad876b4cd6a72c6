"""What ``meshloom cache`` tells: where the cache is, what it holds, how much it may hold; and clearing it."""

from __future__ import annotations

from collections.abc import Iterator

from meshloom.errors import UserError
from meshloom.native import eviction
from meshloom.native.cache import refusal, wanted_root


def text_lines() -> Iterator[str]:
    """One fact per line: the folder, each kind of entries, all together."""
    root = wanted_root()
    if (reason := refusal()) or root is None:
        yield f"no cache: {reason}"
        return
    held = eviction.entries(root)
    yield f"cache      {root}"
    for kind, (words, _) in eviction.KINDS.items():
        mine = [one for one in held if one.kind == kind]
        yield f"{kind:<10} {_counted(mine, words)}, {size(sum(one.size for one in mine))}"
    yield f"total      {size(sum(one.size for one in held))} of {size(eviction.limit())} (MESHLOOM_CACHE_LIMIT)"


def cleared() -> Iterator[str]:
    """Remove everything that Meshloom has put there, and tell what; other files stay."""
    root = wanted_root()
    if (reason := refusal()) or root is None:
        raise UserError(f"nothing is cleared: {reason}")
    gone = eviction.clear(root)
    yield f"removed {_counted(gone)}, {size(sum(one.size for one in gone))}, from {root}"
    left = eviction.entries(root)
    if left:
        yield f"{_counted(left)} could not be removed, or came meanwhile"


def _counted(held: list[eviction.Entry], words: tuple[str, str] = ("entry", "entries")) -> str:
    """How many, with the word for one or for more."""
    return f"{len(held):,} {words[len(held) != 1]}"


def size(number: int) -> str:
    """Bytes as people write them."""
    value, unit = float(number), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
