"""The C++ runtime: compiler discovery, build cache, and the algorithms that plans and orderings are made with."""
