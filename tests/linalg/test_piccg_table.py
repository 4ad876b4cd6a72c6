"""The table of iterations in the documentation of PICCG, made anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import Delaunay

import meshloom as ml
from tests.linalg.test_piccg import laplacian

DOCS = Path(__file__).parents[2] / "docs" / "linalg.md"
ROW = re.compile(r"\| `((?:block|colors|fill|drop)=[^`]*)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|")
AGREED = 3  # iterations: the triangles of rounded points, and sums, differ from machine to machine


def rows() -> list[tuple[dict[str, Any], tuple[int, ...]]]:
    found = []
    for settings, *numbers in ROW.findall(DOCS.read_text(encoding="utf-8")):
        given = [one.split("=") for one in settings.split(", ")]
        found.append(({key: float(v) if "." in v else int(v) for key, v in given}, tuple(map(int, numbers))))
    return found


def triangles(many: int) -> Any:
    """The stiffness of linear elements between random points of the unit square, held near its sides."""
    points = np.random.default_rng(0).random((many, 2))
    corners = Delaunay(points).simplices
    at = points[corners]
    edges = np.stack([at[:, 2] - at[:, 1], at[:, 0] - at[:, 2], at[:, 1] - at[:, 0]], axis=1)
    area = 0.5 * np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
    each = np.einsum("eid,ejd->eij", edges, edges) / (4.0 * area)[:, None, None]
    row, column = np.repeat(corners, 3, axis=1).ravel(), np.tile(corners, (1, 3)).ravel()
    free = ((points > 0.02) & (points < 0.98)).all(axis=1)
    return sparse.csr_matrix(sparse.csr_matrix((each.ravel(), (row, column)))[free][:, free])


def solution(matrix: Any, options: dict[str, Any]) -> tuple[ml.linalg.PICCG, ml.linalg.Report]:
    b = np.random.default_rng(1).standard_normal(matrix.shape[0])
    piccg = ml.linalg.PICCG(matrix, eisenstat=False, **options)
    return piccg, piccg.solve(np.zeros_like(b), b)


@pytest.mark.slow
def test_the_table_is_there_and_blocks_help_triangles() -> None:
    ml.use("numpy")
    assert len(rows()) == 12
    matrix, done = triangles(400), {}
    for block in (1, 16):
        _, report = solution(matrix, {"block": block})
        assert report.converged
        done[block] = report.iterations
    assert done[16] < 0.95 * done[1]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "expected"), rows(), ids=str)
def test_iterations_of_the_table(options: dict[str, Any], expected: tuple[int, ...]) -> None:
    ml.use("cpu")
    for matrix, stages, iterations in ((laplacian(128), *expected[:2]), (triangles(8000), *expected[2:])):
        piccg, report = solution(matrix, options)
        assert report.converged and abs(report.iterations - iterations) <= AGREED
        found = getattr(piccg._method, "stages", 0)
        assert abs(found - stages) <= AGREED * options.get("block", 1)
