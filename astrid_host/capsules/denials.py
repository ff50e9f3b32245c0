"""What guests were refused and why, in the log: the detail of a refusal names the line of the manifest that would allow it.

The guest itself sees only the case. Each detail is said once for each capsule, on the logger `astrid_host.denied`; a guest that
makes up ever new ones is cut off after a hundred.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from astrid_host.capsules.discovery import MANIFEST
from astrid_host.errors import HostError

log = logging.getLogger("astrid_host.denied")

AIRLOCK = "airlock-rejected"  # its detail names what the host's owner may allow
DETAILS = 100  # of one capsule
CAPSULES = 10_000
LONGEST = 1000  # characters


class Denials:
    """Says each of them once.

    Args:
        redacted: the text without the secrets in it.
    """

    def __init__(self, redacted: Callable[[str], str] = str) -> None:
        self._redacted = redacted
        self._said: dict[str, set[int]] = {}  # hashes: a guest may make details long
        self._lock = threading.Lock()

    def note(self, call: Any, error: HostError) -> None:
        """A guest is answered with an error that has a detail. From any thread; raises nothing.

        Args:
            call: the running call.
            error: what the guest is answered.
        """
        name, detail = call.capsule.id, error.detail
        if MANIFEST not in detail and error.case != AIRLOCK:
            return  # not for want of a row
        with self._lock:
            if name not in self._said and len(self._said) >= CAPSULES:
                return
            said = self._said.setdefault(name, set())
            if hash(detail) in said or len(said) > DETAILS:
                return
            said.add(hash(detail))
            last = len(said) > DETAILS
        if last:
            log.warning("%s was refused more than %d different things: further ones are not said here", name, DETAILS)
        else:
            # The text may hold what the guest gave: it stays on its line.
            text = "".join(sign if sign.isprintable() else " " for sign in self._redacted(detail)[:LONGEST])
            log.warning("%s was answered %s: %s", name, error.case, text)
