"""Tables on stdout: as wide as the terminal, or as their content where no terminal is.

Cells are plain text on one line where there is room. What a capsule says of itself is shown without control characters, so
it cannot style, move or clear the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from astrid_host.cli.terminal import printable, write_styled

UNBOUNDED = 1 << 16  # columns; output that is piped is never wrapped


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(printable(" ".join(cell.split())) for cell in row))
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else UNBOUNDED, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    if terminal:
        write_styled(sys.stdout, captured.get())
        return
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
