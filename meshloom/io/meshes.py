"""``read`` and ``write``: mesh files by their extension, with boundary groups kept.

``.msh`` (Gmsh 2.2 and 4.1), ``.su2``, ``.cgns`` and ``.dat`` are read here; ``.vtu`` through meshio, the extra "io".
A folder holds a mesh of OpenFOAM. Whatever is wrong with a file becomes one MeshError that names it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from meshloom.errors import MeshError, UserError, file_path, instance, nearest, other_than_file, shown
from meshloom.io import grids
from meshloom.io.blocks import assemble, field_rows
from meshloom.io.cgns import read_cgns
from meshloom.io.collective import Segment, Text, write_collectively
from meshloom.io.files import followed, writing
from meshloom.io.gmsh import read_gmsh, write_gmsh
from meshloom.io.grid_dat import read_grid, write_grid
from meshloom.io.openfoam import find_polymesh, read_openfoam
from meshloom.io.rank_rows import AnyRows, on_every_rank
from meshloom.io.su2 import read_su2, write_su2
from meshloom.io.vtk import vtu_segments
from meshloom.io.vtu import read_vtu
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.mesh import Mesh
from meshloom.mesh.numbering import Rows
from meshloom.native.algorithms import distinct
from meshloom.process.ranks import by_root, ranks
from meshloom.recording import MAKE_BEFORE, not_in_program
from meshloom.records import dataclass

Fields = Mapping[str, AnyRows]


@dataclass(frozen=True)
class Format:
    """How one kind of file is read and written."""

    label: str
    read: Callable[[Path], Mesh]
    write: Callable[[Mesh, Fields, Fields], Iterable[Segment]]
    holds_fields: bool = True


@not_in_program("reading a mesh", MAKE_BEFORE)
def read(path: str | os.PathLike[str], *, order: str = "auto") -> Mesh:
    """The mesh of a file, or of a folder that holds one of OpenFOAM; faces are derived from the cells (those of a
    ``.dat`` file are given in it).

    Physical groups, markers and the like on boundary faces become boundary groups of the same name, those on cells cell
    groups (``mesh.cell_groups``, ``mesh.region(name)``); names that no element carries become groups without elements,
    with a warning. Which sides a Gmsh file says are periodic is in ``mesh.periodic_sides``; ``mesh.periodic()`` joins
    them. A 2-D mesh with a constant z column loses it. All numbers are those of the file; ``order`` says how the mesh
    lies in memory, see ``Mesh.arranged``: "auto" arranges it once if the file's order is bad, "given" never. The mesh
    has passed ``Mesh.check``; cells that go around the other way are turned around before that (not in ``.dat`` files,
    which give their faces).
    """
    path = file_path("ml.read: the path", path, error=MeshError)
    chosen = _OPENFOAM if os.path.isdir(path) else _format_of(path)  # Path.is_dir minds a name that is too long
    if chosen is not _OPENFOAM and (what := other_than_file(path)):
        raise MeshError(f"cannot read {path}: it is {what}, not a file; give the file of the mesh")
    try:
        with np.errstate(all="ignore"):  # what is not finite is found and named
            mesh = Rows.placement.made_once(lambda: chosen.read(path).arranged(order), "read", path.absolute(), order)
    except OSError as error:
        raise MeshError(f"cannot read {path}: {error.strerror or error}") from error
    except MeshError as error:
        raise MeshError(f"{path}: {error}") from error
    except MemoryError as error:
        raise MeshError(f"{path}: it asks for more memory than there is: malformed or too large") from error
    except UserError:
        raise
    except Exception as error:  # readers refuse what is wrong in words of their own; this is for what they overlook
        raise MeshError(f"{path}: not a readable {chosen.label} mesh ({type(error).__name__}: {error})") from error
    _warn_of_empty_groups(path, mesh)
    return mesh


def _warn_of_empty_groups(path: Path, mesh: Mesh) -> None:
    """A warning of names that no element carries: most often one was spelt otherwise where elements were named."""
    carried = set(distinct(mesh.boundary_group.numpy()).tolist())
    faces = [name for name, number in mesh.groups.items() if number not in carried]
    cells = [name for name, members in mesh.cell_groups.items() if len(members) == 0]
    for what, names in (("boundary face", faces), ("cell", cells)):
        if names:
            groups = f"groups {', '.join(names)} are" if len(names) > 1 else f"group {names[0]} is"
            warnings.warn(f"{path}: no {what} carries the name: {groups} empty", stacklevel=4)


@not_in_program("writing a file", "write it after program.run()")
def write(
    path: str | os.PathLike[str],
    mesh: Mesh | Grid,
    cell_fields: Mapping[str, Field | np.ndarray] | None = None,
    node_fields: Mapping[str, Field | np.ndarray] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a mesh, with fields where the format holds them; an existing file is replaced if ``overwrite``.

    Formats other than ``.dat`` hold cells, not faces: a wake cut that joins cells by given faces is not kept, and
    the slit refused when the file is read. The sides of a periodic mesh are written as the groups that they were.
    Groups of cells are kept by ``.msh``, where a cell has one group, and ``.vtu``; the others cannot hold them. A Grid
    goes to ``.vti`` or ``.vtr`` files; it has points alone, so its fields are ``node_fields``.
    """
    path = file_path("ml.write: the path", path, error=MeshError)
    ranks().check_given({"the file to write": str(path)})
    for what, fields in (("cell_fields", cell_fields), ("node_fields", node_fields)):
        if fields is not None and not isinstance(fields, Mapping):
            raise MeshError(f"{path}: {what} is a dict of fields by their names, got {shown(fields)}")
    both = (*(cell_fields or {}).values(), *(node_fields or {}).values())
    ranks().check_values(one for one in both if isinstance(one, Field))  # others may be a rank's own rows
    if isinstance(mesh, Grid):
        if cell_fields:
            raise MeshError(f"{path}: a grid has no cells; give its fields as node_fields={{...}}")
        _check_place(path, overwrite)
        return grids.write_grid(path, mesh, node_fields)
    instance(f"{path}: what is written", mesh, Mesh, error=MeshError)
    chosen = _format_of(path)
    _check_place(path, overwrite)
    if (cell_fields or node_fields) and not chosen.holds_fields:
        holding = ", ".join(extension for extension, other in FORMATS.items() if other.holds_fields)
        raise MeshError(f"{path}: {chosen.label} files hold no fields; {holding} do")
    on_cells = field_rows(cell_fields, mesh.cells.total, "cells")
    on_nodes = field_rows(node_fields, mesh.nodes.total, "nodes")
    try:
        segments = list(chosen.write(mesh.opened(), on_cells, on_nodes))
    except MeshError as error:
        raise MeshError(f"{path}: {error}") from error
    write_collectively(path, segments)


