"""The page of a run in its folder: written when the run ends, and again on request."""

from __future__ import annotations

from meshloom.io.files import write_atomically
from meshloom.run.facts import Monitors, RunFacts
from meshloom.run.folder import RunFolder
from meshloom.run.page.render import found_files, page


def write_page(folder: RunFolder, facts: RunFacts, monitors: Monitors) -> None:
    """``report.json`` and ``report.html``, each in one step."""
    write_atomically(folder.facts, facts.to_json().encode(errors="replace"))
    text = page(facts, monitors, found_files(folder.files()), folder.path)
    write_atomically(folder.report, text.encode(errors="replace"))
