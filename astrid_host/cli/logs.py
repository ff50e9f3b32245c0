"""Log lines, on stderr: for people, or one JSON object a line. Stdout belongs to what a command prints."""

from __future__ import annotations

import copy
import functools
import io
import logging
import sys
from typing import TYPE_CHECKING, TextIO

from astrid_host.cli.terminal import printable, write_styled

if TYPE_CHECKING:
    import structlog


def set_up(log_format: str, level: int) -> None:
    """Send what the host logs to stderr.

    Args:
        log_format: `pretty` or `json`.
        level: what is logged; a `logging` level.
    """
    handler = _Lines(sys.stderr)
    handler.setFormatter(_Late(log_format))
    root = logging.getLogger("astrid_host")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level)
    # That one capsule takes another's place is told by every command that boots.
    logging.getLogger("astrid_host.aside").setLevel(min(level, logging.WARNING))


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines that its formatter has coloured."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write_styled(self.stream, self.format(record) + self.terminator)
            self.flush()
        except Exception:  # noqa: BLE001 - as logging's own handlers: what logs goes on
            self.handleError(record)


class _Late(logging.Formatter):
    """Is made with the first line: a command that logs nothing need not wait for what formats lines."""

    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._log_format = log_format
        self._for_terminal = sys.stderr.isatty()

    def format(self, record: logging.LogRecord) -> str:
        if self._for_terminal:
            record = copy.copy(record)  # others may format it, too
            record.msg, record.args = printable(record.getMessage()), ()
            record.name = printable(record.name)
        return self._made.format(record)

    @functools.cached_property
    def _made(self) -> structlog.stdlib.ProcessorFormatter:
        import structlog

        shared: list[structlog.typing.Processor] = [
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=self._log_format == "json"),
        ]
        render: structlog.typing.Processor
        if self._log_format == "json":
            shared.append(structlog.processors.format_exc_info)
            render = structlog.processors.JSONRenderer()
        else:
            render = structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                pad_event_to=0,
                exception_formatter=_traceback,  # others show local variables, which may be secrets
            )
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )


def _traceback(out: TextIO, raised: structlog.typing.ExcInfo) -> None:
    import structlog

    text = io.StringIO()
    structlog.dev.plain_traceback(text, raised)
    out.write(printable(text.getvalue()) if sys.stderr.isatty() else text.getvalue())
