"""A hook of mkdocs: formulas in LaTeX become MathML, which browsers set themselves, without a script or a network.

A block is fenced as ``math``, and a formula in a line stands between ``$`` and a backquote on either side: what
GitHub sets as well.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

FENCE = re.compile(r"(^```[^\n]*\n.*?^```$)", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\$`(?P<latex>[^`\n]+)`\$")


def to_mathml(latex: str, display: str) -> str:
    """One formula as a ``math`` element on one line. ValueError for what would be set as something else."""
    if latex.count("{") != latex.count("}"):
        raise ValueError(f"braces without a partner in the formula {latex.strip()}")
    element = convert(" ".join(latex.split()), display=display)
    if "<mi>&</mi>" in element:
        raise ValueError(f"columns outside of a matrix in the formula {latex.strip()}")
    if unknown := re.search(r">\\(\w*)<", element):
        raise ValueError(f"\\{unknown[1]} is not known in the formula {latex.strip()}")
    return element


def set_formulas(markdown: str) -> str:
    """A page with its formulas as MathML. Fenced code of other kinds stays as it is."""
    return "".join(set_part(part) for part in FENCE.split(markdown))


def set_part(part: str) -> str:
    """A fenced block, or what stands between two."""
    if part.startswith("```math\n"):
        latex = part.removeprefix("```math\n").removesuffix("```")
        return f'<div class="formula">{to_mathml(latex, "block")}</div>\n'
    if part.startswith("```"):
        return part
    return INLINE.sub(lambda m: to_mathml(m["latex"], "inline"), part)


def on_page_markdown(markdown: str, **rest: Any) -> str:
    """What mkdocs calls for each page before it makes HTML of it."""
    return set_formulas(markdown)
