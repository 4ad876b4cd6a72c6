"""What several strategies build their nests from."""
