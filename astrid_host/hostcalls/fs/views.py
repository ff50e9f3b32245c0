"""What a home shows that is not in it: the loaded capsules and the WIT packages, read-only and without copies.

    home://.local/capsules/<package name>/Capsule.toml, meta.json    of each loaded capsule
    home://wit/…                                                     the WIT packages

(Astrid, home: introspection.) Files are read where they really are. A capsule that has no meta.json shows none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs.walk import Segments
from astrid_host.hostcalls.paths import CAPSULES_VIEW, WIT_VIEW, Root, refused

CAPSULE_FILES = ("Capsule.toml", "meta.json")


class Shown(NamedTuple):
    """Where what is shown really is: `segments` below `root`."""

    root: Root
    segments: Segments


class Views:
    """The read-only places of every home.

    Args:
        loaded: the folder of each loaded capsule by package name. Called on any thread, at each look.
        wit: the folder of the WIT packages; None shows an empty one.
    """

    places = (CAPSULES_VIEW, WIT_VIEW)

    def __init__(self, loaded: Callable[[], Mapping[str, Path]] = dict, wit: Path | None = None) -> None:
        self._loaded = loaded
        self._wit = wit
        self._wit_root: Root | None = None
        self._lock = threading.Lock()

    def find(self, place: Segments, below: Segments) -> Shown | list[str]:
        """What is shown.

        Args:
            place: one of `places`.
            below: the path from there on.

        Returns:
            where it is on the disk, or the names in a folder that is on no disk.

        Raises:
            HostError: `not-found`, `not-directory`, or `access` when a folder cannot be opened.
        """
        if place == WIT_VIEW:
            return self._packages(below)
        loaded = self._loaded()
        if not below:
            return sorted(loaded)
        folder = loaded.get(below[0])
        if folder is None:
            raise HostError("not-found", detail=f"no capsule {below[0]!r} is loaded")
        if len(below) == 1:
            return [name for name in CAPSULE_FILES if (folder / name).is_file()]
        if below[1] not in CAPSULE_FILES:
            raise HostError("not-found", detail=f"of a capsule {' and '.join(CAPSULE_FILES)} are shown")
        return Shown(_opened(folder), below[1:])

    def floor(self, at: Segments) -> int:
        """How many segments of a path below a home name what shows the rest: no link there leads above them."""
        for view in self.places:
            if at[: len(view)] == view:
                return len(view) + (view == CAPSULES_VIEW)
        return 0

    def _packages(self, below: Segments) -> Shown | list[str]:
        if self._wit is None:
            if below:
                raise HostError("not-found", detail="no WIT packages are shown")
            return []
        with self._lock:
            if self._wit_root is None:
                self._wit_root = _opened(self._wit)
            return Shown(self._wit_root, below)


def _opened(folder: Path) -> Root:
    try:
        return Root(Path(os.path.realpath(folder)), os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise refused(error) from error
