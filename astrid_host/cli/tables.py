"""Tables on stdout: as wide as the terminal, or as their content where no terminal is.

Cells are plain text on one line where there is room. What a capsule says of itself is shown without control characters, so
it cannot style, move or clear the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

UNBOUNDED = 1 << 16  # columns; output that is piped is never wrapped


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(printable(" ".join(cell.split())) for cell in row))
    if sys.stdout.isatty():
        Console(markup=False, emoji=False, highlight=False).print(table)
        return
    console = Console(width=UNBOUNDED, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def printable(text: str) -> str:
    """The text with what cannot be printed (escape sequences too) escaped; line ends stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
