"""The table of attacks (``python -m tests.attacks.run``) for docs/reliability.md."""

from __future__ import annotations

from typing import Any

from bench.report import rows_table


def lines(result: dict[str, Any]) -> list[str]:
    """A row for each campaign: what is attempted, what must hold, how often it did."""
    rows = [(f"`{row['name']}`", row["attacks"], row["promise"], f"{row['attempts']:,}", _endings(row),
             str(len(row["broken"]))) for row in result["rows"]]  # fmt: skip
    return rows_table(("campaign", "what is done", "what must hold", "attempts", "how they ended", "broken"), rows)


def _endings(row: dict[str, Any]) -> str:
    return ", ".join(f"{number:,} {ending}" for ending, number in row["endings"].items())
