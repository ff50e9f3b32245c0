"""How a guest's path is read: the room that it names, and the segments below it.

    cwd://x, x                           the workspace
    /home/me/project/x, file:///home/…   the workspace, for a path below its own place
    ~/project/x                          the same, where the home of who runs the host holds the workspace
    home://x                             the principal's home
    /tmp/x                               a scratch folder of the principal and the capsule

`.` segments and doubled slashes are dropped; `..` is refused. An absolute path that is not below the workspace is refused too:
what it means to whoever wrote it is no place that a guest reaches. The reading compares texts and asks no disk.
A file whose name begins with `~` is `./~`. What goes wrong is a `HostError` with a case of astrid:fs.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from astrid_host.errors import HostError

PATH_BYTES = 4096
NAME_BYTES = 255
SEGMENTS = 256
LINKS = 40

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
    elif path == "~" or path.startswith("~/"):
        room, left = None, os.path.expanduser("~") + path[1:]
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
        folder: its names. The longest that fits counts.
    """
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    own = [len(name) for name in folder if _same(parts[: len(name)], name)]
    return list(parts[max(own) :]) if own else None


def _same(segments: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """Whether they are the same text, whatever form of Unicode it is written in."""
    return segments == name or _form(segments) == _form(name)


def _form(segments: tuple[str, ...]) -> str:
    return unicodedata.normalize("NFC", "/".join(segments))


def names_of(folder: Path) -> Names:
    """The absolute paths that a folder is called by, each as its segments: the given one, the one in which all links are
    resolved, those in which only the first of its links are, and the one that a shell calls it by which went there through a
    link. The resolved one comes first."""
    real = os.path.realpath(folder)
    starts = [os.path.abspath(folder)]
    shell = os.environ.get("PWD", "")
    if not folder.is_absolute() and shell.startswith("/"):
        starts.append(os.path.normpath(os.path.join(shell, folder)))
    names = [real, *(name for start in starts for name in _followed(start) if os.path.realpath(name) == real)]
    return tuple(dict.fromkeys(Path(name).parts[1:] for name in names))


def _followed(path: str) -> Iterator[str]:
    """A path, and the same with one more of its links followed each time, the first one first."""
    for _ in range(LINKS):
        yield path
        above = [str(part) for part in reversed((Path(path), *Path(path).parents))]
        link = next((part for part in above if os.path.islink(part)), None)
        if link is None:
            return
        try:
            target = os.path.join(os.path.dirname(link), os.readlink(link))
        except OSError:  # it is gone meanwhile
            return
        path = os.path.normpath(target + path[len(link) :])


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
    inside = below("/".join(segments), workspace)
    in_scratch = segments[:1] == ("tmp",)
    if inside is not None and not (in_scratch and len(inside) >= len(segments) - 1):
        return Place("cwd", tuple(inside))
    if in_scratch:
        return Place("tmp", segments[1:])
    where = "/" + "/".join(workspace[0]) if workspace else "the workspace"
    raise HostError(
        "boundary-escape",
        detail=f"{path!r} is not below the workspace, {where}: name a place relative to it, such as src/main.py",
    )
