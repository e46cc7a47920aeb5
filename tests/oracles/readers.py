"""Independent readers of a published table, with results in one normal form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import deltalake
import duckdb
import duckdb_extensions
import polars
import pyarrow as pa

from tests.oracles.states import Log, Rows, arrow_rows, value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Place:
    """A published table: its folder or bucket, and the storage options for a reader."""

    location: str
    options: Mapping[str, str] = field(default_factory=dict)


class Reader(Protocol):
    """Reads the rows of a published table at a version."""

    def rows(self, place: Place, version: int) -> Rows: ...


def stock_table(place: Place, version: int | None = None) -> deltalake.DeltaTable:
    """Open a table with deltalake."""
    return deltalake.DeltaTable(
        place.location, version=version, storage_options=dict(place.options) or None
    )


class Deltalake:
    """deltalake's own scan, which supports column mapping and deletion vectors."""

    def rows(self, place: Place, version: int) -> Rows:
        return arrow_rows(pa.table(stock_table(place, version).scan()))


class DeltalakeArrow:
    """deltalake with a pyarrow dataset, as most Python code reads it."""

    def rows(self, place: Place, version: int) -> Rows:
        return arrow_rows(stock_table(place, version).to_pyarrow_table())


class Polars:
    """polars, which gets the list of files from deltalake and reads them itself."""

    def rows(self, place: Place, version: int) -> Rows:
        frame = polars.read_delta(
            place.location, version=version, storage_options=dict(place.options) or None
        )
        return arrow_rows(frame.to_arrow())


class DuckDb:
    """DuckDB's `delta_scan`: the Delta kernel in Rust with DuckDB's Parquet reader."""

    def __init__(self) -> None:
        for extension in ("delta", "httpfs"):
            duckdb_extensions.import_extension(extension)
        self._connection = duckdb.connect()
        self._connection.execute("LOAD delta; LOAD httpfs; SET TimeZone = 'UTC'")
        self._secrets: set[str] = set()

    def rows(self, place: Place, version: int) -> Rows:
        self._create_secret(place)
        found = self._connection.execute(
            "SELECT * FROM delta_scan($place, version = $version)",
            {"place": place.location, "version": version},
        )
        return arrow_rows(found.to_arrow_table())

    def query(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run another query."""
        return self._connection.execute(sql, values).fetchall()

    def _create_secret(self, place: Place) -> None:
        if not place.options or place.location in self._secrets:
            return
        options = {name.lower(): value for name, value in place.options.items()}
        endpoint = options["aws_endpoint_url"].partition("://")[2]
        self._connection.execute(
            f"CREATE SECRET s{len(self._secrets)} (TYPE s3, SCOPE '{place.location}', "
            f"KEY_ID '{options['aws_access_key_id']}', SECRET '{options['aws_secret_access_key']}',"
            f" REGION '{options.get('aws_region', 'us-east-1')}', ENDPOINT '{endpoint}',"
            " URL_STYLE 'path', USE_SSL false)"
        )
        self._secrets.add(place.location)


class DeltaSpark:
    """delta-spark, the reference implementation of the protocol."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def rows(self, place: Place, version: int, where: str = "true") -> Rows:
        reader = self._spark.read.format("delta").option("versionAsOf", version)
        return arrow_rows(reader.load(place.location).where(where).toArrow())

    def log(self, place: Place, version: int) -> dict[str, Any]:
        """Return the state that delta-spark replays, with every field of every live file."""
        jvm: Any = self._spark._jvm
        none = jvm.scala.Option.empty()
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self._spark._jsparkSession, place.location
        )
        snapshot = log.getSnapshotAt(version, none, none, False)
        files = [json.loads(line) for line in snapshot.allFiles().toJSON().collectAsList()]
        txns = _scala_list(jvm, snapshot.setTransactions())
        domains = _scala_list(jvm, snapshot.domainMetadata())
        return {
            "metaData": json.loads(snapshot.metadata().json())["metaData"],
            "protocol": json.loads(snapshot.protocol().json())["protocol"],
            "add": sorted(files, key=lambda add: str(add["path"])),
            "txn": sorted((json.loads(txn.json())["txn"] for txn in txns), key=str),
            "domainMetadata": sorted(
                (json.loads(domain.json())["domainMetadata"] for domain in domains), key=str
            ),
        }


def stock_log(place: Place, version: int, apps: Iterable[str] = ()) -> Log:
    """Return the state of a version in deltalake without the rows."""
    table = stock_table(place, version)
    metadata, protocol = table.metadata(), table.protocol()
    adds = pa.table(table.get_add_actions())
    names = ("path", "size_bytes", "modification_time", "num_records", "partition")
    known = adds.select([name for name in names if name in adds.column_names]).to_pylist()
    found = {app: table.transaction_version(app) for app in apps}
    return Log(
        version=table.version(),
        schema=json.dumps(json.loads(table.schema().to_json()), sort_keys=True),
        partition_columns=tuple(metadata.partition_columns),
        configuration=metadata.configuration,
        description=(str(metadata.id), metadata.name, metadata.description),
        protocol=(
            protocol.min_reader_version,
            protocol.min_writer_version,
            tuple(sorted(protocol.reader_features or ())),
            tuple(sorted(protocol.writer_features or ())),
        ),
        files=tuple(
            sorted(
                (
                    add["path"],
                    add["size_bytes"],
                    add["modification_time"],
                    add["num_records"],
                    value_text(add.get("partition") or {}),
                )
                for add in known
            )
        ),
        apps={app: number for app, number in found.items() if number is not None},
    )


def _scala_list(jvm: Any, values: Any) -> list[Any]:
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(values))
