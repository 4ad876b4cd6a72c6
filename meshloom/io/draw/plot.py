"""``ml.plot``: a picture of a field or a mesh, whatever it lives on, from any back end, layout and order."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import UserError, file_path, known_name, nearest, one_line, shown, yes_or_no
from meshloom.io.draw import maps
from meshloom.io.draw.canvas import encoded, in_units, new_figure, save_figure, unit_of, unread
from meshloom.io.draw.colours import ColourScale
from meshloom.io.draw.maps import HEIGHT, Window
from meshloom.io.draw.scenes import AXES, Look, Scene, curve_scene, mesh_scene, scene_of
from meshloom.io.draw.surface import View
from meshloom.io.files import followed, writing
from meshloom.mesh.core import Field, Set
from meshloom.mesh.grid import Grid
from meshloom.mesh.html_repr import thumbnails
from meshloom.mesh.mesh import Mesh, mesh_of
from meshloom.recording import refuse_in_program

ENDINGS = ("png", "pdf", "svg")
_MOST_CURVES = 10
_DOTS_IN_NOTEBOOKS = 80  # per inch: pages stay small
_THUMB = 1.5  # inches: the height of a thumbnail


def plot(
    what: Field | Mesh,
    *,
    component: int | str | Sequence[int] | None = None,
    cut: Any = None,
    surface: bool | str | Sequence[str] | None = None,
    view: Sequence[float] | None = None,
    arrows: bool = True,
    limits: Sequence[float] | None = None,
    cmap: str | None = None,
    label: str | None = None,
    title: str | None = None,
    window: Sequence[float] | None = None,
    ax: Any = None,
    save: str | os.PathLike[str] | None = None,
) -> Any:
    """Draw a field, or a mesh, and return the figure of matplotlib; a notebook shows it.

    Cells are flat, nodes smooth, one axis is a curve, faces are edges in the plane and a shaded surface in space. In
    space fields on cells, nodes and grids are cut where z is in the middle; ``cut`` is another axis, "x", or an axis
    and a place, ("x", 0.25). ``surface=True``, or names of boundary groups, shows them on the boundary instead, seen
    from ``view``, a direction (x, y, z). Vectors (as many components as space has axes) are drawn as their length with
    streamlines on grids and arrows on meshes, unless ``arrows=False``; other fields of several values need a
    ``component``: a number, "x", or an index of a matrix, (0, 1).

    Colours go from blue to red about zero where values have both signs, else from dark to bright; ``limits`` (low,
    high) sets their ends, ``cmap`` names others of matplotlib. ``label`` stands in the place of the field's
    name, at the colour bar and, unless there is a ``title``, above, with the unit, say;
    ``window`` (xmin, xmax, ymin, ymax) is the part to show. ``ax``: axes to draw on. ``save``: a file, .png, .pdf or
    .svg, which is replaced in one step.
    """
    refuse_in_program("drawing", "draw after program.run()")
    if not isinstance(what, Field | Mesh):
        raise UserError(f"plot: draws a Field or a Mesh, got {_said(what)}")
    path, ending = (None, "") if save is None else _file(save)
    named = {"label": label, "title": title}
    for option, text in named.items():
        if text is not None and not isinstance(text, str):
            raise UserError(f"plot: {option} must be a text, got {shown(text)}")
    look = Look(
        _cut(cut),
        _groups(surface),
        _view(view),
        _window(window),
        yes_or_no("plot: arrows", arrows),
        _colours(limits, cmap),
    )
    scene, name, at_bar = _scene(what, component, label, look)
    heading = title if title is not None else ", ".join(filter(None, (name, scene.where)))
    figure = _drawn(scene, at_bar, heading, ax)
    if path is not None:
        save_figure(figure, path, ending)
    return figure


def thumbnail(field: Field) -> bytes:
    """A small PNG of a field without words, for notebooks; b"" where it would take a while."""
    mesh = mesh_of(field.set.outermost)
    is_surface = mesh is not None and mesh.dim == 3 and field.set.outermost is mesh.boundary_faces
    if is_surface or find_spec("matplotlib") is None:
        return b""
    is_vector = field.components in ((), (_space(field.set),)) or field.dim == 1
    first = None if is_vector else (0,) * len(field.components)
    scene, *_ = _scene(field, first, None, Look(None, None, None, None, False, {}))
    shape = scene.window or (0.0, 1.6, 0.0, 1.0)
    width = min(max(_THUMB * (shape[1] - shape[0]) / (shape[3] - shape[2]), 0.5 * _THUMB), 3.0 * _THUMB)
    figure = new_figure((width, _THUMB), dots=80)
    axes = figure.subplots()
    scene.paint(axes)
    if scene.window is not None:
        maps.frame(axes, scene.window, ("", ""))
    axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
    if axes.get_legend() is not None:
        axes.get_legend().remove()
    return encoded(figure)


thumbnails.append(thumbnail)


def _scene(what: Field | Mesh, component: Any, label: str | None, look: Look) -> tuple[Scene, str, str]:
    """What is to be seen, its name, and what stands at the colour bar."""
    if isinstance(what, Mesh):
        given = {"component": component, "label": label, "limits": look.how.get("limits"), "cmap": look.how.get("map")}
        for option in (name for name, one in given.items() if one is not None):
            raise UserError(f"plot: {option}= is for fields; leave it out to draw a mesh")
        name = f"{what.kind} mesh, {len(what.cells):,} cells"
        return mesh_scene(what, look), name, name
    if not what.set.size:
        raise UserError(f"plot: field {what.name} has no values to draw: {what.set.name} has no elements")
    values = np.asarray(what.numpy(), np.float64)
    look, unit = _in_units(look, values, _is_curve(what.set))
    values = np.where(np.isfinite(values), values, np.nan) / unit
    if component is None and what.components and _is_curve(what.set):
        at_axis = in_units(label or what.name, unit)
        return _several_curves(what, values, at_axis, look), label or what.name, at_axis
    chosen, vectors, name = _chosen(what, values, component)
    name = name if label is None else label
    at_bar = in_units(name, unit)
    return scene_of(what.set, chosen, vectors, at_bar, look), name, at_bar


def _in_units(look: Look, values: np.ndarray, is_curve: bool) -> tuple[Look, float]:
    """The unit that values are drawn in, and what a person wants to see of them in it."""
    limits, window = look.how.get("limits"), look.window if is_curve else None
    unit = unit_of(values, limits or (), (window or ())[2:])
    if limits is not None:
        look = replace(look, how={**look.how, "limits": tuple(end / unit for end in limits)})
    if window is not None:  # which reaches from value to value there
        look = replace(look, window=(*window[:2], window[2] / unit, window[3] / unit))
    return look, unit


def _drawn(scene: Scene, label: str, heading: str, ax: Any) -> Any:
    """The scene on a figure of its own, or on somebody's axes."""
    if ax is None:
        figure = new_figure((9.0 if scene.window is None else maps.width_alone(scene.window), HEIGHT))
        # A notebook shows it, whatever back end matplotlib has there.
        figure._repr_png_ = partial(encoded, figure, dpi=_DOTS_IN_NOTEBOOKS, pil_kwargs={"optimize": True})
        axes = figure.subplots()
        figure.suptitle(unread(one_line(heading)), wrap=True)
    else:
        if not hasattr(ax, "add_collection"):
            raise UserError(f"plot: ax must be axes of matplotlib, got {shown(ax)}")
        axes, figure = ax, ax.figure
        axes.set_title(unread(one_line(heading)))
    scale: ColourScale | None = scene.paint(axes)
    if scene.is_framed and scene.window is not None:
        maps.frame(axes, scene.window, scene.names)
    if scene.has_bar:
        maps.colour_bar(figure, axes, scale, label)
    return figure


