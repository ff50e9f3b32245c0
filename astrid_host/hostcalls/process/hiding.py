"""What children in the sandbox do not see of the host's user, and cannot put something else in the place of.

Homes are empty to them, but for the workspace and for folders below that hold programs: those that are known to hold nothing
else, and those on PATH. The host's own folders (state, data and cache) are empty to them wherever they are; when they lie in
the workspace, the folders on the way to them cannot be moved, so that none is put in their place for the next host. When
the workspace is a home, or above one, the places in it where secrets are usually kept are empty as well; what else is there
is the workspace, which the operator chose. Sockets that listen outside of what a child may write to when it is started are
covered too, and so are keys and passwords of the system that the host's user may read. What the host itself runs or trusts is
seen where it was, and cannot be written to or moved. (Astrid, process: sandbox.)
"""

from __future__ import annotations

import glob
import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from astrid_host.errors import HostError

LINKS = 40
HOMES = ("/home", "/root")
# What daemons have for a home.
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr"),
    "/var",
)
PROGRAMS = (
    *(".bun", ".cargo/bin", ".deno", ".local/bin", ".local/lib", ".local/pipx", ".local/share/mise"),
    *(".local/share/pipx", ".local/share/pnpm", ".local/share/uv", ".nodenv", ".npm-global", ".nvm", ".pyenv"),
    *(".rbenv", ".rustup", ".sdkman", ".volta", "anaconda3", "go/bin", "miniconda3", "miniforge3"),
)
SECRETS = (
    *(".aws", ".azure", ".cargo/credentials", ".cargo/credentials.toml", ".config/chromium", ".config/gcloud"),
    *(".config/gh", ".config/git/credentials", ".config/google-chrome", ".config/hub", ".config/op", ".docker"),
    *(".git-credentials", ".gnupg", ".kube", ".local/share/keyrings", ".local/share/kwalletd"),
    *(".local/share/python_keyring", ".mozilla", ".my.cnf", ".netrc", ".npmrc", ".password-store", ".pgpass"),
    *(".pypirc", ".ssh", ".terraform.d", ".vault-token"),
)
# Of the system, as far as the host's user may read them: root may.
SYSTEM_SECRETS = (
    *("/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab", "/etc/shadow", "/etc/shadow-"),
    "/etc/ssl/private",
)
HOST_KEYS = "/etc/ssh/ssh_host_*_key"
SOCKETS = "/proc/net/unix"
LISTENS, DATAGRAM = "00010000", "0002"


class Hidden(NamedTuple):
    """Places, by their paths without links.

    Attributes:
        folders: are empty, and cannot be written to.
        files: are empty, and cannot be written to; sockets among them.
        fixed: folders of the workspace that stay where they are.
        kept: files and folders of the workspace that are seen, and cannot be written to.
        shown: what is below `folders` and to be seen nevertheless, as (where it is, where it is seen).
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]
    fixed: tuple[str, ...]
    shown: tuple[tuple[str, str], ...]
    kept: tuple[str, ...] = ()


def hidden_from(workspace: str, own: Sequence[Path], trusted: Sequence[Path] = ()) -> Hidden:
    """What a child that works in a workspace does not see, or may not write to. Those of the host's folders that are missing in
    it are made.

    Args:
        workspace: its path, without links.
        own: the host's folders, as they are configured.
        trusted: what the host runs or trusts beside them, which is seen.

    Raises:
        HostError: `unknown` when one of these is reached through a link of the workspace: whoever may write to that could lead
            the host elsewhere.
        OSError: a missing folder cannot be made.
    """
    homes = own_homes()
    covered = [home for home in dict.fromkeys((*homes, *map(os.path.realpath, HOMES))) if _is_coverable(home)]
    covered = [home for home in covered if not within(home, workspace)]
    folders, fixed = list(covered), list[str]()
    for folder in own:
        _check_links(folder, workspace)
        path = os.path.realpath(folder)
        if below(path, workspace):
            os.makedirs(path, 0o700, exist_ok=True)
            fixed += (str(parent) for parent in Path(path).parents if below(str(parent), workspace))
        if os.path.isdir(path):
            folders.append(path)
    kept = _kept(trusted, workspace, folders)
    for path in kept:
        fixed += (str(parent) for parent in Path(path).parents if below(str(parent), workspace))
    fixed = [path for path in dict.fromkeys(fixed) if not any(within(path, place) for place in kept)]
    files: list[str] = []
    for path in _secrets(homes, workspace):
        (folders if os.path.isdir(path) else files).append(path)
    closed = folders[len(covered) :]
    programs = _programs(homes, covered, workspace)
    shown = [pair for pair in programs if not any(within(pair[0], folder) for folder in closed)]
    return Hidden(tuple(folders), tuple(files), tuple(fixed), tuple(shown), kept)


def _kept(trusted: Iterable[Path], workspace: str, hidden: Sequence[str]) -> tuple[str, ...]:
    """Those of the trusted places that lie in the workspace, each but once, without those that are hidden anyway."""
    real = {place: os.path.realpath(place) for place in trusted}
    seen = [path for path in dict.fromkeys(real.values()) if below(path, workspace) and os.path.exists(path)]
    seen = [path for path in seen if not any(within(path, folder) for folder in hidden)]
    kept = tuple(path for path in seen if not any(below(path, other) for other in seen))
    for place in trusted:
        _check_links(place, workspace, kept)
    return kept


def own_homes() -> tuple[str, ...]:
    """The home folders of the host's user, without links: the one in the environment, and the one that the system knows."""
    found = [os.path.expanduser("~")]
    try:
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return _real(found)  # in a container users often have no name
    return _real(found)


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.isabs(path)))


