"""What docs/compact.md and docs/cases_advection.md say about schemes and errors, compared with the code."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench import wavenumbers
from meshloom import compact
from meshloom.solvers.advection.base import scheme_limit
from tests.docs.test_facts import page, table
from tests.solvers.advection import monitors


def scheme(cell: str) -> compact.Scheme:
    found = getattr(compact, cell.strip("`"))
    assert isinstance(found, compact.Scheme)
    return found


def test_the_table_of_schemes() -> None:
    rows = table("docs/compact.md", "scheme | interior row")
    known = [name for name in compact.__all__ if isinstance(getattr(compact, name), compact.Scheme)]
    assert sorted(row[0].strip("`") for row in rows) == sorted(known)
    for name, interior, order, closures, cfl in rows:
        one = scheme(name)
        orders = compact.orders(one)
        assert interior == one.interior.text(one.degree)
        assert int(order) == orders["interior"]
        assert closures == ", ".join(str(orders[f"low {i}"]) for i in range(len(one.low)))
        damped = compact.DENG5_PLUS if one is compact.DENG5_MINUS else one  # mirrored: for waves to the left
        assert cfl == ("" if one.degree == 2 else f"{scheme_limit(damped):.2f}")


def test_the_closures() -> None:
    text = " ".join(page("docs/compact.md").split())
    for one in (compact.LELE6, compact.SECOND6):
        assert one.low[0].text(one.degree) in text
    assert compact.PADE4.low[0] == compact.LELE6.low[0] == compact.DENG5_PLUS.low[0]
    assert compact.LELE6.low[1] == compact.DENG5_MINUS.low[1] == compact.PADE4.interior


def test_how_far_waves_are_right() -> None:
    theta = np.linspace(1e-6, np.pi, 100_001)
    for name, largest, right in table("docs/compact.md", "scheme | largest modified wavenumber times h"):
        found = compact.modified_wavenumber(scheme(name), theta)
        assert float(largest) == pytest.approx(np.abs(found).max(), abs=0.005)
        assert float(right) == pytest.approx(theta[np.argmax(np.abs(found - theta) > 0.01 * theta)], abs=0.005)


def test_the_picture_of_wavenumbers(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    wavenumbers.draw(tmp_path / "waves.png")
    assert (tmp_path / "waves.png").stat().st_size > 20_000 and wavenumbers.PICTURE.is_file()
    assert set(wavenumbers.curves()) == {"first derivative", "second derivative", "filters"}


def settings_of(case: str, what: str) -> list[str]:
    """The settings that the first cell of a row speaks of."""
    found = re.findall(r"`([\w.]+=[\w.]+)`", what)
    if match := re.search(r"(\d+) points", what):
        found.append(f"mesh.points={match[1]}")
    if case == "advection1d":
        found.append(f"scheme.name={re.findall('`(.+?)`', what)[0]}")
    if case == "rotating_cone":
        order = re.search(r"order (\d+)", what)
        size = re.search(r"size ([\d.]+)", what)
        found += [f"heap.shape={re.findall('`(.+?)`', what)[0]}", f"filter.order={order[1] if order else 0}"]
        found += ["time.cfl=0.7"] + ([f"heap.size={size[1]}"] if size else [])
    return found


@pytest.mark.parametrize("case", ["advection1d", "tophat1d", pytest.param("rotating_cone", marks=pytest.mark.slow)])
def test_errors_of_the_cases(case: str) -> None:
    text = page("docs/cases_advection.md")
    heading = next(line for line in text.splitlines() if line.startswith(f"| `{case}`"))
    columns = [cell.strip().strip("`") for cell in heading.strip("|").split("|")][1:]
    rows = table("docs/cases_advection.md", heading.strip("|").strip())
    assert len(rows) >= 2
    for what, *written in rows:
        found = monitors(case, *settings_of(case, what))
        for column, figure in zip(columns, written, strict=True):
            assert float(figure) == pytest.approx(found[column], rel=6e-3), (what, column)