@by_root
def _check_place(path: Path, overwrite: bool) -> None:
    with writing(path):
        if path.exists() and not overwrite:
            raise MeshError(f"{path} exists already; choose another name or give overwrite=True")
        if not path.parent.is_dir():
            raise MeshError(f"cannot write {path}: there is no folder {path.parent}")
        followed(path)


def _format_of(path: Path) -> Format:
    extension = path.suffix.lower()
    if extension not in FORMATS:
        raise MeshError(f"{path}: unknown mesh format {extension or '(no extension)'!r}{nearest(extension, FORMATS)}")
    return FORMATS[extension]


def _not_written(mesh: Mesh, on_cells: Fields, on_nodes: Fields) -> Iterable[Segment]:
    raise MeshError("CGNS files are read here, not written; .vtu, .msh and .su2 files are")


def _gmsh(mesh: Mesh, on_cells: Fields, on_nodes: Fields) -> Iterable[Segment]:
    fields = ({name: on_every_rank(rows) for name, rows in found.items()} for found in (on_cells, on_nodes))
    return map(Text, write_gmsh(mesh, *fields))


def _polymesh(path: Path) -> Mesh:
    folder = find_polymesh(path)
    if folder is None:
        raise MeshError("a folder without a mesh of OpenFOAM in it, polyMesh; give the file of the mesh")
    return read_openfoam(folder)


_OPENFOAM = Format("OpenFOAM", _polymesh, _not_written, False)
FORMATS = {
    ".msh": Format("Gmsh", lambda path: assemble(read_gmsh(path.read_bytes())), _gmsh),
    ".su2": Format("SU2", lambda path: assemble(read_su2(path.read_bytes())),
                   lambda mesh, _, __: map(Text, write_su2(mesh)), False),
    ".vtu": Format("VTU", lambda path: assemble(read_vtu(path)), partial(vtu_segments, boundary=True)),
    ".cgns": Format("CGNS", lambda path: assemble(read_cgns(path)), _not_written, False),
    ".dat": Format("grid", lambda path: read_grid(path.read_bytes()),
                   lambda mesh, _, __: map(Text, write_grid(mesh)), False),
}  # fmt: skip
