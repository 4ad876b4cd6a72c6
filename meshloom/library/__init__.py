"""Loops that Meshloom brings along."""
