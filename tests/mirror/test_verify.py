"""Verification finds every kind of damage to a published log, and none in a correct one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql.verify.verify_log import verify_table
from tests.mirror.published import (
    CHECKPOINT,
    HEAD,
    append,
    change_commit,
    forget_derived,
    publish_history,
    storage_of,
)
from tests.mirror.support import LOG, commit_path, forget_commits_below, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from deltasql.verify.report import VerifyReport

pytestmark = pytest.mark.two_databases


def verify(catalog: Catalog, **options: Any) -> VerifyReport:
    table = catalog.table("t")
    return verify_table(catalog.store, table.row, storage_of(table), **options)


def found(report: VerifyReport) -> set[tuple[str, str]]:
    """Return the kinds of difference that were found, with their sources."""
    return {(each.kind, each.source) for each in report.differences}


@pytest.mark.parametrize("versions", ["head", "all", [2, 7]])
def test_correct_log_has_no_difference(
    catalog_uri: DeltaSqlUri, tmp_path: Path, versions: Any
) -> None:
    with publish_history(catalog_uri, tmp_path / "lake") as catalog:
        report = verify(catalog, versions=versions)
        assert report.ok, report.summary()
        assert report.commits == HEAD + 1
        assert report.checkpoints == [CHECKPOINT]
        assert len(report.versions) == {"head": 1, "all": HEAD + 1}.get(str(versions), 2)
        assert "ok" in report.summary()


def test_column_mapping_vectors_and_domains_are_compared(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", pa.schema([("id", pa.int64())]))
        metadata = catalog.table("t").snapshot().metadata
        names = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
        days = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-2"}
        schema = {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "long", "nullable": True, "metadata": names},
                {"name": "day", "type": "date", "nullable": True, "metadata": days},
            ],
        }
        properties = {
            **metadata.configuration,
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "2",
            "delta.checkpointInterval": "2",
        }
        mapped = {**metadata.body(), "schemaString": json.dumps(schema)}
        features = ["columnMapping", "deletionVectors"]
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": [*features, "domainMetadata", "inCommitTimestamp"],
        }
        bounds = {"col-1": 1, "col-2": "2024-01-01"}
        stats = {"numRecords": 3, "minValues": bounds, "maxValues": bounds}
        add = deltasql.AddFile(
            path="a.parquet",
            partition_values={},
            size=10,
            modification_time=5,
            stats=json.dumps({**stats, "nullCount": {"col-1": 0, "col-2": 0}}),
            tags={"k": "v", "n": None},
        )
        vector = deltasql.DeletionVector("u", "vBn[lx{q8@P<9BNH/isA", 36, 2, offset=1)
        for actions in (
            [{"metaData": {**mapped, "configuration": properties}}, {"protocol": protocol}],
            [add, deltasql.DomainMetadata("a", "1"), deltasql.DomainMetadata("b", "2")],
            [
                deltasql.RemoveFile(path="a.parquet"),
                replace(add, deletion_vector=vector),
                deltasql.DomainMetadata("a", "", removed=True),
            ],
            [deltasql.SetTransaction("etl", 1)],
        ):
            with catalog.begin() as tx:
                tx.stage_table("t", actions)
        report = verify(catalog, versions="all")
        assert report.ok, report.summary()
        assert report.checkpoints == [2, 4]


def test_report_is_plain_json(published: Catalog) -> None:
    commit_path(published.table("t").location, 3).unlink()
    report = verify(published)
    values = json.loads(json.dumps(report.to_dict()))
    assert values["ok"] is False
    assert values["counts"]["missing-version"] == 1
    assert values["differences"][0]["version"] == 3
    assert "missing-version (json): version 3" in report.summary()


def edit(kind: str, field: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return a damage that sets a field of every action of a kind."""

    def change(action: dict[str, Any]) -> None:
        if kind in action:
            action[kind][field] = value

    return change


def drop(kind: str) -> Callable[[dict[str, Any]], None]:
    """Return a damage that removes every action of a kind."""

    def change(action: dict[str, Any]) -> None:
        action.pop(kind, None)

    return change


