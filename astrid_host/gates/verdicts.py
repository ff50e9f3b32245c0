"""What a gate answers, and verdicts that were reached before."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from astrid_host.topics import TOPIC_BYTES

KEPT_VERDICTS = 4096


class Denial(NamedTuple):
    """Why something is not allowed: `case` is for the guest, `detail` for logs and failure reports."""

    case: str
    detail: str


class Verdicts:
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


_BARE_CONTROL = re.compile("[\x7f-\x9f]")


def quoted(text: str) -> str:
    """A text as TOML writes it, in one line whatever is in it."""
    return _BARE_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04X}", json.dumps(text, ensure_ascii=False))
