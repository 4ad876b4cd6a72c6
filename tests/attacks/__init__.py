"""Attacks on runs, files and caches, kept as tests: see ``campaign`` and docs/reliability.md."""