def sockets() -> Iterator[str]:
    """The paths of the Unix sockets to which one can connect or send, as far as this process sees them."""
    try:
        with open(SOCKETS, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            lines = file.read().split("\n")[1:]
    except OSError:  # there is no such list here
        return
    paths = dict[str, None]()
    for line in lines:
        # Num RefCount Protocol Flags Type St Inode Path
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7].startswith("/") and (fields[3] == LISTENS or fields[4] == DATAGRAM):
            paths[os.path.realpath(fields[7])] = None
    yield from filter(_is_socket, paths)


def below(path: str, folder: str) -> bool:
    """Whether a path is below a folder; both without links."""
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder, or below it."""
    return path == folder or below(path, folder)


def _is_coverable(home: str) -> bool:
    if (
        home == "/"
        or home in _SYSTEM
        or any(below(home, system) for system in ("/bin", "/dev", "/etc", "/sbin", "/usr"))
    ):
        return False
    return os.path.isdir(home)


def _check_links(folder: Path, workspace: str, kept: Sequence[str] = ()) -> None:
    for link in links_of(folder):
        if below(link, workspace) and not any(within(link, place) for place in kept):
            raise HostError(
                "unknown",
                "no process can be started",
                detail=f"{folder}, which the host itself uses, is reached through the link {link}, which is in the workspace: "
                "put what it leads to in its place, or give a workspace that does not hold it",
            )


def links_of(folder: str | Path) -> Iterator[str]:
    """The links that a path goes through, each where it really is."""
    left = [*reversed(Path(os.path.abspath(folder)).parts[1:])]
    at, count = "/", 0
    while left and count <= LINKS:
        name = left.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        try:
            target = os.readlink(here)
        except OSError:  # it is none, or nothing is there
            at = here
            continue
        yield here
        count += 1
        at = "/" if target.startswith("/") else at
        left += [part for part in reversed(target.split("/")) if part not in ("", ".")]


def _secrets(homes: Iterable[str], workspace: str) -> Iterator[str]:
    """Secrets that would be seen: in the workspace, and of the system."""
    for path in (os.path.realpath(os.path.join(home, name)) for home in homes for name in SECRETS):
        if below(path, workspace) and os.path.exists(path):
            yield path
    for path in (*SYSTEM_SECRETS, *glob.glob(HOST_KEYS)):
        if os.access(path, os.R_OK):
            yield os.path.realpath(path)


def _programs(homes: Iterable[str], covered: Sequence[str], workspace: str) -> Iterator[tuple[str, str]]:
    """Folders with programs below what is covered, outside of the workspace."""
    named = [os.path.join(home, name) for home in homes for name in PROGRAMS]
    for entry in dict.fromkeys((*named, *os.environ.get("PATH", "").split(os.pathsep))):
        path = os.path.normpath(entry)
        if not any(below(path, home) for home in covered) or within(path, workspace) or not os.path.isdir(path):
            continue
        real = os.path.realpath(path)
        if path in homes or real in homes or any(below(home, real) for home in homes):
            continue  # somebody has the home itself on PATH
        yield real, path


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
