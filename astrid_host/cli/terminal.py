"""What reaches a terminal: text, and no sign that could style, move or clear it, hide what stands there, or fill its clipboard.

`guard` puts a `Terminal` in the place of stdout and stderr where these are terminals, so that all that is written there passes
one place: results, events, log lines, names that manifests give, errors. What is piped or redirected stays as it is. Each sign is
looked at by itself, so it makes no difference how a text is cut. Colours of the host's own are written with `styled`.
"""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from typing import TextIO

JOINERS = "\u200c\u200d"  # letters of several scripts, and emoji, are written with them


class Terminal(io.TextIOWrapper):
    """A stream to a terminal.

    Args:
        stream: the one that it takes the place of.
    """

    def __init__(self, stream: TextIO) -> None:
        out = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115 - it lives as long as the process
        super().__init__(out, encoding=stream.encoding, errors="backslashreplace", line_buffering=True)

    def write(self, text: str) -> int:
        """Write a text; what is not for a terminal stands there escaped, as JSON would have it."""
        if not text.isprintable():
            text = "".join(c if _is_harmless(c) else _escaped(c) for c in text.replace("\r\n", "\n"))
        return super().write(text)

    def styled(self, text: str) -> int:
        """Write what the host itself has made: the texts of others in it were made `printable` before."""
        return super().write(text)


def guard() -> None:
    """Let nothing else reach the terminals that stdout and stderr are."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, Terminal):
            stream.flush()
            setattr(sys, name, Terminal(stream))


def write_styled(stream: TextIO, text: str) -> None:
    """Write what the host has styled to a stream that may be a terminal.

    Args:
        stream: where to.
        text: others' texts in it are `printable`.
    """
    (stream.styled if isinstance(stream, Terminal) else stream.write)(text)


def harmless(text: str) -> str:
    """The text with what could change the terminal or hide in it escaped; lines, tabs, and spaces of all kinds stay."""
    if text.isprintable():
        return text
    return "".join(c if _is_harmless(c) else printable(c) for c in text)


def printable(text: str) -> str:
    """The text with what cannot be printed (escape sequences too) escaped; line ends stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _is_harmless(sign: str) -> bool:
    return sign.isprintable() or sign in "\n\t" or sign in JOINERS or unicodedata.category(sign) == "Zs"


def _escaped(sign: str) -> str:
    """As JSON has it where JSON allows the sign itself, so that JSON stays what it is."""
    if "\x7f" <= sign <= "\xff":
        return f"\\u{ord(sign):04x}"
    return sign.encode("unicode_escape").decode() if sign < " " else json.dumps(sign)[1:-1]
