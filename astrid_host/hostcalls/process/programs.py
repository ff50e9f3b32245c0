"""Which file a command's name stands for: the first on PATH that no guest can put there or change.

An entry of PATH counts when it is absolute and lies in no folder that guests write to, links followed; so does a program in it.
A command with a separator is an absolute path that the manifest names, and is taken as it is. What the child itself runs later is
looked up by the child, on the whole PATH.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from astrid_host.hostcalls.process.hiding import Hidden, links_of, within
from astrid_host.hostcalls.process.places import Grants

# What a child in the sandbox has there is its own.
_OWN_IN_SANDBOX = ("/dev", "/run", "/tmp")


def candidates(command: str, path: str, allowed: Grants, hidden: Hidden | None) -> list[str]:
    """The files that a command's name may stand for, in the order in which they are tried; none for one that is nowhere.

    Args:
        command: a name without separators, or an absolute path.
        path: as the variable PATH has it.
        allowed: the folders that guests may write to.
        hidden: what the sandbox does not show or let write to; None without the sandbox.
    """
    if "/" in command:
        return [command]
    writable = [allowed.workspace, allowed.home, allowed.scratch, *(() if hidden is None else _OWN_IN_SANDBOX)]
    kept = () if hidden is None else hidden.kept
    found = (os.path.join(folder, command) for folder in _folders(path, writable, kept))
    return [file for file in found if os.access(file, os.X_OK) and os.path.isfile(file) and _held(file, writable, kept)]


def _folders(path: str, writable: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    for entry in dict.fromkeys(path.split(os.pathsep)):
        if os.path.isabs(entry) and _held(entry, writable, kept):
            yield entry


def _held(path: str, writable: Iterable[str], kept: Iterable[str]) -> bool:
    """Whether guests can change neither what is there nor a link on the way to it."""
    steps = [os.path.normpath(path), os.path.realpath(path), *links_of(path)]
    return not any(
        within(step, folder) and not any(within(step, place) for place in kept) and _can_be_changed(step, folder)
        for step in steps
        for folder in writable
    )


def _can_be_changed(path: str, folder: str) -> bool:
    """Whether the host's user may write to a path or to what it lies in, up to a folder: guests act as that user."""
    while within(path, folder):
        if os.access(path, os.W_OK):
            return True
        above = os.path.dirname(path)
        if above == path:
            break
        path = above
    return False
