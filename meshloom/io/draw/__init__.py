"""Drawing with matplotlib: figures, colours, maps of cells, nodes and grids, cuts and surfaces in space."""
