"""What is wrong with a manifest, told so that it can be mended."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        severity: an `error` keeps the capsule from loading, a `warning` does not.
        message: what was found, and what was expected.
        file: where.
        line: from 1.
        column: from 1.
        mend: what to write instead; may be empty.
    """

    severity: Literal["error", "warning"]
    message: str
    file: Path
    line: int = 1
    column: int = 1
    mend: str = ""

    def __str__(self) -> str:
        mend = f"\n    write: {self.mend}" if self.mend else ""
        return f"{self.file}:{self.line}: {self.severity}: {self.message}{mend}".replace("\n    write: \n", "\n")
