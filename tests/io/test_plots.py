"""Pictures: what is in the pixels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.io.plots import save_curves, save_image, save_picture

pytest.importorskip("matplotlib")


def picture(path: Path, values: np.ndarray, mesh: ml.Mesh, right: float = 0.9) -> np.ndarray:
    """The pixels (height, width, 3) of a drawing of ``values`` on the unit square."""
    from matplotlib.image import imread

    save_picture(
        path, mesh.coordinates.numpy(), mesh.cell_nodes.indices, values, label="Mach number",
        window=(0.1, right, 0.1, 0.9), history={"rms": np.geomspace(1.0, 1e-5, 50)}, title="test",
    )  # fmt: skip
    pixels: np.ndarray = imread(path)[..., :3]
    return pixels


@pytest.mark.slow
def test_the_back_end_of_a_notebook_that_is_not_installed_here(tmp_path: Path):
    """What a notebook starts inherits its MPLBACKEND."""
    code = "from pathlib import Path; from meshloom.io.plots import save_curves; import numpy as np;"
    code += "x = np.arange(3.0); save_curves(Path('a.png'), x, {'y': x}, labels=('x', 'y'), title='t')"
    inherited = os.environ | {"MPLBACKEND": "module://no_such_notebook.backend_inline"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=inherited, check=True, timeout=120)
    assert (tmp_path / "a.png").is_file()


def test_no_hairlines_between_cells(tmp_path: Path):
    """Two values on skewed cells: inside the map there are their two colours and no third."""
    mesh = ml.generate.box((40, 30))
    points = mesh.coordinates.numpy()
    points[:, 0] += 0.13 * points[:, 1] * (1.0 - points[:, 0]) * points[:, 0]
    mesh.coordinates.assign(points)
    values = np.where(np.arange(len(mesh.cells)) % 2, 1.0, 0.0)
    pixels = picture(tmp_path / "a.png", values, mesh)
    height, width = pixels.shape[:2]
    inside = pixels[height // 4 : height * 3 // 4, width // 6 : width // 3].reshape(-1, 3)
    assert len(np.unique(inside, axis=0)) == 2


@pytest.mark.parametrize("right", [0.7, 0.9, 1.06, 1.2])
def test_no_empty_margin(tmp_path: Path, right: float):
    """Something is drawn near each side of the picture, whatever the shape of the window."""
    mesh = ml.generate.box((8, 8))
    pixels = picture(tmp_path / "a.png", mesh.cells.points[:, 0], mesh, right)
    drawn = np.any(pixels < 0.9, axis=2)
    columns, rows = np.flatnonzero(np.any(drawn, axis=0)), np.flatnonzero(np.any(drawn, axis=1))
    height, width = drawn.shape
    assert columns[0] < 0.05 * width and columns[-1] > 0.95 * width
    assert rows[0] < 0.05 * height and rows[-1] > 0.95 * height


def test_a_thin_layer_fills_the_picture(tmp_path: Path):
    """A window a thousand times as long as high is stretched; a line of pixels would show nothing."""
    from matplotlib.image import imread

    mesh = ml.generate.box((4, 4), extent=(2.0, 0.002))
    save_picture(
        tmp_path / "a.png", mesh.coordinates.numpy(), mesh.cell_nodes.indices, mesh.cells.points[:, 1], label="u",
        window=(0.0, 2.0, 0.0, 0.002), history={"rms": np.geomspace(1.0, 1e-5, 50)}, title="test",
    )  # fmt: skip
    column = imread(tmp_path / "a.png")[:, 300, :3]
    coloured = np.ptp(column, axis=1) > 0.2
    assert coloured.mean() > 0.6 and len(np.unique(column[coloured], axis=0)) >= 4


def test_cells_without_a_value_are_left_white(tmp_path: Path):
    mesh = ml.generate.box((10, 10))
    values = np.where(mesh.cells.points[:, 0] < 0.5, 1.0, np.nan)
    pixels = picture(tmp_path / "a.png", values, mesh)
    share = (pixels.reshape(-1, 3) == 1.0).all(axis=1).mean()
    full = (picture(tmp_path / "b.png", np.ones(100), mesh).reshape(-1, 3) == 1.0).all(axis=1).mean()
    assert share > full + 0.1


@pytest.mark.slow
def test_a_map_without_monitors_and_curves_without_a_map(tmp_path: Path):
    from matplotlib.image import imread

    mesh = ml.generate.box((4, 4))
    save_picture(tmp_path / "map.png", mesh.coordinates.numpy(), mesh.cell_nodes.indices, np.arange(16.0), label="u",
                 window=(0.0, 1.0, 0.0, 1.0), history={}, title="map alone")  # fmt: skip
    x = np.linspace(0.0, 1.0, 20)
    save_curves(tmp_path / "curves.png", x, {"a": x, "b": -x}, labels=("time, s", "m"), title="two")
    colours = {tuple(c) for c in np.round(imread(tmp_path / "curves.png")[..., :3].reshape(-1, 3) * 255).astype(int)}
    assert {(31, 119, 180), (255, 127, 14)} <= colours, "both curves in the first two colours of matplotlib"
    assert imread(tmp_path / "map.png").shape[1] < imread(tmp_path / "curves.png").shape[1]


NAMES = ("plain", "$x$", "$\\frac$", "$", "_hidden", "", "a\nb", "日本 \U0001f30a", "\x00\ud800", "x" * 5000)


@pytest.mark.filterwarnings("error")
def test_names_are_shown_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No name is mathematics, left out of the legend, or in the way of the picture."""
    from matplotlib.figure import Figure

    from meshloom.io import plots

    drawn, save = list[Figure](), plots.save_figure
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: (drawn.append(figure), save(figure, path)))
    x = np.linspace(0.0, 1.0, 5)
    curves = {name: x + k for k, name in enumerate(NAMES)}
    save_curves(tmp_path / "a.png", x, curves, labels=(NAMES[1], NAMES[9]), title=NAMES[2])
    mesh = ml.generate.box((4, 4))
    save_picture(
        tmp_path / "b.png", mesh.coordinates.numpy(), mesh.cell_nodes.indices, mesh.cells.points[:, 0], label=NAMES[2],
        window=(0.0, 1.0, 0.0, 1.0), history=curves, title=NAMES[8],
    )  # fmt: skip
    for figure in drawn:
        legend = figure.axes[-2 if len(figure.axes) > 2 else -1].get_legend()
        texts = [text.get_text() for text in legend.get_texts()]
        assert texts[:6] == [*NAMES[:6]] and texts[6] == r"a\nb" and texts[8] == r"\x00\ud800" and len(texts[9]) == 40
        assert not any(text.get_parse_math() for text in legend.get_texts())
    assert drawn[0].axes[0].get_xlabel() == r"\$x\$" and (tmp_path / "b.png").stat().st_size > 1000


