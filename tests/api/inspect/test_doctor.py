"""`doctor` finds the problems of a catalog, and changes nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

import deltasql
from deltasql.api.functions import examine
from deltasql.exceptions import (
    MirrorDivergedError,
    StoreUnavailableError,
    TxnLogTableNotFoundError,
)
from deltasql.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.doctor import DoctorReport
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def sales(catalog: Catalog) -> Catalog:
    with catalog.begin() as tx:
        tx.write("sales", ROWS)
    catalog.mirror.publish()
    return catalog


def damage(catalog: Catalog, *statements: str) -> None:
    """Run SQL on the database directly, without the checks of the store."""
    with catalog.store.session() as session:
        session.begin()
        for each in statements:
            session.script(each)
        session.commit()


def add(path: str, size: int, **partition: str) -> dict[str, Any]:
    return {
        "add": {
            "path": path,
            "partitionValues": partition,
            "size": size,
            "modificationTime": 0,
            "dataChange": True,
        }
    }


def problems(report: DoctorReport) -> dict[str, str]:
    return {each.name: each.status for each in report.checks if each.status != "ok"}


def test_intact_catalog_passes_every_check(sales: Catalog) -> None:
    report = sales.inspect.doctor()
    assert problems(report) == {}
    assert report.ok
    assert {each.name for each in report.checks} >= {
        "connectivity",
        "database version",
        "library versions",
        "schema",
        "indexes",
        "pool",
        "integrity",
        "orphan rows",
        "mirror",
        "intents",
        "storage",
        "totals",
        "small files",
        "vacuum",
    }
    assert problems(sales.inspect.doctor(table="sales")) == {}


WRONG: dict[str, tuple[tuple[str, ...], str, str]] = {
    "head behind": (("UPDATE dl_table_heads SET version = 7",), "integrity", "failure"),
    "lost version": (("DELETE FROM dl_table_versions",), "integrity", "failure"),
    "file beyond": (("UPDATE dl_table_heads SET next_file_id = 1",), "integrity", "failure"),
    "no metadata": (("DELETE FROM dl_metadata_updates",), "integrity", "failure"),
    "orphan rows": (("UPDATE dl_mirror_targets SET table_id = 99",), "orphan rows", "warning"),
    "orphan files": (("UPDATE dl_add_files SET table_id = 99",), "orphan rows", "warning"),
    "lost file": (("DELETE FROM dl_add_files",), "totals", "failure"),
    "checksum": (("UPDATE dl_migrations SET checksum = 'x'",), "schema", "failure"),
    "pending": (("DELETE FROM dl_migrations WHERE version = 3",), "schema", "failure"),
    "newer": (("UPDATE dl_migrations SET version = 99 WHERE version = 3",), "schema", "failure"),
    "index": (("DROP INDEX dl_table_versions_time",), "indexes", "failure"),
    "shut": (("UPDATE dl_mirror_targets SET state = 'QUARANTINED'",), "mirror", "failure"),
    "failing": (
        ("UPDATE dl_mirror_targets SET state = 'FAILED', published_version = -1",),
        "mirror",
        "failure",
    ),
    "lag": (
        (
            "UPDATE dl_mirror_targets SET published_version = -1",
            "UPDATE dl_table_versions SET committed_at_ms = 1",
        ),
        "mirror",
        "warning",
    ),
    "intents": (("INSERT INTO dl_staged_files VALUES ('t', 1, 'p', 1)",), "intents", "warning"),
}


@pytest.mark.parametrize("case", WRONG)
def test_doctor_finds_every_kind_of_problem(sales: Catalog, case: str) -> None:
    statements, name, status = WRONG[case]
    damage(sales, *statements)
    report = sales.inspect.doctor()
    assert problems(report).get(name) == status, report
    (first,) = [each for each in report.checks if each.name == name and each.status != "ok"][:1]
    assert first.suggestion
    assert report.ok == (not report.failures)
    assert status == "warning" or not report.ok


def test_doctor_suggests_to_adopt_or_reject_foreign_commits(sales: Catalog) -> None:
    log = Path(sales.table("sales").location) / "_delta_log"
    (log / f"{1:020d}.json").write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')

    def suggestion() -> str:
        (found,) = (each for each in sales.inspect.doctor().checks if each.status != "ok")
        return found.suggestion or ""

    expected = ("deltasql mirror adopt sales", "deltasql mirror reject sales")
    assert all(each in suggestion() for each in expected)
    assert "repair" not in suggestion()
    with sales.begin() as tx:
        tx.write("sales", ROWS)
    with pytest.raises(MirrorDivergedError):
        sales.mirror.publish()
    assert sales.mirror.status("sales")[0].state == "QUARANTINED"
    assert all(each in suggestion() for each in expected)
    sales.mirror.reject("sales")
    (log / f"{1:020d}.json").write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    assert "deltasql mirror repair sales --force" in suggestion()  # version 1 was published


def test_doctor_reports_overdue_vacuum_and_small_files(catalog: Catalog) -> None:
    catalog.create_table(
        "sales", ROWS.schema, properties={"delta.deletedFileRetentionDuration": "interval 0 days"}
    )
    with catalog.begin() as tx:
        tx.stage_table(
            "sales",
            [add(f"{n}.parquet", 10) for n in range(200)],
        )
    with catalog.begin() as tx:
        tx.stage_table(
            "sales",
            [{"remove": {"path": "0.parquet", "deletionTimestamp": 1, "dataChange": True}}],
        )
    found = problems(catalog.inspect.doctor())
    assert (found["small files"], found["vacuum"]) == ("warning", "warning")


def test_doctor_reports_small_files_among_large_ones(catalog: Catalog) -> None:
    catalog.create_table("sales", ROWS.schema)
    files = [add(f"{n}.parquet", 1000 if n else 2**40) for n in range(300)]
    with catalog.begin() as tx:
        tx.stage_table("sales", files)
    (found,) = [each for each in catalog.inspect.doctor().checks if each.name == "small files"]
    assert found.status == "warning"
    assert "299 of 300 files have 1000 B on average" in found.detail
    assert found.table == "sales"


def test_stats_advice_doctor_and_optimize_agree_on_small_files(catalog: Catalog) -> None:
    size = {"delta.targetFileSize": "1mb"}
    catalog.create_table("sales", ROWS.schema, properties=size)
    files = [add(f"{n}.parquet", 1000 if n < 130 else 2**20) for n in range(250)]
    with catalog.begin() as tx:
        tx.stage_table("sales", files)
    stats = catalog.inspect.stats("sales")
    assert (stats.small_files, stats.small_bytes, stats.small_below) == (130, 130_000, 2**20)
    advice = catalog.inspect.advice("sales").optimize
    assert (advice.small_files, advice.small_bytes) == (130, 130_000)
    assert (advice.rewritten_files, advice.new_files) == (130, 1)
    (found,) = [each for each in catalog.inspect.doctor().checks if each.name == "small files"]
    assert "130 of 250 files have 1000 B on average, below the target size of 1 MiB" in found.detail
    assert catalog.optimize("sales", dry_run=True)["numFilesRemoved"] == 130


def test_doctor_ignores_files_too_large_to_be_combined(catalog: Catalog) -> None:
    catalog.create_table("sales", ROWS.schema)
    with catalog.begin() as tx:
        tx.stage_table("sales", [add(f"{n}.parquet", 60 * 2**20) for n in range(300)])
    found = catalog.inspect.advice("sales").optimize
    assert (found.small_files, found.rewritten_files, found.worthwhile) == (300, 0, False)
    assert "small files" not in problems(catalog.inspect.doctor())


def test_doctor_ignores_small_files_that_cannot_be_combined(catalog: Catalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    catalog.create_table("sales", schema, partition_by="day")
    with catalog.begin() as tx:
        tx.stage_table("sales", [add(f"{n}.parquet", 10, day=str(n)) for n in range(300)])
    assert "small files" not in problems(catalog.inspect.doctor())


def test_doctor_reports_an_unreadable_location(sales: Catalog, tmp_path: Path) -> None:
    log = next((tmp_path / "lake").rglob("_delta_log"))
    checksum = log / f"{0:020d}.crc"
    checksum.unlink()
    checksum.mkdir()  # it is there, and no file
    assert problems(sales.inspect.doctor()) == {"storage": "failure"}


def test_doctor_writes_nothing(
    sales: Catalog, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    store = sales.store
    original: Callable[..., Any] = store.query
    monkeypatch.setattr(
        store, "query", lambda name, /, **p: seen.append(name) or original(name, **p)
    )
    before = original("head_facts")
    sales.inspect.doctor()
    assert seen
    assert {statement(name, backend).split()[0] for name in seen} <= {"SELECT", "WITH"}
    assert original("head_facts") == before


def test_examine_reports_a_missing_catalog_and_creates_none(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    report = examine(catalog_uri)
    assert not report.ok
    assert report.failures == 1
    assert list(tmp_path.iterdir()) == []
    with deltasql.connect(catalog_uri, table={"data_root": str(tmp_path)}) as made:
        made.create_table("sales", ROWS.schema)
        assert examine(catalog_uri).ok
        with pytest.raises(TxnLogTableNotFoundError):
            examine(catalog_uri, table="nothing")


def test_unreachable_database_is_a_failed_check(postgres_uri: DeltaSqlUri) -> None:
    report = examine(replace(postgres_uri, host="127.0.0.1", port=1, password="hunter2"))
    assert not report.ok
    assert [each.name for each in report.checks] == ["connectivity"]
    assert "hunter2" not in str(report)


def test_missing_schema_gets_the_same_advice_from_doctor_and_init(
    postgres_uri: DeltaSqlUri,
) -> None:
    uri = replace(postgres_uri, search_path="missing")
    (check,) = examine(uri).checks
    with pytest.raises(StoreUnavailableError) as raised:
        deltasql.connect(uri, create=True)
    assert check.suggestion == raised.value.help
    assert "CREATE SCHEMA missing" in check.suggestion


class _ForbiddenStore(BaseHTTPRequestHandler):
    """An object store that answers every request with 403."""

    requested: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requested.append(self.path)
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def test_doctor_tries_an_unreachable_object_store_only_once(sqlite_uri: DeltaSqlUri) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _ForbiddenStore) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "nowhere",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
        }
        with deltasql.connect(
            sqlite_uri, mirror={"mode": "off"}, storage={"options": options}
        ) as catalog:
            for name in ("a", "b", "c", "near"):
                with catalog.begin() as tx:
                    tx.write(name, ROWS)
            damage(
                catalog,
                "UPDATE dl_tables SET location = 's3://shut/' || name WHERE name <> 'near'",
            )
            with deltasql.connect(
                sqlite_uri, mirror={"mode": "off"}, storage={"options": options}
            ) as again:
                report = again.inspect.doctor()
        server.shutdown()
    found = [each for each in report.checks if each.name == "storage"]
    assert [each.status for each in found] == ["failure", "warning"]
    assert "2 more tables on s3://shut" in found[1].detail
    assert len({path.split("/_delta_log")[0] for path in _ForbiddenStore.requested}) == 1
