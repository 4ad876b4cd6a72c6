"""Compact differences: schemes as data, and derivatives and filters of grid fields along lines."""

from meshloom.compact.analysis import error_constants, matrices, modified_wavenumber, order, orders, symbol
from meshloom.compact.operators import apply, d, d2, filter, metric, operator
from meshloom.compact.scheme import Row, Scheme
from meshloom.compact.schemes import DENG5_MINUS, DENG5_PLUS, FILTER_ORDERS, LELE6, PADE4, SECOND6, deng5, filters
from meshloom.compact.taylor import EXACT

__all__ = [
    "DENG5_MINUS", "DENG5_PLUS", "EXACT", "FILTER_ORDERS", "LELE6", "PADE4", "SECOND6", "Row", "Scheme", "apply", "d",
    "d2", "deng5", "error_constants", "filter", "filters", "matrices", "metric", "modified_wavenumber", "operator",
    "order", "orders", "symbol",
]  # fmt: skip