def test_titles_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Names in legends and labels are shortened; what stands above a picture is not."""
    from meshloom.io import plots

    drawn: list[str] = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: drawn.append(figure.get_suptitle()))
    title = "volna_thacker after 86 iterations, time 1.0000e+00 of $1\n"
    x, mesh = np.linspace(0.0, 1.0, 5), ml.generate.box((4, 4))
    save_curves(tmp_path / "a.png", x, {"a": x}, labels=("x", "y"), title=title)
    save_image(tmp_path / "b.png", x, x, np.outer(x, x), label="u", history={}, title=title)
    save_picture(tmp_path / "c.png", mesh.coordinates.numpy(), mesh.cell_nodes.indices, mesh.cells.points[:, 0],
                 label="u", window=(0.0, 1.0, 0.0, 1.0), history={}, title=title)  # fmt: skip
    assert drawn == [title.replace("$", r"\$").replace("\n", r"\n")] * 3


def test_a_long_title_takes_two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from matplotlib.figure import Figure

    from meshloom.io import plots

    drawn, save = list[Figure](), plots.save_figure
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: (drawn.append(figure), save(figure, path)))
    mesh = ml.generate.box((4, 4))
    save_picture(tmp_path / "a.png", mesh.coordinates.numpy(), mesh.cell_nodes.indices, mesh.cells.points[:, 0],
                 label="u", window=(0.0, 0.3, 0.0, 1.0), history={}, title="a title of many words " * 4)  # fmt: skip
    [title] = drawn[0].texts
    extent = title.get_window_extent()
    assert 0.0 <= extent.x0 < extent.x1 <= drawn[0].bbox.width


def drawn_by(monkeypatch: pytest.MonkeyPatch) -> list:
    from meshloom.io import plots

    drawn: list = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: drawn.append(figure))
    return drawn


def test_no_two_curves_look_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Matplotlib has ten colours; the eleventh gauge must not be taken for the first."""
    drawn, x = drawn_by(monkeypatch), np.linspace(0.0, 1.0, 5)
    save_curves(tmp_path / "a.png", x, {str(k): x + k for k in range(40)}, labels=("x", "y"), title="t")
    looks = {(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[0].get_lines()}
    assert len(looks) == 40


def test_a_map_without_any_value_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Such as the run-up where no land was reached: a white picture with a scale from 0 to 1 would be a riddle."""
    drawn, mesh = drawn_by(monkeypatch), ml.generate.box((4, 4))
    save_picture(tmp_path / "a.png", mesh.coordinates.numpy(), mesh.cell_nodes.indices, np.full(16, np.nan),
                 label="run-up, m", window=(0.0, 1.0, 0.0, 1.0), history={}, title="t")  # fmt: skip
    (axes,) = drawn[0].axes  # no colour bar
    assert [text.get_text() for text in axes.texts] == ["run-up, m: no value anywhere"]


def test_streamlines_follow_the_flow_at_uneven_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A flow that turns about a point goes round it, wherever the points of the grid are; no flow has no lines."""
    figures = drawn_by(monkeypatch)
    x = np.linspace(0.0, 1.0, 21) ** 2
    across, up = np.meshgrid(x, x, indexing="ij")
    flow = (0.5 - up, across - 0.5)
    for number, velocity in enumerate((flow, (0.0 * across, 0.0 * up))):
        save_image(tmp_path / f"{number}.png", x, x, across, label="u", history={}, title="t", flow=velocity)
    curves, none = ([one for one in figure.axes[0].collections if hasattr(one, "get_segments")] for figure in figures)
    assert not none
    places = np.concatenate([segment for one in curves for segment in one.get_segments()])
    distance = np.hypot(*(places - 0.5).T)
    assert len(places) > 100 and distance.min() < 0.2 and distance.max() > 0.4
    lengths = np.array([np.hypot(*(segment[-1] - segment[0])) for one in curves for segment in one.get_segments()])
    turned = np.array(
        [abs(np.hypot(*(s[-1] - 0.5)) - np.hypot(*(s[0] - 0.5))) for c in curves for s in c.get_segments()]
    )
    assert (turned < 0.3 * lengths + 0.01).all(), "along circles"


def test_curves_of_dots_are_dots_where_there_are_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    figures = drawn_by(monkeypatch)
    x, known = np.arange(5.0), np.array([np.nan, 1.0, np.nan, 9.0, np.nan])
    save_curves(tmp_path / "a.png", x, {"here": x**2, "there": known}, labels=("x", "y"), title="t", dots=("there",))
    here, there = figures[0].axes[0].lines
    assert (here.get_linestyle(), here.get_marker()) == ("-", "None")
    assert (there.get_linestyle(), there.get_marker()) == ("None", "o")


@pytest.mark.parametrize(
    ("scale", "series"),
    [
        ("log", np.geomspace(1.0, 1e-6, 50)),  # a residual
        ("log", np.geomspace(1e-6, 1.0, 50)),  # something that grows
        ("linear", np.linspace(0.25, 0.24, 50)),  # less than a decade: 2.48 x 10^-1 tells nobody anything
        ("linear", 1.0 - np.exp(-np.linspace(0.01, 9.0, 50))),  # from rest to a flow that is steady
        ("linear", np.linspace(-1.0, 1.0, 50)),
    ],
)
def test_monitors_have_decades_where_an_even_scale_would_hide_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str, series: np.ndarray
):
    figures, x = drawn_by(monkeypatch), np.arange(4.0)
    save_image(tmp_path / "a.png", x, x, np.outer(x, x), label="u", history={"m": series}, title="t")
    assert figures[0].axes[1].get_yscale() == scale


