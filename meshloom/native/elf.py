"""Is a shared library whole? The loader believes its headers, and the process ends where a file is shorter."""

from __future__ import annotations

import struct
import sys

_MAGIC = b"\x7fELF"
#: class of the file -> (where the two tables begin and their six sizes in the header, offset and length of a segment)
_LAYOUT = {1: ("IIIHHHHHH", 28, "4xI8xI"), 2: ("QQIHHHHHH", 32, "8xQ16xQ")}


def is_whole(content: bytes) -> bool:
    """Does a library hold all that its headers name? Where libraries are of another kind: is there anything?"""
    if not content.startswith(_MAGIC):
        return bool(content) and sys.platform != "linux"
    try:
        order = {1: "<", 2: ">"}[content[5]]
        header, start, segment = _LAYOUT[content[4]]
        found = struct.unpack_from(order + header, content, start)
        segments, sections, _, _, segment_size, segment_count, section_size, section_count, _ = found
        places = [segments + k * segment_size for k in range(segment_count)]
        ends = [sum(struct.unpack_from(order + segment, content, place)) for place in places]
    except (KeyError, IndexError, struct.error):
        return False
    tables = [segments + segment_size * segment_count, sections + section_size * section_count]
    return segment_count > 0 and section_count > 0 and max(*tables, *ends) <= len(content)
