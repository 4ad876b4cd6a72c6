"""The table of attacks (``python -m tests.attacks.run``) for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report import rows_table


def names(result: dict[str, Any]) -> list[str]:
    """The campaigns of a run."""
    return [row["name"] for row in result["rows"]]


def is_usual(result: dict[str, Any]) -> bool:
    """Whether a run made as many attempts as a campaign asks for, not as many as somebody wished to try."""
    return not {"--attempts", "--seconds", "--number"} & {*result["command"].split()}


def text_lines(results: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each campaign, of the last run that made it: what is attempted, what must hold, how often it did."""
    from tests.attacks.campaign import campaigns

    latest = {row["name"]: row for result in results for row in result["rows"]}
    rows = [(f"`{row['name']}`", row["attacks"], row["promise"], f"{row['attempts']:,}", _endings(row),
             str(len(row["broken"]))) for row in latest.values()]  # fmt: skip
    head = ("campaign", "what is done", "what must hold", "attempts", "how they ended", "broken")
    missing = [f"`{name}`" for name in campaigns() if name not in latest]
    return [*rows_table(head, rows), *(["", f"Not in this table yet: {', '.join(missing)}."] if missing else [])]


def _endings(row: dict[str, Any]) -> str:
    return ", ".join(f"{number:,} {ending}" for ending, number in row["endings"].items())
