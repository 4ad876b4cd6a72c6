"""The nouns: sets, maps, fields, globals, meshes and their generators."""