# ----- components ---------------------------------------------------------------------------------------------------
def _chosen(field: Field, values: np.ndarray, component: Any) -> tuple[np.ndarray, np.ndarray | None, str]:
    """One value each; the vectors they are the lengths of; and what they are called."""
    shape, name = field.components, field.name
    if component is None:
        if not shape or field.dim == 1:
            return values.reshape(field.set.array_shape), None, name
        if shape == (_space(field.set),):
            return np.linalg.norm(values, axis=-1), values, f"|{name}|"
        first = ", ".join(f"component={k}" for k in range(min(3, field.dim)))
        allowed = first if len(shape) == 1 else "component=(0, 0)"
        raise UserError(f"plot: field {name} has {' x '.join(map(str, shape))} values at each of {field.set.name}: say"
                        f" which to draw, {allowed}{' ...' if field.dim > 3 else ''}")  # fmt: skip
    index = _index(field, component)
    where = f"{name}{list(index)}" if shape else name
    if len(shape) == 1 and shape[0] == _space(field.set):
        where = f"{name} {AXES[index[0]]}"
    place: Any = (Ellipsis, *index)
    return values[place], None, where


def _index(field: Field, component: Any) -> tuple[int, ...]:
    """An index of one component, checked."""
    shape = field.components
    given = component
    if isinstance(given, str):
        if len(shape) != 1 or shape[0] > len(AXES):
            raise UserError(f"plot: component={given!r}: field {field.name} is no vector of x, y, z; give a number")
        given = AXES.index(known_name("plot: component", given, AXES[: shape[0]]))
    index = tuple(given) if isinstance(given, list | tuple) else (given,)
    numbers = all(isinstance(k, int | np.integer) and not isinstance(k, bool) for k in index)
    asked = shape or (1,)
    if not numbers or len(index) != len(asked) or not all(0 <= k < n for k, n in zip(index, asked, strict=True)):
        ends = f"0 to {asked[0] - 1}" if len(asked) == 1 else f"(0, 0) to {tuple(n - 1 for n in asked)}"
        raise UserError(f"plot: component={shown(component)}: field {field.name} has {ends}")
    return tuple(int(k) for k in index) if shape else ()


