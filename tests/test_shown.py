"""What notebooks show: HTML that is complete, escaped, cheap, and never an error."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.mesh import html_repr

EVIL = "<script>alert('&\")</script>\n"


class Reader(HTMLParser):
    """The tags and the text of a piece of HTML; AssertionError where tags are not closed as they were opened."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.text = list[str](), list[str](), ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def read(thing: Any) -> Reader:
    return Reader(thing._repr_html_())


@ml.kernel
def smooth(u: ml.Read, change: ml.Inc):
    d = u[1] - u[0]
    change[0] += d
    change[1] -= d


@pytest.fixture
def mesh() -> ml.Mesh:
    return ml.generate.box((6, 4), cells="triangle")


def test_a_mesh(mesh: ml.Mesh) -> None:
    page = read(mesh)
    for text in ("48 triangle", "xmin (4)", "ymax (6)", "62 interior, 20 on the boundary", "x 0 to 1, y 0 to 1"):
        assert text in page.text


def test_a_field_with_its_range_and_picture(mesh: ml.Mesh) -> None:
    pytest.importorskip("matplotlib")
    values = mesh.cell_centroids[:, 0]
    values[3] = np.nan
    page = read(mesh.cells.field("u", data=values))
    assert f"{np.nanmin(values):.6g} to {np.nanmax(values):.6g}" in page.text and "1 not finite" in page.text
    assert page.tags.count("img") == 1
    vector = read(mesh.nodes.field("v", 2, data=mesh.coordinates.numpy()))
    assert "range [0]" in vector.text and "range [1]" in vector.text and "img" in vector.tags
    matrix = read(ml.Grid((4, 4), ghosts=1).field("m", (3, 3)))
    assert "3 x 3" in matrix.text and "img" in matrix.tags


def test_loops_counts_and_explanations(mesh: ml.Mesh) -> None:
    u, change = mesh.cells.field("u"), mesh.cells.field("change")
    loop = smooth.loop(mesh.faces, u[mesh.face_cells], change[mesh.face_cells])
    assert "Read u[face_cells]" in read(loop).text and "0 on" in read(loop).text
    assert loop.execution.cache == {}, "looking at it has traced nothing"
    loop()
    text = loop.explain()
    assert "1 on" in read(loop).text and isinstance(text, str)
    assert "".join(read(text).text.split()) == "".join(text.split()), "as it would be printed"
    assert (
        f"{loop.counts.flops} each" in read(loop.counts).text
        and f"{loop.counts.compulsory:,}" in read(loop.counts).text
    )
    program = ml.program(lambda: loop())
    assert "smooth over faces" in read(program.explain()).text
    assert "part 2 of 2" in read(ml.program(lambda: (program(), ml.call(print))).explain()).text


def test_names_are_texts(mesh: ml.Mesh) -> None:
    evil = ml.Mesh.from_cells([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]], "triangle", {EVIL: [[0, 1]]})
    field = mesh.cells.field(EVIL)
    loop = smooth.loop(mesh.faces, field[mesh.face_cells], mesh.cells.field("c")[mesh.face_cells])
    for one in (evil, field, loop, loop.explain()):
        assert "script" not in read(one).tags and "alert(" in read(one).text


def test_nothing_is_costly_or_raises(mesh: ml.Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large fields are neither read nor drawn; what cannot be read or drawn says so, also within a program."""
    field = mesh.cells.field("u")

    def broken(_: Any) -> Any:
        raise RuntimeError("no")

    with monkeypatch.context() as patched:
        patched.setattr(html_repr, "thumbnails", [broken])
        assert "img" not in read(field).tags and "0 to 0" in read(field).text
        patched.setattr(type(field), "numpy", broken)
        assert "cannot be read" in read(field).text
    with monkeypatch.context() as patched:
        patched.setattr(html_repr, "_MOST_DRAWN", 10)
        patched.setattr(html_repr, "MOST_READ", 10)
        patched.setattr(type(field), "numpy", broken)
        assert "not looked at" in read(field).text and "img" not in read(field).tags
    assert "no elements" in read(mesh.cells.subset([]).field("none")).text

    seen: tuple[str, ...] = ()

    @ml.program
    def step() -> None:
        nonlocal seen
        field.fill(1.0)
        seen = read(field).text, read(mesh).text

    step.run()
    assert "known when the program has run" in seen[0] and "48 triangle" in seen[1]


def test_a_source_of_random_numbers() -> None:
    """Seed and count, also of a seed beyond 63 bits; inside a program nothing is read."""
    ml.use("numpy")
    cells = ml.Set(3, "cells")
    v, dice = cells.field("v"), ml.Random(seed=3)

    @ml.kernel
    def throw(v: ml.Write, r: ml.Random):
        v[...] = r.uniform()

    assert repr(dice) == str(dice) == "Random(random, seed=3, calls=0)"
    throw(cells, v, dice)
    assert repr(dice) == "Random(random, seed=3, calls=1)"
    assert repr(ml.Random(seed=2**64 - 1, name="dust")) == f"Random(dust, seed={2**64 - 1}, calls=0)"
    assert "seed 3 calls 1" in " ".join(read(dice).text.split()) and "Random random" in read(dice).text
    assert "script" not in read(ml.Random(seed=1, name=EVIL.strip())).tags
    inside: list[str] = [""] * 2

    def look() -> None:
        inside[:] = [repr(dice), read(dice).text]

    @ml.program
    def step() -> None:
        look()
        throw(cells, v, dice)

    step.run()
    assert inside[0] == "Random(random)" and "known when the program has run" in inside[1]
