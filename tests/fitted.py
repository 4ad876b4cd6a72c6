"""Fitted numbers other than those of the files, for a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshloom.target import Numbers, target


def changed(monkeypatch: pytest.MonkeyPatch, **sections: dict[str, Any]) -> None:
    """All devices that have such sections get other numbers: ``changed(monkeypatch, fusion={"worth": 2.0})``."""
    before = target.numbers_of

    def numbers_of(device: str) -> Numbers:
        found = before(device)
        there = {name: getattr(found, name) for name in sections if hasattr(found, name)}
        return replace(found, **{name: replace(one, **sections[name]) for name, one in there.items()})

    monkeypatch.setattr(target, "numbers_of", numbers_of)