def _space(on: Set) -> int:
    """How many axes there are where a set lives; 0 where nobody knows."""
    outer = on.outermost
    if isinstance(outer, Grid):
        return outer.rank
    mesh = mesh_of(outer)
    return mesh.dim if mesh is not None else 0


def _is_curve(on: Set) -> bool:
    outer = on.outermost
    if isinstance(outer, Grid):
        return outer.rank == 1
    return mesh_of(outer) is None and on.points is None


def _several_curves(field: Field, values: np.ndarray, label: str, look: Look) -> Scene:
    """All components over one axis."""
    flat = values.reshape(-1, field.dim)
    if field.dim > _MOST_CURVES:
        raise UserError(f"plot: field {field.name} has {field.dim} values each, too many curves for a picture: say"
                        " which, component=0")  # fmt: skip
    on = field.set
    grid = isinstance(on, Grid)
    x = on.coordinates[0] if isinstance(on, Grid) else np.arange(len(flat))
    indices = list(np.ndindex(*field.components))
    curves = {f"{field.name}{list(index)}": flat[:, k] for k, index in enumerate(indices)}
    return curve_scene(x, curves, (AXES[0] if grid else f"number of {on.name}", label), look)


# ----- what a person gives ------------------------------------------------------------------------------------------
def _said(what: Any) -> str:
    if isinstance(what, np.ndarray):
        return "an array; make it a field of its set, mesh.cells.field('a', data=array)"
    return shown(what)


def _file(save: Any) -> tuple[Path, str]:
    """Where to, and in which format; UserError before anything is drawn."""
    path = file_path("plot: save", os.fsdecode(save) if isinstance(save, os.PathLike) else save)
    ending = path.suffix[1:].lower()
    if ending not in ENDINGS:
        raise UserError(f"plot: save={shown(str(path))}: the file must end in .{', .'.join(ENDINGS)}")
    with writing(path):
        if path.is_dir() or not path.parent.is_dir():
            what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UserError(f"plot: save={shown(str(path))}: {what}")
        followed(path)
    return path, ending


def _numbers(name: str, given: Any, count: int, what: str) -> tuple[float, ...]:
    """So many finite numbers."""
    try:
        found = () if isinstance(given, str) or np.iscomplexobj(given) else tuple(float(one) for one in given)
    except (TypeError, ValueError, OverflowError):
        found = ()
    if len(found) != count or not all(map(math.isfinite, found)):
        raise UserError(f"plot: {name} must be {what}, got {shown(given)}")
    return found


def _window(given: Any) -> Window | None:
    if given is None:
        return None
    xmin, xmax, ymin, ymax = _numbers("window", given, 4, "(xmin, xmax, ymin, ymax)")
    if not (xmin < xmax and ymin < ymax):
        raise UserError(f"plot: window must be (xmin, xmax, ymin, ymax), each pair ascending, got {shown(given)}")
    return xmin, xmax, ymin, ymax


def _view(given: Any) -> View | None:
    if given is None:
        return None
    x, y, z = _numbers("view", given, 3, "a direction (x, y, z)")
    if x == y == z == 0.0:
        raise UserError("plot: view must be a direction (x, y, z), and (0, 0, 0) is none")
    return x, y, z


def _cut(given: Any) -> tuple[int, float | None] | None:
    if given is None:
        return None
    axis, *place = given if isinstance(given, list | tuple) and given else (given,)
    if not isinstance(axis, str) or axis not in tuple(AXES) or len(place) > 1:
        raise UserError(f'plot: cut must be an axis, "x", "y" or "z", or an axis and a place, ("z", 0.5),'
                        f" got {shown(given)}")  # fmt: skip
    return AXES.index(axis), _numbers("the place of a cut", place, 1, "a number")[0] if place else None


def _groups(given: Any) -> tuple[str, ...] | None:
    """Names of boundary groups; () for all."""
    if given is None or given is False:
        return None
    if given is True:
        return ()
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not names or not all(isinstance(one, str) for one in names):
        raise UserError(f"plot: surface must be True, or names of boundary groups, got {shown(given)}")
    return tuple(dict.fromkeys(names))


def _colours(limits: Any, cmap: Any) -> Mapping[str, Any]:
    """As ``colour_scale`` takes it."""
    if limits is not None:
        low, high = _numbers("limits", limits, 2, "(low, high)")
        if not low < high:
            raise UserError(f"plot: limits must be (low, high) with low < high, got {shown(limits)}")
        limits = low, high
    if cmap is not None:
        new_figure((1.0, 1.0))  # which says so where there is no matplotlib
        from matplotlib import colormaps

        if not isinstance(cmap, str) or cmap not in colormaps:
            hint = nearest(str(cmap), [name for name in colormaps if not name.endswith("_r")])
            raise UserError(f"plot: matplotlib has no colour map {shown(cmap)}{hint if 'mean' in hint else ''}")
    return {"limits": limits, "map": cmap}
