"""A host's Unix sockets: where they are, and how who connects to one is let in."""

from __future__ import annotations

from astrid_host.sockets.places import FOLDER, PATH_BYTES, place_of, private_folder

__all__ = ["FOLDER", "PATH_BYTES", "place_of", "private_folder"]
