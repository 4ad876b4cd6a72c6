"""Carrying a case out: the time loop and everything round it that is the same for all cases."""
