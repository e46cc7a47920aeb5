"""Causes every error in docs/troubleshooting.md.

`python -m tests.troubleshooting` writes the real messages into the page.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import deltalake
import psycopg
import pyarrow as pa

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.config import StorageSettings
from deltasql.exceptions import TxnLogStorageError
from deltasql.storage import open_storage
from deltasql.uri import DeltaSqlUri
from tests.pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
_ENTRY = re.compile(r"^### ([^\n]+)\n\n```text\n(.*?)```\n", re.MULTILINE | re.DOTALL)
UNREACHABLE = {
    "aws_endpoint_url": "http://127.0.0.1:1",
    "aws_allow_http": "true",
    "aws_region": "us-east-1",
    "aws_access_key_id": "someone",
    "aws_secret_access_key": "hunter2",
}
ROWS = pa.table({"id": [1, 2], "day": ["mon", "tue"]})


class Trouble:
    """A catalog with a table, and methods that cause errors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = f"deltasql://sqlite/{folder}/meta.db"
        self.table = f"{self.uri}?table=sales"
        deltasql.write_deltalake(self.table, ROWS)
        self.catalog = deltasql.connect(self.uri)

    def close(self) -> None:
        self.catalog.close()
        close_all()

    def message(self, heading: str) -> str:
        """Cause the error of a heading and return its message as Python shows it."""
        make = MADE[heading]
        try:
            make(self)
        except Exception as error:
            text = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
            me = f"process {os.getpid()} on {os.uname().nodename}"
            text = text.replace(me, "process 4711 on etl-1")
            text = re.sub(r"session \d+ \(user \w+", "session 4711 (user etl", text)
            text = re.sub(r"(?<=idle in transaction for )\d+", "1", text)
            return text.replace(str(self.folder), "/srv").rstrip() + "\n"
        raise AssertionError(f"nothing went wrong: {heading}")

    def quarantine_the_mirror(self) -> None:
        with deltasql.connect(self.uri, table={"in_commit_timestamps": False}) as loose:
            loose.create_table("inbox", ROWS.schema)
            place = loose.table("inbox").location
        deltalake.write_deltalake(place, ROWS, mode="append")  # bypasses the database
        with self.catalog.begin() as tx:
            tx.write("inbox", ROWS)
        self.catalog.mirror.publish("inbox")

    def lose_a_race(self) -> None:
        first, second = self.catalog.begin(), self.catalog.begin()
        for tx in (first, second):
            tx.update("sales", {"day": "'wed'"}, predicate="id = 1")
        first.commit()
        second.commit()

    def change_the_columns(self) -> None:
        first, second = self.catalog.begin(), self.catalog.begin()
        second.update("sales", {"day": "'wed'"})
        first.add_columns("sales", pa.schema([("note", pa.string())]))
        first.commit()
        second.commit()

    def hold_the_lock(self) -> None:
        schema = f"trouble_{uuid.uuid4().hex[:12]}"
        address = os.environ["TEST_DATABASE_URL"]
        with psycopg.connect(address, application_name="a long report") as other:
            other.execute(f"CREATE SCHEMA {schema}")
            other.commit()
            info = other.info
            uri = DeltaSqlUri(
                backend="postgres",
                database=info.dbname,
                user=info.user,
                password=info.password or None,
                host=info.host,
                port=info.port,
                search_path=schema,
            )
            root = {"data_root": str(self.folder / "lake")}
            try:
                with deltasql.connect(uri, table=root, store={"lock_timeout_ms": 2_500}) as catalog:
                    catalog.create_table("sales", ROWS.schema)
                    other.execute(f"SELECT FROM {schema}.dl_table_heads FOR UPDATE")
                    with catalog.begin() as tx:
                        tx.write("sales", ROWS)
            finally:
                other.rollback()
                other.execute(f"DROP SCHEMA {schema} CASCADE")

    def hold_the_queue(self) -> None:
        with (
            self.catalog.store.session() as session,
            deltasql.connect(self.uri, store={"busy_timeout_ms": 50}) as waiting,
            waiting.begin() as tx,
        ):
            session.begin()
            tx.write("sales", ROWS)

    def fork_after_use(self) -> None:
        with suppress(TxnLogStorageError):
            read_from_an_unreachable_store()
        with ProcessPoolExecutor(1, get_context("fork")) as forked:
            forked.submit(read_from_an_unreachable_store).result()

    def hold_the_file(self) -> None:
        place = f"deltasql://duckdb/{self.folder}/meta.duckdb"
        opened = f"deltasql.connect({place!r}, create=True)"
        code = f"import deltasql; {opened}; print(1, flush=True); input()"
        command = [sys.executable, "-c", code]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdout.readline()
            try:
                deltasql.connect(place).close()
            finally:
                other.stdin.write("\n")
                other.stdin.close()

    def use_a_newer_schema(self) -> None:
        with sqlite3.connect(self.folder / "meta.db") as database:
            database.execute(
                "INSERT INTO dl_migrations SELECT 99, 'later', checksum, applied_at_ms "
                "FROM dl_migrations LIMIT 1"
            )
        deltasql.connect(self.uri)

    def lose_files(self) -> None:
        with self.catalog.begin() as tx:
            tx.delete("sales", "id = 1")
        options = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
        self.catalog.vacuum("sales", **options)
        with self.catalog.begin() as tx:
            tx.restore("sales", 0)

    def merge_twice(self) -> None:
        twice = pa.table({"id": [2, 2], "day": ["thu", "fri"]})
        with self.catalog.begin() as tx:
            merge = tx.merge("sales", twice, "target.id = source.id")
            merge.when_matched_update_all().execute()

    def break_a_rule(self) -> None:
        with self.catalog.begin() as tx:
            tx.add_constraint("sales", {"positive": "id > 0"})
        self.append(pa.table({"id": [-1], "day": ["mon"]}))

    def append(self, rows: pa.Table) -> None:
        deltasql.write_deltalake(self.table, rows, mode="append")

    def create_over_a_log(self) -> None:
        place = f"{self.folder}/lake/orders"
        deltalake.write_deltalake(place, ROWS)
        self.catalog.create_table("orders", ROWS.schema, location=place)

    def write_to_a_followed_table(self) -> None:
        place = f"{self.folder}/lake/events"
        deltalake.write_deltalake(place, ROWS)
        self.catalog.follow(place)
        deltasql.write_deltalake(f"{self.uri}?table=events", ROWS, mode="append")

    def take_the_log_of_another_catalog(self) -> None:
        with deltasql.connect(f"deltasql://sqlite/{self.folder}/other.db") as other:
            other.import_table(self.catalog.table("sales").location)

    def write_to_a_table_with_a_newer_feature(self) -> None:
        place = f"{self.folder}/lake/newer"
        deltalake.write_deltalake(place, ROWS)
        features = ["appendOnly", "invariants", "newerFeature"]
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        commit = Path(place) / "_delta_log" / f"{1:020d}.json"
        commit.write_text(json.dumps({"protocol": protocol}))
        self.catalog.import_table(place)
        deltasql.write_deltalake(f"{self.uri}?table=newer", ROWS, mode="append")

    def use_a_finished_transaction(self) -> None:
        with self.catalog.begin() as tx:
            tx.write("sales", ROWS)
        tx.write("sales", ROWS)

    def write_to_an_unreachable_store(self) -> None:
        settings = {"options": UNREACHABLE, "retries": 0}
        place = {"data_root": "s3://lake/tables"}
        with (
            deltasql.connect(self.uri, storage=settings, table=place) as catalog,
            catalog.begin() as tx,
        ):
            tx.write("far", ROWS)


