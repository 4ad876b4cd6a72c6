"""Runs of cases from Python: one (``ml.run_case``), or one for every combination of settings (``ml.study``)."""

from meshloom.studies.single_run import CaseRun, run_case
from meshloom.studies.sweep import Study, study

__all__ = ["CaseRun", "Study", "run_case", "study"]
