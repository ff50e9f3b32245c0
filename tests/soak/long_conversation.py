"""A conversation of 500 turns with a window of 16k: `python tests/soak/long_conversation.py [TURNS]`.

The server refuses whatever has more tokens than its window. Each turn must have its one answer, each request what the user said
last, and the session all messages. Prints the figures of what was sent; ends with an exception where something does not hold.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from context_parties import talk_of_many_turns

TURNS = 500


def main() -> None:
    """Run as many turns as the command line says."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as workspace:
        figures = trio.run(talk_of_many_turns, Path(workspace), turns)
    told = ", ".join(f"{name} {figure}" for name, figure in figures.items())
    sys.stdout.write(f"{turns} turns in {time.perf_counter() - begun:.1f} s: {told}\n")


if __name__ == "__main__":
    main()