def read_from_an_unreachable_store() -> None:
    open_storage("s3://lake", StorageSettings(options=UNREACHABLE, retries=0)).exists("a")


MADE: dict[str, Callable[[Trouble], object]] = {
    "a URI starts with deltasql://": lambda t: deltasql.connect("sqlite:///srv/meta.db"),
    "unknown parameter": lambda t: deltasql.connect("deltasql://postgres/db?ssl_mode=require"),
    "environment variable … is not set": lambda t: deltasql.connect(
        "deltasql://postgres/etl:${PASSWORD_OF_NOBODY}@db.example.com/lake"
    ),
    "no catalog is named": lambda t: deltasql.connect("prod"),
    "unknown setting": lambda t: deltasql.connect(t.uri, pool={"max_sise": 3}),
    "cannot connect to PostgreSQL": lambda t: deltasql.connect(
        "deltasql://postgres/etl:hunter2@127.0.0.1:1/lake?connect_timeout=2"
    ),
    "there is no catalog yet": lambda t: deltasql.connect(
        f"deltasql://sqlite/{t.folder}/other.db"
    ).tables(),
    "canceling statement due to lock timeout": Trouble.hold_the_lock,
    "did not get the write lock of the SQLite database": Trouble.hold_the_queue,
    "Could not set lock on file": Trouble.hold_the_file,
    "the catalog has schema version … this release supports": Trouble.use_a_newer_schema,
    "table … does not exist": lambda t: deltasql.DeltaTable(f"{t.uri}?table=sale"),
    "has no version": lambda t: deltasql.DeltaTable(t.table, version=9),
    "holds a Delta table already": Trouble.create_over_a_log,
    "A table already exists at": lambda t: deltasql.write_deltalake(t.table, ROWS),
    "cannot be changed: it follows the log": Trouble.write_to_a_followed_table,
    "belongs to another catalog": Trouble.take_the_log_of_another_catalog,
    "cannot write this table: it needs": Trouble.write_to_a_table_with_a_newer_feature,
    "Field … not found in schema": lambda t: t.append(pa.table({"id": [1], "amount": [2]})),
    "Cast error": lambda t: t.append(pa.table({"id": ["x"], "day": ["mon"]})),
    "rows failed validation check": Trouble.break_a_rule,
    "MERGE matched a target row with multiple source rows": Trouble.merge_twice,
    "a concurrent transactions added new data": Trouble.lose_a_race,
    "Metadata changed since last commit": Trouble.change_the_columns,
    "this transaction is committed": Trouble.use_a_finished_transaction,
    "Unsupported table features required: [InCommitTimestamp]": lambda t: deltalake.write_deltalake(
        t.catalog.table("sales").location, ROWS, mode="append"
    ),
    "the mirror … is quarantined: another program changed its log": Trouble.quarantine_the_mirror,
    "Generic S3 error": Trouble.write_to_an_unreachable_store,
    "object stores cannot be used in this process": Trouble.fork_after_use,
    "Invalid retention period": lambda t: t.catalog.vacuum(
        "sales", retention_hours=1, dry_run=False
    ),
    "Find missing file … when restore": Trouble.lose_files,
    "only queries can be run here": lambda t: t.catalog.query("DELETE FROM sales"),
}


def entries(text: str) -> dict[str, str]:
    """Return the messages on the page by heading."""
    return dict(_ENTRY.findall(text))


if __name__ == "__main__":

    def _written(match: re.Match[str]) -> str:
        with tempfile.TemporaryDirectory() as temporary:
            trouble = Trouble(Path(temporary))
            message = trouble.message(match[1])
            trouble.close()
        return f"### {match[1]}\n\n```text\n{message}```\n"

    PAGE.write_text(_ENTRY.sub(_written, PAGE.read_text("utf-8")), "utf-8")
