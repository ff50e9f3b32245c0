"""What a manifest allows: one function for each question, pure, asked before anything is done or revealed.

An answer is None when it is allowed, else a `Denial`: the case of `error-code` that the guest gets, and a detail for
people that names what to write into the Capsule.toml. Checks come in the order of Astrid's own host: form before
rights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from astrid_host.topics import TOPIC_BYTES, acl_allows, topic_fault

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

KEPT_VERDICTS = 4096


class Denial(NamedTuple):
    """Why something is not allowed: `case` is for the guest, `detail` for logs and failure reports."""

    case: str
    detail: str


def may_publish(manifest: Manifest, topic: str) -> Denial | None:
    """Whether a capsule may publish on a topic: 256 bytes, no empty segment, 8 segments, a `[publish]` row, in that
    order."""
    fault = topic_fault(topic)
    if fault is not None:
        return Denial("invalid-input", fault)
    if acl_allows(manifest.publish, topic):
        return None
    return _lacks_row(manifest, "publish", topic)


def may_subscribe(manifest: Manifest, pattern: str) -> Denial | None:
    """Whether a capsule may subscribe to a pattern: 256 bytes, no empty segment, 8 segments, `*` only as the last of
    them, a `[subscribe]` row that covers the pattern as it is written, in that order."""
    fault = topic_fault(pattern)
    if fault is not None:
        return Denial("invalid-input", fault)
    if "*" in pattern.split(".")[:-1]:
        detail = f"{pattern!r} has a `*` before its last segment, and only the last may be one: subscribe to all below"
        return Denial("invalid-input", detail)
    if acl_allows(manifest.subscribe_rows, pattern):
        return None
    return _lacks_row(manifest, "subscribe", pattern)


def _lacks_row(manifest: Manifest, table: str, key: str) -> Denial:
    to = "publish" if table == "publish" else "subscribe to"
    line = f"[{table}] {quoted(key)} = {{}}"
    detail = f"capsule {manifest.package.name!r} may not {to} {key!r}: add to its Capsule.toml: {line}"
    return Denial("capability-denied", detail)


class _Verdicts:
    """Verdicts that were reached before; a bound keeps a guest that makes up names from filling memory."""

    __slots__ = ("_decide", "_known")

    def __init__(self, decide: Callable[[str], Denial | None]) -> None:
        self._decide = decide
        self._known: dict[str, Denial | None] = {}

    def check(self, name: str) -> Denial | None:
        """None when it is allowed. From any thread."""
        try:
            return self._known[name]
        except KeyError:
            verdict = self._decide(name)
        if len(name) <= TOPIC_BYTES:
            if len(self._known) >= KEPT_VERDICTS:
                self._known.clear()
            self._known[name] = verdict
        return verdict


class PublishGate(_Verdicts):
    """`may_publish` of one manifest, remembered for each topic."""

    __slots__ = ()

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(lambda topic: may_publish(manifest, topic))


class SubscribeGate(_Verdicts):
    """`may_subscribe` of one manifest, remembered for each pattern."""

    __slots__ = ()

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(lambda pattern: may_subscribe(manifest, pattern))


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


def holds(manifest: Manifest, capability: str) -> bool:
    """Whether a manifest claims a capability, named as in the Capsule.toml; False for a name that there is not."""
    return capability in manifest.capabilities.names()


_BARE_CONTROL = re.compile("[\x7f-\x9f]")


def quoted(text: str) -> str:
    """A text as TOML writes it, in one line whatever is in it."""
    return _BARE_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04X}", json.dumps(text, ensure_ascii=False))
