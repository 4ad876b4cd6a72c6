"""Mesh files that something has happened to, and mesh files with one fault planted."""

from __future__ import annotations

import io
import random
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.mesh import Mesh
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.mesh_files import FILES, changed, content_of
from tests.attacks.mesh_judge import faults

_SECONDS = 4.0  # the files are small: this is for machines that do something else as well


def read_quietly(path: Path) -> Mesh | str:
    """The mesh, or the line with which it is refused; whatever else happens is Broken."""
    begin, said = time.monotonic(), io.StringIO()
    found: Mesh | str
    with warnings.catch_warnings(record=True) as warned, redirect_stdout(said), redirect_stderr(said):
        warnings.simplefilter("always")
        try:
            found = ml.read(path)
        except MeshError as refusal:
            found = str(refusal)
    if time.monotonic() - begin > _SECONDS:
        raise Broken(f"it took {time.monotonic() - begin:.1f} s")
    if warned or said.getvalue():
        raise Broken(f"a warning: {[str(one.message) for one in warned]} {said.getvalue()}")
    if isinstance(found, str):
        if "\n" in found or not found.startswith((str(path), f"cannot read {path}")):
            raise Broken(f"not one line that begins with the file: {found}")
        if "not a readable" in found and not path.suffix == ".vtu" or "more memory" in found:
            raise Broken(f"refused by accident: {found}")
    return found


def damaged_files(dice: random.Random, folder: Path) -> str:
    """A changed file is refused in one line, or holds a sound mesh."""
    name, kind = dice.choice(FILES)
    path = folder / f"mesh{Path(name).suffix}"
    path.write_bytes(changed(dice, content_of(name, kind)))
    found = read_quietly(path)
    if isinstance(found, str):
        return "refused"
    wrong = faults(found)
    if wrong:
        raise Broken(f"{name}, {kind}: read, but {'; '.join(wrong[:3])}")
    return "a sound mesh"


CAMPAIGNS = (
    Campaign("meshes", "bits, numbers, lines, nodes and sections changed in mesh files of all formats and kinds of cells",
             "refused in one line, or a mesh with closed cells of positive volume; no warning, no waiting", damaged_files,
             few=250, many=5000, seconds=15.0),
)  # fmt: skip
