"""The airfoil step as other people would write it: by hand in C++ with OpenMP, with numba, with NumPy.

Every peer takes the same arrays (``case.Airfoil``), keeps its own state and answers ``advance(n)`` with the rms of
each of ``n`` iterations, so that their answers can be compared before their times are.
"""
