"""Rows of a table with row tracking keep their ids, and no id is assigned twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from deltasql.engine.parquet.footers import named_as_in_file
from deltasql.exceptions import InvalidActionError, TxnLogProtocolError, UnsupportedFeatureError
from deltasql.model.features.row_tracking import COLUMN_NAMES, materialized_columns
from deltasql.model.schema.schema import StructField, StructType
from tests.conftest import add_file
from tests.migrate.handwritten import numbered
from tests.operations.maintenance import open_lake, opened, stock_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

ENABLED = {"delta.enableRowTracking": "true"}
Ids = dict[int, tuple[int, int]]


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_lake(catalog_uri, tmp_path) as catalog:
        yield catalog


def rows(*ids: int) -> pa.Table:
    texts = pa.array([f"v{n}" for n in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "v": texts})


def ids(lake: Catalog, name: str = "t") -> Ids:
    """Return the row id and the commit version of each row, by the column `id`."""
    with lake.begin() as tx:
        found = tx.read(name, row_ids=True)
    return {row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in found.to_pylist()}


def highest(lake: Catalog, name: str = "t") -> int:
    domain = lake.table(name).snapshot().domains()["delta.rowTracking"]
    return int(json.loads(domain.configuration)["rowIdHighWaterMark"])


def create(lake: Catalog, **options: object) -> None:
    lake.create_table("t", rows().schema, properties=ENABLED, **options)
    for each in (rows(1, 2, 3), rows(4)):
        with lake.begin() as tx:
            tx.write("t", each, mode="append")
    assert ids(lake) == {1: (0, 1), 2: (1, 1), 3: (2, 1), 4: (3, 2)}


def test_rows_keep_their_ids_in_every_operation(lake: Catalog) -> None:
    create(lake)
    assert highest(lake) == 3
    lake.sql("UPDATE t SET v = 'new' WHERE id = 2")
    assert ids(lake) == {1: (0, 1), 2: (1, 3), 3: (2, 1), 4: (3, 2)}
    lake.sql("DELETE FROM t WHERE id = 1")
    kept = {2: (1, 3), 3: (2, 1), 4: (3, 2)}
    assert ids(lake) == kept
    opened(lake).optimize.compact()
    opened(lake).optimize.z_order(["id"])
    assert ids(lake) == kept
    lake.sql(
        "MERGE INTO t USING (SELECT 3L AS id, 'm' AS v UNION ALL SELECT 9L, 'n') AS s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    after = ids(lake)
    assert {n: after[n] for n in (2, 3, 4)} == {2: (1, 3), 3: (2, 7), 4: (3, 2)}
    assert after[9][1] == 7
    before = highest(lake)
    with lake.begin() as tx:
        tx.write("t", rows(2), mode="overwrite", predicate="id = 2")
    replaced = ids(lake)
    assert {n: replaced[n] for n in (3, 4, 9)} == {n: after[n] for n in (3, 4, 9)}
    assert replaced[2][0] > before
    assert len({row_id for row_id, _ in replaced.values()}) == len(replaced)
    # Readers do not see the columns for the ids.
    assert {*stock_rows(lake)[0]} == {"id", "v"}
    assert lake.mirror.verify("t")[0].ok


def test_change_data_omits_row_ids_and_changed_rows_keep_their_ids(lake: Catalog) -> None:
    create(lake)
    opened(lake).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    lake.sql("UPDATE t SET v = 'new' WHERE id = 2")
    with lake.begin() as tx:
        tx.write("t", rows(1), mode="overwrite", predicate="id = 1")
    feed = pa.table(opened(lake).load_cdf(starting_version=4))
    assert set(feed.column_names) == {
        *("id", "v", "_change_type", "_commit_version", "_commit_timestamp")
    }
    found = ids(lake)
    assert {n: found[n] for n in (2, 3, 4)} == {2: (1, 4), 3: (2, 1), 4: (3, 2)}


@pytest.mark.every_database
def test_concurrent_commits_never_assign_an_id_twice(lake: Catalog) -> None:
    lake.create_table("t", rows().schema, properties=ENABLED)
    with lake.begin() as first, lake.begin() as second:
        second.write("t", rows(1, 2), mode="append")
        first.write("t", rows(3), mode="append")
        first.write("t", rows(4), mode="append")
        second.commit()
    # `first` was staged on version 0, and committed after version 1.
    assert ids(lake) == {1: (0, 1), 2: (1, 1), 3: (2, 2), 4: (3, 2)}
    assert highest(lake) == 3


@pytest.mark.every_database
def test_enabling_gives_ids_to_existing_rows(lake: Catalog) -> None:
    lake.create_table("t", rows().schema)
    for each in (rows(1, 2), rows(3)):
        with lake.begin() as tx:
            tx.write("t", each, mode="append")
    with pytest.raises(UnsupportedFeatureError, match="row tracking is not enabled"):
        ids(lake)
    files = opened(lake).file_uris()
    opened(lake).alter.set_table_properties(ENABLED)
    assert sorted(opened(lake).file_uris()) == sorted(files)
    found = ids(lake)
    assert sorted(row_id for row_id, _ in found.values()) == [0, 1, 2]
    assert {version for _, version in found.values()} == {3}
    with lake.begin() as tx:
        tx.write("t", rows(4), mode="append")
    assert ids(lake) == {**found, 4: (3, 4)}
    with pytest.raises(TxnLogProtocolError, match="cannot be removed"):
        lake.sql(
            "ALTER TABLE t UNSET TBLPROPERTIES ('delta.rowTracking.materializedRowIdColumnName')"
        )
    lake.sql("RESTORE TABLE t TO VERSION AS OF 1")
    assert ids(lake) == {1: found[1], 2: found[2]}
    assert lake.mirror.verify("t")[0].ok


def test_append_that_was_staged_before_enabling_is_a_conflict(lake: Catalog) -> None:
    lake.create_table("t", rows().schema)
    late = lake.begin()
    late.write("t", rows(1), mode="append")
    opened(lake).alter.set_table_properties(ENABLED)
    with pytest.raises(deltasql.exceptions.CommitConflictError):
        late.commit()


@pytest.mark.parametrize("winner", ["append", "optimize"])
def test_enabling_conflicts_with_files_that_were_added_since_its_snapshot(
    lake: Catalog, winner: str
) -> None:
    """Such a file would have no row ids, or the table would have compacted rows twice."""
    lake.create_table("t", rows().schema)
    for each in (1, 2):
        with lake.begin() as tx:
            tx.write("t", rows(each), mode="append")
    late = lake.begin()
    late.set_table_properties("t", ENABLED)
    with lake.begin() as tx:
        if winner == "append":
            tx.write("t", rows(3), mode="append")
        else:
            tx.optimize("t")
    with pytest.raises(deltasql.exceptions.CommitConflictError):
        late.commit()
    opened(lake).alter.set_table_properties(ENABLED)
    assert sorted(ids(lake)) == ([1, 2, 3] if winner == "append" else [1, 2])


def test_row_tracking_that_is_only_supported_assigns_ids_and_can_be_dropped(lake: Catalog) -> None:
    lake.create_table("t", rows().schema, properties={"delta.feature.rowTracking": "supported"})
    with lake.begin() as tx:
        tx.write("t", rows(1, 2), mode="append")
    assert highest(lake) == 1
    opened(lake).alter.set_table_properties(ENABLED)
    assert ids(lake) == {1: (0, 1), 2: (1, 1)}
    lake.sql("ALTER TABLE t DROP FEATURE rowTracking")
    assert lake.table("t").snapshot().domains() == {}
    lake.sql("UPDATE t SET v = 'x'")
    opened(lake).alter.set_table_properties(ENABLED)
    assert len(ids(lake)) == 2


def test_ids_are_found_by_name_in_files_whose_columns_are_mapped_by_id() -> None:
    """Files of delta-spark have no field ids for row ids, unless they have icebergCompatV3."""
    names = {key: f"row {key}" for key in COLUMN_NAMES}
    row_columns = materialized_columns({**ENABLED, **names})
    marks = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
    schema = StructType((StructField("id", "long", metadata=marks), *row_columns))
    row_fields = [pa.field(name, pa.int64()) for name in names.values()]
    stored = pa.schema([numbered("a", pa.int64(), 1), *row_fields])
    found = named_as_in_file(schema, stored, "f.parquet")
    assert [each.physical_name("id") for each in found.fields] == ["a", *names.values()]


def test_ids_are_kept_with_column_mapping_and_partitions(lake: Catalog) -> None:
    for mode in ("name", "id"):
        properties = {**ENABLED, "delta.columnMapping.mode": mode}
        lake.create_table(mode, rows().schema, properties=properties, partition_by=["v"])
        with lake.begin() as tx:
            tx.write(mode, rows(1, 2, 3), mode="append")
        before = ids(lake, mode)
        lake.sql(f"UPDATE {mode} SET id = 20 WHERE id = 2")
        opened(lake, mode).alter.rename_column("id", "n")
        lake.sql(f"ALTER TABLE {mode} RENAME COLUMN n TO id")
        opened(lake, mode).optimize.compact()
        after = ids(lake, mode)
        assert {n: after[n] for n in (1, 3)} == {n: before[n] for n in (1, 3)}, mode
        assert after[20][0] == before[2][0], mode


def test_rows_keep_their_ids_with_deletion_vectors(lake: Catalog) -> None:
    properties = {**ENABLED, "delta.enableDeletionVectors": "true"}
    lake.create_table("t", rows().schema, properties=properties)
    with lake.begin() as tx:
        tx.write("t", rows(*range(9)), mode="append")
    lake.sql("DELETE FROM t WHERE id = 1")
    lake.sql("UPDATE t SET v = 'new' WHERE id = 2")
    lake.sql(
        "MERGE INTO t USING (SELECT 3L AS id, 'm' AS v UNION ALL SELECT 20L, 'n') AS s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    assert any(lake.table("t").files()["deletion_vector"].to_pylist())
    found = ids(lake)
    assert {n: found[n] for n in found if n != 20} == {
        **{n: (n, 1) for n in (0, 4, 5, 6, 7, 8)},
        2: (2, 3),
        3: (3, 4),
    }
    lake.sql("REORG TABLE t APPLY (PURGE)")
    assert ids(lake) == found


def test_files_without_a_number_of_rows_are_refused(lake: Catalog) -> None:
    create(lake)
    version = lake.table("t").version()
    with pytest.raises(InvalidActionError, match="no number of records"), lake.begin() as tx:
        tx.stage_table("t", [add_file("a.parquet", stats="{}")])
    assert lake.table("t").version() == version


def test_shallow_clone_keeps_row_ids_and_gives_new_rows_higher_ids(lake: Catalog) -> None:
    create(lake)
    lake.sql("UPDATE t SET v = 'new' WHERE id = 2")
    before = ids(lake)
    lake.sql("CREATE TABLE u SHALLOW CLONE t")
    assert ids(lake, "u") == before
    lake.sql("INSERT INTO u VALUES (5, 'v')")
    assert ids(lake, "u")[5][0] > max(row_id for row_id, _ in before.values())
