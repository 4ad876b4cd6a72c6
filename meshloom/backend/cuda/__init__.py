"""The CUDA back end: dialect, compiler, engines."""
