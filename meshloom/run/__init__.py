"""Carrying a case out: the time loop and everything around it that is the same for all cases."""
