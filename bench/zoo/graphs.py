"""Loops over the links of graphs, and over the edges of meshes as such."""

from __future__ import annotations

import meshloom as ml
from bench.zoo.elements import Made
from bench.zoo.scene import Links, Scene


@ml.kernel
def sent(a: ml.Read, b: ml.Inc):
    """One end gets what the other has."""
    b[1] += a[0]


@ml.kernel
def exchanged(a: ml.Read, b: ml.Inc):
    """Both ends get what the other has."""
    b[0] += a[1]
    b[1] += a[0]


@ml.kernel
def smoothed(x: ml.Read, moved: ml.Inc, count: ml.Inc):
    """Towards the middle of a node's neighbours: their sum, and how many they are."""
    moved[0] += x[1]
    moved[1] += x[0]
    count[0] += 1.0
    count[1] += 1.0


def over_links(kernel: ml.Kernel, at: Scene) -> Made:
    graph: Links = at.mesh
    a, b = at.given(graph.vertices, "a"), at.result(graph.vertices, "b")
    return kernel, graph.links, (a[graph.ends], b[graph.ends])


def smoothing(at: Scene) -> Made:
    mesh, ends = at.mesh, at.mesh.edge_nodes
    moved, count = at.result(mesh.nodes, "moved", 3), at.result(mesh.nodes, "count")
    return smoothed, mesh.edges, (at.points()[ends], moved[ends], count[ends])
