"""The pages of transactions, each with all tables that it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogTransactionError

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.request import PageRequest

PER_PAGE = 25


def show(ask: PageRequest) -> Response:
    """Show transactions, newest first."""
    table = ask.text("table")
    page = ask.catalog.inspect.transactions(
        table=table or None, limit=PER_PAGE, cursor=ask.cursor()
    )
    return ask.page("transactions.html", page=page, table=table, is_first=ask.cursor() is None)


def one(ask: PageRequest) -> Response:
    """Show one transaction with its participants."""
    try:
        event = ask.catalog.inspect.transaction(ask.request.path_params["txn_id"])
    except TxnLogTransactionError as error:  # no transaction has this id
        return ask.error_page(404, error.message or str(error), error.help)
    return ask.page("transaction.html", event=event)
