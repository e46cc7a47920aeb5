"""Logs with arbitrary content are imported entirely, or rejected and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deltasql import AddFile
from tests.hostile.logs import HostileTable, added, output, try_all, write_rows

if TYPE_CHECKING:
    from typing import Any

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

DEEP = 1_000_000
MOST = 2**63 - 1


def column(name: Any, kind: Any = "long") -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def schema_of(*columns: Any) -> str:
    return json.dumps({"type": "struct", "fields": columns})


def nested(levels: int) -> str:
    """Return a schema whose one column is deeply nested arrays."""
    opening = '{"type":"array","containsNull":true,"elementType":'
    kind = opening * levels + '"long"' + "}" * levels
    return f'{{"type":"struct","fields":[{{"name":"id","type":{kind}}}]}}'


SCHEMAS = {
    "deep": nested(2000),
    "a million deep": '{"type":"struct","fields":' + "[" * DEEP,
    "no JSON": "{",
    "a list": "[]",
    "null": "null",
    "NUL": schema_of(column("a\0b")),
    "long": schema_of(column("x" * 10_000), column("id")),
    "SQL": schema_of(column('"; DROP TABLE dl_tables; --'), column("id")),
    "twice": schema_of(column("id"), column("ID")),
    "numbers": schema_of(column(5)),
    "no field": schema_of("x", None, 5),
    "huge decimal": schema_of(column("id", f"decimal({'9' * 5000},2)")),
    "no type": schema_of(column("id", "hologram")),
    "half a map": schema_of(column("id", {"type": "map"})),
    "empty": schema_of(),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_hostile_schemas_are_imported_or_rejected(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    try_all(catalog, HostileTable(tmp_path / "t", schema=SCHEMAS[name]).write())


STATS = {
    "no JSON": "{",
    "a list": "[]",
    "null": "null",
    "a number": "5",
    "a million deep": "[" * DEEP,
    "deep bounds": '{"numRecords":3,"minValues":' + '{"id":' * 100_000 + "1" + "}" * 100_001,
    "words": '{"numRecords":"x","minValues":[],"maxValues":7,"nullCount":"x"}',
    "objects": '{"numRecords":3,"minValues":{"id":{"a":1}},"maxValues":{"id":[1]},"nullCount":{}}',
    "huge count": f'{{"numRecords":{"9" * 10_000}}}',
    "huge bound": f'{{"numRecords":3,"minValues":{{"id":{"9" * 10_000}}}}}',
    "beyond": '{"numRecords":9223372036854775807,"nullCount":{"id":-1},"minValues":{"id":1e999}}',
    "ten megabytes": '{"numRecords":3,"maxValues":{"id":"' + "x" * 10_000_000 + '"}}',
    "many columns": json.dumps({"minValues": {f"c{n}": n for n in range(100_000)}}),
    "private keys": '{"numRecords":3,"minValues":{"id":{"$serde_json::private::Number":"1"}}}',
}


@pytest.mark.parametrize("name", STATS)
def test_hostile_statistics_are_imported_or_rejected(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    action = added("real.parquet", stats=STATS[name])
    try_all(catalog, HostileTable(tmp_path / "t", actions=[action]).write())


LINES = {
    "a million arrays": b"[" * DEEP,
    "a million objects": b'{"a":' * DEEP,
    "deep inside": b'{"commitInfo":{"x":' + b"[" * DEEP,
    "many digits": b'{"commitInfo":{"timestamp":' + b"9" * 5000 + b"}}",
    "huge exponent": b'{"commitInfo":{"timestamp":1e400,"operationMetrics":{"a":-1e400}}}',
    "kinds": b'{"commitInfo":{"timestamp":"x","operation":{},"operationMetrics":[1],"txnId":7}}',
    "NUL": b'{"commitInfo":{"operation":"\\u0000","userMetadata":"a\\u0000b","\\u0000":1}}',
    "NUL in an application": b'{"txn":{"appId":"a\\u0000b","version":1}}',
    "NUL in a domain": b'{"domainMetadata":{"domain":"\\u0000","configuration":"\\u0000"}}',
    "last moment": b'{"commitInfo":{"timestamp":9223372036854775807}}',
    "first moment": b'{"commitInfo":{"inCommitTimestamp":-9223372036854775808}}',
    "bytes": b"\0\xff\xfe",
    "negative": json.dumps(added("real.parquet", size=-1, modificationTime=-1)).encode(),
    "largest": json.dumps(added("real.parquet", size=MOST, modificationTime=MOST)).encode(),
    "partition": json.dumps(added("real.parquet", partitionValues={"p": "x" * 5_000_000})).encode(),
    "raw text": b'{"commitInfo":{"x":{"$serde_json::private::RawValue":"[[[["}}}',
    "two protocols": b'{"protocol":{"minReaderVersion":-1,"minWriterVersion":99}}',
}


@pytest.mark.parametrize("name", LINES)
def test_hostile_log_lines_are_imported_or_rejected(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    try_all(catalog, HostileTable(tmp_path / "t", lines=[LINES[name]]).write())


METADATA: list[dict[str, Any]] = [
    {"name": "../../x"},
    {"name": "a\0b"},
    {"name": "x" * 10_000},
    {"name": "'; DROP TABLE dl_tables; --"},
    {"id": ""},
    {"id": "\0"},
    {"createdTime": -1},
    {"format": {"provider": "exe"}},
    {"partitionColumns": ["nosuch"]},
    {"description": "\0"},
    {"configuration": {"delta.columnMapping.mode": "bogus"}},
    {"configuration": {"delta.checkpointInterval": "9" * 500}},
    {"configuration": {"delta.checkpointInterval": "-5"}},
    {"configuration": {"delta.deletedFileRetentionDuration": "interval 99999999999999 weeks"}},
    {"configuration": {"delta.dataSkippingNumIndexedCols": "zz"}},
    {"configuration": {"delta.dataSkippingStatsColumns": "a,`b" + "`" * 99}},
    {"configuration": {"delta.constraints.x": "id > ; DROP TABLE dl_tables"}},
    {"configuration": {"delta.constraints.x": "read_csv('/etc/passwd') IS NOT NULL"}},
    {"configuration": {"a\0b": "c\0d", "k": None}},
]


@pytest.mark.parametrize("fields", METADATA, ids=lambda each: json.dumps(each)[:50])
def test_hostile_metadata_is_imported_or_rejected(
    catalog: Catalog, tmp_path: Path, fields: dict[str, Any]
) -> None:
    try_all(catalog, HostileTable(tmp_path / "t", metadata=fields).write())


# Files outside the table


@pytest.fixture
def outside_folder(tmp_path: Path) -> Path:
    """A folder outside the table."""
    folder = tmp_path / "victim"
    folder.mkdir()
    write_rows(folder / "v.parquet")
    (folder / "passwd").write_text("root:x:0:0")
    return folder


OUTSIDE = [
    "../victim/v.parquet",
    "..%2Fvictim%2Fv.parquet",
    "%2e%2e/victim/v.parquet",
    "a/../../victim/v.parquet",
    "{outside_folder}/v.parquet",
    "file://{outside_folder}/v.parquet",
    "file://{table}/../victim/v.parquet",
    "file://elsewhere{outside_folder}/v.parquet",
    "link/v.parquet",
    "link/passwd",
    "file.parquet",
    "a%00b.parquet",
    "x" * 5000,
    "\u202e\U0001f600",
    "a\nb",
    "/",
    "file:///",
    "",
    ".",
    "%",
    "http://127.0.0.1:1/v.parquet",
]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path[:40])
def test_files_outside_the_table_are_never_deleted(
    catalog: Catalog, tmp_path: Path, outside_folder: Path, path: str
) -> None:
    named = path.format(outside_folder=outside_folder, table=tmp_path / "t")
    vector = {
        "storageType": "p",
        "pathOrInlineDv": f"{outside_folder}/passwd",
        "offset": 1,
        "sizeInBytes": 10,
        "cardinality": 2,
    }
    body = {"path": named, "dataChange": True}
    kinds: dict[str, dict[str, Any]] = {
        "add": added(named),
        "vector": added(named, deletionVector=vector),
        "remove": {"remove": {**body, "deletionTimestamp": 1, "size": 1}},
        "cdc": {"cdc": {**body, "partitionValues": {}, "size": 1, "dataChange": False}},
    }
    for kind, action in kinds.items():
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "link").symlink_to(outside_folder)
        (folder / "file.parquet").symlink_to(outside_folder / "v.parquet")
        try_all(catalog, HostileTable(folder, actions=[action]).write())
        assert sorted(each.name for each in outside_folder.iterdir()) == ["passwd", "v.parquet"], (
            kind
        )


def test_circular_links_are_listed_once(
    catalog: Catalog, tmp_path: Path, outside_folder: Path
) -> None:
    """Following each link repeatedly would never end."""
    folder = tmp_path / "t"
    for inner in ("a", "b", "c"):
        (folder / inner).mkdir(parents=True)
        for link in ("up", "over", "root", "out"):
            target = {"up": folder, "over": folder / "a", "root": "/", "out": outside_folder}[link]
            (folder / inner / link).symlink_to(target)
    (outside_folder / "back").symlink_to(folder)
    (outside_folder / "self").symlink_to(outside_folder)
    source = HostileTable(folder, actions=[added("real.parquet")]).write()
    catalog.import_table(source, name="t")
    options: dict[str, Any] = {"dry_run": False, "enforce_retention_duration": False}
    old = folder / "old.parquet"
    write_rows(old)
    os.utime(old, (1, 1))
    assert catalog.vacuum("t", retention_hours=0, full=True, **options) == ["old.parquet"]
    assert (outside_folder / "passwd").exists()


# Checkpoints


def checkpoint(folder: Path, table: pa.Table | bytes, hint: str | None = None) -> str:
    """Write a table whose first version is only in a checkpoint, followed by an empty commit."""
    source = HostileTable(folder).write()
    log = folder / "_delta_log"
    (log / f"{0:020d}.json").unlink()
    path = log / f"{0:020d}.checkpoint.parquet"
    if isinstance(table, bytes):
        path.write_bytes(table)
    else:
        pq.write_table(table, path)
    (log / f"{1:020d}.json").write_text('{"commitInfo":{"operation":"WRITE"}}')
    if hint is not None:
        (log / "_last_checkpoint").write_text(hint)
    return source


def good(*actions: dict[str, Any]) -> pa.Table:
    """Return the content of a checkpoint with these actions."""
    with tempfile.TemporaryDirectory() as folder:
        source = HostileTable(Path(folder) / "t", actions=actions).write()
        deltalake.DeltaTable(source).create_checkpoint()
        return pq.read_table(f"{source}/_delta_log/{0:020d}.checkpoint.parquet")


GOOD = good()


def footer(data: bytes) -> bytes:
    """Return a file whose footer length is larger than the file."""
    return data[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1"


def as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


CHECKPOINTS: dict[str, pa.Table | bytes] = {
    "empty": b"",
    "text": b"not parquet",
    "footer": footer(as_bytes(GOOD)),
    "cut": as_bytes(GOOD)[:-20],
    "holes": as_bytes(GOOD)[:40] + b"\xff" * 200 + as_bytes(GOOD)[240:],
    "numbers": pa.table({"protocol": [1], "metaData": [2], "add": [3]}),
    "texts": pa.table({"protocol": ["x"], "metaData": ["y"], "add": ["z"], "remove": [b"b"]}),
    "lists": pa.table({"add": [[1, 2]], "protocol": [[{"minReaderVersion": "x"}]]}),
    "wrong fields": pa.table(
        {
            "protocol": [{"minReaderVersion": "x", "minWriterVersion": None}],
            "metaData": [{"id": 5, "schemaString": b"\xff"}],
            "add": [{"path": 7, "size": "many", "partitionValues": "none"}],
        }
    ),
    "no columns": pa.table({}),
    "no rows": GOOD.slice(0, 0),
    "many columns": pa.table({f"c{number}": [number] for number in range(5000)}),
}


BOMB = """
import resource, sys
import deltasql
from deltasql.exceptions import TxnLogError
from tests.hostile.logs import try_all
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
with deltasql.connect(sys.argv[1]) as catalog:
    before = most()
    try:
        catalog.import_table(sys.argv[2], name="t")
    except TxnLogError as error:
        print("refused", str(error)[:200].replace(chr(10), " "))
    else:
        print("taken", catalog.table("t").scan("id > 5").paths()[:1])
