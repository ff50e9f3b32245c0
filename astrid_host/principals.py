"""Principals: on whose behalf something is done. A name, chosen by whoever embeds the host."""

from __future__ import annotations

PRINCIPAL_BYTES = 256


def check_principal(name: object) -> None:
    """Check that this is a name for a principal.

    Raises:
        TypeError: it is no text.
        ValueError: it is empty, longer than 256 bytes of UTF-8, or no UTF-8 at all.
    """
    if not isinstance(name, str):
        raise TypeError(f"a principal is a text; given {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the principal {name[:64]!r} has a lone surrogate, which UTF-8 cannot hold") from None
    if not 0 < size <= PRINCIPAL_BYTES:
        raise ValueError(f"a principal has 1 to {PRINCIPAL_BYTES} bytes; {name[:64]!r} has {size}")
