"""Files: meshes in and out, fields for ParaView, checkpoints, monitors."""
