"""Side-by-side measurements: every figure in the README and the docs comes from a module here.

Run as ``python -m bench.<name>`` from a checkout; results go to ``bench/results/`` as dated JSON.
"""