STATS = '{"numRecords":4,"minValues":{"id":0},"maxValues":{"id":9},"nullCount":{"id":1}}'
DAMAGES = {
    "size": (8, edit("add", "size", 7), "file", "size"),
    "modification time": (8, edit("add", "modificationTime", 7), "file", "modification_time"),
    "statistics": (8, edit("add", "stats", STATS), "file", "stats"),
    "partition": (8, edit("add", "partitionValues", {"p": "z"}), "file", "partition"),
    "path": (8, edit("add", "path", "other.parquet"), "missing-file", None),
    "add gone": (8, drop("add"), "missing-file", None),
    "remove gone": (8, drop("remove"), "extra-file", None),
    "transaction gone": (8, drop("txn"), "transaction", "version"),
    "transaction": (8, edit("txn", "version", 99), "transaction", "version"),
    "protocol": (0, edit("protocol", "minWriterVersion", 6), "protocol", "minWriterVersion"),
    "property": (0, edit("metaData", "configuration", {}), "metadata", "configuration"),
    "name": (0, edit("metaData", "name", "other"), "metadata", "name"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_changed_commit_is_found_by_every_source(published: Catalog, damage: str) -> None:
    version, change, kind, field = DAMAGES[damage]
    location = published.table("t").location
    change_commit(location, version, change)
    forget_derived(location)  # otherwise deltalake would read these files only
    report = verify(published)
    assert ("diverged", "json") in found(report)
    assert (kind, "replay") in found(report)
    assert field is None or field in {d.field for d in report.differences if d.source == "replay"}
    assert "deltalake" in {each.source for each in report.differences}, report.summary()


def test_changed_statistics_are_found_with_deltalake(published: Catalog) -> None:
    change_commit(published.table("t").location, 8, edit("add", "stats", STATS))
    fields = {each.field for each in verify(published).differences if each.source == "deltalake"}
    assert {"num_records", "minValues.id", "maxValues.id", "nullCount.id"} <= fields


def test_changed_schema_is_found(published: Catalog) -> None:
    def widen(action: dict[str, Any]) -> None:
        if "metaData" in action:
            text = action["metaData"]["schemaString"]
            action["metaData"]["schemaString"] = text.replace('"long"', '"integer"')

    location = published.table("t").location
    change_commit(location, 0, widen)
    forget_derived(location)
    assert {("metadata", "replay"), ("schema", "deltalake")} <= found(verify(published))


@pytest.mark.parametrize(("version", "checked_from"), [(0, 6), (3, 6), (7, 8), (HEAD, 0)])
def test_missing_commit_is_found(published: Catalog, version: int, checked_from: int) -> None:
    commit_path(published.table("t").location, version).unlink()
    report = verify(published, with_deltalake=False)
    missing = [each.version for each in report.differences if each.kind == "missing-version"]
    # Nothing before the checkpoint is needed: version 0 may have been cleaned up.
    assert missing == ([] if version == 0 else [version])
    assert report.checked_from == checked_from


def test_cleaned_log_is_checked_from_its_checkpoint(published: Catalog) -> None:
    forget_commits_below(Path(published.table("t").location), CHECKPOINT)
    report = verify(published, versions="all")
    assert report.ok, report.summary()
    assert report.checked_from == CHECKPOINT
    assert report.versions == [6, 7, 8]
    assert "from version 6, where the log starts" in report.summary()


def test_deleted_log_is_found(published: Catalog) -> None:
    for file in (Path(published.table("t").location) / LOG).iterdir():
        file.unlink()
    report = verify(published)
    assert report.found.counts == {"missing-version": HEAD + 1}
    assert report.log_version is None


def test_unpublished_versions_are_not_a_difference(published: Catalog) -> None:
    with deltasql.connect(published.uri, mirror={"mode": "off"}) as quiet:
        append(quiet, 20)
        report = verify(quiet)
    assert report.ok, report.summary()
    assert (report.pending, report.versions) == (1, [HEAD])
    assert "not published yet: 1 version" in report.summary()


def test_foreign_version_is_found(published: Catalog) -> None:
    location = published.table("t").location
    commit_path(location, HEAD + 1).write_bytes(commit_path(location, HEAD).read_bytes())
    report = verify(published)
    assert found(report) == {("foreign-version", "json")}
    assert report.log_version == HEAD + 1


def test_commit_with_other_bytes_and_the_same_content_is_not_a_difference(
    published: Catalog,
) -> None:
    location = published.table("t").location
    change_commit(location, 8, lambda action: action.get("commitInfo", {}).pop("txnId", None))
    report = verify(published)
    assert report.ok, report.summary()
    assert report.foreign_bytes == [8]
    change_commit(location, 8, edit("commitInfo", "operation", "MERGE"))
    assert ("commit-info", "json") in found(verify(published))


def test_damaged_commit_is_unreadable(published: Catalog) -> None:
    commit_path(published.table("t").location, 8).write_text('{"add":\n')
    report = verify(published)
    assert {("unreadable", "json"), ("unreadable", "replay")} <= found(report)
    assert report.differences[0].field == "line 1"


def rewrite_checkpoint(location: str, change: Callable[[dict[str, Any]], bool]) -> None:
    """Damage a checkpoint: keep the rows for which `change` returns true, as it changed them."""
    path = Path(location) / LOG / f"{CHECKPOINT:020d}.checkpoint.parquet"
    rows = pq.read_table(path)
    kept = [row for row in rows.to_pylist(maps_as_pydicts="strict") if change(row)]
    pq.write_table(pa.Table.from_pylist(kept, rows.schema), path)


def test_wrong_size_in_a_checkpoint_is_found(published: Catalog) -> None:
    def change(row: dict[str, Any]) -> bool:
        if row["add"]:
            row["add"]["size"] += 1
        return True

    rewrite_checkpoint(published.table("t").location, change)
    report = verify(published)
    assert ("file", "checkpoint") in found(report)
    assert {each.version for each in report.differences if each.source == "checkpoint"} == {6}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("add", "missing-file"),
        ("remove", "tombstone-missing-file"),
        ("txn", "transaction"),
        ("protocol", "unreadable"),
    ],
)
def test_action_missing_from_a_checkpoint_is_found(
    published: Catalog, kind: str, expected: str
) -> None:
    rewrite_checkpoint(published.table("t").location, lambda row: row[kind] is None)
    assert (expected, "checkpoint") in found(verify(published, with_deltalake=False))


