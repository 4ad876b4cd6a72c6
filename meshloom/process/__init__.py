"""This process: its signals, its streams, the programs it starts. Imports nothing that takes time."""
