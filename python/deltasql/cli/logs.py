"""What is logged to stderr, how much of it, and in which form."""

from __future__ import annotations

import logging

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_ours: logging.Handler | None = None


class TextFormatter(logging.Formatter):
    """A line for people, and the traceback below it; nothing of either shows a secret."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        # Late: `deltasql --version` logs nothing.
        from deltasql.exceptions.redaction import redact

        return redact(super().format(record))


def set_up_logging(verbose: int, log_format: str) -> None:
    """Log to stderr; how much is told counts for our own loggers, not for those of others."""
    global _ours
    root = logging.getLogger()
    if any(each is not _ours for each in root.handlers):
        return  # whoever runs us as a part of itself has decided
    if _ours is None:
        _ours = logging.StreamHandler()
        root.addHandler(_ours)
    _ours.setFormatter(_formatter(log_format))
    logging.getLogger("deltasql").setLevel(_LEVELS[min(verbose, 2)])
    # It warns of what the error that follows says, once for each attempt.
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING if verbose else logging.ERROR)


def _formatter(log_format: str) -> logging.Formatter:
    if log_format == "text":
        return TextFormatter()
    from deltasql.telemetry import JsonFormatter

    return JsonFormatter()