def test_optional_fields_missing_from_a_checkpoint_are_not_a_difference(published: Catalog) -> None:
    def change(row: dict[str, Any]) -> bool:
        if row["add"]:
            row["add"]["tags"] = row["add"]["tags"] or {}
        if row["remove"]:
            row["remove"] |= {"size": None, "partitionValues": None}
        return True

    rewrite_checkpoint(published.table("t").location, change)
    report = verify(published, with_deltalake=False)
    assert report.ok, report.summary()


def test_extra_file_in_a_checkpoint_is_found(published: Catalog) -> None:
    def change(row: dict[str, Any]) -> bool:
        if row["remove"]:
            row["add"] = {
                "path": row["remove"]["path"], "partitionValues": {"p": None}, "size": 1,
                "modificationTime": 1, "dataChange": False,
            }  # fmt: skip
            row["remove"] = None
        return True

    rewrite_checkpoint(published.table("t").location, change)
    report = verify(published, with_deltalake=False)
    assert {("extra-file", "checkpoint"), ("tombstone-missing-file", "checkpoint")} <= found(report)


def test_damaged_checkpoint_is_unreadable(published: Catalog) -> None:
    path = Path(published.table("t").location) / LOG / f"{CHECKPOINT:020d}.checkpoint.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    assert ("unreadable", "checkpoint") in found(verify(published, with_deltalake=False))


@pytest.mark.parametrize("text", ['{"version":5,"size":1}', "{", None])
def test_wrong_checkpoint_hint_is_found(published: Catalog, text: str | None) -> None:
    hint = Path(published.table("t").location) / LOG / "_last_checkpoint"
    hint.unlink()
    if text is not None:
        hint.write_text(text)
    report = verify(published, with_deltalake=False)
    kind = "unreadable" if text == "{" else "last-checkpoint"
    assert found(report) == {(kind, "checkpoint")}


def test_wrong_totals_of_a_checksum_are_found(published: Catalog) -> None:
    path = Path(published.table("t").location) / LOG / f"{HEAD:020d}.crc"
    path.write_text('{"tableSizeBytes":1,"numFiles":3,"numMetadata":1,"numProtocol":1}')
    report = verify(published)
    assert [(d.source, d.field, d.log) for d in report.differences] == [
        ("crc", "tableSizeBytes", 1)
    ]
    path.write_text("{")
    assert found(verify(published)) == {("unreadable", "crc")}


def test_order_of_features_in_a_checksum_is_not_a_difference() -> None:
    from deltasql.verify.compare import compare_mappings
    from deltasql.verify.report import Differences

    differences = Differences(keep=5)
    at: dict[str, Any] = {"version": 1, "source": "crc"}
    sql, log = ({"protocol": {"writerFeatures": each}} for each in (["a", "b"], ["b", "a"]))
    compare_mappings("checksum", sql, log, differences, **at)
    assert not differences.kept
    compare_mappings("checksum", sql, {"protocol": {"writerFeatures": ["a"]}}, differences, **at)
    assert [each.field for each in differences.kept] == ["protocol"]


def test_all_differences_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    from deltasql.mirror.log.file_tables import FILES
    from deltasql.verify.compare import compare_files
    from deltasql.verify.report import Differences

    count = 100_000
    paths = pa.array([f"f{n}" for n in range(count)])
    nulls = {each.name: pa.nulls(count, each.type) for each in FILES}
    sql = pa.table({**nulls, "path": paths, "size": pa.array(range(count))}, schema=FILES)
    log = sql.set_column(2, "size", pc.add(sql["size"], 1)).slice(10)
    differences = Differences(keep=5)
    compare_files(sql, log, differences, version=1, source="replay", fields=["size"])
    assert differences.counts == {"missing-file": 10, "file": count - 10}
    assert len(differences.kept) == 10