def test_images_end_where_cells_end_and_streamlines_at_solids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lines over the map add no margin to it, however narrow the outer cells are; a block has none inside."""
    figures = drawn_by(monkeypatch)
    y = np.tanh(np.linspace(-2.0, 2.0, 12))
    x = np.arange(8.0)
    speed = np.ones((8, 12))
    speed[:4, :6] = np.nan
    along = np.where(np.isnan(speed), 0.0, 1.0)
    save_image(tmp_path / "a.png", x, y, speed, label="u", history={}, title="t", flow=(along, 0.0 * along))
    axes = figures[0].axes[0]
    assert axes.get_xlim() == (-0.5, 7.5) and axes.get_ylim() == pytest.approx(
        (1.5 * y[0] - 0.5 * y[1], -1.5 * y[0] + 0.5 * y[1])
    )
    places = np.concatenate([s for c in axes.collections if hasattr(c, "get_segments") for s in c.get_segments()])
    assert len(places) > 20 and not ((places[:, 0] < 3.0) & (places[:, 1] < -0.2)).any()


def test_charts_over_decades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    figures, x = drawn_by(monkeypatch), np.geomspace(0.1, 100.0, 5)
    save_curves(tmp_path / "a.png", x, {"u": x}, labels=("y+", "u+"), title="t", decades=True)
    assert figures[0].axes[0].get_xscale() == "log" and np.array_equal(figures[0].axes[0].lines[0].get_xdata(), x)


def test_an_axis_that_grows_downwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []
    monkeypatch.setattr("meshloom.io.plots.save_figure", lambda figure, _: seen.append(figure.axes[0].yaxis_inverted()))
    x = np.arange(2.0)
    for downwards in (False, True):
        save_curves(tmp_path / "a.png", x, {"cp": x}, labels=("x", "cp"), title="t", downwards=downwards)
    assert seen == [False, True]
