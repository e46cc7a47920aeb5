"""The requests that the service handles, by name.

Each takes the state of the service and the body of the request, and returns one JSON object, or an
iterator of them for a long response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql import _core
from deltasql.serve import procedures, tables
from deltasql.serve.read import aggregates, changes, scan, streams
from deltasql.serve.transactions import Transactions, at_once
from deltasql.serve.write import log_store
from deltasql.serve.write.writes import Writes
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deltasql.api.catalog.catalog import Catalog

    Response = dict[str, Any] | Iterator[dict[str, Any]]


class State:
    """The catalog of a service, and its open writes and transactions."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.transactions = Transactions(catalog)
        self.writes = Writes(catalog, self.transactions)

    def close(self) -> None:
        """Roll back all open writes and transactions."""
        self.writes.close()
        self.transactions.close()


def _hello(state: State, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"release": _core.__version__, "catalog": str(state.catalog.uri)}


def _namespaces(catalog: Catalog) -> dict[str, Any]:
    """List all namespaces; the default namespace always exists."""
    found = catalog.namespaces() if catalog.store.exists() else []
    return {"namespaces": sorted({DEFAULT_NAMESPACE, *found})}


def _create_namespace(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Create a namespace, unless it exists."""
    catalog.create_namespace(str(body["namespace"]))
    return {}


def _drop_namespace(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop an empty namespace; with `cascade`, drop its tables first."""
    namespace = str(body["namespace"])
    if body.get("cascade"):
        for table in catalog.tables(namespace):
            catalog.drop(table.full_name)
    catalog.drop_namespace(namespace)
    return {}


REQUESTS: dict[str, Callable[[State, Mapping[str, Any]], Response]] = {
    "hello": _hello,
    "namespaces": lambda state, body: _namespaces(state.catalog),
    "namespace_create": at_once(
        "CREATE NAMESPACE", lambda state, body: _create_namespace(state.catalog, body)
    ),
    "namespace_drop": at_once(
        "DROP NAMESPACE", lambda state, body: _drop_namespace(state.catalog, body)
    ),
    "tables": lambda state, body: tables.listed(state.catalog, state.transactions, body),
    "table": lambda state, body: tables.loaded(state.catalog, state.transactions, body),
    "table_alter": lambda state, body: tables.alter(state.catalog, state.transactions, body),
    "table_drop": at_once("DROP TABLE", lambda state, body: tables.drop(state.catalog, body)),
    "table_rename": at_once(
        "ALTER TABLE RENAME TO", lambda state, body: tables.rename(state.catalog, body)
    ),
    "delete": lambda state, body: tables.delete(state.transactions, body),
    "log_commit": lambda state, body: log_store.commit(state.catalog, body),
    "log_publish": lambda state, body: log_store.publish(state.catalog, body),
    "scan": lambda state, body: scan.planned(state.catalog, state.transactions, body),
    "aggregate": lambda state, body: aggregates.aggregated(state.catalog, body),
    "changes": lambda state, body: changes.found(state.catalog, body),
    "changes_files": lambda state, body: changes.files(state.catalog, body),
    "stream_start": lambda state, body: streams.start(state.catalog, body),
    "stream_latest": lambda state, body: streams.latest(state.catalog, body),
    "stream_next": lambda state, body: streams.following(state.catalog, body),
    "stream_files": lambda state, body: streams.files(state.catalog, body),
    "write_begin": lambda state, body: state.writes.begin(body),
    "write_numbers": lambda state, body: state.writes.reserve_numbers(body),
    "write_commit": lambda state, body: state.writes.commit(body),
    "write_abort": lambda state, body: state.writes.abort(body),
    "procedures": lambda state, body: procedures.listed(),
    "call": lambda state, body: procedures.called(state.transactions, body),
}
