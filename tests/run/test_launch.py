"""Choosing the back end of a run."""

from __future__ import annotations

from typing import Any

import pytest

import meshloom as ml
from meshloom.backend import automatic_backend
from meshloom.run.launch import _choose_backend
from meshloom.run.report import Report
from meshloom.solvers.case import RunOptions

NO_COMPILER, NO_GPU = "no C++ compiler was found", "there is no CUDA device"


class Messages(Report):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize(
    ("cpu", "cuda", "chosen"),
    [(None, None, "cuda"), (NO_COMPILER, None, "cuda"), (None, NO_GPU, "cpu"), (NO_COMPILER, NO_GPU, "numpy")],
)
def test_auto_takes_the_fastest(monkeypatch: pytest.MonkeyPatch, cpu: str | None, cuda: str | None, chosen: str):
    found = {"numpy": None, "cpu": cpu, "cuda": cuda}
    used: list[tuple[str, Any]] = []
    monkeypatch.setattr(ml, "backends", lambda: found)
    monkeypatch.setattr(ml, "use", lambda name, threads: used.append((name, threads)))
    report = Messages()
    _choose_backend(RunOptions(threads=3), report)
    assert automatic_backend(found) == chosen and used == [(chosen, 3)]
    slow = [f"the numpy back end is used, which is slow: {NO_COMPILER}"]
    assert report.texts == (slow if chosen == "numpy" else [])


@pytest.mark.parametrize("name", ["numpy", "cpu", "cuda"])
def test_a_name_is_obeyed(monkeypatch: pytest.MonkeyPatch, name: str):
    used: list[str] = []
    monkeypatch.setattr(ml, "use", lambda name, threads: used.append(name))
    _choose_backend(RunOptions(backend=name), Report())
    assert used == [name]
