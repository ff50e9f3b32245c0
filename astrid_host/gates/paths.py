"""What a manifest lets a capsule read and write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from astrid_host.gates.verdicts import Denial, quoted

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest


def may_read(manifest: Manifest, path: str) -> Denial | None:
    """Whether a capsule may read a path.

    Args:
        manifest: the capsule's.
        path: in its one spelling: `cwd://a/b`, `home://a/b` or `/tmp/a/b`, without empty, `.` and `..` segments.
    """
    if covers(manifest.capabilities.fs_read, path):
        return None
    return _lacks_path(manifest, "fs_read", "read", path)


def may_write(manifest: Manifest, path: str) -> Denial | None:
    """Whether a capsule may write a path, which is spelt as for `may_read`."""
    if covers(manifest.capabilities.fs_write, path):
        return None
    return _lacks_path(manifest, "fs_write", "write", path)


def covers(rows: Iterable[str], path: str) -> bool:
    """Whether a row of `fs_read` or `fs_write` covers a path.

    `*` is the workspace. A row `cwd://sub`, `home://sub` or `/tmp/sub` is that place and what is below it; without a
    `sub`, all of that root. Any other row is taken literally and covers nothing that a guest can name.
    """
    if ".." in path.split("/"):
        return False
    for row in rows:
        if row == "*":
            if path.startswith("cwd://"):
                return True
            continue
        base = row if row.endswith("://") else row.rstrip("/")
        if not base or ".." in base.split("/"):
            continue
        if path == base or path.startswith(base if base.endswith("://") else base + "/"):
            return True
    return False


def _lacks_path(manifest: Manifest, field: str, verb: str, path: str) -> Denial:
    root = "/tmp" if path.startswith("/tmp") else path[: path.index("://") + 3] if "://" in path else path
    rows = [*getattr(manifest.capabilities, field), root]
    line = f"[capabilities] {field} = [{', '.join(map(quoted, rows))}]"
    name = manifest.package.name
    return Denial("capability-denied", f"capsule {name!r} may not {verb} {path!r}: write in its Capsule.toml: {line}")
