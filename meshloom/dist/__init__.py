"""Sets over ranks: partitions, which rank owns what of every set, halos and exchange lists. Pure functions on arrays.

Elements are known by their position in the arrangement of the whole mesh: that is the same for any number of ranks.
"""
