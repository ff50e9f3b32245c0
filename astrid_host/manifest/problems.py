"""What is wrong with a manifest, told so that it can be mended."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import msgspec

SHOWN_CHARACTERS = 60


class Problem(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        severity: an `error` keeps the capsule from loading, a `warning` does not.
        message: what was found, and what was expected.
        file: where.
        line: from 1.
        column: in characters, from 1.
        mend: the TOML to write instead; empty when the message says all.
    """

    severity: Literal["error", "warning"]
    message: str
    file: Path
    line: int = 1
    column: int = 1
    mend: str = ""

    def __str__(self) -> str:
        told = f"{self.file}:{self.line}: {self.severity}: {self.message}"
        if not self.mend:
            return told
        if "\n" not in self.mend:
            return f"{told} (write: {self.mend})"
        return "\n    ".join((f"{told}; write:", *self.mend.split("\n")))


def quoted(text: str) -> str:
    """A text as a TOML string on one line; what cannot be printed is escaped, so that a terminal shows it as it is."""
    shown = json.dumps(text, ensure_ascii=False)  # JSON's escapes are TOML's as well
    if shown.isprintable():
        return shown
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else f"\\U{ord(c):08x}" for c in shown
    )


def shown(value: Any) -> str:
    """A value of a TOML text for a message: short, on one line, and safe however large or deep it is."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return cut(quoted(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number beyond 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else f"{value}"
    return cut(str(value))


def cut(text: str) -> str:
    """A text without what goes beyond the length that a message shows."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
