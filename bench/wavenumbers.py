"""Draw what compact schemes make of waves: ``python -m bench.wavenumbers [FILE]``, by default the picture of the docs.

Left: modified wavenumbers of first derivatives, and how much the dissipative one damps; middle: second derivatives;
right: what filters let pass. Computed from the coefficients of the schemes alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from meshloom import compact

PICTURE = Path(__file__).parent.parent / "docs" / "img" / "wavenumbers.png"
FILTERS = ((2, 0.45), (4, 0.45), (6, 0.45), (8, 0.45), (8, 0.3))


def curves(waves: int = 400) -> dict[str, dict[str, np.ndarray]]:
    """The curves of every panel by name, over ``waves`` wavenumbers k h from 0 to pi: (waves,) each."""
    theta = np.linspace(0.0, np.pi, waves)

    def of(scheme: compact.Scheme) -> np.ndarray:
        return compact.modified_wavenumber(scheme, theta)

    first = {
        "exact": theta,
        "central, 2nd order": np.sin(theta),
        "PADE4": of(compact.PADE4).real,
        "LELE6": of(compact.LELE6).real,
        "DENG5": of(compact.DENG5_PLUS).real,
        "DENG5, damping": -of(compact.DENG5_PLUS).imag,
    }
    second = {"exact": theta**2, "central, 2nd order": 2.0 - 2.0 * np.cos(theta), "SECOND6": of(compact.SECOND6)}
    passed = {f"order {order}, alpha {alpha}": of(compact.filters(order, alpha)) for order, alpha in FILTERS}
    return {"first derivative": first, "second derivative": second, "filters": passed}


def draw(path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.4), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    labels = ("modified wavenumber times h", "modified wavenumber squared times h squared", "factor")
    panels: Any = figure.subplots(1, 3)
    for axes, (title, named), label in zip(panels, curves().items(), labels, strict=True):
        for name, values in named.items():
            style = {"color": "black", "linestyle": ":"} if name == "exact" else {}
            axes.plot(np.linspace(0.0, np.pi, len(values)), values, label=name, linewidth=1.4, **style)
        axes.set(title=title, xlabel="wavenumber times h", ylabel=label, xlim=(0.0, np.pi))
        axes.grid(True, alpha=0.4)
        axes.legend(fontsize="small")
    figure.savefig(path, format="png")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
