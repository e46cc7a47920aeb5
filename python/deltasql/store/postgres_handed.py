"""A statement that is handed to PostgreSQL while the process goes on.

Once it is in the socket the server runs it, also when the process dies. What became of it is
looked at before the connection is used again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import InvalidSqlStatementName

from deltasql import telemetry
from deltasql.store.postgres_wire import BRISK, answer, ask_anew, has_news, send

if TYPE_CHECKING:
    from deltasql.store.dialect import Row
    from deltasql.store.postgres_wire import Connection

_log = logging.getLogger(__name__)


def hand_over(connection: Connection, name: str, params: dict[str, Any]) -> bool:
    """Send a statement and return; nothing else may be sent before `collect`.

    False, and nothing was sent, when the server has something to say first.
    """
    if has_news(connection.pgconn):
        return False
    # One that must be there before the next step is not left to what was prepared and may be gone.
    send(connection, name, params, prepares=name in BRISK)
    return True


def collect(connection: Connection, name: str, params: dict[str, Any]) -> list[Row] | None:
    """Wait for the answer to what was handed over.

    A refusal is logged, and the answer None; a lost connection is an OperationalError.
    """
    try:
        try:
            return answer(connection)
        except InvalidSqlStatementName:
            return ask_anew(connection, name, params)
    except psycopg.Error as error:
        if connection.closed:
            raise psycopg.OperationalError("the connection was lost") from error
        telemetry.log(_log, logging.WARNING, "a note was refused", error=str(error))
        return None
