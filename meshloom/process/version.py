"""The version of Meshloom, where every room can ask for it."""

VERSION = "0.1.0"
