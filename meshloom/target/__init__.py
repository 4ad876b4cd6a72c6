"""Targets: what plans, choices and generated code may count on where they run."""

from meshloom.target.rates import CPU_CORE, GPU, Rates
from meshloom.target.target import CPU, H200, SHARED_ROW, Target, cpu_count, of_device

__all__ = ["CPU", "CPU_CORE", "GPU", "H200", "SHARED_ROW", "Rates", "Target", "cpu_count", "of_device"]
