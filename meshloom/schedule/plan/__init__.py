"""Plans: the arrays a strategy needs, declared by type, checked, and kept on disk."""
