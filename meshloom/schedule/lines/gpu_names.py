"""Names in the nests of line loops on a GPU."""

from __future__ import annotations

from meshloom.schedule.nest.nodes import Name

#: Numbers of the plan (``on_gpu.WindowPlan``).
WINDOW, OVERLAP, CORE, CHUNKS, ACROSS = map(Name, ("window", "overlap", "core", "chunks", "across"))
CELLS, PADDED, PER_GROUP, TILES = map(Name, ("cells", "padded", "per_group", "tiles"))
#: Of a block: its place in the launch, the group of operands, the tile of lines, and the window of these that it has.
PLACE, GROUP, TILE, CHUNK = map(Name, ("place", "group", "tile", "chunk"))
#: Of a thread: the segment that its number means and the one that it has, which begins at point ``j0`` of the line; one
#: of its points; and has it a line, and a segment of it, of its own?
OWN, SLOT, J0, POINT, MINE = map(Name, ("own", "slot", "j0", "i", "mine"))
