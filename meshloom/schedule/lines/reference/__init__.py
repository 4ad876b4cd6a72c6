"""Reference methods: known ways to solve along lines, never chosen automatically, run by name."""
