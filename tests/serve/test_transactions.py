"""Transactions over several requests: what they see, how they end, and that they commit once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest

from deltasql.serve import Service
from tests.mirror.support import open_mirrored
from tests.serve.client import Client, ServiceError, watch_ends, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

T, U = ({"namespace": "default", "name": name} for name in "tu")


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        with opened.begin() as tx:
            tx.write("t", pa.table({"id": [1]}))
            tx.write("u", pa.table({"id": [10]}))
        yield opened


@pytest.fixture
def client(lake: Catalog) -> Iterator[Client]:
    with Service(lake) as served:
        yield Client(served)


def call(client: Client, procedure: str, **body: Any) -> dict[str, Any]:
    return client.call("call", procedure=procedure, **body)


def append(client: Client, table: dict[str, str], value: int, **body: Any) -> dict[str, Any]:
    """Append a row, and return the commit, which can be sent again."""
    described = client.call("table", **table, **body)
    read = {key: described[key] for key in ("id", "version", "read_in") if key in described}
    begun = client.call("write_begin", **table, **read, **body)
    files = [write_file(begun, pa.table({"id": [value]}))]
    commit = {**table, "txn_id": begun["txn_id"], "files": files, **body}
    client.call("write_commit", **commit)
    return commit


def files_of(client: Client, table: dict[str, str], **body: Any) -> int:
    """Return the number of files that a request reads."""
    described = client.call("table", **table, **body)
    read_in = {"read_in": described["read_in"]} if "read_in" in described else {}
    return client.lines("scan", **table, **read_in, **body)[-1]["end"]


def test_transaction_reads_its_staged_writes_and_commits_all_tables(
    client: Client, lake: Catalog
) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    commit = append(client, T, 2, **inside)
    client.call("write_commit", **commit)  # its response was lost
    append(client, U, 20, **inside)
    changes = [{"change": "set property", "key": "owner", "value": "me"}]
    client.call("table_alter", **U, changes=changes, **inside)
    assert (files_of(client, T, **inside), files_of(client, T)) == (2, 1)
    assert client.call("table", **U, **inside)["properties"]["owner"] == "me"
    assert "owner" not in client.call("table", **U)["properties"]
    assert call(client, "commit", **inside)["rows"] == [["t", 1], ["u", 1]]
    assert lake.table("t").version() == lake.table("u").version() == 1
    assert files_of(client, T) == 2


@pytest.mark.parametrize(
    "changes",
    [
        [{"change": "rename column", "column": ["id"], "new_name": "key"}],
        [{"change": "set property", "key": "delta.enableRowTracking", "value": "true"}],
    ],
    ids=["columns", "row tracking"],
)
def test_statement_that_was_analysed_before_a_change_is_refused(
    client: Client, changes: list[dict[str, Any]]
) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    described = client.call("table", **T, **inside)
    read = {key: described[key] for key in ("id", "version", "read_in")} | inside
    read["known"] = {key: described[key] for key in ("schema", "partition_columns", "has_row_ids")}
    append(client, T, 2, **inside)
    other = [{"change": "set property", "key": "owner", "value": "me"}]
    client.call("table_alter", **T, changes=other, **inside)
    assert client.lines("scan", **T, **read)[-1]["end"] == 2
    client.call("table_alter", **T, changes=changes, **inside)
    for request in ("scan", "write_begin"):
        with pytest.raises(ServiceError, match="changed after the statement was analysed") as error:
            client.lines(request, **T, **read)
        assert error.value.types[0] == "TableChangedError"
    with pytest.raises(ServiceError, match="rolled back"):
        call(client, "commit", **inside)


def test_statement_that_replaces_a_table_reads_its_old_rows(client: Client, lake: Catalog) -> None:
    """As CREATE OR REPLACE TABLE t AS SELECT … FROM t does."""
    inside = {"transaction": call(client, "begin")["transaction"]}
    described = client.call("table", **T, **inside)
    read = {key: described[key] for key in ("id", "version", "read_in")} | inside
    read["known"] = {key: described[key] for key in ("schema", "partition_columns", "has_row_ids")}
    schema = described["schema"].replace('"id"', '"key"')
    create = {"mode": "create_or_replace", "schema": schema}
    begun = client.begin("t", create=create, **inside)
    first, *_, last = client.lines("scan", **T, **read)
    assert (first["schemas"], last) == ([described["schema"]], {"end": 1})
    files = [write_file(begun, pa.table({"key": [7]}))]
    client.call("write_commit", **T, txn_id=begun["txn_id"], files=files, **inside)
    with pytest.raises(ServiceError, match="changed after the statement was analysed"):
        client.lines("scan", **T, **read)
    assert files_of(client, T, **inside) == 1
    call(client, "commit", **inside)
    assert lake.sql("SELECT * FROM t").to_pylist() == [{"key": 7}]


def test_replaced_table_is_read_at_the_version_that_is_replaced(
    client: Client, lake: Catalog
) -> None:
    """A statement that begins in a table with auto compaction may read a later version."""
    with lake.begin() as tx:
        tx.set_table_properties("t", {"delta.autoOptimize.autoCompact": "true"})
    inside = {"transaction": call(client, "begin")["transaction"]}
    described = client.call("table", **T, **inside)
    read = {key: described[key] for key in ("id", "version", "read_in")} | inside
    append(client, T, 2)  # of another transaction
    create = {"mode": "create_or_replace", "schema": described["schema"]}
    begun = client.begin("t", create=create, **inside)
    assert client.lines("scan", **T, **read)[-1] == {"end": 2}
    files = [write_file(begun, pa.table({"id": [1, 2]}))]
    client.call("write_commit", **T, txn_id=begun["txn_id"], files=files, **inside)
    call(client, "commit", **inside)
    assert lake.sql("SELECT * FROM t ORDER BY id")["id"].to_pylist() == [1, 2]


def test_replaced_table_is_not_read_by_a_statement_that_was_analysed_before_a_change(
    client: Client,
) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    described = client.call("table", **T, **inside)
    read = {key: described[key] for key in ("id", "version", "read_in")} | inside
    read["known"] = {key: described[key] for key in ("schema", "partition_columns", "has_row_ids")}
    rename = {"change": "rename column", "column": ["id"], "new_name": "key"}
    client.call("table_alter", **T, changes=[rename], **inside)
    create = {"mode": "create_or_replace", "schema": described["schema"]}
    client.begin("t", create=create, **inside)
    with pytest.raises(ServiceError, match="changed after the statement was analysed"):
        client.lines("scan", **T, **read)


def test_transaction_sees_all_tables_as_they_were_at_its_first_read(client: Client) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    assert files_of(client, T, **inside) == 1
    append(client, U, 11)
    assert (files_of(client, U, **inside), files_of(client, U)) == (1, 2)


def test_commit_happens_once_although_its_response_is_lost(client: Client, lake: Catalog) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    append(client, T, 2, **inside)
    first = call(client, "commit", **inside)
    with Service(lake) as again:  # the service was started again
        for each in (client, Client(again)):
            assert call(each, "commit", **inside)["rows"] == first["rows"] == [["t", 1]]
    assert lake.table("t").version() == 1


def test_transaction_is_not_committed_if_its_service_has_ended(lake: Catalog) -> None:
    with Service(lake) as first:
        inside = {"transaction": call(Client(first), "begin")["transaction"]}
        append(Client(first), T, 2, **inside)
    with Service(lake) as second:
        for request in ("commit", "detail"):
            with pytest.raises(ServiceError, match="nothing of it was committed"):
                call(Client(second), request, arguments={"table": "t"}, **inside)
        call(Client(second), "rollback", **inside)
    assert lake.table("t").version() == 0


def test_transaction_is_rolled_back_when_its_client_is_gone(lake: Catalog, tmp_path: Path) -> None:
    with Service(lake) as service:
        client = Client(service)
        inside = {"transaction": call(client, "begin")["transaction"]}
        append(client, T, 2, **inside)
        ended = watch_ends(service)
        body = f'{{"transaction": "{inside["transaction"]}"}}'.encode()
        headers = {"Authorization": f"Bearer {service.token}"}
        url = f"{service.address}/v2/transaction_hold"
        with urlopen(Request(url, body, headers)) as held:
            assert held.readline() == b"{}\n"
            assert files_of(client, T, **inside) == 2
        assert ended.wait(30)
        with pytest.raises(ServiceError, match="its client was disconnected"):
            files_of(client, T, **inside)
    assert len(list((tmp_path / "lake").rglob("t/**/*.parquet"))) == 1


def test_failed_statement_blocks_the_transaction(client: Client, lake: Catalog) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    append(client, T, 2, **inside)
    with pytest.raises(ServiceError, match="nosuch"):
        call(client, "detail", arguments={"table": "nosuch"}, **inside)
    with pytest.raises(ServiceError, match="a statement of the transaction failed"):
        append(client, T, 3, **inside)
    with pytest.raises(ServiceError, match="was rolled back, because one of its statements"):
        call(client, "commit", **inside)
    assert lake.table("t").version() == 0


def test_conflict_ends_the_transaction(client: Client, lake: Catalog) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    client.call("delete", **T, **inside)
    with lake.begin() as tx:
        tx.delete("t")
    with pytest.raises(ServiceError, match="t") as raised:
        call(client, "commit", **inside)
    assert "CommitConflictError" in raised.value.types
    with pytest.raises(ServiceError, match="nothing of it was committed"):
        call(client, "commit", **inside)


def test_requests_out_of_order_and_statements_that_take_effect_at_once_are_refused(
    client: Client,
) -> None:
    for name in ("commit", "rollback"):
        with pytest.raises(ServiceError, match=f"{name} without a transaction"):
            call(client, name)
    inside = {"transaction": call(client, "begin")["transaction"]}
    with pytest.raises(ServiceError, match="a transaction is open already"):
        call(client, "begin", **inside)
    for request, body in (
        ("table_drop", T),
        ("table_rename", {**T, "new_namespace": "default", "new_name": "s"}),
        ("namespace_create", {"namespace": "crm"}),
        ("namespace_drop", {"namespace": "crm"}),
    ):
        with pytest.raises(ServiceError, match="cannot be part of a transaction: it takes effect"):
            client.call(request, **body, **inside)
    with pytest.raises(ServiceError, match="VACUUM cannot be part of a transaction"):
        call(client, "vacuum", arguments={"table": "t"}, **inside)


def test_table_read_in_an_ended_transaction_is_read_again(client: Client) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    read_in = client.call("table", **T, **inside)["read_in"]
    call(client, "rollback", **inside)
    with pytest.raises(ServiceError, match="read in a transaction that has ended"):
        client.lines("scan", **T, read_in=read_in)


def test_table_created_in_a_transaction_is_visible_only_in_it(
    client: Client, lake: Catalog
) -> None:
    inside = {"transaction": call(client, "begin")["transaction"]}
    schema = client.call("table", **T)["schema"]
    new = {"namespace": "default", "name": "new"}
    begun = client.call("write_begin", **new, create={"mode": "create", "schema": schema}, **inside)
    client.call("write_commit", **new, txn_id=begun["txn_id"], **inside)
    append(client, new, 5, **inside)
    assert files_of(client, new, **inside) == 1
    assert "new" in client.call("tables", namespace="default", **inside)["tables"]
    assert "new" not in client.call("tables", namespace="default")["tables"]
    assert call(client, "commit", **inside)["rows"] == [["new", 0]]
    assert lake.sql("SELECT * FROM new").to_pylist() == [{"id": 5}]


def test_change_feed_has_the_rows_of_all_statements(client: Client, lake: Catalog) -> None:
    """If a commit has change data, readers ignore its other files."""
    with lake.begin() as tx:
        tx.set_table_properties("t", {"delta.enableChangeDataFeed": "true"})
    inside = {"transaction": call(client, "begin")["transaction"]}
    append(client, T, 2, **inside)
    replace_first_file(client, pa.table({"id": [5]}), **inside)
    append(client, T, 3, **inside)
    call(client, "commit", **inside)
    changes = lake.changes("t", 2).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"]) for row in changes) == [
        ("insert", 2),
        ("insert", 3),
        ("update_postimage", 5),
        ("update_preimage", 1),
    ]


def replace_first_file(client: Client, rows: pa.Table, **body: Any) -> None:
    """Update the row 1 of the table T, which is alone in its file."""
    described = client.call("table", **T, **body)
    read = {key: described[key] for key in ("id", "version", "read_in")}
    lines = client.lines("scan", **T, **read, **body)
    first = next(file[0] for line in lines for file in line.get("files", ()))
    begun = client.call("write_begin", **T, **read, **body, command="UPDATE")
    changed = pa.table(
        {
            "id": [1, *rows["id"].to_pylist()],
            "_change_type": ["update_preimage", "update_postimage"],
        }
    )
    counts = {"copied": 0, "updated": 1, "deleted": 0, "rewrite_ms": 1}
    files = [write_file(begun, rows)]
    change_data = [write_file(begun["change_data"], changed)]
    done = {"replaced": [first], "filters": [], "change_data": change_data, **counts}
    client.call("write_commit", **T, txn_id=begun["txn_id"], files=files, rows=done, **body)
