"""Reference methods: known methods along lines, never chosen automatically, run by name."""
