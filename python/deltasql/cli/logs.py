"""Logging to stderr: its level and its format."""

from __future__ import annotations

import logging

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_ours: logging.Handler | None = None


class TextFormatter(logging.Formatter):
    """Formats a record as one line and its traceback; secrets are redacted in both."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        # Late import: most commands log nothing.
        from deltasql.exceptions.redaction import redact

        return redact(super().format(record))


def set_up_logging(verbose: int, log_format: str) -> None:
    """Log to stderr; `verbose` sets the level of deltasql's loggers only."""
    global _ours
    root = logging.getLogger()
    if any(each is not _ours for each in root.handlers):
        return  # the program that calls us has configured logging
    if _ours is None:
        _ours = logging.StreamHandler()
        root.addHandler(_ours)
    _ours.setFormatter(_formatter(log_format))
    logging.getLogger("deltasql").setLevel(_LEVELS[min(verbose, 2)])
    # The pool logs a warning for every attempt; the error at the end says the same.
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING if verbose else logging.ERROR)


def _formatter(log_format: str) -> logging.Formatter:
    if log_format == "text":
        return TextFormatter()
    from deltasql.telemetry import JsonFormatter

    return JsonFormatter()
