"""A statement that is handed to PostgreSQL while the process goes on.

Once it is in the socket the server runs it, also when the process dies. What became of it is
looked at before the connection is used again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg

from deltasql import telemetry
from deltasql.store.postgres_wire import answer, has_news, send

if TYPE_CHECKING:
    from deltasql.store.postgres_wire import Connection

_log = logging.getLogger(__name__)


def hand_over(connection: Connection, name: str, params: dict[str, Any]) -> bool:
    """Send a statement and return; nothing else may be sent before `collect`.

    False, and nothing was sent, when the server has something to say first.
    """
    if has_news(connection.pgconn):
        return False
    send(connection, name, params, prepares=False)  # nobody could send it again
    return True


def collect(connection: Connection) -> None:
    """Wait for the answer; a refusal is only logged, a lost connection is an OperationalError."""
    try:
        answer(connection)
    except psycopg.Error as error:
        if connection.closed:
            raise psycopg.OperationalError("the connection was lost") from error
        telemetry.log(_log, logging.WARNING, "a note was refused", error=str(error))
