"""The service: who may connect, its responses, and that a commit happens exactly once."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltasql import _core
from deltasql._core import RowSet
from deltasql.exceptions import InvalidDataError
from deltasql.serve import Service
from deltasql.serve.service_file import default_service_file
from deltasql.store.leases import is_held
from tests.mirror.support import open_mirrored
from tests.oracles import tables_staged
from tests.serve.client import Client, ServiceError, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def service(lake: Catalog) -> Iterator[Service]:
    with Service(lake) as served:
        yield served


@pytest.fixture
def client(service: Service) -> Client:
    return Client(service)


@pytest.fixture
def table(lake: Catalog) -> str:
    with lake.begin() as tx:
        tx.write("t", ROWS)
    return "t"


def test_only_clients_with_the_token_are_answered(service: Service) -> None:
    with pytest.raises(ServiceError, match="the token is wrong"):
        Client(service, "another").call("hello")
    assert Client(service).call("hello")["catalog"].startswith("deltasql://sqlite/")


def test_error_names_another_protocol_version_and_an_unknown_request(client: Client) -> None:
    with pytest.raises(ServiceError) as error:
        client.lines("hello", protocol="v1")
    assert str(error.value) == (
        f"the service of deltasql {_core.__version__} has protocol 2, "
        "and the client sent a request of protocol '1'"
    )
    assert "deltasql.spark.jar()" in error.value.help
    with pytest.raises(ServiceError, match="this service has no request 'fly'"):
        client.call("fly")


def test_error_for_a_too_large_request_names_the_limit(service: Service) -> None:
    limit = service.access["largest_request"]
    assert limit == 256 * 1024 * 1024
    part = bytes(1 << 20)
    connection = HTTPConnection(service.address.removeprefix("http://"))
    connection.putrequest("POST", "/v2/hello")
    connection.putheader("Content-Length", str(limit + 1))
    connection.endheaders()
    for _ in range(256):
        connection.send(part)
    connection.send(b"x")
    response = connection.getresponse()
    error = json.loads(response.read())["error"]
    assert (response.status, error["type"]) == (413, "RequestTooLarge")
    assert error["message"] == f"the request has {limit + 1} bytes, and the limit is {limit}"
    connection.request("POST", "/v2/hello", b"{}", {"Authorization": f"Bearer {service.token}"})
    assert connection.getresponse().status == 200


def test_unexpected_errors_are_logged_with_their_stack(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ServiceError, match="KeyError"):
        client.call("table", name="t")
    (record,) = [each for each in caplog.records if each.name == "deltasql.serve"]
    assert record.getMessage() == "the request /v2/table failed"
    assert record.exc_info is not None
    with pytest.raises(ServiceError, match="does not exist"):
        client.call("table", namespace="default", name="t")
    assert len([each for each in caplog.records if each.name == "deltasql.serve"]) == 1


def test_rows_are_deleted_by_vectors_if_the_table_enables_them(
    client: Client, lake: Catalog
) -> None:
    with lake.begin() as tx:
        vectors = {"delta.enableDeletionVectors": "true"}
        tx.write("v", pa.table({"id": [1, 2, 3]}), properties=vectors)
    (_, files, _) = client.lines("scan", namespace="default", name="v")
    begun = client.begin("v", command="DELETE")
    assert begun["marks_rows"] is True
    two_rows = RowSet.by_file(pa.table({"file": [0, 0], "row": [0, 2]}).to_reader())[0]
    rows = {
        "replaced": [],
        "marked": {files["files"][0][0]: base64.b64encode(two_rows.encode()).decode()},
        "filters": [],
        "change_data": [],
        "copied": 0,
        "updated": 0,
        "deleted": 2,
        "rewrite_ms": 3,
    }
    named = {"namespace": "default", "name": "v"}
    client.call("write_commit", txn_id=begun["txn_id"], files=[], rows=rows, reads=[], **named)
    assert lake.sql("SELECT id FROM v").to_pylist() == [{"id": 2}]
    (metrics,) = (row.info.operation_metrics for row in lake.table("v").history(1))
    assert metrics["num_deletion_vectors_added"] == 1


def test_change_of_rows_keeps_auto_compaction_away_until_it_ends(
    client: Client, lake: Catalog
) -> None:
    with lake.begin() as tx:
        tx.write("c", ROWS, properties={"delta.autoOptimize.autoCompact": "true"})
    table_id = lake.table("c").row.table_id
    appending = client.begin("c")
    assert not is_held(lake.store.query, table_id)
    begun = client.begin("c", command="DELETE")
    assert is_held(lake.store.query, table_id)
    client.call("write_abort", txn_id=begun["txn_id"])
    assert not is_held(lake.store.query, table_id)
    client.call("write_abort", txn_id=appending["txn_id"])


def test_commit_replaces_files_to_change_rows(client: Client, table: str, lake: Catalog) -> None:
    (_, files, _) = client.lines("scan", namespace="default", name=table)
    begun = client.begin(table, command="DELETE")
    rows = {
        "replaced": [files["files"][0][0]],
        "filters": [],
        "change_data": [],
        "copied": 1,
        "updated": 0,
        "deleted": 2,
        "rewrite_ms": 3,
    }
    commit = {
        "statement": "DELETE FROM lake.default.t WHERE id > 1",
        "namespace": "default",
        "name": table,
        "txn_id": begun["txn_id"],
        "files": [write_file(begun, ROWS.slice(0, 1))],
    }
    assert client.call("write_commit", **commit, rows=rows) == {"version": 1}
    assert client.call("write_commit", **commit, rows=rows) == {"version": 1}
    info = lake.table(table).history(1)[0].info
    assert (info.operation, info.operation_parameters) == ("DELETE", {"predicate": "id > 1"})
    assert DeltaTable(lake.table(table).location).to_pyarrow_table().to_pylist() == [{"id": 1}]
    late = client.begin(table, command="DELETE")
    with pytest.raises(ServiceError, match=r"has no file .* in the version that was read"):
        client.call("write_commit", **{**commit, "txn_id": late["txn_id"], "files": []}, rows=rows)


def test_only_the_owner_can_read_the_service_file(lake: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "run" / "lake.json"
    served = Service(lake).start(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(path.read_text())["token"] == served.token
    served.stop()
    assert not path.exists()


def test_service_file_depends_on_catalog_and_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    first, second = default_service_file("a"), default_service_file("b")
    assert first != second
    assert first.parent == Path("/run/user/7/deltasql")


def test_namespaces_are_created_and_dropped_and_tables_are_renamed(
    client: Client, lake: Catalog, table: str
) -> None:
    client.call("namespace_create", namespace="crm")
    assert client.call("namespaces") == {"namespaces": ["crm", "default"]}
    names = {"namespace": "default", "name": table}
    client.call("table_rename", **names, new_namespace="crm", new_name="sales")
    assert client.call("tables", namespace="crm") == {"tables": ["sales"]}
    with pytest.raises(ServiceError, match="not empty"):
        client.call("namespace_drop", namespace="crm")
    client.call("table_drop", namespace="crm", name="sales")
    client.call("namespace_drop", namespace="crm")
    assert client.call("namespaces") == {"namespaces": ["default"]}


def test_scan_lists_only_files_that_can_match(client: Client, lake: Catalog, table: str) -> None:
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [10, 11]}))
    filters = [{"op": ">", "column": ["id"], "value": {"long": 5}}]
    lines = client.lines("scan", namespace="default", name="t", filters=filters)
    assert [len(line["files"]) for line in lines if "files" in line] == [1]
    assert lines[-1] == {"end": 1}
    assert len(client.lines("scan", namespace="default", name="t", version=0)[1]["files"]) == 1


def test_scan_sends_deleted_rows(client: Client, lake: Catalog) -> None:
    tables_staged.deletion_vectors(lake)
    name = next(each.name for each in lake.tables())
    lines = client.lines("scan", namespace="default", name=name)
    files = [file for line in lines for file in line.get("files", ())]
    sent = sorted(
        row for file in files for text in file[4:] for (row,) in _unpacked(base64.b64decode(text))
    )
    live = lake.table(name).snapshot().scan().to_read
    vectors = [json.loads(text) for text in live["deletion_vector"].to_pylist() if text]
    assert len(sent) == sum(each["cardinality"] for each in vectors) > 0


def _unpacked(content: bytes) -> Iterator[tuple[Any, ...]]:
    return struct.iter_unpack("<q", content)


@pytest.mark.parametrize(
    ("microseconds", "includes_start", "first"),
    [(0, True, 2), (0, False, 3), (1, True, 3), (1, False, 3), (-1, True, 2), (-1, False, 2)],
)
def test_range_of_changes_begins_at_a_timestamp_in_microseconds(
    client: Client, lake: Catalog, table: str, microseconds: int, includes_start: bool, first: int
) -> None:
    for number in (1, 2):
        time.sleep(0.003)  # commits have different timestamps
        with lake.begin() as tx:
            tx.write(table, pa.table({"id": [number]}))
    committed_ms = lake.table(table).snapshot(2).committed_at_ms
    start_us = 1000 * committed_ms + microseconds
    found = client.call(
        "changes",
        namespace="default",
        name=table,
        starting_timestamp_us=start_us,
        includes_start=includes_start,
    )
    assert found["first"] == first


def test_append_is_committed_once_although_its_response_is_lost(
    client: Client, lake: Catalog, table: str
) -> None:
    begun = client.begin(table)
    body = {"namespace": "default", "name": table, "txn_id": begun["txn_id"]}
    body["files"] = [write_file(begun, pa.table({"id": [4]}))]
    assert client.call("write_commit", **body) == {"version": 1}
    assert client.call("write_commit", **body) == {"version": 1}
    with Service(lake) as other:  # a service that was started again knows only the database
        assert Client(other).call("write_commit", **body) == {"version": 1}
    rows = DeltaTable(lake.table(table).location)
    assert rows.version() == 1
    assert sorted(rows.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]
    (info,) = lake.table(table).history(1)
    assert info.txn_id == begun["txn_id"]


def test_unknown_transaction_is_not_reported_as_committed(client: Client, table: str) -> None:
    with pytest.raises(ServiceError, match="was not committed") as raised:
        client.call("write_commit", namespace="default", name=table, txn_id="x", files=[])
    assert raised.value.types[0] == "TransactionClosedError"


def test_abort_deletes_the_files(client: Client, lake: Catalog, table: str) -> None:
    begun = client.begin(table)
    write_file(begun, pa.table({"id": [4]}))
    folder = Path(unquote(urlsplit(begun["folder"]).path))
    client.call("write_abort", txn_id=begun["txn_id"])
    assert not list(folder.glob("*.parquet"))
    assert lake.table(table).version() == 0


def test_second_of_two_overwrites_gets_a_conflict(
    client: Client, lake: Catalog, table: str
) -> None:
    begun = client.begin(table)
    with lake.begin() as tx:
        tx.write(table, pa.table({"id": [4]}), mode="overwrite")
    body = {"namespace": "default", "name": table, "txn_id": begun["txn_id"]}
    body |= {"files": [write_file(begun, pa.table({"id": [9]}))], "overwrite": {}}
    with pytest.raises(ServiceError) as raised:
        client.call("write_commit", **body)
    assert "CommitConflictError" in raised.value.types
    assert lake.table(table).version() == 1


def test_partitions_are_overwritten_by_condition_and_by_value(
    client: Client, lake: Catalog
) -> None:
    create = {"mode": "create", "schema": SCHEMA, "partition_by": ["day"]}
    begun = client.begin("p", create=create)

    def commit(begun: dict[str, Any], days: list[int], **body: Any) -> None:
        files = [
            {**write_file(begun, pa.table({"id": [day]})), "partition": [str(day)]} for day in days
        ]
        body |= {"namespace": "default", "name": "p", "files": files}
        client.call("write_commit", txn_id=begun["txn_id"], **body)

    def days() -> list[str]:
        found = DeltaTable(lake.table("p").location).to_pyarrow_table()["day"].to_pylist()
        return sorted(str(each) for each in found)

    commit(begun, [1, 2, 3])
    assert days() == ["1970-01-02", "1970-01-03", "1970-01-04"]
    folders = sorted(path.split("/")[1] for path in lake.table("p").files()["path"].to_pylist())
    assert folders == ["day=1970-01-02", "day=1970-01-03", "day=1970-01-04"]
    one = [{"op": "=", "column": ["day"], "value": {"date": 1}}]
    commit(client.begin("p"), [1, 1], overwrite={"filters": one})
    assert days() == ["1970-01-02", "1970-01-02", "1970-01-03", "1970-01-04"]
    commit(client.begin("p"), [1, 2, 2], overwrite={"same_partitions": True})
    assert days() == ["1970-01-02", "1970-01-03", "1970-01-03", "1970-01-04"]
    with pytest.raises(ServiceError, match="do not match the condition"):
        commit(client.begin("p"), [2], overwrite={"filters": one})


def test_replace_keeps_the_history(client: Client, lake: Catalog, table: str) -> None:
    with pytest.raises(ServiceError, match="already exists"):
        client.begin(table, create={"mode": "create", "schema": SCHEMA})
    begun = client.begin(table, create={"mode": "create_or_replace", "schema": SCHEMA})
    client.call("write_commit", namespace="default", name=table, txn_id=begun["txn_id"])
    assert lake.table(table).version() == 1
    assert lake.table(table).snapshot().schema.names == ("id", "day")
    assert lake.table(table).snapshot(0).schema.names == ("id",)


def test_tables_are_altered_in_one_commit(client: Client, lake: Catalog, table: str) -> None:
    note = SCHEMA.replace('"day"', '"note"').replace('"date"', '"string"')
    added = json.dumps({"type": "struct", "fields": json.loads(note)["fields"][1:]})
    changes = [
        {"change": "add column", "column": ["note"], "schema": added},
        {"change": "rename column", "column": ["id"], "new_name": "key"},
        {"change": "set property", "key": "comment", "value": "all of it"},
    ]
    response = client.call("table_alter", namespace="default", name=table, changes=changes)
    assert [each["name"] for each in json.loads(response["schema"])["fields"]] == ["key", "note"]
    assert (response["version"], response["comment"]) == (1, "all of it")
    with pytest.raises(ServiceError, match="sort by is not supported"):
        client.call("table_alter", namespace="default", name=table, changes=[{"change": "sort by"}])


def test_constraints_and_clustering_are_altered(client: Client, lake: Catalog, table: str) -> None:
    names = {"namespace": "default", "name": table}
    positive = {"change": "add constraint", "name": "positive", "condition": "id > 0"}
    found = client.call(
        "table_alter", **names, changes=[positive, {"change": "cluster by", "columns": ["id"]}]
    )
    assert (found["version"], found["clustering_columns"]) == (1, ["id"])
    assert found["properties"]["delta.constraints.positive"] == "id > 0"
    drop = {"change": "drop constraint", "name": "positive", "if_exists": False}
    found = client.call("table_alter", **names, changes=[drop])
    assert "delta.constraints.positive" not in found["properties"]
    with pytest.raises(ServiceError, match="'positive' does not exist"):
        client.call("table_alter", **names, changes=[drop])
    client.call("table_alter", **names, changes=[{**drop, "if_exists": True}])
    with pytest.raises(ServiceError, match="3 rows failed"):
        high = {"change": "add constraint", "name": "high", "condition": "id > 9"}
        client.call("table_alter", **names, changes=[high])


def test_table_is_created_with_its_rules(client: Client, lake: Catalog) -> None:
    twice = {"delta.generationExpression": "id * 2"}
    schema = json.loads(SCHEMA)
    schema["fields"][1] |= {"name": "twice", "type": "long", "metadata": twice}
    create = {"mode": "create", "schema": json.dumps(schema), "constraints": {"low": "id < 9"}}
    begun = client.begin("r", create=create, checks_rules=True)
    assert (set(begun["rules"]["generated"]), "9" in begun["rules"]["broken"]) == ({"twice"}, True)
    client.call("write_commit", namespace="default", name="r", txn_id=begun["txn_id"])
    assert [commit.info.operation for commit in lake.table("r").history()] == ["CREATE TABLE"]
    with pytest.raises(InvalidDataError), lake.begin() as tx:
        tx.write("r", pa.table({"id": [9]}))
    with lake.begin() as tx:
        tx.write("r", pa.table({"id": [4]}))
    found = DeltaTable(lake.table("r").location).to_pyarrow_table()
    assert found.to_pylist() == [{"id": 4, "twice": 8}]


def test_overwrite_replaces_rows_that_match_a_condition(
    client: Client, lake: Catalog, table: str
) -> None:
    with lake.begin() as tx:
        tx.set_table_properties(table, {"delta.enableChangeDataFeed": "true"})
    high = {"filters": [{"op": ">=", "column": ["id"], "value": {"long": 2}}]}
    begun = client.begin(table, checks_rules=True, overwrite=high)
    assert begun["rules"]["broken"] == "NOT COALESCE(`id` >= 2, FALSE)"
    body = {"namespace": "default", "name": table, "overwrite": high}
    files = [write_file(begun, pa.table({"id": [7]}))]
    client.call("write_commit", txn_id=begun["txn_id"], files=files, **body)
    found = DeltaTable(lake.table(table).location).to_pyarrow_table()["id"].to_pylist()
    assert sorted(found) == [1, 7]
    info = lake.table(table).history(1)[0].info
    assert (info.operation, info.operation_parameters["predicate"]) == ("WRITE", "id >= 2")
    changes = lake.changes(table, 2).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"]) for row in changes) == [
        ("delete", 2),
        ("delete", 3),
        ("insert", 7),
    ]
    begun = client.begin(table)  # a client that does not check the rows
    files = [write_file(begun, pa.table({"id": [7]}))]
    with pytest.raises(ServiceError, match="this client does not check the new rows"):
        client.call("write_commit", txn_id=begun["txn_id"], files=files, **body)


def test_constraints_are_refused_unless_the_client_checks_them(
    client: Client, lake: Catalog, table: str
) -> None:
    assert client.begin(table)["rules"] is None
    with lake.begin() as tx:
        tx.add_constraint(table, {"positive": "id > 0"})
    with pytest.raises(ServiceError, match="positive"):
        client.begin(table)
    rules = client.begin(table, checks_rules=True)["rules"]
    assert (rules["generated"], rules["broken"]) == ({}, "NOT COALESCE(`id` > 0, FALSE)")
    assert rules["settings"]["spark.sql.session.timeZone"] == "UTC"


def test_client_that_does_not_keep_row_ids_cannot_change_rows(
    client: Client, lake: Catalog
) -> None:
    lake.sql("CREATE TABLE n TBLPROPERTIES ('delta.enableRowTracking' = 'true') AS SELECT 1 AS id")
    lake.sql("INSERT INTO n VALUES (2)")
    with pytest.raises(ServiceError, match="does not keep the ids of rows"):
        client.begin("n", command="UPDATE")
    begun = client.begin("n", command="UPDATE", keeps_row_ids=True)
    columns = [each["name"] for each in json.loads(begun["row_columns"])["fields"]]
    table = client.call("table", namespace="default", name="n")
    asked = {"namespace": "default", "name": "n", "id": table["id"], "version": table["version"]}
    head, files, _ = client.lines("scan", **asked, filters=[], row_ids=True)
    assert head["row_columns"] == columns
    assert sorted(file[4:] for file in files["files"]) == [[None, 0, 0], [None, 1, 1]]
    _, plain, _ = client.lines("scan", **asked, filters=[])
    assert {len(file) for file in plain["files"]} == {4}


def test_client_cannot_write_files_that_need_ids_of_array_elements(
    client: Client, lake: Catalog
) -> None:
    for version, extra in ((2, ""), (3, "'delta.enableRowTracking' = 'true', ")):
        lake.sql(
            f"CREATE TABLE v{version} (l ARRAY<INT>) TBLPROPERTIES ({extra}"
            f"'delta.enableIcebergCompatV{version}' = 'true', 'delta.columnMapping.mode' = 'name')"
        )
        with pytest.raises(ServiceError, match="field ids of array elements"):
            client.begin(f"v{version}")


def test_numbers_of_identity_columns_are_reserved_for_a_write(
    client: Client, lake: Catalog
) -> None:
    lake.sql("CREATE TABLE n (id BIGINT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 10), v STRING)")
    with pytest.raises(ServiceError, match="cannot generate the values of the identity column"):
        client.begin("n")
    first, second = (client.begin("n", reserves_numbers=True) for _ in range(2))
    (column,) = first["identity"]
    assert (column["column"], column["step"]) == ("id", 10)
    assert column["given"]["types"][0] == "TxnLogSchemaError"

    def reserve(begun: dict[str, Any], count: int) -> int:
        body = {"txn_id": begun["txn_id"], "column": "id", "count": count}
        found: int = client.call("write_numbers", **body)["first"]
        return found

    assert [reserve(first, 2), reserve(second, 1), reserve(first, 1)] == [1, 21, 31]
    file = write_file(first, pa.table({"id": [1, 11, 31], "v": ["a", "b", "c"]}))
    client.call("write_commit", namespace="default", name="n", txn_id=first["txn_id"], files=[file])
    client.call("write_abort", txn_id=second["txn_id"])
    with pytest.raises(ServiceError, match="was not committed"):
        reserve(second, 1)
    lake.sql("INSERT INTO n (v) VALUES ('d')")
    assert lake.sql("SELECT max(id) AS last FROM n").to_pylist() == [{"last": 41}]


def test_service_ends_with_the_program_that_started_it(sqlite_uri: DeltaSqlUri) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "deltasql.serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{sqlite_uri.to_string()}\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["protocol"] == 2
    process.stdin.close()
    assert process.wait(30) == 0