print(most() - before)
"""


@pytest.mark.parametrize("column", ["stats", "path"])
def test_decompression_bomb_in_a_checkpoint_uses_bounded_memory(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, column: str
) -> None:
    """The checkpoint has a text of 4 MB five hundred times, which compresses to almost nothing."""
    table = good(*(added(f"f{number}.parquet", stats="{}") for number in range(500)))
    texts = {"stats": '{"numRecords":3,"x":"' + "x" * 4_000_000 + '"}', "path": "x" * 4_000_000}
    adds = table["add"].combine_chunks()
    at = adds.type.get_field_index(column)
    parts = adds.flatten()
    parts[at] = pa.DictionaryArray.from_arrays(
        pa.array([0] * len(adds), pa.int32()), pa.array([texts[column]])
    )
    packed = pa.StructArray.from_arrays(
        parts, [field.name for field in adds.type], mask=pc.is_null(adds)
    )
    bomb = table.set_column(table.schema.get_field_index("add"), "add", packed)
    source = checkpoint(tmp_path / "t", GOOD)
    path = tmp_path / "t" / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    pq.write_table(bomb, path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 100_000
    command = [sys.executable, "-c", BOMB, sqlite_uri.to_string(), source]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "refused" in ran.stdout
    assert int(ran.stdout.split()[-1]) < 1_000_000_000, ran.stdout


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_damaged_checkpoints_are_rejected(catalog: Catalog, tmp_path: Path, name: str) -> None:
    source = checkpoint(tmp_path / "t", CHECKPOINTS[name])
    assert output(lambda: catalog.import_table(source, name="t")) is not None
    assert catalog.tables() == []


def with_stats(table: pa.Table, stats: str) -> pa.Table:
    """Set the statistics of every file in a checkpoint."""
    adds = table["add"].combine_chunks()
    fields = list(adds.type)
    columns = [adds.field(number) for number in range(len(fields))]
    columns[adds.type.get_field_index("stats")] = pa.array([stats] * len(adds))
    column = pa.StructArray.from_arrays(columns, fields=fields, mask=adds.is_null())
    return table.set_column(table.schema.get_field_index("add"), "add", column)


BOUND = "[{" * 600 + '\\"' + "{" * 600
DEPTHS = {
    "objects": ('{"a":' * 600 + "1" + "}" * 600, False),
    "arrays": ("[" * 600 + "]" * 600, False),
    "both": ('{"a":[' * 300 + "1" + "]}" * 300, False),
    "text": (json.dumps({"numRecords": 3, "maxValues": {"s": BOUND}}), True),
    "wide": ("[" + "{}," * 600 + "1]", True),
}


@pytest.mark.parametrize("name", DEPTHS)
def test_deeply_nested_statistics_are_rejected(catalog: Catalog, tmp_path: Path, name: str) -> None:
    """They are rejected in a commit, in a checkpoint and in a transaction."""
    stats, is_fine = DEPTHS[name]
    action = added("real.parquet", stats=stats)
    commit = HostileTable(tmp_path / "commit", actions=[action]).write()
    folded = checkpoint(tmp_path / "folded", with_stats(good(added("real.parquet")), stats))
    for source in (commit, folded):
        refused = output(partial(catalog.import_table, source, name=Path(source).name, force=True))
        assert ("nested" in str(refused)) != is_fine, (source, refused)
    catalog.create_table("own", pa.schema([("id", pa.int64())]))
    file = AddFile(path="a", partition_values={}, size=1, modification_time=1, stats=stats)
    with catalog.begin() as tx:
        tx.stage_table("own", [file])
        refused = output(tx.commit)
    assert ("nested" in str(refused)) != is_fine, refused


HINTS = [
    '{"version":0,"size":9223372036854775807,"sizeInBytes":1e99,"parts":null}',
    '{"version":0,"size":-1,"parts":99999999}',
    '{"version":99999999999999999999999,"size":1}',
    '{"version":-1,"size":1}',
    f'{{"version":{"9" * 5000},"size":1}}',
    "[" * DEEP,
    '{"version":[0],"size":{}}',
    "\0",
    '{"version":0,"size":1,"checkpointSchema":' + '{"a":' * 10_000,
]


@pytest.mark.parametrize("hint", HINTS, ids=lambda hint: hint[:40])
def test_hostile_checkpoint_hints_are_ignored_or_rejected(
    catalog: Catalog, tmp_path: Path, hint: str
) -> None:
    """deltalake cannot open some of these logs; a table that it cannot verify is not imported."""
    source = checkpoint(tmp_path / "t", GOOD, hint)
    if output(lambda: catalog.import_table(source, name="t")) is None:
        assert catalog.table("t").version() == 1
    else:
        assert catalog.tables() == []
