"""How a guest's path is read: the room that it names, and the segments below it.

    cwd://x, x                           the workspace
    /home/me/project/x, file:///home/…   the workspace, for a path below its own place
    home://x                             the principal's home
    /tmp/x                               a scratch folder of the principal and the capsule

`.` segments and doubled slashes are dropped; `..` is refused. An absolute path that is not below the workspace is refused too:
what it means to whoever wrote it is no place that a guest reaches. The reading compares texts and asks no disk.
What goes wrong is a `HostError` with a case of astrid:fs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from astrid_host.errors import HostError

PATH_BYTES = 4096
NAME_BYTES = 255
SEGMENTS = 256

Room: TypeAlias = Literal["cwd", "home", "tmp"]
Names: TypeAlias = Sequence[tuple[str, ...]]  # the absolute paths of one folder, each as its segments


class Place(NamedTuple):
    """A place as a guest names it: a root, and the segments below it."""

    room: Room
    segments: tuple[str, ...]

    def __str__(self) -> str:
        """Its one spelling, which manifest rows are compared with."""
        below = "/".join(self.segments)
        if self.room == "tmp":
            return f"/tmp/{below}" if below else "/tmp"
        return f"{self.room}://{below}"


def place(path: str, workspace: Names = ()) -> Place:
    """Read a guest's path.

    Args:
        path: as the guest wrote it.
        workspace: the names of the workspace.

    Raises:
        HostError: `boundary-escape` for a `..`, and for an absolute path that is not below the workspace; `invalid-path` for
            a NUL, more than 4,096 bytes, a name of more than 255, or more than 256 segments.
    """
    _check_size(path)
    room: Room | None = "cwd"
    left = path
    if path.startswith("home://"):
        room, left = "home", path[7:]
    elif path.startswith("cwd://"):
        left = path[6:]
    elif path[:6].lower() == "file:/":
        room, left = None, _of_url(path)
    elif path.startswith("/"):
        room = None
    segments = tuple(segment for segment in left.split("/") if segment not in ("", "."))
    if ".." in segments:
        raise HostError("boundary-escape", detail=f"{path!r} has a `..`: name the place from its root instead")
    named = _absolute(path, segments, workspace) if room is None else Place(room, segments)
    if len(named.segments) > SEGMENTS or any(len(segment.encode()) > NAME_BYTES for segment in named.segments):
        detail = f"a path has at most {SEGMENTS} segments of at most {NAME_BYTES} bytes each"
        raise HostError("invalid-path", detail=detail)
    return named


def below(path: str, folder: Names) -> list[str] | None:
    """An absolute path, as segments below a folder; None when it leads elsewhere.

    Args:
        path: may have `..`, which are left in.
        folder: its names.
    """
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    for name in folder:
        if parts[: len(name)] == name:
            return list(parts[len(name) :])
    return None


def names_of(folder: Path) -> Names:
    """The absolute paths that a folder is called by, each as its segments: the given one, the one in which all links are
    resolved, and the one that a shell calls it by which went there through a link. The resolved one comes first."""
    real = os.path.realpath(folder)
    names = [real, os.path.abspath(folder)]
    shell = os.environ.get("PWD", "")
    if not folder.is_absolute() and shell.startswith("/"):
        named = os.path.normpath(os.path.join(shell, folder))
        if os.path.realpath(named) == real:
            names.append(named)
    return tuple(dict.fromkeys(Path(name).parts[1:] for name in names))


def _check_size(path: str) -> None:
    if "\0" in path:
        raise HostError("invalid-path", detail="a path has no NUL characters")
    if len(path) > PATH_BYTES or len(path.encode()) > PATH_BYTES:
        raise HostError("invalid-path", detail=f"a path has at most {PATH_BYTES} bytes")


def _of_url(url: str) -> str:
    """The absolute path that a `file:` address means."""
    rest = url[5:]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host.lower() not in ("", "localhost") or not slash:
            raise HostError("boundary-escape", detail=f"{url!r} names another machine: write file:///… or a path")
        rest = slash + rest
    try:
        path = unquote_to_bytes(rest).decode()
    except UnicodeDecodeError:
        raise HostError("invalid-path", detail=f"{url!r} is not UTF-8 behind its percent signs") from None
    _check_size(path)
    return path


def _absolute(path: str, segments: tuple[str, ...], workspace: Names) -> Place:
    """A scratch folder is called /tmp, but the workspace's own place comes first where that lies below /tmp."""
    own = [name for name in workspace if segments[: len(name)] == name]
    if segments[:1] == ("tmp",) and not any(len(name) > 1 for name in own):
        return Place("tmp", segments[1:])
    if own:
        return Place("cwd", segments[len(max(own, key=len)) :])
    where = "/" + "/".join(workspace[0]) if workspace else "the workspace"
    raise HostError(
        "boundary-escape",
        detail=f"{path!r} is not below the workspace, {where}: name a place relative to it, such as src/main.py",
    )
