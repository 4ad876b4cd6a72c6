"""Fields as notebooks show them: names, sizes, ranges, and a small picture if that is cheap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from meshloom import markup
from meshloom.mesh.field import FieldValues
from meshloom.mesh.numbering import Rows
from meshloom.recording import recorder

#: What draws a small PNG of a field: whoever can draw puts it here (``io.draw.plot``).
thumbnails: list[Callable[[Any], bytes]] = []
MOST_READ = 4_000_000  # values that are looked at for their range: more take long to copy
_MOST_DRAWN = 20_000  # elements of a field with a picture
_MOST_RANGES = 6  # components with a range of their own


def field_table(field: FieldValues[Rows]) -> str:
    """What a notebook shows of a field. It never raises, and never takes long."""
    each = " x ".join(map(str, field.components)) or "1"
    size = " x ".join(map(str, field.set.array_shape))
    rows: list[tuple[str, object]] = [
        ("on", f"{field.set.name}, {size}"),
        ("values each", f"{each}, {field.dtype}, {field.layout}"),
        *_ranges(field),
    ]
    return markup.table(f"Field {field.name}", rows, markup.png(_thumbnail(field), f"field {field.name}"))


def _ranges(field: FieldValues[Rows]) -> list[tuple[str, object]]:
    """Least, mean and greatest of each component, as far as they can be read now."""
    if recorder.get() is not None:
        return [("range", "known when the program has run")]
    if field.undefined_after:
        return [("range", f"none: temporary, and program {field.undefined_after} has run")]
    if not field.set.size or field.set.total * field.dim > MOST_READ:
        return [("range", "no elements" if not field.set.size else f"not looked at: over {MOST_READ:,} values")]
    with suppress(Exception):  # whatever a device says: a notebook shows what there is
        values = field.numpy().reshape(-1, field.dim).astype(np.float64)
        shown = [(f"[{', '.join(map(str, index))}]", values[:, k])
                 for k, index in enumerate(np.ndindex(*field.components))]  # fmt: skip
        if field.dim == 1 or field.dim > _MOST_RANGES:
            shown = [("", values)]
        return [(f"range {name}".strip(), _range(part)) for name, part in shown]
    return [("range", "cannot be read")]


def _range(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    odd = f"; {values.size - known.size:,} not finite" if known.size < values.size else ""
    if not known.size:
        return "no finite value"
    return f"{known.min():.6g} to {known.max():.6g}, mean {known.mean():.6g}{odd}"


def _thumbnail(field: FieldValues[Rows]) -> bytes:
    """A small picture; none where it would take long, or cannot be."""
    if recorder.get() is not None or not thumbnails or not 0 < field.set.total <= _MOST_DRAWN:
        return b""
    with suppress(Exception):  # a picture is a present, no promise
        return thumbnails[0](field)
    return b""
