"""The nouns: sets, maps, fields, globals, meshes and their generators.

    what a person gives  values, layout, components, kinds, input_checks
    fields, globals      stored and copies (buffers), array_interop, reduced, field, shown; globals (and conditions)
    sets and maps        numbering (rows of a set), assigned, formula, core (Set, Map, Field, Subset)
    grids                offsets, box (points by index), grid (places in space)
    connectivity         cell_kinds, connectivity (CSR lists), faces, joints, connected
    geometry             geometry, corners, measured, locate, location, integrals
    parts and order      owner_mesh, parts; permutation, reorder, arrange, periodic
    validation           validation, faults
    meshes               protocols (what functions need of a mesh), mesh, generate
    arguments of loops   number, random
"""
