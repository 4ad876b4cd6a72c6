"""How meshes are made on the spot: arrays first, by pure functions, and ``ml.generate`` makes meshes of them."""
