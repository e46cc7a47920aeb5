"""Procedures of the service: their arguments, and the statements that they run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.serve import Service
from tests.each import check_each
from tests.mirror.support import open_mirrored
from tests.serve.client import Client, ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        for value in (1, 2):
            with opened.begin() as tx:
                tx.write("crm.t", pa.table({"id": [value]}))
        yield opened


@pytest.fixture
def client(lake: Catalog) -> Iterator[Client]:
    with Service(lake) as served:
        yield Client(served)


def rows(client: Client, procedure: str, **arguments: Any) -> list[dict[str, Any]]:
    """Call a procedure in a session whose current namespace is crm, and return its rows."""
    body = {"catalog": "lake", "namespace": "crm", "time_zone": "+02:00"}
    found = client.call("call", procedure=procedure, arguments=arguments, **body)
    names = [field["name"] for field in json.loads(found["schema"])["fields"]]
    return [dict(zip(names, row, strict=True)) for row in found["rows"]]


def test_procedures_are_listed_with_their_parameters(client: Client) -> None:
    listed = {each["name"]: each for each in client.call("procedures")["procedures"]}
    (table, limit) = listed["history"]["parameters"]
    assert (table["name"], table["type"], table["default"]) == ("table", "STRING", None)
    assert (limit["name"], limit["default"]) == ("limit", "NULL")
    assert [each["transaction"] for each in (listed["begin"], listed["commit"])] == ["begin", "end"]


def test_tables_are_named_with_and_without_catalog_and_namespace(client: Client) -> None:
    for name in ("t", "crm.t", "lake.crm.t", "`crm`.`t`"):
        assert rows(client, "detail", table=name)[0]["numFiles"] == 2, name


def test_procedures_optimize_vacuum_restore_and_list_the_history(
    client: Client, lake: Catalog
) -> None:
    assert rows(client, "optimize", table="t")[0]["metrics"]["numFilesRemoved"] == 2
    assert rows(client, "vacuum", table="t", retain_hours=200, dry_run=True) == []
    rows(client, "set_properties", table="t", properties={"owner": "me"})
    rows(client, "add_constraint", table="t", name="small", condition="id < 100")
    rows(client, "restore", table="t", version=0)
    commits = rows(client, "history", table="t", limit=2)
    assert [each["operation"] for each in commits] == ["RESTORE", "ADD CONSTRAINT"]
    assert isinstance(commits[0]["timestamp"], int)
    assert lake.sql("SELECT * FROM crm.t").to_pylist() == [{"id": 1}]


def test_procedures_convert_a_folder_and_undrop_a_table(
    client: Client, lake: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "events" / "day=2024-05-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "part.parquet")
    path = str(folder.parent)
    rows(client, "convert", table="e", path=path, partitioned_by="day DATE")
    assert str(lake.sql("SELECT day FROM crm.e")["day"][0]) == "2024-05-01"
    lake.drop("crm.e")
    rows(client, "undrop", table="e")
    assert lake.exists("crm.e")


def test_timestamp_without_a_zone_is_in_the_zone_of_the_session(client: Client) -> None:
    """An hour after the commits in UTC is an hour before them in the zone +02:00."""
    committed = rows(client, "history", table="t")[0]["timestamp"] // 1_000_000
    local, utc = (
        pa.scalar(committed + hours * 3600, pa.timestamp("s")).as_py() for hours in (1, -1)
    )
    with pytest.raises(ServiceError, match=f"crm.t had no version at {utc.isoformat()}"):
        rows(client, "execute", statement=f"RESTORE t TO TIMESTAMP AS OF '{local}'")


def test_clone_has_the_rows_of_a_version(client: Client, lake: Catalog) -> None:
    rows(client, "clone", table="shared", source="lake.crm.t", shallow=True, version=0)
    statement = "CREATE OR REPLACE TABLE lake.default.own DEEP CLONE t VERSION AS OF 0"
    rows(client, "execute", statement=statement)
    (first,) = lake.table("crm.t").snapshot(0).scan().arrow["path"].to_pylist()
    for name, shares in (("crm.shared", True), ("own", False)):
        table = lake.table(name)
        (path,) = table.files()["path"].to_pylist()
        assert path.endswith(first) == shares
        assert lake.sql(f"SELECT * FROM {name}").to_pylist() == [{"id": 1}]
        assert table.history()[0].info.operation == "CLONE"


def test_error_names_an_unknown_procedure_or_wrong_argument(client: Client) -> None:
    def check(case: tuple[str, dict[str, Any], str]) -> None:
        procedure, arguments, message = case
        with pytest.raises(ServiceError, match=message):
            rows(client, procedure, **arguments)

    check_each(
        (
            ("fly", {}, "there is no procedure fly"),
            ("detail", {"table": None}, "the argument table is null"),
            ("detail", {"table": "t; DROP TABLE t"}, "several statements"),
            ("detail", {"table": "t t"}, "should end here"),
            ("detail", {"table": "nosuch"}, "nosuch"),
            ("restore", {"table": "t"}, "needs a version or a timestamp"),
            ("restore", {"table": "t", "version": 1, "timestamp": 1}, "a version and a timestamp"),
            ("optimize", {"table": "t", "where": "id = 1"}, "other columns than partition"),
            ("execute", {"statement": "SELECT 1"}, "the procedure execute cannot run SELECT"),
            ("execute", {"statement": "BEGIN"}, "the procedure execute cannot run BEGIN"),
            ("clone", {"table": "c"}, "the argument source is null"),
            ("convert", {"table": "e", "path": "/x", "partitioned_by": "day"}, "expected a"),
        ),
        check,
    )
