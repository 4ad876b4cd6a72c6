"""Every strategy in each of its variants, for tests that run them all."""

from __future__ import annotations

import pytest

import meshloom as ml
from meshloom.schedule.strategies import strategy

FORMS = [ml.Schedule(name, variant=variant) for name in ml.strategies() for variant in ml.variants(name)]
DETERMINISTIC = [form for form in FORMS if strategy(form.strategy).deterministic]

every_form = pytest.mark.parametrize("form", FORMS, ids=str)
every_deterministic_form = pytest.mark.parametrize("form", DETERMINISTIC, ids=str)
