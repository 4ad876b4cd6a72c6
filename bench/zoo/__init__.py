"""A zoo of loops that no application of the package has: what users write tomorrow.

Finite elements, finite volumes, discontinuous Galerkin, sparse assembly and graphs, each written as a user would write
it, on boxes, on Delaunay meshes of random points and on mixed meshes with a boundary layer. ``python -m bench.zoo``
runs them by every schedule there is.
"""
