"""Phrases that have a word in the literature of compilers, HPC or CFD: what is not written, and what is instead."""

from __future__ import annotations

import re

#: Pattern -> what to write. Spaces of a pattern are any white space: phrases may go over the end of a line.
PHRASES = {
    r"clap of hands|beside a pillar": "an acoustic pulse next to a cylinder",
    r"none is lost": "no update is lost (no race condition)",
    r"the fifth word": "scheduling is automatic; you can override it",
    r"the very (same )?text\b": "the same generated source",
    r"(what|that) may (not )?stand in (a kernel|one)": "what a kernel may contain",
    r"answered when(ever)? (some|any)body asks|when(ever)? somebody asks,": "evaluated lazily",
    r"(counts? as )?the last one that fits": "saturates",
    r"(node|value)s? that (is|are) held|where no value is held": "Dirichlet",
    r"\brub(s|bed)\b|friction and (heat )?conduction|without friction|for friction": "viscous term, inviscid, diffused",
    r"what is carried (through|by)": "convective flux",
    r"\bfades in\b": "relaxed over the time scale",
    r"(leaves|outflow \()as it comes": "outflow with a global mass correction",
    r"asked (for )?after every \d": "checked every",
    r"surely (stable|grow)": "guaranteed stable",
    r"(gas|fluid) sticks|wall that takes no heat": "no-slip, adiabatic",
    r"a state outside, whatever": "prescribed exterior state",
    r"come to terms with": "on which ... does not converge",
    r"street of (eddies|vortices)": "vortex street",
    r"length of the wake|wake \d": "recirculation length",
    r"\binflow\(u\)": "residual R(u)",
    r"a heap (that )?turns": "solid-body rotation of a cone",
    r"same places? (of the other )?but for a shift": "matched by translation",
    r"the end at a residual": "stopping criterion",
    r"rooms? of the house": "package overview",
    r"\bbeside\b(?!`)": "next to",
    r"(goes?|going|turned|turns?|way|flow|cells|grid|all|wraps?|walls) round (?!off|after|by)": "around",
    r"\bround (the|an?|each|their|its?) (?!constants)": "around",
    r"comes? along\b|what (comes|came) of it": "included, result",
}  # fmt: skip
_PATTERNS = [(re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), word) for pattern, word in PHRASES.items()]


def found(text: str) -> list[tuple[str, str]]:
    """(phrase, what to write) of a text."""
    return [(" ".join(one[0].split()), word) for pattern, word in _PATTERNS for one in pattern.finditer(text)]
