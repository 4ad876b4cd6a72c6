"""What the graph-coloring paper printed: Zhang et al., "Optimizations of graph coloring method for unstructured finite
volume computational fluid dynamics on GPU" (Journal of National University of Defense Technology 44(5), 2022)."""

from __future__ import annotations

#: Table 1: loop, operation, share of the run time in percent.
SHARES = (("interpolation of variables", "sum", 15.90), ("gradients", "sum", 13.90), ("limiter", "sum", 17.91),
          ("limiter", "minimum", 3.25), ("limiter", "maximum", 3.25), ("residual update", "sum", 5.22))  # fmt: skip

#: Table 2, in millions: cells and faces of meshes 1 to 5.
MESHES = {1: (0.46, 1.04), 2: (0.89, 1.91), 3: (1.96, 4.04), 4: (3.92, 8.02), 5: (9.76, 20.28)}

#: Table 3: faces of each color.
GROUPS = {
    1: (224836, 213031, 206237, 197699, 163051, 40517, 1482, 11),
    2: (426256, 410166, 397696, 383289, 239361, 50293, 1834, 21),
    3: (921933, 896907, 871117, 841903, 433943, 76778, 2091, 27),
    4: (1858291, 1817425, 1767691, 1709925, 747020, 117274, 2399, 7),
    5: (4628854, 4370933, 4223509, 4064937, 2377710, 587202, 26444, 458),
}

#: Tables 4 to 7: seconds of 1000 runs on meshes 1 to 5, by GPU, precision and algorithm.
TIMES = {
    ("V100", "float64"): {
        "alg5": (0.222, 0.412, 1.071, 2.440, 5.991), "alg6": (0.198, 0.378, 1.067, 2.564, 6.310),
        "alg7": (0.221, 0.409, 1.060, 2.379, 5.841), "alg8": (0.196, 0.372, 1.032, 2.458, 6.090),
        "alg9": (0.229, 0.438, 1.233, 3.039, 7.285), "alg10": (0.203, 0.406, 1.424, 3.778, 8.750),
        "alg11": (0.172, 0.303, 0.786, 1.856, 4.691),
    },
    ("V100", "float32"): {
        "alg5": (0.159, 0.279, 0.673, 1.519, 3.927), "alg6": (0.151, 0.263, 0.727, 1.736, 4.452),
        "alg7": (0.158, 0.277, 0.666, 1.481, 3.829), "alg8": (0.150, 0.263, 0.726, 1.733, 4.444),
        "alg9": (0.167, 0.293, 0.724, 1.856, 4.906), "alg10": (0.157, 0.292, 0.849, 2.485, 6.375),
        "alg11": (0.133, 0.232, 0.550, 1.251, 3.350),
    },
    ("K80", "float64"): {
        "alg5": (1.108, 2.182, 5.019, 10.483, 25.935), "alg6": (1.155, 2.359, 5.642, 12.092, 29.835),
        "alg7": (1.103, 2.165, 4.968, 10.221, 25.287), "alg8": (1.118, 2.307, 5.552, 11.930, 29.427),
        "alg9": (1.151, 2.375, 5.695, 12.422, 29.528), "alg10": (1.242, 2.731, 6.842, 15.309, 35.872),
        "alg11": (0.959, 1.906, 4.415, 9.247, 22.860),
    },
    ("K80", "float32"): {
        "alg5": (0.861, 1.697, 4.017, 8.591, 21.160), "alg6": (0.851, 1.801, 4.508, 9.957, 24.425),
        "alg7": (0.857, 1.684, 3.977, 8.376, 20.631), "alg8": (0.890, 1.848, 4.584, 10.074, 24.763),
        "alg9": (0.882, 1.862, 4.665, 10.451, 24.744), "alg10": (0.900, 2.116, 5.647, 13.162, 30.555),
        "alg11": (0.793, 1.545, 3.657, 7.825, 19.276),
    },
}  # fmt: skip

#: Table 8: mesh 4, V100, single: seconds of 1000 runs of every group by itself.
BY_GROUP = {"alg5": (0.640, 0.564, 0.504, 0.492, 0.288, 0.097, 0.008, 0.006),
            "alg9": (0.241, 0.998, 0.948, 0.929, 0.543, 0.126, 0.009, 0.006)}  # fmt: skip
BY_GROUP_LEVEL, BY_GROUP_PRECISION = 4, "float32"

#: Figure 8: the whole program in double on one V100, times as fast as 28 cores of Xeon Gold 6132, mean of the meshes.
GPU_OVER_CORES = 19.0


def best(gpu: str, precision: str, algorithms: tuple[str, ...], level: int) -> float:
    """Seconds of 1000 runs of the fastest of some algorithms."""
    return min(TIMES[gpu, precision][one][level - 1] for one in algorithms)
