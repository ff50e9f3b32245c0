"""The hash that a body must have, as Subresource Integrity writes it: `sha256-<base64>`, also several, with spaces between."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any

from astrid_host.errors import HostError

ALGORITHMS = ("sha256", "sha384", "sha512")  # the stronger the later


class Integrity:
    """One body, hashed on its way.

    Args:
        text: the hashes; of several only those of the strongest algorithm count, and one of them has to fit.

    Raises:
        HostError: `invalid-request`, for a text that names no hash.
    """

    def __init__(self, text: str) -> None:
        wanted: dict[str, list[bytes]] = {}
        for token in text.split():
            algorithm, digest = _read(token)
            wanted.setdefault(algorithm, []).append(digest)
        if not wanted:
            raise HostError("invalid-request", detail="integrity is empty: expected such as sha256-<base64>")
        strongest = max(wanted, key=ALGORITHMS.index)
        self._wanted = wanted[strongest]
        self._hash: Any = hashlib.new(strongest)

    def update(self, data: bytes) -> None:
        """The next bytes of the body."""
        self._hash.update(data)

    def finish(self) -> None:
        """The body is over.

        Raises:
            HostError: `integrity-mismatch`.
        """
        found = self._hash.digest()
        if not any(hmac.compare_digest(found, digest) for digest in self._wanted):
            text = base64.b64encode(found).decode()
            raise HostError("integrity-mismatch", detail=f"the body has {self._hash.name}-{text}")


def _read(token: str) -> tuple[str, bytes]:
    algorithm, _, encoded = token.partition("-")
    encoded = encoded.partition("?")[0]  # options may follow, and mean nothing yet
    if algorithm in ALGORITHMS:
        try:
            digest = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            digest = b""
        if len(digest) == hashlib.new(algorithm).digest_size:
            return algorithm, digest
    expected = f"{', '.join(ALGORITHMS)}, a hyphen, and the hash in base64"
    raise HostError("invalid-request", detail=f"{token[:200]!r} is no integrity: expected {expected}")
