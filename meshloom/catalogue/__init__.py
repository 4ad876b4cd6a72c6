"""Every case that a person can name: ready ones, those of installed packages, and those in their own Python files."""

from meshloom.catalogue.check import check_case, check_made
from meshloom.catalogue.find import case_names, find, is_found_again, listed, names_a_case, names_a_file

__all__ = ["case_names", "check_case", "check_made", "find", "is_found_again", "listed", "names_a_case", "names_a_file"]
