"""The page of a run: one HTML file that needs nothing else, neither a network nor JavaScript to be read."""
