"""What a person types: prompts, and answers to questions that come up meanwhile.

A wait for an answer can be cancelled and leaves nothing behind: what is typed later is not taken for it, and what was typed
before a question was shown is no answer to it. A prompt is read with a history of this process; cancelled, it can only be
followed by the end of the command.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Generator

LINE_BYTES = 1 << 16
ASKS = "> "


class Keyboard:
    """Stdin. What is not UTF-8 in it is replaced.

    Attributes:
        is_terminal: whether there is a person who sees questions and can answer them.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")

    def forget(self) -> None:
        """What was typed until now is no answer to what will be asked."""
        import termios

        with contextlib.suppress(termios.error):  # it is no terminal
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    async def answer(self) -> str:
        """The next line; empty at the end of the input. Of a terminal, where one read is one line."""
        import trio

        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        return os.read(sys.stdin.fileno(), LINE_BYTES).decode("utf-8", "replace")

    async def prompt(self) -> str | None:
        """The next line, without its end; None at the end of the input. A person is shown where to type."""
        import trio

        # A read cannot be interrupted, and the command shall end without another key.
        return await trio.to_thread.run_sync(self._prompt, abandon_on_cancel=True)

    def _prompt(self) -> str | None:
        if self.is_terminal and sys.stdout.isatty():
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - it makes input() edit lines
            try:
                return input(ASKS)
            except EOFError:
                return None
        if self.is_terminal:
            sys.stderr.write(ASKS)
            sys.stderr.flush()
        line = sys.stdin.readline()
        return line.removesuffix("\n") if line else None

    @contextlib.contextmanager
    def kept(self) -> Generator[None]:
        """After the body, the terminal is as it was before: a prompt that was left may have changed it."""
        import termios

        try:
            before = termios.tcgetattr(sys.stdin.fileno())
        except (termios.error, OSError, ValueError):  # it is none
            yield
            return
        try:
            yield
        finally:
            with contextlib.suppress(termios.error):  # it is gone
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
