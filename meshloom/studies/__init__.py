"""Runs of cases from Python: one (``ml.run_case``), or one for every combination of settings (``ml.study``)."""

from meshloom.studies.one import CaseRun, run_case
from meshloom.studies.several import Study, study

__all__ = ["CaseRun", "Study", "run_case", "study"]
