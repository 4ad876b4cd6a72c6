"""Fused loops as code: on a GPU target by target, on a CPU chunk by chunk."""
