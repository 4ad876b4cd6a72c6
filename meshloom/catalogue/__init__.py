"""Every case that a person can name: ready ones, those of installed packages, and those in their own Python files."""

from meshloom.catalogue.find import case_names, find, listed, names_a_file

__all__ = ["case_names", "find", "listed", "names_a_file"]
