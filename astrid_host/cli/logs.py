"""Log lines, on stderr: for people, or one JSON object a line. Stdout belongs to what a command prints."""

from __future__ import annotations

import logging
import sys


def set_up(log_format: str, level: int) -> None:
    """Send what the host logs to stderr.

    Args:
        log_format: `pretty` or `json`.
        level: what is logged; a `logging` level.
    """
    import structlog

    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=log_format == "json"),
    ]
    render: structlog.typing.Processor
    if log_format == "json":
        shared.append(structlog.processors.format_exc_info)
        render = structlog.processors.JSONRenderer()
    else:
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger("astrid_host")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level)
