"""Products of many parameters, of which a quick run takes a part: each value of each of them, or each pair of values.

The rest of the rows is ``slow``. ``tests/covering.py`` does the same where a test is written; this is for tests that
are products by several ``parametrize``, fixtures included.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from tests.asked_for import GPU, SLOW

VALUES, PAIRS = 1, 2
#: What of a product every run sees: all values of each parameter, or all pairs of values of two.
THINNED = {
    "tests/backend/test_freed_at_once.py::test_what_nobody_holds_is_gone_at_once": VALUES,
    "tests/backend/test_leaks.py::test_what_is_dropped_is_gone": VALUES,
    "tests/cli/test_restart.py::test_a_restarted_run_equals_an_uninterrupted_one": VALUES,
    "tests/kernel/test_dense.py::test_against_numpy": PAIRS,
    "tests/linalg/test_colored_sgs.py::test_as_dense_matrices_have_it": VALUES,
    "tests/linalg/test_fast_poisson.py::test_what_it_says_is_what_is": VALUES,
    "tests/linalg/test_fast_poisson.py::test_without_checks": VALUES,
    "tests/linalg/test_krylov.py::test_as_a_direct_solver": PAIRS,
    "tests/linalg/test_krylov.py::test_operators_that_add_to_their_result": VALUES,
    "tests/linalg/test_line_systems.py::test_as_banded_matrices": PAIRS,
    "tests/linalg/test_lines.py::test_every_method_solves": VALUES,
    "tests/linalg/test_lines.py::test_kernels_before_and_after": VALUES,
    "tests/linalg/test_matrix.py::test_assembly_by_every_strategy": PAIRS,
    "tests/linalg/test_matrix.py::test_on_a_grid": PAIRS,
    "tests/linalg/test_odd_systems.py::test_laplace_with_values_in_ghosts": VALUES,
    "tests/linalg/test_piccg.py::test_every_setting": VALUES,
    "tests/mesh/test_arrange.py::test_loops_give_the_same_by_number": VALUES,
    "tests/mesh/test_arrays.py::test_reductions_are_numpys": PAIRS,
    "tests/mesh/test_computed_maps.py::test_as_with_stored_indices_by_every_strategy": VALUES,
    "tests/schedule/test_own_rows.py::test_rows_give_the_answer_of_the_reference": PAIRS,
    "tests/schedule/test_symmetry.py::test_owner_by_roles_gives_the_same_on_a_regular_mesh": VALUES,
    "tests/schedule/test_vectors.py::test_every_width_equals_numpy_for_any_number_of_elements": VALUES,
    "tests/solvers/test_navier_stokes.py::test_back_ends_agree": VALUES,
    "tests/solvers/test_turbulence.py::test_back_ends_agree": VALUES,
    "tests/test_fusion_lines.py::test_taken_along_or_by_themselves": PAIRS,
    "tests/test_aligned_grids.py::test_every_solver_gives_the_same_numbers": VALUES,
    "tests/test_conditions.py::test_it_is_asked_after_each_run": PAIRS,
    "tests/test_fusion.py::test_the_airfoil_iteration_is_two_loops_and_gives_the_same": PAIRS,
    "tests/test_grid_loops.py::test_every_layout_precision_and_back_end_against_numpy": PAIRS,
    "tests/test_recording.py::test_recorded_equals_called": VALUES,
    "tests/test_versions.py::test_what_changes_values_changes_the_version": VALUES,
}


def chosen(rows: Sequence[tuple[str, ...]], strength: int) -> set[int]:
    """Numbers of rows in which everything meets that meets in any of them: ``strength`` values at a time.

    Greedy: always a row with the most that has not met; ties by dice that always fall the same.
    """
    met: set[tuple[tuple[int, str], ...]] = set()

    def news(k: int) -> set[tuple[tuple[int, str], ...]]:
        return {*combinations(enumerate(rows[k]), min(strength, len(rows[k])))} - met

    order = [*range(len(rows))]
    random.Random(0).shuffle(order)
    found: set[int] = set()
    while order:
        best = max(order, key=lambda k: len(news(k)))  # the first of the best
        if not (fresh := news(best)):
            break
        met |= fresh
        found.add(best)
        order.remove(best)
    return found


def thin_out(made: Sequence[pytest.Item]) -> None:
    """Mark as slow the tests of one function that a quick run can do without; those for a GPU stay as they are."""
    strength = THINNED.get(made[0].nodeid.partition("[")[0]) if made else None
    rows = [one for one in made if one.get_closest_marker(GPU) is None and one.get_closest_marker(SLOW) is None]
    if strength is None or not rows or not hasattr(rows[0], "callspec"):
        return
    values = [tuple(repr(value) for _, value in sorted(one.callspec.params.items())) for one in rows]  # type: ignore[attr-defined]
    stay = chosen(values, strength)
    for number, one in enumerate(rows):
        if number not in stay:
            one.add_marker(pytest.mark.slow)
