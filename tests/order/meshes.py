"""Small maps for the tests of orderings."""

import numpy as np
from hypothesis import strategies as st


def quads(ni, nj):
    """Interior faces -> cells (n, 2) of a grid of quadrilaterals, number of cells, face centers, cell centers."""
    cells = np.arange(ni * nj).reshape(nj, ni)
    across = np.stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()], 1)
    along = np.stack([cells[:-1].ravel(), cells[1:].ravel()], 1)
    faces = np.concatenate([across, along])
    faces = faces[np.argsort(faces[:, 0], kind="stable")]
    centers = np.stack([cells.ravel() % ni, cells.ravel() // ni], 1) + 0.5
    return faces, cells.size, centers[faces].mean(axis=1), centers


def shuffled(faces, n_cells, seed=0):
    """The same map with both sides renumbered at random."""
    rng = np.random.default_rng(seed)
    return rng.permutation(n_cells)[faces][rng.permutation(len(faces))]


def bandwidth(faces, order):
    """Largest distance in ``order`` of two cells with a common face."""
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    return int(np.abs(np.diff(place[faces], axis=1)).max(initial=0))


def profile(faces, order):
    """Sum over cells of the distance to their first neighbor before them."""
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    first = np.arange(len(order))
    np.minimum.at(first, place[faces[:, 0]], place[faces[:, 1]])
    np.minimum.at(first, place[faces[:, 1]], place[faces[:, 0]])
    return int((np.arange(len(order)) - first).sum())


def runs(n, block=256):
    """Offsets of the blocks that are runs of ``block``."""
    return np.append(np.arange(0, n, block), n)


@st.composite
def random_maps(draw, max_elements=60):
    """(indices (n, arity), n_targets): self-loops, repeated rows, untouched targets and several components occur."""
    n_targets, arity = draw(st.integers(1, 80)), draw(st.integers(1, 8))
    n = draw(st.integers(0, max_elements))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    used = draw(st.integers(1, n_targets))
    rows = rng.integers(0, used, (n, arity)).astype(draw(st.sampled_from([np.int32, np.int64])))
    if n and draw(st.booleans()):
        rows = rows[rng.integers(0, n, n)]  # repetitions
    return rows, n_targets
